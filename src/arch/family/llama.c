/* Llama and the families that differ from it in small ways: pre-norm attention and a gated MLP, or experts.
 * qwen2 has biases on Q, K and V (found by name), qwen3 a norm on the heads of Q and K, smollm3 layers
 * without rotation, phi3 fused tensors (the blocks find them) and longrope factors; the
 * sliding window of its files is not read, as in llama.cpp, whose converter describes it wrongly. */
#include "arch/family/family.h"

static const struct decoder llama = {
    .attention = {.rope = true},
    .mlp = {.act = IR_SWISH, .scale = true},
    .moe = {.act = GATE_SILU, .scales = true, .normed = true},
};
static const struct decoder qwen2 = {.attention = {.rope = true}, .mlp = {.act = IR_SWISH}};
static const struct decoder qwen3 = {.attention = {.rope = true, .qk_norm = QK_NORM_HEADS},
                                     .mlp = {.act = IR_SWISH, .scale = true}};
static const struct decoder smollm3 = {
    .attention = {.rope = true}, .mlp = {.act = IR_SWISH}, .no_rope_step = 4};

static int setup_llama(struct hparams *h, const struct gguf *g, struct err *err)
{
    return h->n_expert ? hparams_moe(h, g, err) : 0;
}

/* Llama-Nemotron: layers whose attention or feed-forward block was pruned away, or attention to a matrix. */
static void deci(struct net *n)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    const struct attention a = {.rope = true};
    const struct mlp m = {.act = IR_SWISH};
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < h->n_layer; il++) {
        const struct hparams_layer *l = &h->layer[il];
        ir_scope(g, "blk.%u", il);
        ir_val y = IR_NONE, in = net_wanted_rows(n, il, x);
        if (l->n_head > 0 && l->n_ff > 0) {
            y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
            if (l->n_head_kv > 0)
                y = block_attention(n, y, il, &a);
            else
                y = net_linear_named(n, net_wanted_rows(n, il, y), NET_SCALE, h->n_embd, h->n_embd,
                                     "blk.%u.attn_output", il);
            in = ir_add(g, in, y);
        }
        if (l->n_ff > 0)
            in = ir_add(g, in, block_mlp(n, net_rms_norm(n, in, true, "blk.%u.ffn_norm", il), il, &m));
        x = in;
        ir_leave(g);
    }
    net_head(n, x);
}

const struct family family_deci = {.build = deci};

static int setup_mistral3(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_q_growth(h, g, false, err) < 0 ? -1 : setup_llama(h, g, err);
}

const struct family family_mistral3 = {.setup = setup_mistral3, .decoder = &llama, .experts = true};
const struct family family_llama = {.setup = setup_llama, .decoder = &llama, .experts = true};
const struct family family_qwen2 = {.decoder = &qwen2};
const struct family family_qwen3 = {.decoder = &qwen3};
const struct family family_phi3 = {.decoder = &qwen2};
const struct family family_smollm3 = {.decoder = &smollm3};
