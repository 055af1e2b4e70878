/* Llama and the families that differ from it in small ways: pre-norm attention and a gated MLP.
 * qwen2 has biases on Q, K and V (found by name), qwen3 a norm on the heads of Q and K, smollm3 layers without
 * rotation, phi3 fused tensors (the blocks find them) and longrope factors. */
#include "arch/family/family.h"

static void decoder(struct net *n, bool qk_norm, uint32_t no_rope_step)
{
    struct ir *g = n->g;
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        struct attention a = {.rope = no_rope_step == 0 || (il + 1) % no_rope_step != 0, .qk_norm = qk_norm};
        ir_scope(g, "blk.%u", il);
        ir_val y = block_attention(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        x = ir_add(g, x, block_mlp(n, net_rms_norm(n, x, true, "blk.%u.ffn_norm", il), il, MLP_SILU));
        ir_leave(g);
    }
    net_head(n, x);
}

static void llama(struct net *n)
{
    decoder(n, false, 0);
}

static void qwen3(struct net *n)
{
    decoder(n, true, 0);
}

static void smollm3(struct net *n)
{
    decoder(n, false, 4);
}

/* The sliding window of Phi-3 files is not applied, as in llama.cpp: its converter describes it wrongly. */
static int phi3_setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    (void)g;
    (void)err;
    h->n_swa = 0;
    return 0;
}

const struct family family_llama = {NULL, llama};
const struct family family_qwen2 = {NULL, llama};
const struct family family_qwen3 = {NULL, qwen3};
const struct family family_phi3 = {phi3_setup, llama};
const struct family family_smollm3 = {NULL, smollm3};
