/* The gated feed-forward block; gate and up are one product where their types allow it. */
#include "arch/block/block.h"

ir_val block_mlp(struct net *n, ir_val x, uint32_t il, const struct mlp *m)
{
    struct ir *g = n->g;
    uint64_t ff = n->h->layer[il].n_ff, cols = n->h->n_embd;
    enum net_with with = m->scale ? NET_BIAS_SCALE : NET_BIAS;
    ir_scope(g, "ffn");
    const struct gguf_tensor *gate = net_matrix(n, false, ff, cols, "blk.%u.ffn_gate.weight", il);
    const struct gguf_tensor *up = net_matrix(n, true, gate ? ff : 2 * ff, cols, "blk.%u.ffn_up.weight", il);
    const struct gguf_tensor *both[] = {gate, up};
    ir_val h = net_gated(n, x, with, m->act, gate ? 2 : 1, gate ? both : both + 1);
    ir_val y = net_linear_named(n, h, with, cols, ff, "blk.%u.ffn_down", il);
    ir_leave(g);
    return y;
}
