/* Blocks that families compose. Each works on rows [T, n_embd] of one layer and binds its tensors by
 * llama.cpp's names ("blk.3.attn_q.weight"). */
#ifndef ARCH_BLOCK_H
#define ARCH_BLOCK_H

#include "arch/net.h"

struct attention {
    bool rope;
    bool qk_norm; /* RMS norm of each head of Q and K before the rotation */
    float scale;  /* 0: the file's, or 1 / sqrt(head size) */
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

#endif
