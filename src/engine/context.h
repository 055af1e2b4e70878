/* The inside of a context, for the files of the engine that work on its sequences beside the steps: the cache
 * of prompt beginnings, saving, the scheduler. */
#ifndef ENGINE_CONTEXT_H
#define ENGINE_CONTEXT_H

#include "engine/engine.h"

/* Guesses of all sequences in a batch; and what lengths of contexts are multiples of. */
enum { CONTEXT_GUESSES = 64, CONTEXT_PAD = 256 };

/* What attention layers of a kind read: where each sequence of a slice begins, and its blocks. */
struct block_table {
    int32_t *past_lens, *block_indices, *block_indices_begins;
    int32_t max_context_len;
};

/* Host memory of the graph's inputs for one slice. */
struct host {
    float *embeddings;      /* [n_batch, n_embd] */
    float *hidden;          /* the same, of layers that guess; else NULL */
    float *cos[2], *sin[2]; /* [n_batch, n_rot] */
    float *q_growth;        /* [n_batch] */
    int32_t *pos;           /* [n_batch] */
    int32_t *subsequence_begins;
    struct block_table table[2]; /* of layers without and with a window */
    int32_t *out_rows;           /* [n_batch] */
    /* Of recurrent models: n_states sequences. */
    int32_t *state_rows, *state_indices, *state_begins, *state_past, *state_interval, n_states;
};

struct grappa_context {
    struct grappa_model *m;
    struct kv kv;
    /* Layers with a sliding window, whose blocks are let go; no sequences: they are in `kv` with the others.
     * As large as all sequences can need at once, so that only what others hold of it ever has to give way.
     * There may be twice the sequences of kv: then the second half remembers, for each, the end of the last
     * batch of more than one token. */
    struct kv swa;
    int32_t window; /* of the layers that have one; 0: none has */
    bool reads_all; /* there are layers without */
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
    /* [n_batch], of layers that guess, set by who makes the batch: the hidden row [n_embd] that goes with
     * each token; NULL: zeros. Read before the inference. */
    const float **hidden_in;
    const float *hidden; /* the last slice's hidden rows, if the graph gives them: see context_hidden */

    const float *logits; /* of the last batch: [n_logits, n_vocab] */
    int32_t n_logits;
    float *logits_own; /* when they had to be collected from several slices */
    size_t logits_own_size;
    struct buf profile;
    double infer_s; /* spent inside inferences */
    /* Where so many free blocks of both pools may come from; NULL: nowhere. */
    bool (*make_room)(void *user, int32_t n_blocks, int32_t n_swa);
    void *make_room_user;
};

/* Where blocks of layers with a sliding window are; NULL: there is no such layer. */
static inline const struct kv *context_windows(const struct grappa_context *c)
{
    return c->window == 0 ? NULL : c->swa.n_seqs ? &c->swa : &c->kv;
}

static inline int32_t context_seq_of(const struct grappa_batch *b, size_t i)
{
    return b->seq_id ? b->seq_id[i] : 0;
}

struct context_extras { /* for who schedules by himself; all-zero: nothing */
    uint32_t n_copies;  /* the last sequences never take part in a step, they only hold copies of others */
    bool forgets;       /* sequences need not remember their windows at the ends of batches … */
    uint32_t n_windows; /* … but others hold blocks of so many tokens */
};
/* As grappa_context_new. */
struct grappa_context *context_new(struct grappa_model *m, const struct grappa_context_params *params,
                                   const struct context_extras *extras, struct grappa_err *err);
/* Of a model loaded with its layers that guess: the hidden row [n_embd] of the i-th token of the last batch,
 * which was one slice; of such layers: of its i-th wanted token. Valid until the next batch. */
const float *context_hidden(const struct grappa_context *c, int32_t i);
/* Bytes of the states of one sequence; 0: the model isn't recurrent. */
uint64_t context_state_bytes(const struct grappa_model *m);

/* Cuts a sequence back to n tokens, one of the lengths it can be cut to. */
void context_trim(struct grappa_context *c, int32_t seq, int32_t n);

/* ---- room.c ---- */
/* Chooses n_ctx and the sizes of the pools; makes and binds them. */
int context_make_kv(struct grappa_context *c, const struct grappa_context_params *p,
                    const struct context_extras *extras, struct err *err);

/* ---- layout.c ---- */
/* For tokens [first, first + n) of a batch: gives each its row, grouped by sequence, and fills what depends
 * on rows and sequences. The sequences grow here. Returns how many sequences attention sees. */
int32_t context_lay_out(struct grappa_context *c, const struct grappa_batch *b, size_t first, size_t n);

#endif
