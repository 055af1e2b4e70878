/* The Mamba 2 mixer: x, B and C through a short convolution, a state for each head that decays at a rate of
 * its own, a gate, and a norm in groups. */
#include "arch/block/block.h"

/* A tensor of one number for each head, [1, heads] or [heads]. */
static ir_val by_head(struct net *n, bool column, const char *name, uint32_t il)
{
    uint32_t heads = n->h->ssm_heads;
    ir_val v = net_vector(n, true, column ? heads : 1, column ? 1 : heads, NULL, "blk.%u.%s", il, name);
    return column ? ir_reshape(n->g, v, 1, (int64_t[]){heads}, false) : v;
}

/* RMS norm over each group's part of the channels, with weights of its own: [T, heads, size] in and out. */
static ir_val group_norm(struct net *n, ir_val y, uint32_t il)
{
    const struct hparams *h = n->h;
    struct ir *g = n->g;
    uint32_t size = h->ssm_inner / h->ssm_groups;
    ir_val w = net_vector(n, false, h->ssm_groups, size, NULL, "blk.%u.ssm_norm.weight", il);
    y = ir_reshape(g, y, 3, (int64_t[]){-1, h->ssm_groups, size}, false);
    return w == IR_NONE ? y : net_rms_norm_by(n, y, w);
}

ir_val block_mamba(struct net *n, ir_val x, uint32_t il)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    int64_t inner = h->ssm_inner, heads = h->ssm_heads, groups = h->ssm_groups, state = h->ssm_state;
    int64_t size = inner / heads, filtered = inner + 2 * groups * state;
    ir_val in[3], part[3];
    ir_scope(g, "mamba");
    ir_val all = net_linear_named(n, x, NET_SCALE_BIAS, (uint64_t)(inner + filtered + heads), h->n_embd,
                                  "blk.%u.ssm_in", il);
    ir_split(g, all, 1, 3, (int64_t[]){inner, filtered, heads}, in);
    ir_val xbc = ir_unary(g, IR_SWISH, block_conv(n, in[1], h->ssm_conv, NULL, "ssm_conv1d", il));
    ir_split(g, xbc, 1, 3, (int64_t[]){inner, groups * state, groups * state}, part);
    struct ssm_call call = {
        .a = by_head(n, true, "ssm_a", il),
        .dt = ir_unary(g, IR_SOFTPLUS, ir_add(g, in[2], by_head(n, false, "ssm_dt.bias", il))),
        .x = ir_reshape(g, part[0], 3, (int64_t[]){-1, heads, size}, false),
        .b = ir_reshape(g, part[1], 3, (int64_t[]){-1, groups, state}, false),
        .c = ir_reshape(g, part[2], 3, (int64_t[]){-1, groups, state}, false),
    };
    ir_val y = net_wanted_rows(n, il, n->lower->ssm(n, &call));
    ir_val d = ir_reshape(g, by_head(n, true, "ssm_d", il), 3, (int64_t[]){1, heads, 1}, false);
    y = ir_add(g, y, ir_mul(g, net_wanted_rows(n, il, call.x), d));
    ir_val z = ir_unary(g, IR_SWISH, net_wanted_rows(n, il, in[0]));
    y = ir_mul(g, y, ir_reshape(g, z, 3, (int64_t[]){-1, heads, size}, false));
    y = ir_reshape(g, group_norm(n, y, il), 2, (int64_t[]){-1, inner}, false);
    y = net_linear_named(n, y, NET_SCALE_BIAS, h->n_embd, (uint64_t)inner, "blk.%u.ssm_out", il);
    ir_leave(g);
    return y;
}
