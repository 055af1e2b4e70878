/* Gemma 3: scaled embeddings, norms before and after each block, a norm on the heads of Q and K, GELU, and
 * five layers with a sliding window and a RoPE base of their own to each layer with full attention. */
#include "arch/family/family.h"

#include <math.h>

static int setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_u32(h, g, "attention.sliding_window", &h->n_swa, err) < 0 ||
        hparams_swa_pattern(h, g, 6, err) < 0 ||
        hparams_f32(h, g, "rope.freq_base_swa", &h->rope_freq_base_swa, err) < 0 ||
        hparams_f32(h, g, "final_logit_softcapping", &h->final_logit_softcap, err) < 0)
        return -1;
    /* The 27B model scales by its width per head, which is not the size of a head. */
    uint32_t size = h->n_layer == 62 ? h->n_embd / h->layer[0].n_head : h->n_embd_head_k;
    h->attn_scale = 1.0f / sqrtf((float)size);
    return 0;
}

static void build(struct net *n)
{
    struct ir *g = n->g;
    const struct attention a = {.rope = true, .qk_norm = QK_NORM_HEADS};
    const struct mlp m = {.act = IR_GELU_TANH};
    ir_val x = net_embeddings(n, sqrtf((float)n->h->n_embd));
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = block_attention(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il, &a);
        y = net_rms_norm(n, y, true, "blk.%u.post_attention_norm", il);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        y = block_mlp(n, net_rms_norm(n, x, true, "blk.%u.ffn_norm", il), il, &m);
        x = ir_add(g, x, net_rms_norm(n, y, true, "blk.%u.post_ffw_norm", il));
        ir_leave(g);
    }
    net_head(n, x);
}

const struct family family_gemma3 = {.setup = setup, .build = build};
