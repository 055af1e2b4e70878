/* The inside of an engine of many requests.
 *
 * Who may touch what: the engine's thread owns the context, the slots, and a request once it is in the queue.
 * What others reach is behind the lock: the queue, the commands, and the figures that are published after
 * every step. No callback runs under a lock. */
#ifndef ENGINE_SCHEDULE_H
#define ENGINE_SCHEDULE_H

#include "base/stop.h"
#include "engine/context.h"
#include "engine/prefix.h"
#include "engine/recall.h"
#include "engine/speculate.h"
#include "sampler/sampler.h"

#include <grappa-engine.h>

#include <pthread.h>
#include <stdatomic.h>

struct grappa_request {
    struct grappa_engine *e; /* not to be touched once `done` */
    struct grappa_request *next;
    uint64_t number;                /* by arrival */
    struct grappa_request_params p; /* its pointers are NULL but for user */
    grappa_token *tokens;           /* the prompt; after it was put back to the queue, with what it wrote */
    int32_t n_tokens, n_prompt, n_vocab;
    struct grappa_sampler *sampler;
    struct grappa_stream *stream;
    struct stop stop;
    struct str *stop_texts;
    struct grappa_prob *probs; /* [n_probs], as a heap while they are chosen */
    int32_t n_probs;
    float *embedding; /* [n_rows, n_embd] */
    int32_t n_rows, n_embd;
    double deadline, queued_at, started_at, first_at; /* seconds; 0: never, not yet */
    struct grappa_timings timings;
    bool truncated;
    bool constrained; /* what may come next has to be worked out */

    atomic_bool cancel, end_thoughts;
    pthread_mutex_t lock; /* of what follows; taken before the engine's */
    pthread_cond_t ended;
    bool done;
};

/* A place for a running request; its number is that of its sequence in the context. */
struct slot {
    int32_t id;
    struct grappa_request *r; /* NULL: free, but its sequence may be there */
    uint64_t request;         /* number of the one that runs or ran last */
    grappa_token *tokens;     /* [n_ctx_slot and some] of the request: prompt, then what it wrote */
    int32_t n_tokens;
    int32_t n_past;       /* of these, in the sequence; the others are to be computed */
    int32_t n_registered; /* blocks of it that the cache of beginnings knows */
    bool writing;         /* the prompt is done */
    uint64_t started;     /* order in which requests came to their slots */
    struct slot *leader;  /* computes what this one waits for: the first n_follow tokens */
    uint64_t leader_started;
    int32_t n_follow;
    struct grappa_timings last; /* of the request that ran last */
    /* Of the step that runs: tokens put in, and the rows of logits wanted: the last n_out of them. */
    int32_t n_in, n_out;
    int32_t share; /* of the budget, before the step is put together */
    /* Guesses of what follows, behind the n_tokens that are known: see speculate.h. The step takes those that
     * are right into n_tokens. */
    int32_t n_draft;
};

enum command_type { COMMAND_SAVE, COMMAND_RESTORE, COMMAND_ERASE };

struct command { /* waits on its caller's stack */
    enum command_type type;
    int32_t slot;
    const char *path;
    uint64_t bytes;
    int64_t result;
    struct grappa_err err;
    bool done;
    struct command *next;
};

struct step { /* the batch of the step that runs */
    grappa_token *token;
    int32_t *seq;
    int8_t *logits;
    int32_t n, room;
    int32_t blocks;      /* that it takes from the pool */
    struct slot **parts; /* slots that take part, in the order of their tokens */
    int32_t n_parts;
};

struct prepare { /* see prepare.c */
    pthread_t thread;
    bool running;         /* from the first constrained request on */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct grappa_sampler **samplers; /* [n_slots]; the thread's from `done` on */
    int32_t n, done;
    bool stopping;
};

struct grappa_engine {
    struct grappa_model *m;
    struct grappa_context *ctx;
    const struct grappa_vocab *vocab;
    struct grappa_engine_params params;
    uint32_t n_ctx_slot;
    struct prefix prefix;
    struct recall recall;
    struct speculate speculate;
    struct slot *slots;
    int32_t n_slots;
    struct slot **line; /* [n_slots], for putting them in order */
    struct step step;
    struct prepare prepare;
    int32_t *blocks; /* [n_blocks], for looking up beginnings */
    uint8_t *mark;   /* by block */
    uint64_t n_started;
    struct grappa_engine_stats stats; /* the thread's own; published as `shown` */

    pthread_t thread;
    bool running;
    pthread_mutex_t lock;    /* of what follows */
    pthread_cond_t work;     /* for the thread */
    pthread_cond_t answered; /* a command is done */
    bool stopping;
    struct grappa_request *waiting; /* those that go first come first */
    uint32_t n_waiting;
    uint64_t n_requests;
    struct command *commands;
    struct grappa_engine_stats shown;
    struct grappa_slot *shown_slots;
};

/* ---- request.c ---- */
/* Puts it into the queue: before those of lower priority, and of its own those that came later. */
void request_queue(struct grappa_engine *e, struct grappa_request *r); /* under the lock */
/* The last event; the request is its owner's from then on. */
void request_end(struct grappa_request *r, int32_t slot, enum grappa_finish finish, const char *stop_text,
                 const struct grappa_err *err);

/* ---- output.c ---- */
/* A token that was chosen from these logits: tells the owner. NONE: it goes on. *stop_text says which. */
enum grappa_finish output_token(struct grappa_request *r, int32_t slot, grappa_token t, const float *logits,
                                const char **stop_text);
bool output_progress(struct grappa_request *r, int32_t slot, int32_t n_done);

/* Whether blocks of prompt beginnings are kept for others. */
static inline bool engine_caches(const struct grappa_engine *e)
{
    return !e->params.no_prefix_cache && !e->params.embeddings && e->m->arch->n_states == 0;
}

/* ---- slots.c ---- */
/* The context asks here when it needs blocks. */
void slots_init(struct grappa_engine *e);
/* The free slot for a request, or NULL: none that it may have. */
struct slot *slots_choose(struct grappa_engine *e, const struct grappa_request *r);
/* The request runs there: finds the longest beginning that is in memory. */
void slots_start(struct grappa_engine *e, struct slot *s, struct grappa_request *r);
/* For a slot that waits for another's prompt: goes on once that is in memory. */
void slots_follow(struct grappa_engine *e, struct slot *s);
/* Whether the pool can hold the request beside those that run. */
bool slots_room_for(struct grappa_engine *e, const struct grappa_request *r);
/* Whether the pool can have n free blocks: gives up cached ones, then (`idle`) sequences that nobody runs. */
bool slots_make_room(struct grappa_engine *e, int32_t n, bool idle);
/* Cuts its sequence back to n tokens, or to fewer where it can't be cut to so many. */
void slots_trim(struct grappa_engine *e, struct slot *s, int32_t n);
/* The cache of beginnings learns what the sequence holds, before its windows go on. `end`: a prompt or an
 * answer ends here. */
void slots_register(struct grappa_engine *e, struct slot *s, bool end);
void slots_publish(struct grappa_engine *e);
/* Runs the commands whose slots are free. */
void slots_run_commands(struct grappa_engine *e);
/* Under the lock: the engine ends. */
void commands_refuse(struct command *c);
/* Whether a command waits for this slot. Under the lock. */
bool slots_claimed(const struct grappa_engine *e, int32_t slot);

/* ---- step.c ---- */
enum { STEP_LAST_ROWS = 5 }; /* tokens that the end of a prompt is computed with, at least: see step_run */
void step_run(struct grappa_engine *e);
/* All of the prompt was in memory, and the logits of its end: writes the first token. */
void step_resume(struct grappa_engine *e, struct slot *s);
/* The slot is free again, then the request's owner is told. */
void step_end(struct grappa_engine *e, struct slot *s, enum grappa_finish finish, const char *stop_text,
              const struct grappa_err *err);

/* ---- prepare.c ---- */
void prepare_init(struct prepare *p, int32_t n_slots);
void prepare_release(struct prepare *p);
/* Before and after the inference; in between the samplers of the step's constrained requests are not to be
 * touched. */
void prepare_start(struct prepare *p, const struct step *t);
void prepare_wait(struct prepare *p);

/* ---- embed.c ---- */
/* Whether every token's row is wanted, not only the last one's. */
bool embed_wants_all(const struct grappa_request *r);
/* n rows have come out, from number `row` on, of the tokens from position `pos` on. */
int embed_rows(struct grappa_engine *e, struct grappa_request *r, int32_t pos, int32_t row, int32_t n,
               struct grappa_err *err);

/* ---- shift.c ---- */
/* The slot's context is full: forgets a part of it. */
void shift_slot(struct grappa_engine *e, struct slot *s);

/* ---- text.c ---- */
/* What the last grappa_sample left to choose from, by falling probability. */
size_t engine_sampler_candidates(const struct grappa_sampler *s, const struct sampler_candidate **out);
/* The bytes of the token that was added last. */
const char *engine_stream_piece(const struct grappa_stream *s, size_t *len);

#endif
