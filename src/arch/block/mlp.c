/* The gated feed-forward block; gate and up are one product where their types allow it. */
#include "arch/block/block.h"

ir_val block_mlp(struct net *n, ir_val x, uint32_t il, const struct mlp *m)
{
    struct ir *g = n->g;
    uint64_t ff = n->h->layer[il].n_ff, cols = n->h->n_embd;
    enum net_with with = m->scale ? NET_BIAS_SCALE : NET_BIAS;
    ir_val gate_up[2];
    ir_scope(g, "ffn");
    const struct gguf_tensor *t[2] = {net_matrix(n, false, ff, cols, "blk.%u.ffn_gate.weight", il), NULL};
    t[1] = net_matrix(n, true, t[0] ? ff : 2 * ff, cols, "blk.%u.ffn_up.weight", il);
    if (!t[0] || net_can_stack(n, 2, t)) {
        ir_val both = t[0] ? net_linear(n, x, with, 2, t, NULL) : net_linear(n, x, with, 1, t + 1, NULL);
        ir_split(g, both, 1, 2, (int64_t[]){(int64_t)ff, (int64_t)ff}, gate_up);
    } else {
        gate_up[0] = net_linear(n, x, with, 1, t, NULL);
        gate_up[1] = net_linear(n, x, with, 1, t + 1, NULL);
    }
    ir_val active = ir_unary(g, m->act, gate_up[0]);
    ir_val y = net_linear_named(n, ir_mul(g, active, gate_up[1]), with, cols, ff, "blk.%u.ffn_down", il);
    ir_leave(g);
    return y;
}
