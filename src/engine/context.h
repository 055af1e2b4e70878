/* The inside of a context, for the files of the engine that work on its sequences beside the steps: the cache
 * of prompt beginnings, saving, the scheduler. */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include "engine/engine.h"

enum { CONTEXT_GUESSES = 64 }; /* of all sequences in a batch */

/* Host memory of the graph's inputs for one slice. */
struct host {
    float *embeddings;      /* [n_batch, n_embd] */
    float *cos[2], *sin[2]; /* [n_batch, n_rot] */
    float *q_growth;        /* [n_batch] */
    int32_t *pos;           /* [n_batch] */
    int32_t *past_lens, *subsequence_begins, *block_indices, *block_indices_begins;
    int32_t max_context_len;
    int32_t *out_rows;                                      /* [n_batch] */
    int32_t *state_indices, *state_begins, *state_interval; /* of recurrent models */
};

struct grappa_context {
    struct grappa_model *m;
    struct kv kv;
    struct states states;
    uint32_t n_ctx, n_batch;
    struct host host;
    int32_t *row_of;     /* [n_batch]: row of each token of the slice */
    int32_t *seq_tokens; /* [n_seqs]: tokens of each sequence in the slice */
    int32_t *old_len;    /* [n_seqs]: lengths before the batch, to go back to */
    bool *keep;          /* [n_seqs]: the batch's end is a state to come back to */
    /* [n_seqs], set by who makes the batch: so many of its last tokens are guesses. Then the batch is one
     * slice. */
    int32_t *guesses;

    const float *logits; /* of the last batch: [n_logits, n_vocab] */
    int32_t n_logits;
    float *logits_own; /* when they had to be collected from several slices */
    size_t logits_own_size;
    struct buf profile;
    double infer_s; /* spent inside inferences */
    /* Where so many free blocks may come from; NULL: nowhere. */
    bool (*make_room)(void *user, int32_t n_blocks);
    void *make_room_user;
};

static inline int32_t context_seq_of(const struct grappa_batch *b, size_t i)
{
    return b->seq_id ? b->seq_id[i] : 0;
}

/* As grappa_context_new; the last n_copies sequences never take part in a step, they only hold copies of
 * others. */
struct grappa_context *context_new(struct grappa_model *m, const struct grappa_context_params *params,
                                   uint32_t n_copies, struct grappa_err *err);
/* Bytes of the states of one sequence; 0: the model isn't recurrent. */
uint64_t context_state_bytes(const struct grappa_model *m);

/* ---- layout.c ---- */
/* For tokens [first, first + n) of a batch: gives each its row, grouped by sequence, and fills what depends
 * on rows and sequences. The sequences grow here. Returns how many sequences attention sees. */
int32_t context_lay_out(struct grappa_context *c, const struct grappa_batch *b, size_t first, size_t n);

#endif
