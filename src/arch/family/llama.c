/* Llama and the families that differ from it in small ways: pre-norm attention and a gated MLP.
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
    struct ir *g = n->g;
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        struct attention a = {.rope = d->no_rope_step == 0 || (il + 1) % d->no_rope_step != 0,
                              .qk_norm = d->qk_norm};
        ir_scope(g, "blk.%u", il);
        ir_val y = block_attention(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        x = ir_add(g, x, block_mlp(n, net_rms_norm(n, x, true, "blk.%u.ffn_norm", il), il, &m));
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

const struct family family_llama = {NULL, llama};
const struct family family_qwen2 = {NULL, qwen2};
const struct family family_qwen3 = {NULL, qwen3};
const struct family family_phi3 = {NULL, qwen2};
const struct family family_smollm3 = {NULL, smollm3};
