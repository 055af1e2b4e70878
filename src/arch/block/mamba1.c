/* The Mamba 1 mixer (arXiv:2312.00752): each channel has a state of its own, whose numbers decay at different
 * rates. The device's operation has one rate for each head, so each number of a state becomes a head of one,
 * in groups by its place in the state, and their outputs are summed. */
#include "arch/block/block.h"

/* [T, parts of the width in `in`] normed, by the file's weights or, with `normed`, without. */
static ir_val part_norm(struct net *n, ir_val x, bool normed, const char *name, uint32_t il)
{
    if (weights_tensor(n->w, false, NULL, "blk.%u.%s.weight", il, name))
        return net_rms_norm(n, x, true, "blk.%u.%s", il, name);
    return normed ? net_rms_norm_by(n, x, ir_f32(n->g, 1.0f)) : x;
}

ir_val block_mamba1(struct net *n, ir_val x, uint32_t il, bool normed)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    int64_t inner = h->ssm_inner, state = h->ssm_state, rank = h->ssm_heads, heads = inner * state;
    ir_val in[2], part[3];
    ir_scope(g, "mamba");
    ir_val all = net_linear_named(n, x, NET_SCALE, 2 * (uint64_t)inner, h->n_embd, "blk.%u.ssm_in", il);
    ir_split(g, all, 1, 2, NULL, in);
    ir_val u = ir_unary(g, IR_SWISH, block_conv(n, in[0], h->ssm_conv, NULL, "ssm_conv1d", il));
    all =
        net_linear_named(n, u, NET_SCALE, (uint64_t)(rank + 2 * state), (uint64_t)inner, "blk.%u.ssm_x", il);
    ir_split(g, all, 1, 3, (int64_t[]){rank, state, state}, part);
    ir_val dt = part_norm(n, part[0], normed, "ssm_dt_norm", il);
    dt = net_linear_named(n, dt, NET_BIAS, (uint64_t)inner, (uint64_t)rank, "blk.%u.ssm_dt", il);
    dt = ir_unary(g, IR_SOFTPLUS, dt);
    ir_val b = part_norm(n, part[1], normed, "ssm_b_norm", il);
    ir_val c = part_norm(n, part[2], normed, "ssm_c_norm", il);
    ir_val a = net_vector(n, true, (uint64_t)inner, (uint64_t)state, NULL, "blk.%u.ssm_a", il);
    a = ir_transpose(g, a, 2, (int64_t[]){1, 0});
    struct ssm_call call = {
        .a = ir_reshape(g, a, 1, (int64_t[]){heads}, false),
        .dt = ir_tile(g, dt, 2, (int64_t[]){1, state}),
        .x = ir_reshape(g, ir_tile(g, u, 2, (int64_t[]){1, state}), 3, (int64_t[]){-1, heads, 1}, false),
        .b = ir_reshape(g, b, 3, (int64_t[]){-1, state, 1}, false),
        .c = ir_reshape(g, c, 3, (int64_t[]){-1, state, 1}, false),
    };
    ir_val y = net_wanted_rows(n, il, n->lower->ssm(n, &call));
    y = ir_reduce(g, IR_REDUCE_SUM, ir_reshape(g, y, 3, (int64_t[]){-1, state, inner}, false), 1, false);
    ir_val d = net_vector(n, true, 1, (uint64_t)inner, NULL, "blk.%u.ssm_d", il);
    y = ir_add(g, y, ir_mul(g, net_wanted_rows(n, il, u), d));
    y = ir_mul(g, y, ir_unary(g, IR_SWISH, net_wanted_rows(n, il, in[1])));
    y = net_linear_named(n, y, NET_SCALE, h->n_embd, (uint64_t)inner, "blk.%u.ssm_out", il);
    ir_leave(g);
    return y;
}
