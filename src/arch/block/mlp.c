/* The feed-forward block, gated or not; gate and up are one product where their types allow it. */
#include "arch/block/block.h"

static ir_val mlp(struct net *n, ir_val x, uint32_t il, const struct mlp *m, const char *suffix, uint64_t ff)
{
    struct ir *g = n->g;
    uint64_t cols = n->h->n_embd;
    enum net_with with = m->scale ? NET_BIAS_SCALE : NET_BIAS;
    ir_scope(g, "ffn%s", suffix);
    if (m->no_gate) {
        ir_val h = net_linear_named(n, x, with, ff, cols, "blk.%u.ffn_up%s", il, suffix);
        h = ir_unary(g, m->act, h);
        h = m->squared ? ir_mul(g, h, h) : h;
        ir_val divisors = net_vector(n, false, 1, ff, NULL, "blk.%u.ffn.act.scales", il);
        h = divisors == IR_NONE ? h : ir_binary(g, IR_DIV, h, divisors);
        ir_val y = net_linear_named(n, h, with, cols, ff, "blk.%u.ffn_down%s", il, suffix);
        ir_leave(g);
        return y;
    }
    const struct gguf_tensor *gate = net_matrix(n, false, ff, cols, "blk.%u.ffn_gate%s.weight", il, suffix);
    const struct gguf_tensor *up =
        net_matrix(n, true, gate ? ff : 2 * ff, cols, "blk.%u.ffn_up%s.weight", il, suffix);
    const struct gguf_tensor *both[] = {gate, up};
    ir_val h = net_gated(n, x, with, m->act, gate ? 2 : 1, gate ? both : both + 1);
    ir_val y = net_linear_named(n, h, with, cols, ff, "blk.%u.ffn_down%s", il, suffix);
    ir_leave(g);
    return y;
}

ir_val block_mlp(struct net *n, ir_val x, uint32_t il, const struct mlp *m)
{
    return mlp(n, x, il, m, "", n->h->layer[il].n_ff);
}

ir_val block_mlp_shared(struct net *n, ir_val x, uint32_t il, const struct mlp *m)
{
    const struct gguf_tensor *down = weights_tensor(n->w, false, NULL, "blk.%u.ffn_down_shexp.weight", il);
    return mlp(n, x, il, m, "_shexp", down ? down->ne[0] : n->h->layer[il].n_ff);
}
