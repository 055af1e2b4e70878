/* Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values of all heads come out of one
 * narrow row. Here they are expanded before they join the cache, so that the device's attention sees plain
 * heads; those of K are wider than those of V.
 *
 * A head of Q and K is [rotated, plain]: the file has the rotated part last, but products don't depend on
 * the order, and in front the device's rotation finds it. */
#include "arch/block/block.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

struct sizes {
    uint32_t heads, k, v, rot, plain, latent; /* k = rot + plain */
};

/* Halves from side-by-side pairs. */
static uint32_t rotated_row(uint32_t i, uint32_t rot)
{
    return i < rot / 2 ? 2 * i : 2 * (i - rot / 2) + 1;
}

static ir_val query(struct net *n, ir_val x, uint32_t il, const struct sizes *s)
{
    uint64_t rows = (uint64_t)s->heads * s->k, cols = n->h->n_embd;
    uint32_t *map = weights_row_map(n->w, rows);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t at = i % s->k;
        map[i] = i - at + (at < s->rot ? s->plain + rotated_row(at, s->rot) : at - s->rot);
    }
    const struct gguf_tensor *t = net_matrix(n, false, rows, cols, "blk.%u.attn_q.weight", il);
    if (!t) {
        const struct gguf_tensor *a = weights_tensor(n->w, false, NULL, "blk.%u.attn_q_a.weight", il);
        uint64_t rank = a ? a->ne[1] : 0;
        x = net_linear_named(n, x, NET_BIAS, rank, cols, "blk.%u.attn_q_a", il);
        x = net_rms_norm(n, x, true, "blk.%u.attn_q_a_norm", il);
        t = net_matrix(n, true, rows, rank, "blk.%u.attn_q_b.weight", il);
    }
    return net_linear(n, x, NET_BIAS, 1, &t, (const uint32_t *const[]){map});
}

/* [T, heads, size] of the first n_rot dimensions rotated: [T, heads * size]. */
static ir_val rotated(struct net *n, ir_val x, int64_t heads, int64_t size)
{
    ir_val cos, sin;
    net_rope_tables(n, false, &cos, &sin);
    x = ir_reshape(n->g, x, 4, (int64_t[]){-1, 1, heads, size}, false);
    x = n->lower->rope(n, x, cos, sin, n->h->n_rot);
    return ir_reshape(n->g, x, 3, (int64_t[]){-1, heads, size}, false);
}

/* The stack [heads][latent][plain] as the matrix [heads * plain, latent] that it is multiplied as. */
static ir_val expand_k(struct net *n, ir_val latent, uint32_t il, const struct sizes *s)
{
    struct ir *g = n->g;
    struct err err = ERR_INIT;
    const struct gguf_tensor *t = weights_tensor(n->w, true, &err, "blk.%u.attn_k_b.weight", il);
    if (t && (t->ne[0] != s->plain || t->ne[1] != s->latent || t->ne[2] != s->heads || t->ne[3] != 1))
        err_set(&err, ERR_FORMAT, "tensor blk.%u.attn_k_b.weight is not %u x %u x %u", il, s->plain,
                s->latent, s->heads);
    float *v = err.code == ERR_NONE ? weights_values(t, &err) : NULL;
    if (!v) {
        ir_fail(g, "%s", err.text);
        return IR_NONE;
    }
    size_t each = (size_t)s->plain * s->latent;
    float *w = xmalloc(each * s->heads * sizeof *w);
    for (size_t head = 0; head < s->heads; head++) {
        for (size_t c = 0; c < s->latent; c++) {
            for (size_t i = 0; i < s->plain; i++)
                w[head * each + i * s->latent + c] = v[head * each + c * s->plain + i];
        }
    }
    ir_name(g, "attn_k_b");
    ir_val m = ir_const(g, IR_F32, IR_SHAPE((int64_t)s->heads * s->plain, s->latent), w);
    free(w);
    free(v);
    return ir_matmul(g, latent, m, false, true);
}

/* Plain parts of K and V, [T, heads * size] each. */
static void expand(struct net *n, ir_val latent, uint32_t il, const struct sizes *s, ir_val *k, ir_val *v)
{
    struct ir *g = n->g;
    int64_t each = (int64_t)s->plain + s->v;
    *k = *v = IR_NONE;
    const struct gguf_tensor *both =
        net_matrix(n, false, (uint64_t)s->heads * (uint64_t)each, s->latent, "blk.%u.attn_kv_b.weight", il);
    if (both) {
        ir_val y = ir_reshape(g, net_linear(n, latent, NET_BIAS, 1, &both, NULL), 3,
                              (int64_t[]){-1, s->heads, each}, false);
        ir_val part[2];
        ir_split(g, y, 2, 2, (int64_t[]){s->plain, s->v}, part);
        *k = part[0];
        *v = ir_reshape(g, part[1], 2, (int64_t[]){-1, (int64_t)s->heads * s->v}, false);
        return;
    }
    struct err err = ERR_INIT;
    const struct gguf_tensor *t = weights_tensor(n->w, true, &err, "blk.%u.attn_v_b.weight", il);
    if (t && (t->ne[0] != s->latent || t->ne[1] != s->v || t->ne[2] != s->heads || t->ne[3] != 1))
        err_set(&err, ERR_FORMAT, "tensor blk.%u.attn_v_b.weight is not %u x %u x %u", il, s->latent, s->v,
                s->heads);
    if (err.code != ERR_NONE) {
        ir_fail(g, "%s", err.text);
        return;
    }
    *v = net_linear(n, latent, NET_BIAS, 1, &t, NULL);
    *k = ir_reshape(g, expand_k(n, latent, il, s), 3, (int64_t[]){-1, s->heads, s->plain}, false);
}

static ir_val key_value(struct net *n, ir_val x, uint32_t il, const struct sizes *s, ir_val *v)
{
    struct ir *g = n->g;
    uint32_t *map = weights_row_map(n->w, s->latent + s->rot);
    for (uint32_t i = 0; i < s->latent + s->rot; i++)
        map[i] = i < s->latent ? i : s->latent + rotated_row(i - s->latent, s->rot);
    const struct gguf_tensor *t =
        net_matrix(n, true, s->latent + s->rot, n->h->n_embd, "blk.%u.attn_kv_a_mqa.weight", il);
    ir_val part[2], plain;
    ir_split(g, net_linear(n, x, NET_BIAS, 1, &t, (const uint32_t *const[]){map}), 1, 2,
             (int64_t[]){s->latent, s->rot}, part);
    expand(n, net_rms_norm(n, part[0], true, "blk.%u.attn_kv_a_norm", il), il, s, &plain, v);
    /* All heads share the rotated part. */
    ir_val shared = ir_tile(g, rotated(n, part[1], 1, s->rot), 3, (int64_t[]){1, s->heads, 1});
    ir_val k = ir_concat(g, 2, (ir_val[]){shared, plain}, 2);
    return ir_reshape(g, k, 2, (int64_t[]){-1, (int64_t)s->heads * s->k}, false);
}

/* The whole of YaRN's magnitude, squared: the rotated parts alone can't carry it. */
static float scale_of(const struct net *n)
{
    const struct rope *r = &n->model->rope[0];
    float stretch = logf(1.0f / r->freq_scale);
    float magnitude = r->attn_factor * (1.0f + 0.1f * stretch);
    magnitude *= 1.0f + 0.1f * n->h->yarn_log_mul * stretch;
    return magnitude * magnitude / sqrtf((float)n->h->n_embd_head_k);
}

ir_val block_mla(struct net *n, ir_val x, uint32_t il)
{
    const struct hparams *h = n->h;
    struct sizes s = {.heads = h->layer[il].n_head,
                      .k = h->n_embd_head_k,
                      .v = h->n_embd_head_v,
                      .rot = h->n_rot,
                      .plain = h->n_embd_head_k - h->n_rot,
                      .latent = h->n_latent};
    ir_scope(n->g, "attn");
    struct attn_call call = {
        .il = il,
        .n_head = s.heads,
        .n_head_kv = s.heads,
        .scale = scale_of(n),
        .sinks = IR_NONE,
        .slopes = IR_NONE,
    };
    ir_val q = rotated(n, query(n, x, il, &s), s.heads, s.k);
    call.q = net_grown(n, ir_reshape(n->g, q, 2, (int64_t[]){-1, (int64_t)s.heads * s.k}, false));
    call.k = key_value(n, x, il, &s, &call.v);
    ir_val o = net_wanted_rows(n, il, n->lower->attention(n, &call));
    o = net_linear_named(n, o, NET_SCALE, h->n_embd, (uint64_t)s.heads * s.v, "blk.%u.attn_output", il);
    ir_leave(n->g);
    return o;
}
