/* Qwen 3.5 and Qwen 3 Next: of every few layers one has attention, with a gate on what comes out and RoPE on
 * a part of each head; the others have linear attention by the gated delta rule. The sections of M-RoPE
 * differ only for images: for text all positions are the same, and it is plain RoPE. */
#include "arch/family/family.h"

static int setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_recurrent(h, g, err) < 0 || hparams_recurrent_pattern(h, g, err) < 0)
        return -1;
    return h->n_expert ? hparams_moe(h, g, err) : 0;
}

static ir_val feed_forward(struct net *n, ir_val x, uint32_t il, bool scale)
{
    const struct moe experts = {
        .scales = true, .shared_scales = true, .normed = true, .shared = MOE_SHARED_GATED};
    return moe_layer(n->h, il) ? block_moe(n, x, il, &experts)
                               : block_mlp(n, x, il, &(struct mlp){.act = IR_SWISH, .scale = scale});
}

static void hybrid(struct net *n, const struct deltanet *d)
{
    struct ir *g = n->g;
    const struct attention a = {.rope = true, .qk_norm = QK_NORM_HEADS, .gate = true};
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = n->first; il < n->end; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        y = n->h->layer[il].recurrent ? block_deltanet(n, y, il, d) : block_attention(n, y, il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        y = net_rms_norm(n, x, true, "blk.%u.post_attention_norm", il);
        x = ir_add(g, x, feed_forward(n, y, il, d->scale));
        ir_leave(g);
    }
    net_head(n, x);
}

static void qwen35(struct net *n)
{
    hybrid(n, &(struct deltanet){.tiled = true, .scale = true});
}

static void qwen3next(struct net *n)
{
    hybrid(n, &(struct deltanet){.mixed = true});
}

const struct family family_qwen35 = {setup, qwen35, .experts = true, .nextn = true};
const struct family family_qwen3next = {setup, qwen3next, .experts = true, .nextn = true};
