/* From a GGUF file to a graph: finds the family, reads hyperparameters, binds tensors by name, composes
 * blocks.
 *
 * The graph's inputs (T rows in a step, B sequences, N blocks, R wanted rows):
 *   embeddings f32 [T, n_embd]          the tokens' rows of token_embd, looked up on the host
 *   rope.cos, rope.sin f32 [T,1,1,n_rot]   and rope_swa.… where sliding-window layers rotate otherwise
 *   q_growth f32 [T,1]                  factors of queries, by position, where a family has them
 *   out_rows i32 [R]
 *   paged: past_lens i32 [B], subsequence_begins i32 [B+1], block_indices i32 [N], block_indices_begins i32
 * [B+1], max_context_len i32 scalar; key_cache.L, value_cache.L: type and shape asked of the compiled graph.
 * Layers with a sliding window have all but subsequence_begins for themselves, past_lens_swa and so on: the
 * blocks named there may begin anywhere before the window, and lengths count from where they do
 *   recurrent: of S sequences, which attention may see as more (each guess as one), state_rows i32 [S+1],
 * where their rows begin; state_indices i32, for each the slot of its state before the step and the one that
 * receives it after, or those that receive it after each token; state_begins i32 [S+1], where these begin;
 * state_past i32 [S], tokens before the step; state_interval i32 [S], ARCH_STATE_INTERVAL or 1; state.N f32
 * [slots, …] Its output: logits f32 [R, n_vocab]; or embd, see struct arch_options.
 *
 * Layers that guess a further token ("nextn", multi-token prediction) are a graph of their own, with one more
 * input, hidden_in f32 [T, n_embd]: for a token the trunk's row of the token before it. Source: llama.cpp's
 * graphs of type LLM_GRAPH_TYPE_DECODER_MTP. */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H

#include "arch/hparams.h"
#include "arch/rope.h"
#include "arch/weights.h"
#include "base/err.h"
#include "gguf/gguf.h"
#include "ir/ir.h"

/* Operations with states also write one after every so many tokens; so many never come together. With 1 they
 * write all. */
#define ARCH_STATE_INTERVAL (1 << 30)

struct arch_cache { /* of an attention layer, in the order of their inputs' numbers */
    uint32_t n_head_kv, k_size, v_size;
    bool swa; /* it has a window of hparams.n_swa positions, and reads the inputs for those that do */
};

/* A table of states of recurrent layers, f32 [slots, dims…]: input "state.N". */
struct arch_state {
    int rank; /* of a slot */
    int64_t dims[3];
};

/* What of a file is to become a graph. */
enum arch_part {
    ARCH_TRUNK,
    ARCH_TRUNK_HIDDEN, /* one more output: hidden f32 [T, n_embd], the rows of the output norm of all tokens
                        */
    ARCH_NEXTN, /* the first layer behind the trunk; output hidden f32 [R, n_embd]: a deeper guess reads it */
};

struct arch_options { /* an all-zero one takes the file's values */
    enum arch_part part;
    const char *device;
    bool embeddings;          /* the output is "embd" f32 [R, n_embd], the rows of the output norm */
    bool repack;              /* the plugin's own products, even where blocks could be multiplied in place */
    const char *rope_scaling; /* "none", "linear", "yarn" */
    float rope_scale, rope_freq_base, rope_freq_scale;
    uint32_t yarn_orig_ctx;
    float yarn_ext_factor, yarn_attn_factor, yarn_beta_slow, yarn_beta_fast;
};

struct arch_model {
    struct hparams h;
    enum arch_part part; /* this and the next: as the options said */
    bool embeddings;
    struct ir *graph;
    const char *precision, *cache_type; /* to run it in, see struct lowering; NULL: the device's choice */
    struct weights *weights;
    const struct gguf_tensor *embd; /* token_embd, or the layer's own: rows for the `embeddings` input … */
    float embd_scale;               /* … times this */
    const struct gguf_tensor *positions; /* NULL, or rows to add, by position */
    uint32_t n_ctx_max;                  /* no position reaches it; 0: any may be */
    bool q_growth_used;
    struct rope rope[2];    /* of full and of sliding-window layers */
    bool rope_used[2];      /* whether the graph has the tables' inputs */
    float *rope_factors[3]; /* owned: short or only ones, long ones */
    struct arch_cache caches[HPARAMS_MAX_LAYERS];
    uint32_t n_caches;
    struct arch_state *states; /* owned; NULL: no layer is recurrent */
    uint32_t n_states;
};

/* The file must outlive the model. Errors name the key or tensor. */
struct arch_model *arch_build(const struct gguf *g, const struct arch_options *o, struct err *err);
void arch_free(struct arch_model *m);

/* Factors of queries at n positions: the `q_growth` input. */
void arch_q_growth(const struct arch_model *m, const int32_t *pos, size_t n, float *factors);
/* A row of the `embeddings` input, [n_embd]. The token and the position are in range. */
void arch_embed(const struct arch_model *m, int32_t token, int32_t pos, float *row);

bool arch_supported(struct str name);
/* Names of all families, separated by spaces. */
const char *arch_names(void);

#endif
