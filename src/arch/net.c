/* Pieces smaller than a block: embeddings, norms, linear layers with stacked weights, the head. */
#include "arch/net.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const struct gguf_tensor *net_matrix(struct net *n, bool required, uint64_t rows, uint64_t cols,
                                     const char *fmt, ...)
{
    char name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    struct err err = ERR_INIT;
    const struct gguf_tensor *t = weights_tensor(n->w, required, &err, "%s", name);
    if (!t) {
        if (required)
            ir_fail(n->g, "%s", err.text);
        return NULL;
    }
    if (t->ne[0] != cols || t->ne[1] != rows || t->ne[2] != 1 || t->ne[3] != 1) {
        ir_fail(n->g, "tensor %s is %llu x %llu, expected %llu x %llu", name, (unsigned long long)t->ne[0],
                (unsigned long long)t->ne[1], (unsigned long long)cols, (unsigned long long)rows);
        return NULL;
    }
    return t;
}

/* A vector of `size` elements by name; NULL as net_matrix. */
static const struct gguf_tensor *vector(struct net *n, bool required, uint64_t size, const char *name)
{
    return net_matrix(n, required, 1, size, "%s", name);
}

/* Layers that guess begin with a product of both, each normed: the token's row and the hidden row before it.
 */
static ir_val joined(struct net *n, ir_val x)
{
    struct ir *g = n->g;
    uint32_t width = n->h->n_embd;
    ir_val hidden = ir_parameter(g, "hidden_in", IR_F32, IR_SHAPE(IR_DYN, width));
    ir_scope(g, "blk.%u.nextn", n->first);
    ir_val both[] = {net_rms_norm(n, x, true, "blk.%u.nextn.enorm", n->first),
                     net_rms_norm(n, hidden, true, "blk.%u.nextn.hnorm", n->first)};
    x = net_linear_named(n, ir_concat(g, 2, both, 1), NET_SCALE_BIAS, width, 2 * (uint64_t)width,
                         "blk.%u.nextn.eh_proj", n->first);
    ir_leave(g);
    return x;
}

ir_val net_embeddings(struct net *n, float scale)
{
    const struct hparams *h = n->h;
    const struct gguf_tensor *t = NULL;
    if (n->model->part == ARCH_NEXTN)
        t = net_matrix(n, false, h->n_vocab, h->n_embd, "blk.%u.nextn.embed_tokens.weight", n->first);
    if (!t)
        t = net_matrix(n, true, h->n_vocab, h->n_embd, "token_embd.weight");
    if (t && !quant_dequantize(t->type, t->data, 0, NULL))
        ir_fail(n->g, "tensor token_embd.weight: type %s can't be used here", ggml_type_info(t->type)->name);
    n->model->embd = t;
    n->model->embd_scale = scale;
    ir_val x = ir_parameter(n->g, "embeddings", IR_F32, IR_SHAPE(IR_DYN, h->n_embd));
    n->out_rows = ir_parameter(n->g, "out_rows", IR_I32, IR_SHAPE(IR_DYN));
    n->lower->begin(n);
    return n->model->part == ARCH_NEXTN ? joined(n, x) : x;
}

void net_positions(struct net *n)
{
    struct arch_model *m = n->model;
    m->positions = net_matrix(n, true, n->h->n_ctx_train, n->h->n_embd, "position_embd.weight");
    m->n_ctx_max = n->h->n_ctx_train;
    if (m->positions && !quant_dequantize(m->positions->type, m->positions->data, 0, NULL))
        ir_fail(n->g, "tensor position_embd.weight: type %s can't be used here",
                ggml_type_info(m->positions->type)->name);
}

ir_val net_wanted_rows(struct net *n, uint32_t il, ir_val x)
{
    bool last = il + 1 == n->end && n->model->part != ARCH_TRUNK_HIDDEN;
    return last ? ir_gather(n->g, x, n->out_rows, 0) : x;
}

ir_val net_residual(struct net *n, ir_val x)
{
    float scale = n->h->residual_scale;
    return scale == 1 ? x : ir_mul(n->g, x, ir_f32(n->g, scale));
}

void net_rope_tables(struct net *n, bool swa, ir_val *cos, ir_val *sin)
{
    /* One pair of tables serves both kinds of layer when they rotate alike. */
    const struct rope *r = n->model->rope;
    if (swa && r[0].freq_base == r[1].freq_base && r[0].freq_scale == r[1].freq_scale &&
        r[0].ext_factor == r[1].ext_factor && r[0].attn_factor == r[1].attn_factor)
        swa = false;
    if (n->rope_cos[swa] == IR_NONE) {
        const char *scope = swa ? "rope_swa" : "rope";
        if (r[swa].n_rot == 0)
            ir_fail(n->g, "key %s.rope.dimension_count: 0, but layers are rotated", n->h->arch);
        char name[32];
        struct ir_shape shape = IR_SHAPE(IR_DYN, 1, 1, r[swa].n_rot);
        snprintf(name, sizeof name, "%s.cos", scope);
        n->rope_cos[swa] = ir_parameter(n->g, name, IR_F32, shape);
        snprintf(name, sizeof name, "%s.sin", scope);
        n->rope_sin[swa] = ir_parameter(n->g, name, IR_F32, shape);
        n->model->rope_used[swa] = true;
    }
    *cos = n->rope_cos[swa];
    *sin = n->rope_sin[swa];
}

ir_val net_grown(struct net *n, ir_val q)
{
    if (n->h->q_growth == 0)
        return q;
    if (n->q_growth == IR_NONE)
        n->q_growth = ir_parameter(n->g, "q_growth", IR_F32, IR_SHAPE(IR_DYN, 1));
    n->model->q_growth_used = true;
    return ir_mul(n->g, q, n->q_growth);
}

/* x / sqrt(mean(x^2) + eps) * weight, in the form that the plugins fuse into one RMS node. */
ir_val net_rms_norm_by(struct net *n, ir_val x, ir_val weight)
{
    struct ir *g = n->g;
    ir_val mean = ir_reduce(g, IR_REDUCE_MEAN, ir_binary(g, IR_POW, x, ir_f32(g, 2.0f)), -1, true);
    ir_val root = ir_unary(g, IR_SQRT, ir_add(g, mean, ir_f32(g, n->h->norm_eps)));
    ir_val unit = ir_mul(g, x, ir_binary(g, IR_DIV, ir_f32(g, 1.0f), root));
    return ir_mul(g, unit, weight);
}

ir_val net_rms_norm(struct net *n, ir_val x, bool required, const char *fmt, ...)
{
    char norm[112], name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(norm, sizeof norm, fmt, ap);
    va_end(ap);
    snprintf(name, sizeof name, "%s.weight", norm);
    int rank = ir_shape_of(n->g, x).rank;
    if (rank == 0)
        return IR_NONE; /* the graph has failed before */
    const struct gguf_tensor *t = vector(n, required, (uint64_t)ir_dim(n->g, x, -1), name);
    if (!t)
        return x;
    return net_rms_norm_by(n, x, weights_small(n->w, n->g, t, NULL));
}

/* In the form that the plugins run as one MVN node. */
ir_val net_standardized(struct net *n, ir_val x)
{
    char eps[32];
    snprintf(eps, sizeof eps, "%.9g", (double)n->h->norm_eps);
    struct ir_attr attr[] = {{"normalize_variance", "true"}, {"eps", eps}, {"eps_mode", "INSIDE_SQRT"}};
    struct ir_out outs[] = {{IR_F32, ir_shape_of(n->g, x)}};
    int64_t last = -1;
    ir_val in[] = {x, ir_i64s(n->g, 1, &last)}, out[1];
    ir_node(n->g, "MVN", "opset6", 2, in, 3, attr, 0, NULL, 1, outs, out);
    return out[0];
}

ir_val net_norm(struct net *n, ir_val x, bool required, const char *fmt, ...)
{
    char norm[112], name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(norm, sizeof norm, fmt, ap);
    va_end(ap);
    if (!n->h->layer_norm)
        return net_rms_norm(n, x, required, "%s", norm);
    if (ir_shape_of(n->g, x).rank == 0)
        return IR_NONE; /* the graph has failed before */
    uint64_t size = (uint64_t)ir_dim(n->g, x, -1);
    snprintf(name, sizeof name, "%s.weight", norm);
    const struct gguf_tensor *weight = vector(n, required, size, name);
    if (!weight)
        return x;
    snprintf(name, sizeof name, "%s.bias", norm);
    const struct gguf_tensor *bias = vector(n, false, size, name);
    ir_val y = ir_mul(n->g, net_standardized(n, x), weights_small(n->w, n->g, weight, NULL));
    return bias ? ir_add(n->g, y, weights_small(n->w, n->g, bias, NULL)) : y;
}

ir_val net_vector(struct net *n, bool required, uint64_t rows, uint64_t cols, const uint32_t *order,
                  const char *fmt, ...)
{
    char name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct gguf_tensor *t = net_matrix(n, required, rows, cols, "%s", name);
    return t ? weights_small(n->w, n->g, t, order) : IR_NONE;
}

/* Sums of each `group` neighbours of x: f32 [T, cols / group]. */
static ir_val group_sums(struct net *n, ir_val x, uint32_t group)
{
    struct ir *g = n->g;
    for (int i = 0; i < n->n_sums; i++) {
        if (n->sums[i].x == x && n->sums[i].group == group)
            return n->sums[i].sums;
    }
    int64_t groups = ir_dim(g, x, -1) / group;
    ir_val grouped = ir_reshape(g, x, 3, (int64_t[]){-1, groups, group}, false);
    ir_val sums = ir_reduce(g, IR_REDUCE_SUM, grouped, 2, false);
    int at = n->n_sums < (int)(sizeof n->sums / sizeof *n->sums) ? n->n_sums++ : 0;
    n->sums[at].x = x;
    n->sums[at].group = group;
    n->sums[at].sums = sums;
    return sums;
}

/* The companions "NAME.bias" (a number per row) or "NAME.scale" (one number) of the stacked tensors, spread
 * over all rows, with `missing` where a tensor has none; IR_NONE when no tensor has one. */
static ir_val companions(struct net *n, const char *kind, bool per_row, float missing, int count,
                         const struct gguf_tensor *const *t, const uint32_t *const *row_maps, uint64_t rows)
{
    float *all = NULL;
    uint64_t done = 0;
    struct err err = ERR_INIT;
    for (int i = 0; i < count; done += t[i]->ne[1], i++) {
        if (t[i]->name.n < 7 || t[i]->name.n > 120 ||
            memcmp(t[i]->name.p + t[i]->name.n - 7, ".weight", 7) != 0)
            continue;
        char name[128];
        snprintf(name, sizeof name, "%.*s.%s", (int)(t[i]->name.n - 7), t[i]->name.p, kind);
        const struct gguf_tensor *b = vector(n, false, per_row ? t[i]->ne[1] : 1, name);
        if (!b)
            continue;
        float *v = weights_values(b, &err);
        if (!v) {
            ir_fail(n->g, "%s", err.text);
            break;
        }
        if (!all) {
            all = xcalloc(rows, sizeof *all);
            for (uint64_t r = 0; r < rows; r++)
                all[r] = missing;
        }
        for (uint64_t r = 0; r < t[i]->ne[1]; r++)
            all[done + r] = v[!per_row ? 0 : row_maps && row_maps[i] ? row_maps[i][r] : r];
        free(v);
    }
    ir_val c = all ? ir_const(n->g, IR_F32, IR_SHAPE((int64_t)rows), all) : IR_NONE;
    free(all);
    return c;
}

/* The plugin's product with a repacked image of the weights. */
static ir_val repacked(struct net *n, ir_val x, int count, const struct gguf_tensor *const *t,
                       const uint32_t *const *row_maps)
{
    struct ir *g = n->g;
    struct weights_matrix m = weights_matrix(n->w, g, count, t, row_maps);
    ir_val y = ir_matmul(g, x, m.w, false, true);
    if (m.min != IR_NONE)
        y = ir_add(g, y, ir_matmul(g, group_sums(n, x, m.group), m.min, false, true));
    return y;
}

/* The factors and biases of the stacked tensors, in the order that `with` says. */
static ir_val with_companions(struct net *n, ir_val y, enum net_with with, int count,
                              const struct gguf_tensor *const *t, const uint32_t *const *row_maps)
{
    struct ir *g = n->g;
    if (ir_shape_of(g, y).rank != 2)
        return IR_NONE; /* the graph has failed */
    uint64_t rows = (uint64_t)ir_dim(g, y, 1);
    ir_val bias = with == NET_SCALE ? IR_NONE : companions(n, "bias", true, 0.0f, count, t, row_maps, rows);
    ir_val scale = with == NET_BIAS ? IR_NONE : companions(n, "scale", false, 1.0f, count, t, row_maps, rows);
    if (bias != IR_NONE && with == NET_BIAS_SCALE)
        y = ir_add(g, y, bias);
    if (scale != IR_NONE)
        y = ir_mul(g, y, scale);
    if (bias != IR_NONE && with != NET_BIAS_SCALE)
        y = ir_add(g, y, bias);
    return y;
}

static bool all_there(int count, const struct gguf_tensor *const *t)
{
    for (int i = 0; i < count; i++) {
        if (!t[i])
            return false; /* and the graph has failed, with the tensor's name */
    }
    return true;
}

static bool in_place(struct net *n, ir_val x, const char *form, int count, const struct gguf_tensor *const *t,
                     const uint32_t *const *row_maps, ir_val *out)
{
    return n->lower->blocks && n->lower->blocks(n, x, form, count, t, row_maps, out);
}

ir_val net_linear(struct net *n, ir_val x, enum net_with with, int count, const struct gguf_tensor *const *t,
                  const uint32_t *const *row_maps)
{
    ir_val y;
    if (!all_there(count, t))
        return IR_NONE;
    if (!in_place(n, x, "rows", count, t, row_maps, &y))
        y = repacked(n, x, count, t, row_maps);
    return with_companions(n, y, with, count, t, row_maps);
}

void net_linear_each(struct net *n, ir_val x, enum net_with with, int count,
                     const struct gguf_tensor *const *t, const uint32_t *const *row_maps, ir_val *out)
{
    int64_t rows[LINEAR_MAX_PARTS];
    bool same = true;
    for (int i = 0; i < count; i++)
        out[i] = IR_NONE;
    if (!all_there(count, t))
        return;
    if (in_place(n, x, "parts", count, t, row_maps, out)) {
        for (int i = 0; i < count; i++)
            out[i] = with_companions(n, out[i], with, 1, t + i, row_maps ? row_maps + i : NULL);
        return;
    }
    for (int i = 0; i < count; i++) {
        same = same && t[i]->type == t[0]->type;
        rows[i] = (int64_t)t[i]->ne[1];
    }
    if (same) {
        ir_split(n->g, net_linear(n, x, with, count, t, row_maps), 1, count, rows, out);
        return;
    }
    for (int i = 0; i < count; i++)
        out[i] = net_linear(n, x, with, 1, t + i, row_maps ? row_maps + i : NULL);
}

/* Whether a tensor has a companion that acts before the gate. */
static bool has_companions(struct net *n, enum net_with with, int count, const struct gguf_tensor *const *t)
{
    for (int i = 0; i < count; i++) {
        int stem = (int)t[i]->name.n - 7; /* without ".weight" */
        if ((with != NET_SCALE && weights_tensor(n->w, false, NULL, "%.*s.bias", stem, t[i]->name.p)) ||
            (with != NET_BIAS && weights_tensor(n->w, false, NULL, "%.*s.scale", stem, t[i]->name.p)))
            return true;
    }
    return false;
}

ir_val net_gated(struct net *n, ir_val x, enum net_with with, enum ir_unary act, int count,
                 const struct gguf_tensor *const *t)
{
    struct ir *g = n->g;
    ir_val part[2] = {IR_NONE, IR_NONE}, y;
    const char *form = act == IR_SWISH ? "silu" : act == IR_GELU_TANH ? "gelu_tanh" : NULL;
    if (!all_there(count, t))
        return IR_NONE;
    if (form && !has_companions(n, with, count, t) && in_place(n, x, form, count, t, NULL, &y))
        return y;
    if (count == 2)
        net_linear_each(n, x, with, 2, t, NULL, part);
    else
        ir_split(g, net_linear(n, x, with, 1, t, NULL), 1, 2, NULL, part);
    return ir_mul(g, ir_unary(g, act, part[0]), part[1]);
}

ir_val net_linear_named(struct net *n, ir_val x, enum net_with with, uint64_t rows, uint64_t cols,
                        const char *fmt, ...)
{
    char name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct gguf_tensor *t = net_matrix(n, true, rows, cols, "%s.weight", name);
    return net_linear(n, x, with, 1, &t, NULL);
}

/* The name of the layer's own tensor if it has one, else of the trunk's. */
static const char *own_or(struct net *n, const char *own, const char *trunk, char *name, size_t size)
{
    snprintf(name, size, "blk.%u.nextn.%s", n->first, own);
    if (n->model->part == ARCH_NEXTN && weights_tensor(n->w, false, NULL, "%s.weight", name))
        return name;
    return trunk;
}

static ir_val output_norm(struct net *n, ir_val x)
{
    char own[64];
    if (n->plain_norms)
        return net_standardized(n, x);
    const char *trunk = n->output_norm ? n->output_norm : "output_norm";
    return net_norm(n, x, true, "%s", own_or(n, "shared_head_norm", trunk, own, sizeof own));
}

void net_head(struct net *n, ir_val x)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    char own[64];
    x = output_norm(n, x);
    if (n->model->embeddings) {
        ir_result(g, "embd", x);
        return;
    }
    if (n->model->part != ARCH_TRUNK)
        ir_result(g, "hidden", x);
    if (n->model->part == ARCH_TRUNK_HIDDEN)
        x = ir_gather(g, x, n->out_rows, 0);
    const struct gguf_tensor *t = net_matrix(n, false, h->n_vocab, h->n_embd, "%s.weight",
                                             own_or(n, "shared_head_head", "output", own, sizeof own));
    if (!t)
        t = n->model->part == ARCH_NEXTN ? net_matrix(n, true, h->n_vocab, h->n_embd, "token_embd.weight")
                                         : n->model->embd;
    ir_val logits = net_linear(n, x, n->no_head_bias ? NET_SCALE : NET_SCALE_BIAS, 1, &t, NULL);
    if (h->logit_scale != 1)
        logits = ir_mul(g, logits, ir_f32(g, h->logit_scale));
    if (h->final_logit_softcap != 0) {
        ir_val cap = ir_f32(g, h->final_logit_softcap);
        logits = ir_mul(g, ir_unary(g, IR_TANH, ir_binary(g, IR_DIV, logits, cap)), cap);
    }
    ir_result(g, "logits", logits);
}
