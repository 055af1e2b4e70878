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
