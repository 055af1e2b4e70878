/* Mamba 2 and the hybrids that mix it with attention: Granite 4 layer by layer, Falcon H1 side by side in
 * each layer, Nemotron H with its feed-forward blocks as layers of their own. */
#include "arch/family/family.h"

#include <stdio.h>

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
    float logits = 0;
    char key[128];
    if (hparams_recurrent(h, g, err) < 0 || hparams_f32(h, g, "logit_scale", &logits, err) < 0 ||
        hparams_f32(h, g, "residual_scale", &h->residual_scale, err) < 0 ||
        hparams_f32(h, g, "embedding_scale", &h->embedding_scale, err) < 0 ||
        hparams_f32(h, g, "attention.scale", &h->attn_scale, err) < 0)
        return -1;
    if (logits != 0)
        h->logit_scale = 1.0f / logits;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = h->layer[il].n_head_kv == 0;
    /* The key says "fine-tuned" and means "with RoPE". */
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", h->arch);
    const struct gguf_kv *kv = gguf_find(g, key);
    h->no_rope = kv && !kv->is_array && kv->type == GGUF_BOOL && gguf_i64_at(kv, 0) == 0;
    return 0;
}

static ir_val times(struct ir *g, ir_val x, float factor)
{
    return factor == 0 ? x : ir_mul(g, x, ir_f32(g, factor));
}

static void granite(struct net *n)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    const struct attention a = {.rope = !h->no_rope};
    const struct mlp m = {.act = IR_SWISH};
    ir_val x = net_embeddings(n, h->embedding_scale != 0 ? h->embedding_scale : 1.0f);
    for (uint32_t il = 0; il < h->n_layer; il++) {
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        y = h->layer[il].recurrent ? block_mamba(n, y, il) : block_attention(n, y, il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), times(g, y, h->residual_scale));
        y = block_mlp(n, net_rms_norm(n, x, true, "blk.%u.ffn_norm", il), il, &m);
        x = ir_add(g, x, times(g, y, h->residual_scale));
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
    const struct attention a = {.rope = true, .no_out_bias = true};
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
    return 0;
}

/* down(relu(up x)^2) */
static ir_val squared_relu(struct net *n, ir_val x, uint32_t il)
{
    struct ir *g = n->g;
    uint64_t ff = n->h->layer[il].n_ff, cols = n->h->n_embd;
    ir_scope(g, "ffn");
    ir_val y = net_linear_named(n, net_wanted_rows(n, il, x), NET_BIAS_SCALE, ff, cols, "blk.%u.ffn_up", il);
    y = ir_unary(g, IR_RELU, y);
    y = net_linear_named(n, ir_mul(g, y, y), NET_BIAS_SCALE, cols, ff, "blk.%u.ffn_down", il);
    ir_leave(g);
    return y;
}

static void nemotron(struct net *n)
{
    struct ir *g = n->g;
    const struct attention a = {0};
    ir_val x = net_embeddings(n, 1.0f);
    for (uint32_t il = 0; il < n->h->n_layer; il++) {
        const struct hparams_layer *l = &n->h->layer[il];
        ir_scope(g, "blk.%u", il);
        ir_val y = net_rms_norm(n, x, true, "blk.%u.attn_norm", il);
        y = l->recurrent ? block_mamba(n, y, il)
            : l->n_ff    ? squared_relu(n, y, il)
                         : block_attention(n, y, il, &a);
        x = ir_add(g, net_wanted_rows(n, il, x), y);
        ir_leave(g);
    }
    net_head(n, x);
}

const struct family family_mamba2 = {setup, mamba2};
const struct family family_granitehybrid = {setup_granite, granite};
const struct family family_falcon_h1 = {setup_falcon, falcon};
const struct family family_nemotron_h = {setup_nemotron, nemotron};
