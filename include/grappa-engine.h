/* grappa-engine: many requests, one thread that computes.
 *
 * An engine owns a context and a thread. Anybody may hand it requests from any thread; it puts tokens of as
 * many as it can into each step (continuous batching: first one token of every request that is writing, then
 * pieces of prompts as far as the step's budget goes), and tells each request's owner what came out by a
 * callback.
 *
 * Memory: one pool of KV blocks, and one for what sliding windows show, if layers have them. What a request
 * leaves behind stays as a cache of prompt beginnings, found by the hash of its token blocks and given up
 * least recently used first; recurrent models keep states at the ends of prompt pieces for the same purpose.
 * A slot is a place for one running request; its sequence stays where it is afterwards, so that
 * llama-server's slot calls (save, restore, erase) have something to speak of.
 *
 * Threads: every function here may be called from any thread, except from inside a callback, where only
 * grappa_request_cancel is allowed. */
#ifndef GRAPPA_ENGINE_H
#define GRAPPA_ENGINE_H

#include "grappa.h"

#ifdef __cplusplus
extern "C" {
#endif

struct grappa_engine;
struct grappa_request;

struct grappa_engine_params { /* an all-zero one is the default */
    uint32_t n_ctx;     /* positions of all slots together; 0: the trained length, or what memory holds */
    uint64_t kv_memory; /* bytes for the cache instead; 0: by n_ctx */
    uint32_t n_batch;   /* most tokens in a step; 0: 512 */
    uint32_t n_slots;   /* requests that run at once; 0: 4 */
    uint32_t n_queue;   /* requests that may wait; 0: 1024 */
    bool kv_split;      /* each slot gets n_ctx / n_slots positions and no more, as llama.cpp without -kvu */
    bool no_prefix_cache;       /* nothing is kept between requests, but for a slot's own sequence */
    bool past_trained;          /* a slot may have more positions than the model was trained on */
    bool embeddings;            /* the model was loaded for embeddings; requests then ask for those only */
    bool swa_full;              /* as of a context */
    uint32_t swa_cache;         /* tokens of beginnings of which sliding windows are kept; 0: 4096 */
    struct grappa_model *draft; /* for speculation, or MTP layers do; the caller's, outlives it */
};

/* The model must outlive the engine, and have no context of its own meanwhile. */
struct grappa_engine *grappa_engine_new(struct grappa_model *m, const struct grappa_engine_params *params,
                                        struct grappa_err *err);
/* Ends what runs (each request gets its last event, GRAPPA_FINISH_SHUTDOWN), then the thread. */
void grappa_engine_free(struct grappa_engine *e);

uint32_t grappa_engine_n_slots(const struct grappa_engine *e);
uint32_t grappa_engine_n_ctx_slot(const struct grappa_engine *e); /* positions that one request can have */
struct grappa_model *grappa_engine_model(const struct grappa_engine *e);

/* ---- requests ---- */
enum grappa_finish {
    GRAPPA_FINISH_NONE,     /* it goes on */
    GRAPPA_FINISH_EOS,      /* the model's own end; of embeddings the end */
    GRAPPA_FINISH_STOP,     /* a stop text; or the grammar allows nothing more */
    GRAPPA_FINISH_LENGTH,   /* n_predict, or the context is full */
    GRAPPA_FINISH_DEADLINE, /* its time was up */
    GRAPPA_FINISH_CANCEL,   /* grappa_request_cancel, or a callback that returned false */
    GRAPPA_FINISH_SHUTDOWN,
    GRAPPA_FINISH_ERROR /* `err` of the event says which */
};

struct grappa_prob {
    grappa_token token;
    float logprob; /* natural logarithm */
};

struct grappa_timings {
    int32_t n_prompt;                    /* tokens of the prompt */
    int32_t n_cached;                    /* of these, those found in the cache */
    int32_t n_computed;                  /* and those that were computed */
    int32_t n_predicted;                 /* tokens written */
    int32_t n_drafted, n_accepted;       /* by speculation */
    double queue_s, prompt_s, predict_s; /* waiting; from slot to first token; from then on */
};

enum grappa_event_type {
    GRAPPA_EVENT_PROGRESS, /* a piece of the prompt is done (only if asked for) */
    GRAPPA_EVENT_TOKEN,    /* one token and what text it lets out */
    GRAPPA_EVENT_DONE      /* the last one, always comes, exactly once */
};

struct grappa_event { /* pointers are valid during the callback */
    enum grappa_event_type type;
    /* TOKEN: the token, its own bytes (may cut characters), and the text that may be shown now: whole
     * characters only, nothing that may be the start of a stop text. DONE: what was held back. */
    grappa_token token;
    const char *piece;
    size_t n_piece;
    const char *text;
    size_t n_text;
    float logprob;                   /* of the token, if n_probs or want_logprob */
    const struct grappa_prob *probs; /* the n_probs most probable, falling */
    int32_t n_probs;
    /* PROGRESS: tokens of the prompt that are in the cache or computed, of timings->n_prompt. */
    int32_t n_done;
    /* DONE */
    enum grappa_finish finish;
    const char *stop_text; /* which one it was, or NULL */
    bool truncated;        /* the context was shifted, or the prompt cut */
    const struct grappa_err *err;
    const float *embedding; /* of requests for embeddings: [n_rows, n_embd] */
    int32_t n_rows, n_embd; /* GRAPPA_POOLING_RANK: n_embd is the number of labels */
    /* all */
    int32_t slot;
    const struct grappa_timings *timings;
};

/* Runs on the engine's thread (or, for a request that never ran, on the one that ends it) and must not block.
 * False ends the request; its DONE still comes. */
typedef bool grappa_on_event(void *user, const struct grappa_event *ev);

enum grappa_pooling {
    GRAPPA_POOLING_NONE,
    GRAPPA_POOLING_MEAN,
    GRAPPA_POOLING_CLS,
    GRAPPA_POOLING_LAST,
    GRAPPA_POOLING_RANK, /* what a reranker's head says of the last row, a number for each label */
};

struct grappa_request_params {
    const grappa_token *prompt; /* copied */
    size_t n_prompt;
    struct grappa_sampler_params sampler; /* copied, with all it points to */
    int32_t n_predict;                    /* -1: until the end */
    int32_t n_keep;                       /* tokens that a shift leaves in place; -1: the prompt */
    int32_t n_discard;                    /* and how many it forgets; 0: half of those behind */
    bool context_shift;                   /* instead of ending with "length"; refused where the model can't */
    const char *const *stop;              /* texts, copied */
    size_t n_stop;
    int32_t n_probs;
    bool want_logprob;        /* of the token alone */
    bool post_sampling_probs; /* probabilities after the chain instead of the model's */
    bool special;             /* control tokens appear in the text */
    bool no_cache_prompt;     /* compute the whole prompt anew */
    bool want_progress;
    int32_t slot;     /* -1: any */
    int32_t priority; /* higher goes first; 0 is usual */
    double timeout_s; /* from now on; 0: none */
    int32_t n_draft;  /* most tokens guessed per step; 0: none */
    /* After so many tokens of the prompt a step ends, so that a recurrent model can go back there: what the
     * next prompt begins with. 0: the engine's choice. */
    int32_t n_lasting;
    bool lookup;         /* guess by looking up the last tokens in the text so far; else by the draft model */
    int32_t n_draft_min; /* of the draft model: fewer guesses than this are not worth trying */
    float draft_p_min;   /* and one less probable than this ends them */
    bool embeddings;     /* no text: the rows of the prompt, pooled */
    enum grappa_pooling pooling;
    grappa_on_event *on_event;
    void *user;
};
/* Sampler defaults, n_predict -1, slot -1. */
void grappa_request_defaults(struct grappa_request_params *out);

/* Queues a request. NULL (and no event ever) when it can't be served: http_status 400 for a prompt longer
 * than a slot (the text has both counts), a token out of range, a bad grammar; 503 for a full queue. */
struct grappa_request *grappa_request_new(struct grappa_engine *e, const struct grappa_request_params *params,
                                          struct grappa_err *err);
/* Asks for its end: takes effect before the next step; does not wait. */
void grappa_request_cancel(struct grappa_request *r);
/* Asks for the end of thoughts that go on (see think_control of the sampler's parameters); does not wait. */
void grappa_request_end_thoughts(struct grappa_request *r);
/* Which one it is, as struct grappa_slot says; counted from 1. */
uint64_t grappa_request_number(const struct grappa_request *r);
/* Waits until DONE has been delivered. */
void grappa_request_wait(struct grappa_request *r);
/* Cancels if need be, waits, frees. Due for every request, also after DONE. */
void grappa_request_free(struct grappa_request *r);

/* ---- slots ---- */
struct grappa_slot {
    int32_t id;
    bool busy;
    bool speculative;
    uint64_t request; /* number of the request that runs or ran last */
    int32_t n_ctx;
    int32_t n_prompt, n_predicted, n_remaining; /* of that request; remaining -1: no limit */
    int32_t n_cached, n_computed;               /* of its prompt */
    int32_t n_held;                             /* tokens of its sequence */
};
/* Fills up to max; returns the number of slots. */
int grappa_engine_slots(struct grappa_engine *e, struct grappa_slot *out, int max);
/* Writes the slot's sequence (tokens, KV blocks, states) to a file, or reads one back; waits for the slot to
 * be free. A file is complete or not there: it is written beside and renamed, and carries a checksum and the
 * model's identity. Returns the number of tokens, -1 on failure. */
int64_t grappa_engine_slot_save(struct grappa_engine *e, int32_t slot, const char *path, uint64_t *bytes,
                                struct grappa_err *err);
int64_t grappa_engine_slot_restore(struct grappa_engine *e, int32_t slot, const char *path, uint64_t *bytes,
                                   struct grappa_err *err);
/* Forgets the slot's sequence, and the cached beginnings that only it had. Returns the tokens that were held.
 */
int64_t grappa_engine_slot_erase(struct grappa_engine *e, int32_t slot, struct grappa_err *err);

/* ---- figures, since the engine was made ---- */
struct grappa_engine_stats {
    uint64_t n_steps, n_requests, n_done, n_cancelled;
    uint64_t prompt_tokens, cached_tokens, predicted_tokens; /* prompt: computed */
    uint64_t drafted, accepted, drafts; /* tokens guessed, those that were right, steps with guesses */
    double prompt_s, predict_s;         /* as llama-server's /metrics counts them */
    double infer_s, host_s; /* inside inferences, and all else that the engine's thread did for steps */
    int32_t n_running, n_waiting;
    int32_t n_blocks, n_blocks_used, n_blocks_cached;
    int32_t n_swa_blocks, n_swa_blocks_used, n_swa_blocks_cached; /* of sliding windows; 0: with the others */
};
void grappa_engine_stats(struct grappa_engine *e, struct grappa_engine_stats *out);
/* As grappa_profile; only while no request runs. */
const char *grappa_engine_profile(struct grappa_engine *e);

#ifdef __cplusplus
}
#endif

#endif
