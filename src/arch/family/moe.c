/* Families with experts, and the dense ones that share their attention: pre-norm attention, then in each
 * layer a gated MLP or experts. They differ in the norms of Q and K, in the router and in what all rows
 * share. */
#include "arch/family/family.h"

#include <math.h>
#include <stdio.h>

struct mixture {
    struct attention attention;
    struct moe moe;
    const char *ffn_norm; /* NULL: "ffn_norm" */
};

static void mixture(struct net *n, const struct mixture *m)
{
    const struct hparams *h = n->h;
    const struct mlp mlp = {.act = IR_SWISH};
    const char *ffn_norm = m->ffn_norm ? m->ffn_norm : "ffn_norm";
    struct ir *g = n->g;
    ir_val x = net_embeddings(n, h->embedding_scale);
    for (uint32_t il = 0; il < h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = block_attention(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il, &m->attention);
        x = ir_add(g, net_wanted_rows(n, il, x), net_residual(n, y));
        y = net_rms_norm(n, x, true, "blk.%u.%s", il, ffn_norm);
        y = moe_layer(h, il) ? block_moe(n, y, il, &m->moe) : block_mlp(n, y, il, &mlp);
        x = ir_add(g, x, net_residual(n, y));
        ir_leave(g);
    }
    net_head(n, x);
}

/* ---- Qwen ---- */

static void qwen2moe(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true}, {.shared = MOE_SHARED_GATED}, NULL});
}

static void qwen3moe(struct net *n)
{
    mixture(n, &(struct mixture){
                   {.rope = true, .qk_norm = QK_NORM_HEADS}, {.scales = true, .normed = true}, NULL});
}

const struct family family_qwen2moe = {hparams_moe, qwen2moe, .experts = true};
const struct family family_qwen3moe = {hparams_moe, qwen3moe, .experts = true};

/* ---- OLMoE: Q and K are normed as whole rows ---- */

static void olmoe(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true, .qk_norm = QK_NORM_ROWS, .no_output_bias = true}, {0}, NULL});
}

const struct family family_olmoe = {hparams_moe, olmoe, .experts = true};

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

static void granite_with(struct net *n, bool rope)
{
    mixture(n, &(struct mixture){{.rope = rope}, {.normed = true, .shared = MOE_SHARED_OPTIONAL}, NULL});
}

/* Granite 4's dense models don't rotate, which the file says with this key. */
static void granite(struct net *n)
{
    bool rope = true;
    struct err err = ERR_INIT;
    if (hparams_bool(n->h, n->file, "rope.scaling.finetuned", &rope, &err) < 0)
        ir_fail(n->g, "%s", err.text);
    granite_with(n, rope);
}

static void granitemoe(struct net *n)
{
    granite_with(n, true);
}

const struct family family_granite = {setup_granite, granite, .experts = true};
const struct family family_granitemoe = {setup_granite, granitemoe, .experts = true};

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

static void ernie(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true, .no_output_bias = true},
                                 {.normed = true, .selection_bias = true, .shared = MOE_SHARED_OPTIONAL},
                                 NULL});
}

/* What the file says of experts doesn't count in the dense family. */
static int setup_ernie_dense(struct hparams *h, const struct gguf *g, struct err *err)
{
    (void)g;
    (void)err;
    h->n_expert = 0;
    return 0;
}

const struct family family_ernie4_5 = {setup_ernie_dense, ernie, .experts = true};
const struct family family_ernie4_5_moe = {setup_ernie, ernie, .experts = true};

/* ---- GLM 4.5, Ling 2: the router's habits are in the file ---- */

static int setup_glm4moe(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_moe(h, g, err) < 0 ? -1 : hparams_moe_router(h, g, MOE_SIGMOID, err);
}

static void glm4moe(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true, .qk_norm = QK_NORM_HEADS_OPTIONAL, .no_output_bias = true},
                                 {.selection_bias = true, .shared = MOE_SHARED_OPTIONAL},
                                 "post_attention_norm"});
}

static int setup_from_file(struct hparams *h, const struct gguf *g, struct err *err)
{
    return hparams_moe(h, g, err) < 0 ? -1 : hparams_moe_router(h, g, 0, err);
}

static void bailingmoe2(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true, .qk_norm = QK_NORM_HEADS},
                                 {.selection_bias = true, .shared = MOE_SHARED},
                                 NULL});
}

const struct family family_glm4moe = {setup_glm4moe, glm4moe, .experts = true};
const struct family family_bailingmoe2 = {setup_from_file, bailingmoe2, .experts = true};

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

static void hunyuan(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true, .qk_norm = QK_NORM_ROTATED_HEADS},
                                 {.normed = true, .shared = MOE_SHARED},
                                 NULL});
}

const struct family family_hunyuan_dense = {.setup = setup_hunyuan_dense, .build = hunyuan};
const struct family family_hunyuan_moe = {hparams_moe, hunyuan, .experts = true};

/* ---- MiniMax M2 ---- */

static int setup_minimax(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (setup_from_file(h, g, err) < 0)
        return -1;
    h->moe_scale = 0; /* not this family's */
    h->n_layer_dense = 0;
    return 0;
}

static void minimax_m2(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true, .qk_norm = QK_NORM_ROWS, .no_output_bias = true},
                                 {.normed = true, .selection_bias = true},
                                 NULL});
}

const struct family family_minimax_m2 = {setup_minimax, minimax_m2, .experts = true};

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

static void gpt_oss(struct net *n)
{
    mixture(n, &(struct mixture){{.rope = true, .sinks = true},
                                 {.act = GATE_SWIGLU_OAI, .biases = true},
                                 "post_attention_norm"});
}

const struct family family_gpt_oss = {setup_gpt_oss, gpt_oss, .experts = true};
