/* LFM 2: gated short convolutions, and attention in the layers that have key heads. */
#include "arch/family/family.h"

static int setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_u32(h, g, "shortconv.l_cache", &h->n_shortconv, err) < 0 ||
        hparams_u32(h, g, "attention.sliding_window", &h->n_swa, err) < 0)
        return -1;
    if (h->n_shortconv < 2 || h->n_shortconv > 64)
        return err_set(err, ERR_FORMAT, "key %s.shortconv.l_cache: %u is out of range", h->arch,
                       h->n_shortconv);
    for (uint32_t il = 0; il < h->n_layer; il++) {
        h->layer[il].recurrent = h->layer[il].n_head_kv == 0;
        h->layer[il].swa = h->n_swa > 0;
    }
    h->rope_freq_base_swa = h->rope_freq_base;
    h->rope_freq_scale_swa = h->rope_freq_scale;
    return 0;
}

static void build(struct net *n)
{
    struct ir *g = n->g;
    const struct attention a = {.rope = true, .qk_norm = true};
    const struct mlp m = {.act = IR_SWISH};
    n->output_norm = "token_embd_norm"; /* what the format calls it here */
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        y = n->h->layer[il].recurrent ? block_shortconv(n, y, il, n->h->n_shortconv)
                                      : block_attention(n, y, il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        x = ir_add(g, x, block_mlp(n, net_rms_norm(n, x, true, "blk.%u.ffn_norm", il), il, &m));
        ir_leave(g);
    }
    net_head(n, x);
}

const struct family family_lfm2 = {setup, build};
