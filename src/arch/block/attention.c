/* Attention: Q, K and V from one product where their types allow it, norms, rotation, the device's attention.
 */
#include "arch/block/block.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Order of the rows of Q or K. GGUF keeps the rotary pairs of "normal" families side by side (2i, 2i+1); the
 * graph rotates halves (i, i + n/2). Reordering the rows of Q and K alike changes no product between them.
 * Gates, which follow each head of Q in the file, come behind all heads. NULL: as in the file. */
static const uint32_t *head_rows(struct net *n, uint32_t heads, bool rope, bool gate)
{
    bool pairs = rope && n->rope_order != ROPE_NEOX;
    if (!pairs && !gate)
        return NULL;
    uint32_t size = n->h->n_embd_head_k, half = pairs ? n->h->n_rot / 2 : 0, stride = gate ? 2 * size : size;
    uint32_t *map = weights_row_map(n->w, (size_t)heads * stride);
    for (uint32_t head = 0; head < heads; head++) {
        for (uint32_t i = 0; i < size; i++) {
            uint32_t from = i < half ? 2 * i : i < 2 * half ? 2 * (i - half) + 1 : i;
            map[head * size + i] = head * stride + from;
            if (gate)
                map[(heads + head) * size + i] = head * stride + size + i;
        }
    }
    return map;
}

struct qkv {
    ir_val q, k, v;
};

/* Widths in columns of the three parts. */
struct widths {
    int64_t q, k, v;
};

static struct qkv split_qkv(struct net *n, ir_val qkv, struct widths w)
{
    ir_val part[3];
    ir_split(n->g, qkv, 1, 3, (int64_t[]){w.q, w.k, w.v}, part);
    return (struct qkv){part[0], part[1], part[2]};
}

static struct qkv project(struct net *n, ir_val x, uint32_t il, struct widths w, const struct attention *a)
{
    const struct hparams_layer *l = &n->h->layer[il];
    const uint32_t *q_map = head_rows(n, l->n_head, a->rope, a->gate);
    const uint32_t *k_map = head_rows(n, l->n_head_kv, a->rope, false);
    uint64_t cols = n->h->n_embd;
    const struct gguf_tensor *fused =
        net_matrix(n, false, (uint64_t)(w.q + w.k + w.v), cols, "blk.%u.attn_qkv.weight", il);
    if (fused) {
        uint32_t *map = NULL;
        if (q_map || k_map) {
            map = weights_row_map(n->w, (size_t)(w.q + w.k + w.v));
            for (int64_t i = 0; i < w.q + w.k + w.v; i++)
                map[i] = (uint32_t)(i < w.q                  ? (q_map ? q_map[i] : i)
                                    : i < w.q + w.k && k_map ? w.q + k_map[i - w.q]
                                                             : i);
        }
        ir_name(n->g, "qkv");
        return split_qkv(n, net_linear(n, x, NET_SCALE_BIAS, 1, &fused, (const uint32_t *const[]){map}), w);
    }
    const struct gguf_tensor *t[] = {
        net_matrix(n, true, (uint64_t)w.q, cols, "blk.%u.attn_q.weight", il),
        net_matrix(n, true, (uint64_t)w.k, cols, "blk.%u.attn_k.weight", il),
        net_matrix(n, true, (uint64_t)w.v, cols, "blk.%u.attn_v.weight", il),
    };
    const uint32_t *maps[] = {q_map, k_map, NULL};
    ir_val each[3];
    net_linear_each(n, x, NET_SCALE_BIAS, 3, t, maps, each);
    return (struct qkv){each[0], each[1], each[2]};
}

/* Keeps Q, K and V within the family's bounds. */
static ir_val clamped(struct net *n, ir_val x)
{
    float most = n->h->clamp_qkv;
    return most > 0 ? ir_clamp(n->g, x, (double)-most, (double)most) : x;
}

/* A norm of each head, with weights of its own if the file has that many; in the order of the head's rows. */
static ir_val norm_heads(struct net *n, ir_val x, uint32_t heads, bool required, uint32_t il,
                         const struct attention *a, char which)
{
    const struct gguf_tensor *t = weights_tensor(n->w, false, NULL, "blk.%u.attn_%c_norm.weight", il, which);
    if (!t && !required)
        return x;
    uint32_t rows = t && t->ne[1] != 1 ? heads : 1;
    ir_val w = net_vector(n, true, rows, n->h->n_embd_head_k, head_rows(n, rows, a->rope, false),
                          "blk.%u.attn_%c_norm.weight", il, which);
    return n->h->layer_norm ? ir_mul(n->g, net_standardized(n, x), w) : net_rms_norm_by(n, x, w);
}

static bool norm_is(const struct attention *a, enum qk_norm kind)
{
    return a->qk_norm == kind;
}

/* [T, heads * size] -> norm and rotation of each head -> [T, heads * size]. */
static ir_val heads_ready(struct net *n, ir_val x, uint32_t heads, uint32_t il, const struct attention *a,
                          char which)
{
    if (!a->rope && norm_is(a, QK_NORM_NONE))
        return x;
    struct ir *g = n->g;
    int64_t size = n->h->n_embd_head_k;
    if (norm_is(a, QK_NORM_ROWS))
        x = net_norm(n, x, true, "blk.%u.attn_%c_norm", il, which);
    x = ir_reshape(g, x, 4, (int64_t[]){-1, 1, heads, size}, false);
    if (norm_is(a, QK_NORM_HEADS) || norm_is(a, QK_NORM_HEADS_OPTIONAL))
        x = norm_heads(n, x, heads, norm_is(a, QK_NORM_HEADS), il, a, which);
    if (a->rope) {
        ir_val cos, sin;
        net_rope_tables(n, n->h->layer[il].swa, &cos, &sin);
        x = n->lower->rope(n, x, cos, sin, n->h->n_rot);
    }
    if (norm_is(a, QK_NORM_PLAIN) && a->rope)
        x = net_rms_norm_by(n, x, ir_f32(g, 1.0f));
    if (norm_is(a, QK_NORM_ROTATED_HEADS))
        x = norm_heads(n, x, 1, true, il, a, which);
    return ir_reshape(g, x, 2, (int64_t[]){-1, heads * size}, false);
}

static ir_val sinks(struct net *n, uint32_t il, uint32_t heads)
{
    const struct gguf_tensor *t = net_matrix(n, true, 1, heads, "blk.%u.attn_sinks.weight", il);
    if (!t)
        return IR_NONE;
    return ir_reshape(n->g, weights_small(n->w, n->g, t, NULL), 4, (int64_t[]){1, heads, 1, 1}, false);
}

/* ALiBi (arXiv:2108.12409), with the slopes that ggml gives to heads whose number is no power of two. */
static ir_val slopes(struct net *n, uint32_t heads)
{
    float max = n->h->max_alibi_bias;
    if (max <= 0)
        return IR_NONE;
    uint32_t whole = 1;
    while (whole * 2 <= heads)
        whole *= 2;
    float *slope = xmalloc(heads * sizeof *slope);
    for (uint32_t i = 0; i < heads; i++)
        slope[i] = i < whole ? powf(exp2f(-max / (float)whole), (float)(i + 1))
                             : powf(exp2f(-max / 2 / (float)whole), (float)(2 * (i - whole) + 1));
    ir_val v = ir_const(n->g, IR_F32, IR_SHAPE(heads), slope);
    free(slope);
    return v;
}

ir_val block_attention(struct net *n, ir_val x, uint32_t il, const struct attention *a)
{
    const struct hparams *h = n->h;
    const struct hparams_layer *l = &h->layer[il];
    struct widths w = {(int64_t)l->n_head * h->n_embd_head_k * (a->gate ? 2 : 1),
                       (int64_t)l->n_head_kv * h->n_embd_head_k, (int64_t)l->n_head_kv * h->n_embd_head_v};
    if (l->n_head == 0 || l->n_head_kv == 0) {
        ir_fail(n->g, "layer %u: %u heads can't share %u key/value heads", il, l->n_head, l->n_head_kv);
        return IR_NONE;
    }
    ir_scope(n->g, "attn");
    struct qkv p = project(n, x, il, w, a);
    ir_val q[2] = {p.q, IR_NONE}; /* and the gate */
    if (a->gate)
        ir_split(n->g, p.q, 1, 2, NULL, q);
    float scale = a->scale != 0        ? a->scale
                  : h->attn_scale != 0 ? h->attn_scale
                                       : 1.0f / sqrtf((float)h->n_embd_head_k);
    struct attn_call call = {
        .q = net_grown(n, heads_ready(n, clamped(n, q[0]), l->n_head, il, a, 'q')),
        .k = heads_ready(n, clamped(n, p.k), l->n_head_kv, il, a, 'k'),
        .v = clamped(n, p.v),
        .il = il,
        .n_head = l->n_head,
        .n_head_kv = l->n_head_kv,
        .scale = scale,
        .window = l->swa ? h->n_swa : 0,
        .sinks = a->sinks ? sinks(n, il, l->n_head) : IR_NONE,
        .slopes = slopes(n, l->n_head),
    };
    ir_val o = net_wanted_rows(n, il, n->lower->attention(n, &call));
    if (a->gate)
        o = ir_mul(n->g, o, ir_unary(n->g, IR_SIGMOID, net_wanted_rows(n, il, q[1])));
    enum net_with with = a->no_output_bias ? NET_SCALE : NET_SCALE_BIAS;
    o = net_linear_named(n, o, with, h->n_embd, (uint64_t)l->n_head * h->n_embd_head_v, "blk.%u.attn_output",
                         il);
    ir_leave(n->g);
    return o;
}
