/* Running what an HTTP request asks for: prompts handed to the engine, events coming back, answers whole or
 * streamed. What the answer looks like is the dialect's. */
#ifndef SERVER_RUN_H
#define SERVER_RUN_H

#include "server/inside.h"
#include "server/settings.h"

/* An event of the engine, copied; one block of memory. */
struct event {
    struct event *next;
    struct part *part;
    struct grappa_event e; /* pointers lead into this block */
    struct grappa_timings timings;
    struct grappa_err err;
};

/* One prompt (or one of several answers to it). */
struct part {
    struct run *run;
    int index;
    struct grappa_request *request;
    grappa_token *prompt;
    size_t n_prompt;
    struct part *leader; /* it starts when that one has written something; or NULL */
    bool started, done;
    /* read and written by the engine's thread */
    double first_token;
    bool newline_seen;
    int32_t indent; /* blanks at the beginning of the line; -1: the line has begun */
    bool at_limit;  /* ended by a limit that the engine doesn't know */
    /* what has come back */
    struct buf text; /* all of it */
    grappa_token *tokens;
    size_t n_tokens, tokens_size;
    json_t *probs; /* "completion_probabilities", unless streamed */
    atomic_bool has_new_line;
    struct event *last; /* DONE */
    int32_t slot;
    struct grappa_timings timings; /* the latest */
    struct grappa_chat_parser *parser;
    const struct grappa_delta *deltas; /* of the event at hand */
    size_t n_deltas;
    int32_t n_written; /* tokens so far */
    void *state;       /* the dialect's own, malloc'ed */
};

struct dialect {
    const char *name;
    bool done_marker;  /* a stream ends with "data: [DONE]" */
    size_t state_size; /* of part->state, zeroed */
    /* Of a stream: appends what an event becomes. */
    void (*token)(struct part *p, const struct event *e, struct buf *out);
    void (*progress)(struct part *p, const struct event *e, struct buf *out);
    void (*finish)(struct part *p, const struct event *e, struct buf *out);
    void (*failed)(struct part *p, const struct event *e, struct buf *out);
    void (*release)(struct part *p); /* what part->state leads to; or NULL */
    /* Of a whole answer; joins several into one if `join` is not NULL, else they become an array. */
    json_t *(*whole)(struct part *p);
    json_t *(*join)(json_t *answers); /* takes over the array */
};

struct run {
    struct exchange *x;
    struct model *model;
    const struct dialect *dialect;
    struct settings s;
    struct grappa_chat *chat; /* or NULL */
    bool embeddings, rank;    /* rank: scores of the model's head instead of the server's pooling */
    struct stream *stream;    /* where its text is kept; or NULL */
    bool stopped;             /* by somebody else, under runs_lock */
    char id[64];
    int64_t created;
    struct part *parts;
    size_t n_parts, n_done;
    /* the inbox */
    pthread_mutex_t lock;
    struct event *head, **tail;
    size_t inbox_bytes;
    int efd;
    struct run *previous, *following; /* in the server's list */
};

/* ---- the inbox ---- */
grappa_on_event run_on_event;                /* `user` is a part */
struct event *run_take_event(struct run *r); /* free it; NULL: there is none yet */

/* ---- the server's list ---- */
void runs_add(struct run *r);
void runs_remove(struct run *r); /* from then on nobody else ends it */
/* Ends all, also those to come. */
void runs_cancel(struct server *s);
/* Ends one that another client stops. */
void run_stop(struct run *r);
/* With runs_lock held. */
void run_cancel(struct run *r);
/* The part that is this request of the model; NULL: it has ended. With runs_lock held. */
const struct part *runs_find(const struct server *s, const struct model *m, uint64_t request);
/* What /slots still says of a request when it has ended. */
void runs_note_slot(struct part *p);

/* A run for the exchange, which owns it from then on; `model` is acquired and is released with it. */
struct run *run_new(struct exchange *x, struct model *model, const struct dialect *dialect);
/* Adds a prompt, n_cmpl times; takes over `ids`. */
void run_add_prompt(struct run *r, grappa_token *ids, size_t n);
/* Hands all over, waits for the answer or for a stream's beginning, and replies. */
void run_go(struct run *r);
/* Embeddings: hands all over and waits until all is there; -1: replied with an error already. */
int run_start_and_wait(struct run *r);

/* ---- for dialects ---- */
json_t *timings_json(const struct grappa_timings *t);
json_t *progress_json(const struct event *e);
/* One token's entry in a list of probabilities. */
json_t *prob_json(const struct part *p, const struct event *e);
bool stopped(const struct part *p); /* by the model or a stop text, not by a limit */
const char *stop_type(const struct part *p);
const char *stop_word(const struct part *p); /* "" when it was none */
json_t *part_text(const struct part *p);
json_t *prompt_text(const struct part *p);
json_t *tokens_json(const grappa_token *ids, size_t n);
/* "data: …\n\n", with an "event: " line before unless NULL; takes over j. */
void put_event(struct buf *out, const char *event, json_t *j);

#endif
