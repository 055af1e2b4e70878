/* Inside of the parser: what its parts share. parser.c takes the input, finds marks, and owns the results;
 * parser_call*.c read calls. All of them read through the helpers below, which either take what they want,
 * say that more input is needed, or that it isn't there; none looks at a byte that came twice but for the
 * length of a mark. So the result can't depend on how the input was cut, and time is linear. */
#ifndef CHAT_PARSER_H
#define CHAT_PARSER_H

#include "chat/format_row.h"
#include "chat/parser_value.h"

enum step {
    STEP_GO,   /* taken; go on */
    STEP_WAIT, /* nothing can be said without more input */
    STEP_FAIL  /* it isn't there, and can't come */
};

enum mode { MODE_LEAD, MODE_THINK, MODE_TEXT, MODE_CALL, MODE_AFTER, MODE_PLAIN, MODE_HARMONY };

enum mark_action { MARK_SECTION, MARK_CALL, MARK_ALTERNATIVE, MARK_THINK, MARK_THINK_END, MARK_DROP };
struct mark {
    const char *text;
    size_t n;
    enum mark_action action;
};

#define MAX_CALLS 4096
#define MAX_NAME  512 /* bytes of a name, key or header */

struct call {
    char *id, *name;
    struct buf args;
};

struct piece { /* a delta whose text is still an offset */
    enum chat_delta_type type;
    int index;
    size_t at, n;
};

struct chat_parser {
    const struct chat_syntax *s;
    const struct chat_format_row *row;
    uint64_t seed;

    struct buf in; /* what isn't decided yet, from `start` on; all of it is well-formed UTF-8 */
    size_t pos;    /* next byte to read */
    size_t start;  /* where the attempt at a call began */
    size_t scan;   /* up to here a search has looked already */
    char cut[4];   /* a character that isn't whole yet */
    size_t n_cut;
    bool last;
    bool starved; /* what failed in this step did so because the input is over */

    enum mode mode;
    int state;        /* of a call, by the kind */
    int after;        /* harmony: the state that the body has */
    bool in_section;  /* behind section_start */
    bool in_array;    /* behind '[' of calls as JSON */
    bool in_envelope; /* behind {"tool_call": */
    bool tagged;      /* behind <|python_tag|> */
    bool closed;      /* behind call_end */
    bool committed;   /* a call of this attempt was whole */
    bool open;        /* the output begins inside of reasoning */
    struct mark marks[16], think_marks[8];
    size_t n_marks, n_think_marks;

    /* the call that is being read */
    struct buf name, id, args, key, scratch;
    bool has_args, begun, nested, typed_string;
    size_t n_args;
    const struct chat_tool *tool;
    struct value value;

    /* the message */
    struct buf content, reasoning, message;
    struct buf space, think_space; /* white space of which isn't known whether it is content, or reasoning */
    bool said;                     /* there is content that is no white space */
    bool thought;                  /* reasoning was there */
    bool think_said;               /* and isn't all white space, in this piece of it */
    struct call *calls;
    size_t n_calls;

    struct piece *pieces;
    size_t n_pieces, size_pieces;
    struct chat_delta *deltas;
};

/* ---- reading ---- */
static inline size_t left(const struct chat_parser *p)
{
    return p->in.n - p->pos;
}
static inline char here(const struct chat_parser *p)
{
    return p->in.p[p->pos];
}
/* What fails for want of input also sets p->starved. */
enum step take_space(struct chat_parser *p);                  /* any white space; never fails */
enum step take_text(struct chat_parser *p, const char *text); /* exactly this */
/* White space, then exactly one of these characters into *c. */
enum step take_char(struct chat_parser *p, const char *one_of, char *c);
/* Up to the first of these texts (two may be NULL), which is taken too; *which tells it. At most `max` bytes.
 * *out is valid until the next read. */
enum step take_until(struct chat_parser *p, const char *const texts[3], size_t max, struct str *out,
                     int *which);
/* Feeds p->value from the input into `out` until the value is whole. */
enum step take_value(struct chat_parser *p, struct buf *out);
enum step take_short_value(struct chat_parser *p, struct buf *out); /* of at most MAX_NAME bytes */
/* The first of the marks from p->pos on, the longest that is there. GO: at *at, *mark. Otherwise there is
 * none before *at; with WAIT more input may begin one there. */
enum step find_mark(const struct chat_parser *p, const struct mark *marks, size_t n, size_t *at,
                    const struct mark **mark);
void begin_value_of(struct chat_parser *p, enum value_dialect dialect);

/* ---- results ---- */
void put_content(struct chat_parser *p, const char *text, size_t n);
void put_reasoning(struct chat_parser *p, const char *text, size_t n);
void end_reasoning(struct chat_parser *p);
void keep_space(struct chat_parser *p); /* white space that was held back is content */
/* The name is known: whether such a tool is there. From then on p->args may be handed out if the syntax is
 * eager. */
bool name_known(struct chat_parser *p);
void share_arguments(struct chat_parser *p);
/* The call is whole. False: too many. */
bool end_call(struct chat_parser *p);
void clear_call(struct chat_parser *p);

/* ---- kinds of calls: one step in p->state ---- */
enum step call_step(struct chat_parser *p);
enum step after_step(struct chat_parser *p);
enum step json_step(struct chat_parser *p);
enum step name_json_step(struct chat_parser *p);
enum step tags_step(struct chat_parser *p);
enum step python_step(struct chat_parser *p);
enum step dict_step(struct chat_parser *p);
enum step recipient_step(struct chat_parser *p);
enum step harmony_step(struct chat_parser *p);

/* All kinds begin here. */
enum { CALL_BEGIN = 0, CALL_NAMED = 1, PYTHON_ARGS = 100, HARMONY_THINKING = 1, HARMONY_AFTER = 2 };

#endif
