/* The plan of the blob: places for images, decompression patterns around them, and which tensors were used.
 */
#include "arch/weights.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGN = 64, PAGE = 4096, MAP_FROM = 1 << 16 };

struct weights {
    const struct gguf *g;
    struct arena arena;
    bool *used; /* by index in the directory */
    struct weights_entry *entries;
    size_t n_entries, entries_size;
    uint64_t blob;
    struct linear *linears;
    size_t n_linears;
    struct experts *experts;
    size_t n_experts;
};

struct weights *weights_new(const struct gguf *g)
{
    struct weights *w = xcalloc(1, sizeof *w);
    w->g = g;
    w->used = xcalloc(gguf_n_tensors(g), sizeof *w->used);
    return w;
}

void weights_free(struct weights *w)
{
    if (!w)
        return;
    arena_release(&w->arena);
    free(w->used);
    free(w->entries);
    free(w->linears);
    free(w->experts);
    free(w);
}

const struct gguf_tensor *weights_tensor(struct weights *w, bool required, struct err *err, const char *fmt,
                                         ...)
{
    char name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct gguf_tensor *t = gguf_find_tensor(w->g, name);
    if (t)
        w->used[t - gguf_tensor_at(w->g, 0)] = true;
    else if (required)
        err_set(err, ERR_FORMAT, "tensor %s is missing", name);
    return t;
}

bool weights_used(const struct weights *w, const struct gguf_tensor *t)
{
    return w->used[t - gguf_tensor_at(w->g, 0)];
}

uint32_t *weights_row_map(struct weights *w, size_t n)
{
    return arena_alloc(&w->arena, n * sizeof(uint32_t));
}

static uint64_t elements(const struct gguf_tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

float *weights_values(const struct gguf_tensor *t, struct err *err)
{
    uint64_t n = elements(t);
    float *v = n <= (uint64_t)1 << 28 ? malloc((n ? n : 1) * sizeof *v) : NULL;
    if (!v) {
        err_set(err, ERR_MEMORY, "tensor %.*s: no memory for %llu values", STR_ARG(t->name),
                (unsigned long long)n);
        return NULL;
    }
    if (!quant_dequantize(t->type, t->data, n, v)) {
        err_set(err, ERR_UNSUPPORTED, "tensor %.*s: type %s can't be used here", STR_ARG(t->name),
                ggml_type_info(t->type)->name);
        free(v);
        return NULL;
    }
    return v;
}

ir_val weights_small(struct weights *w, struct ir *g, const struct gguf_tensor *t, const uint32_t *row_map)
{
    (void)w;
    struct err err = ERR_INIT;
    float *v = weights_values(t, &err);
    if (!v) {
        ir_fail(g, "%s", err.text);
        return IR_NONE;
    }
    uint64_t n = elements(t);
    float *ordered = v;
    if (row_map) {
        ordered = xmalloc(n * sizeof *ordered);
        for (uint64_t i = 0; i < n; i++)
            ordered[i] = v[row_map[i]];
    }
    struct ir_shape shape = {(int)t->n_dims, {0}};
    for (uint32_t d = 0; d < t->n_dims; d++)
        shape.d[d] = (int64_t)t->ne[t->n_dims - 1 - d];
    ir_val c = ir_const(g, IR_F32, shape, ordered);
    if (ordered != v)
        free(ordered);
    free(v);
    return c;
}

/* ---- images ---- */

static const enum ir_type elem_types[] = {
    [QUANT_F32] = IR_F32, [QUANT_F16] = IR_F16, [QUANT_BF16] = IR_BF16,
    [QUANT_U4] = IR_U4,   [QUANT_I8] = IR_I8,   [QUANT_U8] = IR_U8,
};

static uint64_t take(struct weights *w, uint64_t size)
{
    uint64_t at = align_up(w->blob, ALIGN);
    w->blob = at + size;
    return at;
}

static void add_entry(struct weights *w, struct weights_entry e)
{
    if (w->n_entries == w->entries_size) {
        w->entries_size = w->entries_size ? 2 * w->entries_size : 256;
        w->entries = xrealloc(w->entries, w->entries_size * sizeof *w->entries);
    }
    w->entries[w->n_entries++] = e;
}

/* Whole pages for a tensor that will be mapped from its file, at the file's own place within a page. */
static uint64_t take_mapped(struct weights *w, const struct gguf_tensor *t)
{
    uint64_t start = align_up(w->blob, PAGE);
    w->blob = align_up(start + t->offset % PAGE + t->size, PAGE);
    return start + t->offset % PAGE;
}

struct parts {
    uint64_t q, scale, min;
    struct quant_sizes size;
};

static int place(struct weights *w, int n, const struct gguf_tensor *const *t,
                 const uint32_t *const *row_maps, const struct quant_image *image, uint64_t rows,
                 struct parts *p, struct err *err)
{
    uint64_t cols = t[0]->ne[0];
    if (quant_sizes(t[0]->type, rows, cols, &p->size, err) < 0)
        return -1;
    bool map = n == 1 && image->group == 0 && !(row_maps && row_maps[0]) && t[0]->size >= MAP_FROM &&
               gguf_fd(w->g, t[0]->part) >= 0 && t[0]->offset % ALIGN == 0;
    p->q = map ? take_mapped(w, t[0]) : take(w, p->size.q);
    p->scale = p->size.scale ? take(w, p->size.scale) : 0;
    p->min = p->size.min ? take(w, p->size.min) : 0;

    uint64_t done = 0;
    for (int i = 0; i < n; i++) {
        uint64_t r = t[i]->ne[1] * t[i]->ne[2] * t[i]->ne[3];
        struct quant_sizes before;
        if (quant_sizes(t[0]->type, done, cols, &before, err) < 0)
            return -1;
        add_entry(w, (struct weights_entry){t[i], row_maps ? row_maps[i] : NULL, r, cols, p->q + before.q,
                                            p->scale + before.scale, p->min + before.min, map});
        done += r;
    }
    return 0;
}

/* `rows` and one dimension behind. */
static struct ir_shape with_dim(struct ir_shape rows, int64_t last)
{
    rows.d[rows.rank++] = last;
    return rows;
}

/* Const -> Convert -> Subtract -> Multiply -> Reshape: the pattern that the plugins keep compressed. The
 * result is [rows…, cols]. */
static ir_val decompress(struct ir *g, const struct quant_image *image, const struct parts *p,
                         struct ir_shape rows, int64_t cols)
{
    enum ir_type elem = elem_types[image->elem];
    struct ir_shape whole = with_dim(rows, cols);
    if (image->group == 0) {
        ir_val c = ir_const_ref(g, elem, whole, p->q, p->size.q);
        return elem == IR_F32 ? c : ir_convert(g, c, IR_F32);
    }
    struct ir_shape groups = with_dim(rows, cols / image->group);
    ir_val q = ir_const_ref(g, elem, with_dim(groups, image->group), p->q, p->size.q);
    enum ir_type scale_type = elem_types[image->scale];
    ir_val x = ir_convert(g, q, scale_type);
    if (image->zero) {
        uint8_t zero = (uint8_t)image->zero;
        ir_val z = ir_const(g, IR_U8, IR_SCALAR, &zero);
        x = ir_binary(g, IR_SUB, x, ir_convert(g, z, scale_type));
    }
    x = ir_mul(g, x, ir_const_ref(g, scale_type, with_dim(groups, 1), p->scale, p->size.scale));
    x = ir_reshape(g, x, whole.rank, whole.d, false);
    return scale_type == IR_F32 ? x : ir_convert(g, x, IR_F32);
}

void weights_name(struct ir *g, int n, const struct gguf_tensor *const *t)
{
    char name[256] = "";
    size_t len = 0;
    for (int i = 0; i < n && len < sizeof name - 1; i++) {
        struct str s = t[i]->name;
        const char *dot;
        /* "blk.3.attn_q.weight": the layer is the scope, the rest says nothing */
        if (str_starts(s, "blk.") && (dot = memchr(s.p + 4, '.', s.n - 4)) != NULL)
            s = (struct str){dot + 1, s.n - (size_t)(dot + 1 - s.p)};
        if (s.n > 7 && memcmp(s.p + s.n - 7, ".weight", 7) == 0)
            s.n -= 7;
        len += (size_t)snprintf(name + len, sizeof name - len, "%s%.*s", i ? "+" : "", STR_ARG(s));
    }
    ir_name(g, "%s", name);
}

/* Plans the image of n stacked tensors, whose rows get the shape `rows`. */
static struct weights_matrix image_of(struct weights *w, struct ir *g, int n,
                                      const struct gguf_tensor *const *t, const uint32_t *const *row_maps,
                                      struct ir_shape rows)
{
    struct weights_matrix m = {IR_NONE, IR_NONE, 0, 0, t[0]->ne[0]};
    const struct quant_image *image = quant_image_of(t[0]->type);
    if (!image) {
        ir_fail(g, "tensor %.*s: type %s can't be multiplied yet", STR_ARG(t[0]->name),
                ggml_type_info(t[0]->type)->name);
        return m;
    }
    for (int i = 0; i < n; i++)
        m.rows += t[i]->ne[1] * t[i]->ne[2] * t[i]->ne[3];
    if (rows.rank == 0)
        rows = IR_SHAPE((int64_t)m.rows);
    struct err err = ERR_INIT;
    struct parts p = {0};
    if (place(w, n, t, row_maps, image, m.rows, &p, &err) < 0) {
        ir_fail(g, "tensor %.*s: %s", STR_ARG(t[0]->name), err.text);
        return m;
    }
    weights_name(g, n, t);
    m.w = decompress(g, image, &p, rows, (int64_t)m.cols);
    if (image->has_min) {
        m.group = image->group;
        m.min = ir_const_ref(g, IR_F32, with_dim(rows, (int64_t)(m.cols / image->group)), p.min, p.size.min);
    }
    return m;
}

struct weights_matrix weights_matrix(struct weights *w, struct ir *g, int n,
                                     const struct gguf_tensor *const *t, const uint32_t *const *row_maps)
{
    return image_of(w, g, n, t, row_maps, IR_SCALAR);
}

struct weights_matrix weights_stack(struct weights *w, struct ir *g, const struct gguf_tensor *t)
{
    return image_of(w, g, 1, &t, NULL, IR_SHAPE((int64_t)t->ne[2], (int64_t)t->ne[1]));
}

/* ---- products with blocks in place ---- */

static bool in_blocks(struct linear *l, int n, const struct gguf_tensor *const *t,
                      const uint32_t *const *row_maps)
{
    *l = (struct linear){.cols = t[0]->ne[0], .n_parts = n};
    if (n > LINEAR_MAX_PARTS)
        return false;
    for (int i = 0; i < n; i++) {
        if (!linear_supports(t[i]->type))
            return false;
        uint64_t rows = t[i]->ne[1] * t[i]->ne[2] * t[i]->ne[3];
        l->part[i] = (struct linear_part){t[i]->type, rows, t[i]->data, row_maps ? row_maps[i] : NULL};
        l->rows += rows;
    }
    return true;
}

int weights_linear(struct weights *w, int n, const struct gguf_tensor *const *t,
                   const uint32_t *const *row_maps)
{
    struct linear l;
    if (!in_blocks(&l, n, t, row_maps))
        return -1;
    w->linears = xrealloc(w->linears, (w->n_linears + 1) * sizeof *w->linears);
    w->linears[w->n_linears] = l;
    return (int)w->n_linears++;
}

const struct linear *weights_linears(const struct weights *w, size_t *n)
{
    *n = w->n_linears;
    return w->linears;
}

/* Values of a companion for as long as the plan lives; NULL without a tensor. */
static const float *kept_values(struct weights *w, struct ir *g, const struct gguf_tensor *t)
{
    struct err err = ERR_INIT;
    float *v = t ? weights_values(t, &err) : NULL, *kept = NULL;
    if (v) {
        kept = arena_alloc(&w->arena, elements(t) * sizeof *v);
        memcpy(kept, v, elements(t) * sizeof *v);
        free(v);
    } else if (t)
        ir_fail(g, "%s", err.text);
    return kept;
}

int weights_experts(struct weights *w, struct ir *g, const struct weights_experts *x)
{
    struct experts e = {.n = x->n, .cols = x->cols, .ff = x->ff, .act = x->act};
    bool up_alone = !x->stack[WEIGHTS_GATE];
    e.single = x->single;
    e.fused = up_alone && !x->single;
    if (!in_blocks(&e.gate_up, up_alone ? 1 : 2, x->stack + (up_alone ? WEIGHTS_UP : WEIGHTS_GATE), NULL) ||
        !in_blocks(&e.down, 1, x->stack + WEIGHTS_DOWN, NULL))
        return -1;
    struct experts_after *after[] = {&e.after_gate, &e.after_up, &e.after_down};
    for (int i = 0; i < WEIGHTS_N_STACKS; i++) {
        after[i]->scale = kept_values(w, g, x->scale[i]);
        after[i]->bias = kept_values(w, g, x->bias[i]);
    }
    w->experts = xrealloc(w->experts, (w->n_experts + 1) * sizeof *w->experts);
    w->experts[w->n_experts] = e;
    return (int)w->n_experts++;
}

const struct experts *weights_expert_stacks(const struct weights *w, size_t *n)
{
    *n = w->n_experts;
    return w->experts;
}

static bool has_part(const struct linear *l, const struct gguf_tensor *t)
{
    for (int p = 0; p < l->n_parts; p++) {
        if (l->part[p].data == t->data)
            return true;
    }
    return false;
}

bool weights_in_place(const struct weights *w, const struct gguf_tensor *t)
{
    for (size_t i = 0; i < w->n_linears; i++) {
        if (has_part(&w->linears[i], t))
            return true;
    }
    for (size_t i = 0; i < w->n_experts; i++) {
        if (has_part(&w->experts[i].gate_up, t) || has_part(&w->experts[i].down, t))
            return true;
    }
    return false;
}

uint64_t weights_blob_size(const struct weights *w)
{
    return w->blob;
}

size_t weights_n_entries(const struct weights *w)
{
    return w->n_entries;
}

const struct weights_entry *weights_entry_at(const struct weights *w, size_t i)
{
    return &w->entries[i];
}
