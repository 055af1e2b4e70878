/* Blocks that families compose. Each works on rows [T, n_embd] of one layer and binds its tensors by
 * llama.cpp's names ("blk.3.attn_q.weight"). */
#ifndef ARCH_BLOCK_H
#define ARCH_BLOCK_H

#include "arch/net.h"
#include "kernels/gate.h"

/* The norm of Q and K: of each head before the rotation (if the file has its weights, which may differ by
 * head), of each head after it, or of whole rows before it. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEADS,
    QK_NORM_HEADS_OPTIONAL,
    QK_NORM_ROTATED_HEADS,
    QK_NORM_PLAIN, /* of each rotated head, without weights */
    QK_NORM_ROWS
};

struct attention {
    bool rope;
    enum qk_norm qk_norm;
    float scale;         /* 0: the file's, or 1 / sqrt(head size) */
    bool sinks;          /* a learnt score for each head that takes part in the softmax only */
    bool no_output_bias; /* one in the file doesn't count */
    bool gate;           /* the rows of Q hold a gate behind each head: out times its sigmoid */
};

/* Attention with its output projection. In the last layer only the wanted rows come out. */
ir_val block_attention(struct net *n, ir_val x, uint32_t il, const struct attention *a);

/* Latent attention, with its output projection. */
ir_val block_mla(struct net *n, ir_val x, uint32_t il);

struct mlp {
    enum ir_unary act;
    bool scale;   /* the family applies "….scale" tensors here */
    bool no_gate; /* down(act(up(x))) */
    bool squared; /* of that act(…)^2 */
};

/* down(act(gate(x)) * up(x)); gate and up may be one fused tensor (ffn_up with twice the rows, gate first).
 */
ir_val block_mlp(struct net *n, ir_val x, uint32_t il, const struct mlp *m);

/* The same by "ffn_gate_shexp", … as wide as the file says: experts that all rows share. */
ir_val block_mlp_shared(struct net *n, ir_val x, uint32_t il, const struct mlp *m);

struct moe {
    enum gate act;
    bool no_gate;        /* experts, and what all rows share, are down(relu(up(x))^2) */
    bool scales, biases; /* the family applies "ffn_*_exps.scale", "ffn_*_exps.bias" */
    bool shared_scales;  /* and "ffn_*_shexp.scale" */
    bool selection_bias; /* "exp_probs_b.bias", if the file has it, helps to choose, not to weigh */
    bool weighs_input;   /* a row's weights act on what its experts read, not on what they give */
    bool normed;         /* the weights of the chosen are made to sum to 1, whatever the file says */
    enum { MOE_SHARED_NONE, MOE_SHARED_OPTIONAL, MOE_SHARED, MOE_SHARED_GATED } shared;
};

/* The weighted sum of the experts that a router chooses for each row, and what all rows share. */
ir_val block_moe(struct net *n, ir_val x, uint32_t il, const struct moe *m);
/* Whether layer il has experts. */
bool moe_layer(const struct hparams *h, uint32_t il);

/* Causal convolution of each channel of x [T, channels] by the tensors NAME.weight and, if there is one,
 * NAME.bias; `rows` is the order of channels in x, NULL: the file's. */
ir_val block_conv(struct net *n, ir_val x, uint32_t taps, const uint32_t *rows, const char *name,
                  uint32_t il);

/* The blocks below keep states; as block_attention, in the last layer they give only the wanted rows. */

/* Gated short convolution (LFM 2). */
ir_val block_shortconv(struct net *n, ir_val x, uint32_t il, uint32_t taps);

struct deltanet {
    bool tiled; /* value head h belongs to key head h mod (number of key heads), not to neighbours */
    bool mixed; /* beta and alpha, in old files also Q, K, V and Z, are one tensor, by key head */
    bool scale; /* the family applies "….scale" tensors here */
};

/* Linear attention by the gated delta rule, with its output projection. */
ir_val block_deltanet(struct net *n, ir_val x, uint32_t il, const struct deltanet *d);

/* Mamba 2. */
ir_val block_mamba(struct net *n, ir_val x, uint32_t il);
/* Mamba 1; with `normed` the step, B and C are normed even where the file has no weights for that. */
ir_val block_mamba1(struct net *n, ir_val x, uint32_t il, bool normed);

#endif
