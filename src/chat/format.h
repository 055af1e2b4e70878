/* How a model writes reasoning and tool calls, and what that means for a conversation.
 *
 * formats.def has a row for each way of writing calls: the texts a template of that kind contains, the marks
 * around sections, calls, names and arguments. A format is a row together with the marks of reasoning, found
 * from the template's source alone (and, where several rows fit or none does, from a rendered sample).
 *
 * From a format and what was asked for, chat_syntax_new works out the constraint of the output, additional
 * stops and the tokens whose text the parser needs. A parser (any number per syntax) takes the output apart
 * while it streams. */
#ifndef CHAT_FORMAT_H
#define CHAT_FORMAT_H

#include "base/buf.h"
#include "base/err.h"

/* Most tools of a request; most bytes of all their JSON. */
#define CHAT_MAX_TOOLS      1024
#define CHAT_MAX_TOOLS_SIZE ((size_t)16 << 20)

/* ---- the format of a template ---- */
struct chat_format {
    const struct chat_format_row *row; /* static */
    const char *name;                  /* "hermes", "harmony", …; "content-only" without calls. Static. */
    /* Marks of reasoning, static, without surrounding white space; NULL: the model doesn't reason in a way
     * that is known. */
    const char *think_start, *think_end;
    bool think_trim; /* white space after think_end is no content */
};

/* Messages (a JSON array) and tools whose rendering shows how the template writes calls. */
extern const char chat_probe_messages[], chat_probe_tools[];

/* Never fails: what isn't recognised is "generic" with tools (a JSON object that the constraint enforces) and
 * "content-only" without. `sample`: the rendering of the probe above, or empty. */
struct chat_format chat_format_find(struct str template_source, bool has_tools, struct str sample);

/* Whether a prompt ends inside of reasoning. */
bool chat_format_thinking_open(const struct chat_format *f, struct str prompt);

/* Whether the format's row writes calls at all (not "content-only"), for a template's capabilities. */
bool chat_format_has_calls(const struct chat_format *f);

/* The instruction that "generic" needs in the system message (tools as JSON follow it), NULL for other
 * formats. */
const char *chat_format_instruction(const struct chat_format *f);

/* ---- what was asked for ---- */
enum chat_tool_choice { CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE, CHAT_TOOLS_REQUIRED };
enum chat_reasoning { /* llama-server's --reasoning-format, in the order of enum grappa_reasoning_format */
                      CHAT_REASONING_AUTO,
                      CHAT_REASONING_NONE,
                      CHAT_REASONING_DEEPSEEK,
                      CHAT_REASONING_DEEPSEEK_LEGACY
};

struct chat_syntax_params { /* strings are copied */
    struct chat_format format;
    struct str tools; /* JSON array as OpenAI's, or empty */
    enum chat_tool_choice tool_choice;
    struct str tool_name; /* with CHAT_TOOLS_REQUIRED: only this one; or empty */
    bool parallel_tool_calls;
    struct str json_schema; /* of the answer; or empty */
    struct str grammar;     /* GBNF of the answer; or empty. Not together with tools (as llama-server). */
    enum chat_reasoning reasoning;
    bool thinking_off; /* enable_thinking is false: no reasoning is expected */
    struct str prompt; /* rendered; its end tells what the output continues */
    /* The last message was given and is continued (continue_final_message) in the middle of its reasoning. */
    bool continues_reasoning;
    /* The id of the control token with this text, or -1; NULL: all marks are plain text to the constraint. */
    int64_t (*control_token)(void *user, const char *text);
    void *user;
    /* Calls are handed out while their arguments still come (as llama-server does, and only wise where the
     * constraint holds) instead of once they are whole. */
    bool eager;
};

/* ---- the syntax of one conversation's output: read-only once made ---- */
struct chat_syntax;

enum chat_grammar_type { /* the order of enum grappa_grammar_type */
                         CHAT_GRAMMAR_NONE,
                         CHAT_GRAMMAR_GBNF,
                         CHAT_GRAMMAR_JSON_SCHEMA,
                         CHAT_GRAMMAR_REGEX,
                         CHAT_GRAMMAR_LARK
};
struct chat_grammar {
    enum chat_grammar_type type;
    const char *source;
    /* Lazy: holds from the beginning of the first trigger word on, or of a pattern's group 1. Patterns are
     * searched in all of the output so far. */
    bool lazy;
    const char *const *trigger_words;
    size_t n_trigger_words;
    const char *const *trigger_patterns;
    size_t n_trigger_patterns;
};

/* NULL on failure: ERR_USAGE for tools, names or schemas that are none, or a tool_name that isn't among them.
 */
struct chat_syntax *chat_syntax_new(const struct chat_syntax_params *params, struct err *err);
void chat_syntax_free(struct chat_syntax *s);

const struct chat_format *chat_syntax_format(const struct chat_syntax *s);
/* NULL: no constraint. Lives as long as the syntax. */
const struct chat_grammar *chat_syntax_grammar(const struct chat_syntax *s);
size_t chat_syntax_stops(const struct chat_syntax *s, const char *const **out);
/* Texts of control tokens that must reach the parser as text; a vocabulary may lack any of them. */
size_t chat_syntax_preserved(const struct chat_syntax *s, const char *const **out);
bool chat_syntax_thinking_open(const struct chat_syntax *s);

/* ---- the parser ---- */
struct chat_parser;

enum chat_delta_type { /* the order of enum grappa_delta_type */
                       CHAT_DELTA_CONTENT,
                       CHAT_DELTA_REASONING,
                       CHAT_DELTA_TOOL,     /* a call begins: index, id, name */
                       CHAT_DELTA_ARGUMENTS /* more of its arguments */
};
struct chat_delta { /* valid until the next call on the parser */
    enum chat_delta_type type;
    int index;
    const char *id, *name;
    const char *text; /* whole characters */
    size_t n_text;
};

/* `seed`: of the random ids of calls. The syntax must live longer. */
struct chat_parser *chat_parser_new(const struct chat_syntax *s, uint64_t seed, struct err *err);
void chat_parser_free(struct chat_parser *p);
/* Takes more of the output, cut anywhere; *out has what is sure by now, in order. `last`: there is no more;
 * what began like a call and isn't one comes as content then. The deltas of any cutting join to the same
 * message. Takes time in proportion to `len`, memory in proportion to the output. */
size_t chat_parser_add(struct chat_parser *p, const char *text, size_t len, bool last,
                       const struct chat_delta **out);
/* OpenAI's message of what was handed out so far: {"role", "content", "reasoning_content"?, "tool_calls"?};
 * content is null when there are calls and no content. Valid until the next call. NULL: out of memory. */
const char *chat_parser_message(struct chat_parser *p, size_t *len);
int chat_parser_n_calls(const struct chat_parser *p);

#endif
