/* Layers of attention and a feed-forward block or experts, in the forms that struct decoder tells apart. */
#include "arch/family/family.h"

static bool rotates(const struct net *n, const struct decoder *d, uint32_t il)
{
    const struct hparams *h = n->h;
    if (d->no_rope_step > 0 && (il + 1) % d->no_rope_step == 0)
        return false;
    return d->attention.rope && !h->no_rope && !(d->rope_in_windows && h->n_swa > 0 && !h->layer[il].swa);
}

static ir_val pre_norm(struct net *n, const struct decoder *d, ir_val x, uint32_t il, const char *name)
{
    if (d->no_pre_norms)
        return x;
    return d->plain_norms ? net_standardized(n, x) : net_norm(n, x, true, "blk.%u.%s", il, name);
}

static ir_val feed_forward(struct net *n, const struct decoder *d, ir_val x, uint32_t il)
{
    ir_val y = moe_layer(n->h, il) ? block_moe(n, x, il, &d->moe) : block_mlp(n, x, il, &d->mlp);
    return d->post_norms ? net_norm(n, y, true, "blk.%u.post_ffw_norm", il) : y;
}

static ir_val one_after_the_other(struct net *n, const struct decoder *d, ir_val x, uint32_t il,
                                  const struct attention *a)
{
    struct ir *g = n->g;
    ir_val y = block_attention(n, pre_norm(n, d, x, il, "attn_norm"), il, a);
    if (d->post_norms)
        y = net_norm(n, y, true, "blk.%u.post_attention_norm", il);
    x = ir_add(g, net_wanted_rows(n, il, x), net_residual(n, y));
    y = feed_forward(n, d, pre_norm(n, d, x, il, d->ffn_norm ? d->ffn_norm : "ffn_norm"), il);
    return ir_add(g, x, net_residual(n, y));
}

static ir_val side_by_side(struct net *n, const struct decoder *d, ir_val x, uint32_t il,
                           const struct attention *a)
{
    struct ir *g = n->g;
    ir_val in = pre_norm(n, d, x, il, "attn_norm"), attn = in, ff;
    if (weights_tensor(n->w, false, NULL, "blk.%u.attn_norm_2.weight", il))
        attn = net_norm(n, x, true, "blk.%u.attn_norm_2", il);
    x = net_wanted_rows(n, il, x);
    if (weights_tensor(n->w, false, NULL, "blk.%u.ffn_norm.weight", il))
        ff = net_norm(n, x, true, "blk.%u.ffn_norm", il);
    else
        ff = net_wanted_rows(n, il, in);
    ir_val y = ir_add(g, block_attention(n, attn, il, a), feed_forward(n, d, ff, il));
    return ir_add(g, x, y);
}

void decoder_build(struct net *n, const struct decoder *d)
{
    ir_val x = net_embeddings(n, n->h->embedding_scale);
    if (d->positions)
        net_positions(n);
    n->plain_norms = d->plain_norms;
    n->no_head_bias = d->no_head_bias;
    for (uint32_t il = n->first; il < n->end; il++) {
        struct attention a = d->attention;
        a.rope = rotates(n, d, il);
        ir_scope(n->g, "blk.%u", il);
        x = d->parallel ? side_by_side(n, d, x, il, &a) : one_after_the_other(n, d, x, il, &a);
        ir_leave(n->g);
    }
    net_head(n, x);
}
