/* A model, a context and a sampler that write text: prompt in, text out to stdout, token by token. What the
 * context holds is remembered, so that a prompt that begins like the last one is computed from where they
 * part. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "cli/options.h"
#include "base/stop.h"

struct session {
    const struct options *o;
    struct grappa_model *model;
    struct grappa_context *ctx;
    struct grappa_sampler *sampler;
    bool turn_sampler; /* it was made for one text */
    const struct grappa_vocab *vocab;
    grappa_token *held; /* [n_ctx], the tokens in the context */
    size_t n_held;
    /* After so many tokens of the next prompt a step ends, so that a recurrent model's states can go back
     * there; 0: nowhere in particular. */
    size_t n_lasting;
    struct stop stop;                         /* the reverse prompts */
    double start, load_s, prompt_s, decode_s; /* seconds, for the summary */
    size_t n_prompt, n_decode;                /* tokens computed in those */
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
    bool (*write)(void *user, struct str text); /* instead of to stdout; false: no more is wanted */
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

/* Computes the prompt and writes what follows. `echo`: the prompt is written before, to stdout. `turn` may be
 * NULL, and `text`, which receives what was written, without the prompt. Fails with exit status 1, the
 * session stays usable. */
int session_write(struct session *s, const grappa_token *prompt, size_t n, bool echo,
                  const struct session_turn *turn, struct buf *text, enum ending *ending,
                  struct grappa_err *err);

/* With --perf or -v: times and speeds on stderr. */
void session_summary(const struct session *s);

/* "15043+1", "15043-1", "15043-inf". */
int parse_bias(const char *text, struct grappa_logit_bias *out, struct grappa_err *err);
/* The numbers and names of the sampling options. */
void copy_sampling_options(struct grappa_sampler_params *p, const struct options *o);
/* The grammar or schema that the options give. `text` holds it as long as it is needed. */
int grammar_of_options(const struct options *o, struct grappa_grammar_params *g, struct buf *text,
                       struct grappa_err *err);

#endif
