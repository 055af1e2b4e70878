/* DeepSeek V2, V3 and what is built like them: latent attention, leading dense layers, experts. */
#include "arch/family/family.h"

static int setup_sizes(struct hparams *h, const struct gguf *g, struct err *err)
{
    uint32_t k = 0, v = 0;
    if (hparams_u32(h, g, "attention.kv_lora_rank", &h->n_latent, err) < 0 ||
        hparams_u32(h, g, "attention.key_length_mla", &k, err) < 0 ||
        hparams_u32(h, g, "attention.value_length_mla", &v, err) < 0)
        return -1;
    if (k != 0 && v != 0) { /* else the file is an old one, with these sizes in other keys */
        h->n_embd_head_k = k;
        h->n_embd_head_v = v;
    }
    if (h->n_latent == 0 || h->n_latent > 65536)
        return err_set(err, ERR_FORMAT, "key %s.attention.kv_lora_rank: %u is out of range", h->arch,
                       h->n_latent);
    if (h->n_embd_head_k > 4096 || h->n_embd_head_v > 4096 || h->n_rot == 0 || h->n_rot >= h->n_embd_head_k)
        return err_set(err, ERR_FORMAT, "heads of %u and %u with %u rotated are out of range",
                       h->n_embd_head_k, h->n_embd_head_v, h->n_rot);
    for (uint32_t il = 0; il < h->n_layer + h->n_nextn; il++)
        h->layer[il].n_head_kv = h->layer[il].n_head;
    return 0;
}

static int setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    /* GLM 4.7 Flash, whose files don't say it. */
    bool glm = (h->n_layer == 47 || h->n_layer == 48) && h->n_vocab == 154880;
    if (setup_sizes(h, g, err) < 0 || hparams_moe(h, g, err) < 0 ||
        hparams_moe_router(h, g, glm ? MOE_SIGMOID : MOE_SOFTMAX, err) < 0 ||
        hparams_q_growth(h, g, true, err) < 0)
        return -1;
    h->yarn_log_mul /= 0.1f; /* converters multiply by it */
    if (h->yarn_log_mul != 0)
        h->yarn_mul = h->yarn_log_mul;
    return 0;
}

static void build(struct net *n)
{
    const struct mlp mlp = {.act = IR_SWISH};
    const struct moe moe = {.selection_bias = true, .shared = MOE_SHARED};
    struct ir *g = n->g;
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = n->first; il < n->end; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = block_mla(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        y = net_rms_norm(n, x, true, "blk.%u.ffn_norm", il);
        x = ir_add(g, x, moe_layer(n->h, il) ? block_moe(n, y, il, &moe) : block_mlp(n, y, il, &mlp));
        ir_leave(g);
    }
    net_head(n, x);
}

const struct family family_deepseek2 = {setup, build, .experts = true, .nextn = true};
