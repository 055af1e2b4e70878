/* Mamba 2 and the hybrids that mix it with attention: Granite 4 layer by layer, Falcon H1 side by side in
 * each layer, Nemotron H with its feed-forward blocks or experts as layers of their own. And Mamba 1, with
 * Jamba, its hybrid. */
#include "arch/family/family.h"

/* ---- mamba2 ---- */

static int setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_recurrent(h, g, err) < 0)
        return -1;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = true;
    return 0;
}

static void mamba2(struct net *n)
{
    struct ir *g = n->g;
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = block_mamba(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        ir_leave(g);
    }
    net_head(n, x);
}

/* ---- granitehybrid ---- */

static int setup_granite(struct hparams *h, const struct gguf *g, struct err *err)
{
    float embedding = 0, residual = 0, logits = 0;
    bool rope = true; /* the key says "fine-tuned" and means "with RoPE" */
    if (hparams_recurrent(h, g, err) < 0 || hparams_f32(h, g, "logit_scale", &logits, err) < 0 ||
        hparams_f32(h, g, "residual_scale", &residual, err) < 0 ||
        hparams_f32(h, g, "embedding_scale", &embedding, err) < 0 ||
        hparams_f32(h, g, "attention.scale", &h->attn_scale, err) < 0 ||
        hparams_bool(h, g, "rope.scaling.finetuned", &rope, err) < 0)
        return -1;
    h->embedding_scale = embedding != 0 ? embedding : 1;
    h->residual_scale = residual != 0 ? residual : 1;
    h->logit_scale = logits != 0 ? 1.0f / logits : 1;
    h->no_rope = !rope;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = h->layer[il].n_head_kv == 0;
    return h->n_expert ? hparams_moe(h, g, err) : 0;
}

static void granite(struct net *n)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    const struct attention a = {.rope = !h->no_rope};
    const struct mlp m = {.act = IR_SWISH};
    const struct moe experts = {.normed = true, .shared = MOE_SHARED_OPTIONAL};
    ir_val x = net_embeddings(n, h->embedding_scale);
    for (uint32_t il = 0; il < h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        y = h->layer[il].recurrent ? block_mamba(n, y, il) : block_attention(n, y, il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), net_residual(n, y));
        y = net_rms_norm(n, x, true, "blk.%u.ffn_norm", il);
        y = moe_layer(h, il) ? block_moe(n, y, il, &experts) : block_mlp(n, y, il, &m);
        x = ir_add(g, x, net_residual(n, y));
        ir_leave(g);
    }
    net_head(n, x);
}

/* ---- falcon-h1 ---- */

static int setup_falcon(struct hparams *h, const struct gguf *g, struct err *err)
{
    h->no_rope_factors = true;
    return setup(h, g, err);
}

static void falcon(struct net *n)
{
    struct ir *g = n->g;
    const struct attention a = {.rope = true, .no_output_bias = true};
    const struct mlp m = {.act = IR_SWISH};
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val in = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        ir_val y = ir_add(g, block_attention(n, in, il, &a), block_mamba(n, in, il));
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        /* Its norm alone is named without ".weight". */
        ir_val norm = net_vector(n, true, 1, n->h->n_embd, NULL, "blk.%u.ffn_norm", il);
        x = ir_add(g, x, block_mlp(n, net_rms_norm_by(n, x, norm), il, &m));
        ir_leave(g);
    }
    net_head(n, x);
}

/* ---- nemotron_h ---- */

static int setup_nemotron(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_recurrent(h, g, err) < 0)
        return -1;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = h->layer[il].n_head_kv == 0 && h->layer[il].n_ff == 0;
    if (h->n_expert == 0)
        return 0;
    if (hparams_moe(h, g, err) < 0 || hparams_moe_router(h, g, MOE_SIGMOID, err) < 0)
        return -1;
    h->moe_gating = MOE_SIGMOID;
    return 0;
}

static void nemotron(struct net *n)
{
    struct ir *g = n->g;
    const struct attention a = {0};
    const struct mlp mlp = {.act = IR_RELU, .scale = true, .no_gate = true, .squared = true};
    const struct moe moe = {
        .no_gate = true, .scales = true, .shared_scales = true, .selection_bias = true, .shared = MOE_SHARED};
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        const struct hparams_layer *l = &n->h->layer[il];
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        if (l->recurrent)
            y = block_mamba(n, y, il);
        else if (l->n_ff == 0)
            y = block_attention(n, y, il, &a);
        else
            y = n->h->n_expert ? block_moe(n, net_wanted_rows(n, il, y), il, &moe)
                               : block_mlp(n, net_wanted_rows(n, il, y), il, &mlp);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        ir_leave(g);
    }
    net_head(n, x);
}

/* ---- mamba, jamba ---- */

static int setup_mamba1(struct hparams *h, const struct gguf *g, struct err *err)
{
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = true;
    return hparams_recurrent1(h, g, err);
}

static void mamba1(struct net *n)
{
    struct ir *g = n->g;
    bool normed = false;
    struct err err = ERR_INIT;
    if (hparams_bool(n->h, n->file, "ssm.dt_b_c_rms", &normed, &err) < 0)
        ir_fail(g, "%s", err.text);
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = block_mamba1(n, net_rms_norm(n, x, true, "blk.%u.attn_norm", il), il, normed);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        ir_leave(g);
    }
    net_head(n, x);
}

static int setup_jamba(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_recurrent1(h, g, err) < 0)
        return -1;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = h->layer[il].n_head_kv == 0;
    return h->n_expert ? hparams_moe(h, g, err) : 0;
}

/* Which layers have experts shows in the tensors. */
static void jamba(struct net *n)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    const struct attention a = {0};
    const struct mlp m = {.act = IR_SWISH};
    const struct moe experts = {0};
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        y = h->layer[il].recurrent ? block_mamba1(n, y, il, false) : block_attention(n, y, il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        y = net_rms_norm(n, x, true, "blk.%u.ffn_norm", il);
        bool routed = h->n_expert && weights_tensor(n->w, false, NULL, "blk.%u.ffn_gate_inp.weight", il);
        x = ir_add(g, x, routed ? block_moe(n, y, il, &experts) : block_mlp(n, y, il, &m));
        ir_leave(g);
    }
    net_head(n, x);
}

const struct family family_mamba = {setup_mamba1, mamba1, .experts = false};
const struct family family_jamba = {setup_jamba, jamba, .experts = true};
const struct family family_mamba2 = {setup, mamba2, .experts = false};
const struct family family_granitehybrid = {setup_granite, granite, .experts = true};
const struct family family_falcon_h1 = {setup_falcon, falcon, .experts = false};
const struct family family_nemotron_h = {setup_nemotron, nemotron, .experts = true};
