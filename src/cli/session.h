/* A model and an engine with one slot that write text: prompt in, text out to stdout, token by token. What
 * the slot holds stays, so that a prompt that begins like the last one is computed from where they part. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/sampling.h"
#include "base/stop.h"

struct session {
    const struct options *o;
    struct grappa_model *model, *draft; /* draft: NULL without -md */
    struct grappa_engine *engine;
    const struct grappa_vocab *vocab;
    struct sampling sampling;
    /* After so many tokens of the next prompt a step ends, so that a recurrent model's states can go back
     * there; 0: nowhere in particular. */
    size_t n_lasting;
    struct stop stop;                         /* the reverse prompts */
    double start, load_s, prompt_s, decode_s; /* seconds, for the summary */
    size_t n_prompt, n_decode;                /* tokens computed in those */
    size_t n_drafted, n_accepted;             /* guesses */
};

/* Why the text ended. */
enum ending {
    END_MODEL,     /* the model's own end */
    END_STOP_TEXT, /* a reverse prompt */
    END_LIMIT,     /* -n */
    END_CONTEXT,   /* no position is left */
    END_INTERRUPT, /* Ctrl-C */
    END_OUTPUT,    /* stdout takes no more */
};

/* What a chat adds to the writing of a text; all-zero: nothing. */
struct session_turn {
    /* Instead of to stdout; false: no more is wanted. Runs on another thread, while session_write waits. */
    bool (*write)(void *user, struct str text);
    void *user;
    const grappa_token *preserved; /* control tokens whose text is written too */
    size_t n_preserved;
    const char *const *stops; /* texts that end the answer, beside the reverse prompts */
    size_t n_stops;
    const struct grappa_grammar_params *grammar; /* unless the options give one */
    const char *think_start, *think_end;         /* around thoughts; NULL: not known */
    bool think_open;                             /* the prompt ends inside of one */
};

/* session_close is due even when it fails. */
int session_open(struct session *s, const struct options *o, struct grappa_err *err);
void session_close(struct session *s);
/* Positions of the context. */
uint32_t session_n_ctx(const struct session *s);

/* Computes the prompt and writes what follows. `echo`: the prompt is written before, to stdout. `turn` may be
 * NULL, and `text`, which receives what was written, without the prompt. Fails with exit status 1, the
 * session stays usable. */
int session_write(struct session *s, const grappa_token *prompt, size_t n, bool echo,
                  const struct session_turn *turn, struct buf *text, enum ending *ending,
                  struct grappa_err *err);

/* With --prompt-cache: writes what the context holds to that file. */
int session_keep(struct session *s, struct grappa_err *err);

/* With --perf or -v: times and speeds on stderr. */
void session_summary(const struct session *s);

#endif
