/* Families that are the decoder in one of its forms, with the keys that only they have. */
#include "arch/family/family.h"

#include <math.h>

#define ROTATED .attention = {.rope = true}
#define SILU    .mlp = {.act = IR_SWISH}
/* down(gelu(up x)) with biases: what GPT-2 began. */
#define GELU_UP      .mlp = {.act = IR_GELU_TANH, .no_gate = true}
#define SQUARED_RELU .mlp = {.act = IR_RELU, .no_gate = true, .squared = true}

/* ---- as llama, or nearly ---- */

static const struct decoder plain = {ROTATED, SILU};
static const struct decoder squared = {ROTATED, SQUARED_RELU};
static const struct decoder q_k_normed = {.attention = {.rope = true, .qk_norm = QK_NORM_HEADS}, SILU};
static const struct decoder post_attention_norm = {ROTATED, SILU, .ffn_norm = "post_attention_norm"};
static const struct decoder parallel = {ROTATED, SILU, .parallel = true};
static const struct decoder all_norms = {ROTATED, SILU, .post_norms = true};

/* The key counts both halves of what is gated. */
static int setup_qwen(struct hparams *h, const struct gguf *g, struct err *err)
{
    (void)g;
    (void)err;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].n_ff /= 2;
    return 0;
}

static int setup_minicpm(struct hparams *h, const struct gguf *g, struct err *err)
{
    h->embedding_scale = 12.0f;
    h->residual_scale = 1.4f / sqrtf((float)h->n_layer);
    h->logit_scale = 256.0f / (float)h->n_embd;
    if (hparams_f32(h, g, "embedding_scale", &h->embedding_scale, err) < 0 ||
        hparams_f32(h, g, "residual_scale", &h->residual_scale, err) < 0 ||
        hparams_f32(h, g, "logit_scale", &h->logit_scale, err) < 0)
        return -1;
    return h->n_expert ? hparams_moe(h, g, err) : 0;
}

static const struct decoder minicpm = {ROTATED, SILU, .moe = {.normed = true}};

/* The 7B model rotates; the 13B model has a bias by distance instead. */
static int setup_baichuan(struct hparams *h, const struct gguf *g, struct err *err)
{
    (void)g;
    (void)err;
    h->no_rope = h->n_layer != 32;
    h->max_alibi_bias = h->n_layer == 40 ? 8.0f : 0;
    return 0;
}

/* Their vision parts are not read. With text alone the three positions of M-RoPE are one. */
static const struct decoder qwen2vl = {ROTATED, SILU, .no_head_bias = true};
static const struct decoder qwen3vlmoe = {
    .attention = {.rope = true, .qk_norm = QK_NORM_HEADS}, SILU, .moe = {.normed = true}};

const struct family family_qwen2vl = {.decoder = &qwen2vl};
const struct family family_qwen3vlmoe = {.setup = hparams_moe, .decoder = &qwen3vlmoe, .experts = true};
const struct family family_plain = {.decoder = &plain};
const struct family family_qwen = {.setup = setup_qwen, .decoder = &plain};
const struct family family_arcee = {.decoder = &squared};
const struct family family_seed_oss = {.decoder = &post_attention_norm};
const struct family family_plamo = {.decoder = &parallel};
const struct family family_glm4 = {.decoder = &all_norms};
const struct family family_q_k_normed = {.decoder = &q_k_normed};
const struct family family_minicpm = {.setup = setup_minicpm, .decoder = &minicpm, .experts = true};
const struct family family_baichuan = {.setup = setup_baichuan, .decoder = &plain};

/* ---- OLMo 2, EXAONE 4: norms only behind the blocks ---- */

/* YaRN is for the layers without a window. */
static int setup_olmo2(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_window(h, g, 4, err) < 0)
        return -1;
    h->rope_freq_scale_swa = 1.0f;
    h->rope_swa_unscaled = true;
    return 0;
}

/* Only the 32B model has windows, and only their layers rotate. */
static int setup_exaone4(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (h->n_layer != 64)
        return 0;
    h->n_swa = 4096;
    return hparams_window(h, g, 4, err);
}

static const struct decoder olmo2 = {
    .attention = {.rope = true, .qk_norm = QK_NORM_ROWS}, SILU, .no_pre_norms = true, .post_norms = true};
static const struct decoder exaone4 = {.attention = {.rope = true, .qk_norm = QK_NORM_HEADS},
                                       SILU,
                                       .no_pre_norms = true,
                                       .post_norms = true,
                                       .rope_in_windows = true};

const struct family family_olmo2 = {.setup = setup_olmo2, .decoder = &olmo2};
const struct family family_exaone4 = {.setup = setup_exaone4, .decoder = &exaone4};

/* ---- LayerNorms ---- */

static const struct decoder gpt = {ROTATED, GELU_UP};
static const struct decoder gpt_parallel = {ROTATED, GELU_UP, .parallel = true};
static const struct decoder gpt_positions = {GELU_UP, .positions = true};

const struct family family_gpt = {.decoder = &gpt, .layer_norm = true};
const struct family family_gpt_parallel = {.decoder = &gpt_parallel, .layer_norm = true};
const struct family family_gpt_positions = {.decoder = &gpt_positions, .layer_norm = true};
const struct family family_nemotron = {.decoder = &squared, .layer_norm = true};
const struct family family_orion = {.decoder = &plain, .layer_norm = true};

static void gptneox(struct net *n)
{
    bool side_by_side = false;
    struct err err = ERR_INIT;
    int found = hparams_bool(n->h, n->file, "use_parallel_residual", &side_by_side, &err);
    if (found <= 0)
        ir_fail(n->g, "%s%s%s", found < 0 ? err.text : "key ", found < 0 ? "" : n->h->arch,
                found < 0 ? "" : ".use_parallel_residual is missing");
    decoder_build(n, side_by_side ? &gpt_parallel : &gpt);
}

const struct family family_gptneox = {.build = gptneox, .layer_norm = true};

/* Without a norm of its own the MLP reads what attention reads. */
static void stablelm(struct net *n)
{
    bool own = weights_tensor(n->w, false, NULL, "blk.0.ffn_norm.weight") != NULL;
    decoder_build(n, &(struct decoder){.attention = {.rope = true, .qk_norm = QK_NORM_HEADS_OPTIONAL},
                                       SILU,
                                       .parallel = !own});
}

const struct family family_stablelm = {.build = stablelm, .layer_norm = true};

static int setup_clamp(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_f32(h, g, "attention.clamp_kqv", &h->clamp_qkv, err) < 0 ? -1 : 0;
}

static const struct decoder olmo = {ROTATED, SILU, .plain_norms = true};

const struct family family_olmo = {.setup = setup_clamp, .decoder = &olmo, .layer_norm = true};

static int setup_mpt(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_clamp(h, g, err) < 0)
        return -1;
    return hparams_f32(h, g, "attention.max_alibi_bias", &h->max_alibi_bias, err) < 0 ? -1 : 0;
}

static void mpt(struct net *n)
{
    bool positions = weights_tensor(n->w, false, NULL, "position_embd.weight") != NULL;
    bool normed = weights_tensor(n->w, false, NULL, "blk.0.attn_q_norm.weight") != NULL;
    decoder_build(n, &(struct decoder){.attention = {.qk_norm = normed ? QK_NORM_ROWS : QK_NORM_NONE},
                                       GELU_UP,
                                       .positions = positions});
}

const struct family family_mpt = {.setup = setup_mpt, .build = mpt, .layer_norm = true};

/* ---- Command R ---- */

static int setup_command_r(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_f32(h, g, "logit_scale", &h->logit_scale, err) < 0)
        return -1;
    h->logit_scale = h->logit_scale != 0 ? h->logit_scale : 1;
    return 0;
}

static int setup_cohere2(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_window(h, g, 4, err) < 0 ? -1 : setup_command_r(h, g, err);
}

static const struct decoder command_r = {
    .attention = {.rope = true, .qk_norm = QK_NORM_HEADS_OPTIONAL}, SILU, .parallel = true};
static const struct decoder cohere2 = {ROTATED, .mlp = {.act = IR_SWISH, .scale = true}, .parallel = true,
                                       .rope_in_windows = true};

const struct family family_command_r = {.setup = setup_command_r, .decoder = &command_r, .layer_norm = true};
const struct family family_cohere2 = {.setup = setup_cohere2, .decoder = &cohere2, .layer_norm = true};
