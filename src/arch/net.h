/* A network under construction: what every block needs at hand, and the pieces that are smaller than a block.
 */
#ifndef ARCH_NET_H
#define ARCH_NET_H

#include "arch/arch.h"
#include "arch/hparams.h"
#include "arch/weights.h"
#include "ir/ir.h"

/* How blocks are expressed for a device. A row of the table in lower.c; blocks call these and never name a
 * device. */
struct net;
struct attn_call {
    ir_val q, k, v; /* f32 [T, heads * size] */
    uint32_t il;    /* layer */
    uint32_t n_head, n_head_kv;
    float scale;
    uint32_t window; /* 0: all positions */
    ir_val sinks;    /* f32 [1, heads, 1, 1] or IR_NONE */
    ir_val slopes;   /* f32 [heads]: times the distance, what is taken from a score; or IR_NONE */
};
/* Gated delta rule: a state S [value size, key size] for each head, S = exp(decay) S, then S += beta (v - S
 * k) k^T; out S q / sqrt(key size). Q and K are brought to length 1. Value head h reads key head h / (n_head
 * / n_head_k). */
struct delta_call {
    ir_val q, k;        /* f32 [T, n_head_k, key size] */
    ir_val v;           /* f32 [T, n_head, value size] */
    ir_val decay, beta; /* f32 [T, n_head] */
    float norm_eps;
};
/* The same with what stands around it: Q, K and V are silu of a convolution of qkv, decay is a softplus(alpha
 * + dt), beta passes a sigmoid, what comes out is normed (RMS) and gated with silu(z). Channels of qkv are
 * those of Q, of K and of V; the value heads that share a key head are neighbours, or, `tiled`, every
 * n_head_k-th. */
struct deltanet_call {
    ir_val qkv, z;                               /* f32 [T, channels], [T, heads * value size] */
    ir_val alpha, beta;                          /* f32 [T, heads] */
    ir_val conv, bias;                           /* f32 [taps, channels]; [channels] or IR_NONE */
    ir_val dt, a, norm;                          /* f32 [heads], [heads], [value size] */
    uint32_t key_heads, heads, key, value, taps; /* counts of heads, sizes of one */
    bool tiled;
    float norm_eps;
};
/* Selective state space (Mamba 2): a state S [head size, state size] for each head, S = exp(a dt) S + dt x
 * b^T; out S c. Head h reads group h / (n_head / groups). */
struct ssm_call {
    ir_val a;    /* f32 [n_head] */
    ir_val dt;   /* f32 [T, n_head] */
    ir_val x;    /* f32 [T, n_head, head size] */
    ir_val b, c; /* f32 [T, groups, state size] */
};
struct experts_call {
    ir_val x, ids, weights; /* f32 [T, cols]; i32 and f32 [T, experts of a row] */
    const struct weights_experts *experts;
};
struct lowering {
    const char *name;
    /* OpenVINO's types for the inference and the KV cache unless the user says otherwise; NULL: the device's
     * own. */
    const char *precision, *cache_type;
    /* Declares the graph's inputs that the others need. */
    void (*begin)(struct net *n);
    /* Attention over what the sequence holds and these rows, which join it: f32 [T, heads * v size]. */
    ir_val (*attention)(struct net *n, const struct attn_call *c);
    /* Products of x with tensors as they lie in the file, without their companions. False when the device has
     * no operation for their types; then the plugin's own product with repacked weights is used. NULL: it
     * never has. `out` receives, by form, one value f32 [T, rows of all], one for each tensor, or act(first)
     * * second. */
    bool (*blocks)(struct net *n, ir_val x, const char *form, int count, const struct gguf_tensor *const *t,
                   const uint32_t *const *row_maps, ir_val *out);
    /* The weighted sum of each row's experts, as they lie in the file: f32 [T, cols]. False and NULL as
     * above. */
    bool (*experts)(struct net *n, const struct experts_call *c, ir_val *out);
    /* Rotates the first n_rot dimensions of each head, NeoX order: x [T, 1, heads, size] -> [T, heads, 1,
     * size]. */
    ir_val (*rope)(struct net *n, ir_val x, ir_val cos, ir_val sin, uint32_t n_rot);
    /* What recurrent layers keep between steps is theirs to declare. Causal convolution of each channel with
     * its taps over the last rows: x f32 [T, channels], weight f32 [channels, 1, taps], bias f32 [channels]
     * or IR_NONE -> [T, channels]. */
    ir_val (*conv)(struct net *n, ir_val x, ir_val weight, ir_val bias);
    ir_val (*delta)(struct net *n, const struct delta_call *c); /* f32 [T, n_head, value size] */
    ir_val (*ssm)(struct net *n, const struct ssm_call *c);     /* f32 [T, n_head, head size] */
    /* f32 [T, heads * value size]. False when the device has no operation for these sizes: then conv, delta
     * and small operations. `out` NULL only asks, by the sizes. */
    bool (*deltanet)(struct net *n, const struct deltanet_call *c, ir_val *out);
};

/* The table's row for a device; `repack` asks for one without `blocks`. NULL with an error that names the
 * device when there is none. */
const struct lowering *lowering_for(const char *device, bool repack, struct err *err);

struct net {
    struct ir *g;
    const struct gguf *file;
    const struct hparams *h;
    struct weights *w;
    const struct lowering *lower;
    struct arch_model *model; /* what the engine will be told */
    enum rope_order {
        ROPE_NEOX,
        ROPE_NORMAL,
        ROPE_BY_SECTIONS, /* in arch.def: NeoX if the file has sections of M-RoPE, else normal */
    } rope_order;         /* of the file's Q and K rows */

    uint32_t first, end; /* layers that the graph runs */

    const char *output_norm; /* the tensor's name without ".weight"; NULL: "output_norm" */
    bool plain_norms;        /* LayerNorms without weights */
    bool no_head_bias;
    ir_val out_rows;                 /* i32 [n]: rows of the step whose logits are wanted */
    ir_val rope_cos[2], rope_sin[2]; /* full and sliding-window layers; IR_NONE when not in use */
    ir_val q_growth;                 /* f32 [T, 1]; IR_NONE before it is asked for */
    ir_val subsequence_begins;       /* these two are the lowering's */
    ir_val paged[2][4];              /* past_lens … max_context_len of full and of sliding-window layers */
    ir_val states[5];                /* state_rows … state_interval, once a layer has asked for them */

    struct { /* group sums of values already made: shared by the matrices that read the same x */
        ir_val x, sums;
        uint32_t group;
    } sums[8];
    int n_sums;
};

/* Inputs and the first residual stream: f32 [T, n_embd], the rows of token_embd, times `scale`; of layers
 * that guess, what they make of these and the hidden rows. */
ir_val net_embeddings(struct net *n, float scale);
/* The file's learned positions are added to the embeddings; no context is longer than they are. */
void net_positions(struct net *n);
/* The wanted rows of the last layer; other layers keep all, as does one whose hidden rows are an output. Call
 * it where only row-wise work is left. */
ir_val net_wanted_rows(struct net *n, uint32_t il, ir_val x);

/* A block's output, times the family's factor for what joins the residual stream. */
ir_val net_residual(struct net *n, ir_val x);

/* RMS norm over the last axis by the vector tensor of that name. An optional missing tensor gives x. */
ir_val net_rms_norm(struct net *n, ir_val x, bool required, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same with a weight at hand. */
ir_val net_rms_norm_by(struct net *n, ir_val x, ir_val weight);
/* The family's kind of norm: an RMS norm, or a LayerNorm with a bias if the file has one. */
ir_val net_norm(struct net *n, ir_val x, bool required, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The last axis brought to a mean of 0 and a variance of 1. */
ir_val net_standardized(struct net *n, ir_val x);

/* A small tensor of rows x cols, shaped [rows, cols], or [cols] if it has one dimension; `order` (may be
 * NULL) of its elements. IR_NONE when it is missing (with `required` the graph has failed). */
ir_val net_vector(struct net *n, bool required, uint64_t rows, uint64_t cols, const uint32_t *order,
                  const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Companions of a matrix "NAME.weight" in the file and the order in which they act: "NAME.scale", one factor
 * for the product, and "NAME.bias", a number for each row. They count where the file has them. */
enum net_with { NET_BIAS, NET_SCALE_BIAS, NET_BIAS_SCALE, NET_SCALE };

/* x [T, cols] times the stacked matrices of these tensors, with their companions: f32 [T, rows]. */
ir_val net_linear(struct net *n, ir_val x, enum net_with with, int count, const struct gguf_tensor *const *t,
                  const uint32_t *const *row_maps);
/* The same, with a value for each tensor: out[i] is f32 [T, rows of t[i]]. One product where types allow it.
 */
void net_linear_each(struct net *n, ir_val x, enum net_with with, int count,
                     const struct gguf_tensor *const *t, const uint32_t *const *row_maps, ir_val *out);
/* act(gate x) * (up x). A single tensor (count 1) holds both, the gate's rows first. */
ir_val net_gated(struct net *n, ir_val x, enum net_with with, enum ir_unary act, int count,
                 const struct gguf_tensor *const *t);
/* A single matrix, whose shape is checked. */
ir_val net_linear_named(struct net *n, ir_val x, enum net_with with, uint64_t rows, uint64_t cols,
                        const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* The tensor, checked to be rows x cols. NULL (and the graph failed) when it is missing or otherwise shaped;
 * with `required` false NULL alone may mean that it is not there. */
const struct gguf_tensor *net_matrix(struct net *n, bool required, uint64_t rows, uint64_t cols,
                                     const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Output norm, head (tied to the embeddings when there is none), soft cap: the result "logits" [n, n_vocab],
 * and "hidden" where the options ask for it. Layers that guess may have a norm and a head of their own. */
void net_head(struct net *n, ir_val x);

/* Queries [T, …] times what they grow by, if the family has that. */
ir_val net_grown(struct net *n, ir_val q);

/* cos and sin tables as graph inputs, declared when first asked for. */
void net_rope_tables(struct net *n, bool swa, ir_val *cos, ir_val *sin);

#endif
