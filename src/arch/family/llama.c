/* Llama and the families that differ from it in small ways: pre-norm attention and a gated MLP, or experts.
 * qwen2 has biases on Q, K and V (found by name), qwen3 a norm on the heads of Q and K, smollm3 layers
 * without rotation, phi3 fused tensors (the blocks find them) and longrope factors; the
 * sliding window of its files is not read, as in llama.cpp, whose converter describes it wrongly. */
#include "arch/family/family.h"

struct decoder {
    bool qk_norm;
    bool mlp_scale;
    uint32_t no_rope_step; /* every so many layers one is not rotated; 0: all are */
};

static void decoder(struct net *n, const struct decoder *d)
{
    const struct mlp m = {.act = IR_SWISH, .scale = d->mlp_scale};
    const struct moe experts = {.act = GATE_SILU, .scales = true, .normed = true};
    struct ir *g = n->g;
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        struct attention a = {.rope = d->no_rope_step == 0 || (il + 1) % d->no_rope_step != 0,
                              .qk_norm = d->qk_norm ? QK_NORM_HEADS : QK_NORM_NONE};
        ir_scope(g, "blk.%u", il);
        ir_val y = block_attention(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        y = net_rms_norm(n, x, true, "blk.%u.ffn_norm", il);
        y = n->h->n_expert ? block_moe(n, y, il, &experts) : block_mlp(n, y, il, &m);
        x = ir_add(g, x, y);
        ir_leave(g);
    }
    net_head(n, x);
}

static void llama(struct net *n)
{
    decoder(n, &(struct decoder){.mlp_scale = true});
}

static void qwen2(struct net *n)
{
    decoder(n, &(struct decoder){0});
}

static void qwen3(struct net *n)
{
    decoder(n, &(struct decoder){.qk_norm = true, .mlp_scale = true});
}

static void smollm3(struct net *n)
{
    decoder(n, &(struct decoder){.no_rope_step = 4});
}

static int setup_llama(struct hparams *h, const struct gguf *g, struct err *err)
{
    return h->n_expert ? hparams_moe(h, g, err) : 0;
}

const struct family family_llama = {setup_llama, llama, .experts = true};
const struct family family_qwen2 = {.build = qwen2};
const struct family family_qwen3 = {.build = qwen3};
const struct family family_phi3 = {.build = qwen2};
const struct family family_smollm3 = {.build = smollm3};
