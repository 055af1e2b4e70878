/* grappa-chat: conversations to prompts, and what a model wrote back to content, reasoning and tool calls.
 *
 * A conversation is JSON as OpenAI's chat completions have it. grappa_chat_new renders the prompt by the
 * model's template, finds out how this model writes tool calls and reasoning, and says how its output has to
 * be constrained. A parser then takes the output apart while it streams.
 *
 * Threads: a conversation is read-only once made; a parser belongs to one thread at a time. */
#ifndef GRAPPA_CHAT_H
#define GRAPPA_CHAT_H

#include "grappa.h"

#ifdef __cplusplus
extern "C" {
#endif

/* llama-server's --reasoning-format: none leaves thoughts in the content; deepseek (and auto) puts them
 * apart; deepseek-legacy does both. */
enum grappa_reasoning_format {
    GRAPPA_REASONING_AUTO,
    GRAPPA_REASONING_NONE,
    GRAPPA_REASONING_DEEPSEEK,
    GRAPPA_REASONING_DEEPSEEK_LEGACY
};

struct grappa_chat_params {
    const char *chat_template; /* source or built-in name; NULL: the file's */
    const char *messages;      /* JSON array */
    const char *tools;         /* JSON array, or NULL */
    const char *tool_choice;   /* "auto" (also NULL), "none", "required" */
    const char *tool_name;     /* with "required": only this one; or NULL */
    bool parallel_tool_calls;
    const char *json_schema;     /* of the answer (response_format), or NULL */
    const char *grammar;         /* GBNF of the answer, or NULL */
    const char *template_kwargs; /* JSON object, or NULL */
    bool add_generation_prompt;
    /* The last message is the assistant's and shall be continued: 0 as llama-server does it (yes), -1 no. */
    int continue_final;
    enum grappa_reasoning_format reasoning_format;
    int enable_thinking; /* 0: as the template has it (llama.cpp: on), 1 on, -1 off */
    int64_t now;         /* seconds since 1970 for strftime_now; 0: the clock */
};

struct grappa_chat;

/* Whether this is a built-in template's name, or a template's source that compiles; -1 and the reason if not.
 */
int grappa_chat_template_check(const char *name_or_source, struct grappa_err *err);

/* NULL on failure: http_status 400 for what is wrong with the conversation, with the template's own words
 * where it refused. */
struct grappa_chat *grappa_chat_new(const struct grappa_vocab *v, const struct grappa_chat_params *params,
                                    struct grappa_err *err);
void grappa_chat_free(struct grappa_chat *c);

const char *grappa_chat_prompt(const struct grappa_chat *c, size_t *len);
/* How this model's tool calls are written: a name of the table of formats, as shown in logs and /props. */
const char *grappa_chat_format(const struct grappa_chat *c);
/* Constraint of the output, or NULL: for grappa_sampler_params.grammar. Valid as long as the conversation. */
const struct grappa_grammar_params *grappa_chat_grammar(const struct grappa_chat *c);
/* Texts that end the answer beside the model's own end, and tokens whose text the parser needs though they
 * are control tokens. */
size_t grappa_chat_stops(const struct grappa_chat *c, const char *const **out);
size_t grappa_chat_preserved(const struct grappa_chat *c, const grappa_token **out);
/* The text that begins and ends reasoning, or NULL: for a thinking budget. */
const char *grappa_chat_think_start(const struct grappa_chat *c);
const char *grappa_chat_think_end(const struct grappa_chat *c);
bool grappa_chat_thinking_open(const struct grappa_chat *c); /* the prompt ends inside of it */

/* What a template can do, for /props: JSON object as llama-server's chat_template_caps. */
const char *grappa_chat_caps(const struct grappa_chat *c);

/* ---- what came back ---- */
struct grappa_chat_parser;

enum grappa_delta_type {
    GRAPPA_DELTA_CONTENT,
    GRAPPA_DELTA_REASONING,
    GRAPPA_DELTA_TOOL,     /* a call begins: index, id, name */
    GRAPPA_DELTA_ARGUMENTS /* more of its arguments: together one JSON object */
};
struct grappa_delta { /* valid until the next call on the parser */
    enum grappa_delta_type type;
    int index;
    const char *id, *name;
    const char *text; /* whole characters */
    size_t n_text;
};

struct grappa_chat_parser *grappa_chat_parser_new(const struct grappa_chat *c, struct grappa_err *err);
void grappa_chat_parser_free(struct grappa_chat_parser *p);
/* Takes more of the output (cut anywhere); *out has what is sure by now. `last`: there is no more. The deltas
 * of any way of cutting join to the same result, and no call is begun that might not be one. */
size_t grappa_chat_parser_add(struct grappa_chat_parser *p, const char *text, size_t len, bool last,
                              const struct grappa_delta **out);
/* The whole so far: a JSON object with "role", "content", "reasoning_content", "tool_calls" as in OpenAI's
 * message. */
const char *grappa_chat_parser_message(struct grappa_chat_parser *p, size_t *len);
/* Calls so far. */
int grappa_chat_parser_n_calls(const struct grappa_chat_parser *p);

#ifdef __cplusplus
}
#endif

#endif
