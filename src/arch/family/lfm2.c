/* LFM 2: gated short convolutions, and attention in the layers that have key heads; then a gated MLP or,
 * behind some dense layers, experts. */
#include "arch/family/family.h"

static int setup_conv(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_u32(h, g, "shortconv.l_cache", &h->n_shortconv, err) < 0)
        return -1;
    if (h->n_shortconv < 2 || h->n_shortconv > 64)
        return err_set(err, ERR_FORMAT, "key %s.shortconv.l_cache: %u is out of range", h->arch,
                       h->n_shortconv);
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = h->layer[il].n_head_kv == 0;
    return 0;
}

static int setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_conv(h, g, err) < 0 || hparams_u32(h, g, "attention.sliding_window", &h->n_swa, err) < 0)
        return -1;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].swa = h->n_swa > 0;
    h->rope_freq_base_swa = h->rope_freq_base;
    h->rope_freq_scale_swa = h->rope_freq_scale;
    return 0;
}

static int setup_moe(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_conv(h, g, err) < 0 || hparams_moe(h, g, err) < 0 || hparams_moe_router(h, g, 0, err) < 0)
        return -1;
    h->moe_scale = 0; /* not this family's */
    return 0;
}

static void build(struct net *n)
{
    struct ir *g = n->g;
    const struct attention a = {.rope = true, .qk_norm = QK_NORM_HEADS};
    const struct mlp m = {.act = IR_SWISH};
    const struct moe experts = {.selection_bias = true, .normed = true};
    n->output_norm = "token_embd_norm"; /* what the format calls it here */
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        y = n->h->layer[il].recurrent ? block_shortconv(n, y, il, n->h->n_shortconv)
                                      : block_attention(n, y, il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        y = net_rms_norm(n, x, true, "blk.%u.ffn_norm", il);
        x = ir_add(g, x, moe_layer(n->h, il) ? block_moe(n, y, il, &experts) : block_mlp(n, y, il, &m));
        ir_leave(g);
    }
    net_head(n, x);
}

const struct family family_lfm2 = {setup, build, .experts = false};
const struct family family_lfm2moe = {setup_moe, build, .experts = true};
