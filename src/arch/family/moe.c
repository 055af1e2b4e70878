/* Families with experts, and the dense ones that share their attention: pre-norm attention, then in each
 * layer a gated MLP or experts. They differ in the norms of Q and K, in the router and in what all rows
 * share. */
#include "arch/family/family.h"

#include <math.h>
#include <stdio.h>

#define SILU .mlp = {.act = IR_SWISH}

/* ---- Qwen ---- */

static const struct decoder qwen2moe = {
    .attention = {.rope = true}, SILU, .moe = {.shared = MOE_SHARED_GATED}};
static const struct decoder qwen3moe = {
    .attention = {.rope = true, .qk_norm = QK_NORM_HEADS}, SILU, .moe = {.scales = true, .normed = true}};

const struct family family_qwen2moe = {.setup = hparams_moe, .decoder = &qwen2moe, .experts = true};
const struct family family_qwen3moe = {.setup = hparams_moe, .decoder = &qwen3moe, .experts = true};

/* ---- OLMoE: Q and K are normed as whole rows ---- */

static const struct decoder olmoe = {
    .attention = {.rope = true, .qk_norm = QK_NORM_ROWS, .no_output_bias = true}, SILU};

const struct family family_olmoe = {.setup = hparams_moe, .decoder = &olmoe, .experts = true};

/* ---- Granite: factors for embeddings, residuals, attention and logits ---- */

static int setup_granite(struct hparams *h, const struct gguf *g, struct err *err)
{
    float embedding = 0, residual = 0, logits = 0;
    if (hparams_f32(h, g, "embedding_scale", &embedding, err) < 0 ||
        hparams_f32(h, g, "residual_scale", &residual, err) < 0 ||
        hparams_f32(h, g, "attention.scale", &h->attn_scale, err) < 0)
        return -1;
    int found = hparams_f32(h, g, "logit_scale", &logits, err);
    if (found < 0)
        return -1;
    if (!found || !isnormal(logits))
        return err_set(err, ERR_FORMAT, "key %s.logit_scale is %s", h->arch,
                       found ? "no divisor" : "missing");
    h->embedding_scale = embedding != 0 ? embedding : 1;
    h->residual_scale = residual != 0 ? residual : 1;
    h->logit_scale = 1.0f / logits;
    return h->n_expert ? hparams_moe(h, g, err) : 0;
}

/* Granite 4's dense models don't rotate, which the file says with this key. */
static int setup_granite_dense(struct hparams *h, const struct gguf *g, struct err *err)
{
    bool rope = true;
    if (hparams_bool(h, g, "rope.scaling.finetuned", &rope, err) < 0)
        return -1;
    h->no_rope = !rope;
    return setup_granite(h, g, err);
}

static const struct decoder granite = {
    .attention = {.rope = true}, SILU, .moe = {.normed = true, .shared = MOE_SHARED_OPTIONAL}};

const struct family family_granite = {.setup = setup_granite_dense, .decoder = &granite, .experts = true};
const struct family family_granitemoe = {.setup = setup_granite, .decoder = &granite, .experts = true};

/* ---- ERNIE 4.5 ---- */

static int setup_ernie(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_u32(h, g, "interleave_moe_layer_step", &h->moe_step, err) < 0 ||
        hparams_u32(h, g, "leading_dense_block_count", &h->n_layer_dense, err) < 0)
        return -1;
    if (h->moe_step == 0)
        return err_set(err, ERR_FORMAT, "key %s.interleave_moe_layer_step: 0 is out of range", h->arch);
    return hparams_moe(h, g, err);
}

static const struct decoder ernie = {
    .attention = {.rope = true, .no_output_bias = true},
    SILU,
    .moe = {.normed = true, .selection_bias = true, .shared = MOE_SHARED_OPTIONAL}};

/* What the file says of experts doesn't count in the dense family. */
static int setup_ernie_dense(struct hparams *h, const struct gguf *g, struct err *err)
{
    (void)g;
    (void)err;
    h->n_expert = 0;
    return 0;
}

const struct family family_ernie4_5 = {.setup = setup_ernie_dense, .decoder = &ernie, .experts = true};
const struct family family_ernie4_5_moe = {.setup = setup_ernie, .decoder = &ernie, .experts = true};

/* ---- GLM 4.5, Ling 2: the router's habits are in the file ---- */

static int setup_glm4moe(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_moe(h, g, err) < 0 ? -1 : hparams_moe_router(h, g, MOE_SIGMOID, err);
}

static const struct decoder glm4moe = {
    .attention = {.rope = true, .qk_norm = QK_NORM_HEADS_OPTIONAL, .no_output_bias = true},
    SILU,
    .moe = {.selection_bias = true, .shared = MOE_SHARED_OPTIONAL},
    .ffn_norm = "post_attention_norm"};

static int setup_from_file(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_moe(h, g, err) < 0 ? -1 : hparams_moe_router(h, g, 0, err);
}

static int setup_from_file_or_softmax(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_moe(h, g, err) < 0 ? -1 : hparams_moe_router(h, g, MOE_SOFTMAX, err);
}

/* The router is a softmax, whatever else. */
static int setup_softmax(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_from_file_or_softmax(h, g, err) < 0)
        return -1;
    h->moe_gating = MOE_SOFTMAX;
    return 0;
}

static int setup_bailingmoe(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_softmax(h, g, err) < 0)
        return -1;
    h->n_layer_dense = 0;
    h->attn_scale = 1.0f / sqrtf((float)h->n_rot);
    return 0;
}

/* The weights are as the router gives them. */
static int setup_deepseek(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_softmax(h, g, err) < 0)
        return -1;
    h->moe_norm = false;
    return 0;
}

static const struct decoder bailingmoe2 = {.attention = {.rope = true, .qk_norm = QK_NORM_HEADS},
                                           SILU,
                                           .moe = {.selection_bias = true, .shared = MOE_SHARED}};
static const struct decoder bailingmoe = {.attention = {.rope = true}, SILU, .moe = {.shared = MOE_SHARED}};

const struct family family_glm4moe = {
    .setup = setup_glm4moe, .decoder = &glm4moe, .experts = true, .nextn = true};
const struct family family_bailingmoe2 = {.setup = setup_from_file, .decoder = &bailingmoe2, .experts = true};
const struct family family_dots1 = {
    .setup = setup_from_file_or_softmax, .decoder = &bailingmoe2, .experts = true};
const struct family family_bailingmoe = {.setup = setup_bailingmoe, .decoder = &bailingmoe, .experts = true};
const struct family family_deepseek = {.setup = setup_deepseek, .decoder = &bailingmoe, .experts = true};

/* ---- DBRX: LayerNorms, Q, K and V within bounds ---- */

static int setup_dbrx(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_f32(h, g, "attention.clamp_kqv", &h->clamp_qkv, err) < 0 ? -1 : hparams_moe(h, g, err);
}

static const struct decoder dbrx = {
    .attention = {.rope = true}, SILU, .moe = {.normed = true}, .ffn_norm = "attn_output_norm"};

const struct family family_dbrx = {
    .setup = setup_dbrx, .decoder = &dbrx, .experts = true, .layer_norm = true};

/* ---- EXAONE with experts, Mellum: windows in three layers of four ---- */

static int setup_exaone_moe(struct hparams *h, const struct gguf *g, struct err *err)
{
    h->n_swa = 128;
    return hparams_window(h, g, 4, err) < 0 ? -1 : setup_from_file(h, g, err);
}

/* YaRN is for the layers without a window. */
static int setup_mellum(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_window(h, g, 4, err) < 0)
        return -1;
    h->rope_freq_scale_swa = 1.0f;
    h->rope_swa_unscaled = true;
    return hparams_moe(h, g, err);
}

static const struct decoder exaone_moe = {.attention = {.rope = true, .qk_norm = QK_NORM_HEADS},
                                          SILU,
                                          .moe = {.selection_bias = true, .shared = MOE_SHARED},
                                          .rope_in_windows = true};

const struct family family_exaone_moe = {.setup = setup_exaone_moe, .decoder = &exaone_moe, .experts = true};
const struct family family_mellum = {.setup = setup_mellum, .decoder = &qwen3moe, .experts = true};

/* ---- Hunyuan: heads are normed after the rotation ---- */

/* "NTK-aware" scaling: a larger base instead of smaller angles. */
static int setup_hunyuan_dense(struct hparams *h, const struct gguf *g, struct err *err)
{
    float alpha = 0, size = (float)h->n_embd_head_k;
    if (hparams_f32(h, g, "rope.scaling.alpha", &alpha, err) < 0)
        return -1;
    if (alpha > 0)
        h->rope_freq_base *= powf(alpha, size / (size - 2));
    return 0;
}

static const struct decoder hunyuan = {.attention = {.rope = true, .qk_norm = QK_NORM_ROTATED_HEADS},
                                       SILU,
                                       .moe = {.normed = true, .shared = MOE_SHARED}};

const struct family family_hunyuan_dense = {.setup = setup_hunyuan_dense, .decoder = &hunyuan};
const struct family family_hunyuan_moe = {.setup = hparams_moe, .decoder = &hunyuan, .experts = true};

/* ---- MiniMax M2 ---- */

static int setup_minimax(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_from_file(h, g, err) < 0)
        return -1;
    h->moe_scale = 0; /* not this family's */
    h->n_layer_dense = 0;
    return 0;
}

static const struct decoder minimax_m2 = {
    .attention = {.rope = true, .qk_norm = QK_NORM_ROWS, .no_output_bias = true},
    SILU,
    .moe = {.normed = true, .selection_bias = true}};

const struct family family_minimax_m2 = {.setup = setup_minimax, .decoder = &minimax_m2, .experts = true};

/* ---- gpt-oss: sinks, every other layer with a window, biases everywhere, a clamped gate ---- */

static int setup_gpt_oss(struct hparams *h, const struct gguf *g, struct err *err)
{
    h->rope_freq_base_swa = h->rope_freq_base;
    h->rope_freq_scale_swa = h->rope_freq_scale;
    h->moe_gating = MOE_SOFTMAX_OF_CHOSEN;
    if (hparams_u32(h, g, "attention.sliding_window", &h->n_swa, err) < 0 ||
        hparams_swa_pattern(h, g, 2, err) < 0 ||
        hparams_f32(h, g, "rope.freq_base_swa", &h->rope_freq_base_swa, err) < 0)
        return -1;
    return hparams_moe(h, g, err);
}

static const struct decoder gpt_oss = {.attention = {.rope = true, .sinks = true},
                                       SILU,
                                       .moe = {.act = GATE_SWIGLU_OAI, .biases = true},
                                       .ffn_norm = "post_attention_norm"};

const struct family family_gpt_oss = {.setup = setup_gpt_oss, .decoder = &gpt_oss, .experts = true};

/* ---- Llama 4 ---- */

/* Layers that rotate see only their own stretch of so many positions, and the others' queries grow with the
 * position from there on. Up to it nothing of that shows, and longer contexts are refused. */
enum { LLAMA4_CHUNK = 8192 };

static int setup_llama4(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_u32(h, g, "interleave_moe_layer_step", &h->moe_step, err) < 0 ||
        hparams_f32(h, g, "expert_weights_scale", &h->moe_scale, err) < 0)
        return -1;
    if (h->moe_step == 0)
        return err_set(err, ERR_FORMAT, "key %s.interleave_moe_layer_step: 0 is out of range", h->arch);
    if (h->n_ctx_train > LLAMA4_CHUNK)
        h->n_ctx_train = LLAMA4_CHUNK;
    h->moe_gating = MOE_SIGMOID;
    return hparams_moe(h, g, err);
}

static void llama4(struct net *n)
{
    const struct hparams *h = n->h;
    uint32_t window = 1;
    struct err err = ERR_INIT;
    if (hparams_u32(h, n->file, "attention.sliding_window", &window, &err) < 0)
        ir_fail(n->g, "%s", err.text);
    n->model->n_ctx_max = LLAMA4_CHUNK;
    decoder_build(
        n, &(struct decoder){
               .attention = {.rope = true, .qk_norm = h->n_expert == 128 ? QK_NORM_NONE : QK_NORM_PLAIN},
               SILU,
               .moe = {.weighs_input = true, .shared = MOE_SHARED},
               .no_rope_step = window == 0 ? h->n_layer : 4});
}

const struct family family_llama4 = {.setup = setup_llama4, .build = llama4, .experts = true};
