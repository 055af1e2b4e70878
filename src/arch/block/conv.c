/* The causal convolution of recurrent layers: a filter of a few taps for each channel, over the last rows of
 * its sequence. */
#include "arch/block/block.h"

ir_val block_conv(struct net *n, ir_val x, uint32_t taps, const uint32_t *rows, const char *name, uint32_t il)
{
    struct ir *g = n->g;
    int64_t channels = ir_dim(g, x, 1);
    const struct gguf_tensor *t = net_matrix(n, true, (uint64_t)channels, taps, "blk.%u.%s.weight", il, name);
    if (!t)
        return IR_NONE;
    uint32_t *map = NULL;
    if (rows) {
        map = weights_row_map(n->w, (size_t)channels * taps);
        for (size_t i = 0; i < (size_t)channels * taps; i++)
            map[i] = rows[i / taps] * taps + (uint32_t)(i % taps);
    }
    ir_val weight = weights_small(n->w, g, t, map);
    weight = ir_reshape(g, weight, 3, (int64_t[]){channels, 1, taps}, false);
    ir_val bias = net_vector(n, false, 1, (uint64_t)channels, rows, "blk.%u.%s.bias", il, name);
    if (!n->lower->conv) {
        ir_fail(g, "layer %u: the device has no operation for recurrent layers", il);
        return IR_NONE;
    }
    return n->lower->conv(n, x, weight, bias);
}

ir_val block_shortconv(struct net *n, ir_val x, uint32_t il, uint32_t taps)
{
    struct ir *g = n->g;
    uint64_t width = n->h->n_embd;
    ir_val part[3]; /* what goes in, what comes out, what is filtered */
    ir_scope(g, "shortconv");
    ir_split(g, net_linear_named(n, x, NET_BIAS, 3 * width, width, "blk.%u.shortconv.in_proj", il), 1, 3,
             NULL, part);
    ir_val y = block_conv(n, ir_mul(g, part[0], part[2]), taps, NULL, "shortconv.conv", il);
    y = net_wanted_rows(n, il, ir_mul(g, part[1], y));
    y = net_linear_named(n, y, NET_BIAS, width, width, "blk.%u.shortconv.out_proj", il);
    ir_leave(g);
    return y;
}
