/* Blocks that families compose. Each works on rows [T, n_embd] of one layer and binds its tensors by
 * llama.cpp's names ("blk.3.attn_q.weight"). */
#ifndef ARCH_BLOCK_H
#define ARCH_BLOCK_H

#include "arch/net.h"

struct attention {
    bool rope;
    bool qk_norm; /* RMS norm of each head of Q and K before the rotation */
    bool no_out_bias;
    bool gate;   /* the rows of Q hold a gate behind each head: out times its sigmoid */
    float scale; /* 0: the file's, or 1 / sqrt(head size) */
};

/* Attention with its output projection. In the last layer only the wanted rows come out. */
ir_val block_attention(struct net *n, ir_val x, uint32_t il, const struct attention *a);

struct mlp {
    enum ir_unary act;
    bool scale; /* the family applies "….scale" tensors here */
};

/* down(act(gate(x)) * up(x)); gate and up may be one fused tensor (ffn_up with twice the rows, gate first).
 */
ir_val block_mlp(struct net *n, ir_val x, uint32_t il, const struct mlp *m);

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

#endif
