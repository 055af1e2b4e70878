/* A model file without running it: what `inspect` shows. */
#include "engine/engine.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

void engine_file_init(struct grappa_file *f, struct gguf *g, struct arch_model *arch)
{
    *f = (struct grappa_file){.g = g, .arch = arch};
    size_t n = gguf_n_tensors(g), n_kv = gguf_n_kv(g);
    f->tensor_names = arena_alloc(&f->names, n * sizeof *f->tensor_names);
    f->keys = arena_alloc(&f->names, n_kv * sizeof *f->keys);
    for (size_t i = 0; i < n; i++) {
        struct str s = gguf_tensor_at(g, i)->name;
        f->tensor_names[i] = arena_strndup(&f->names, s.p, s.n);
    }
    for (size_t i = 0; i < n_kv; i++) {
        struct str s = gguf_kv_at(g, i)->key;
        f->keys[i] = arena_strndup(&f->names, s.p, s.n);
    }
}

void engine_file_release(struct grappa_file *f)
{
    arena_release(&f->names);
    if (f->own_arch)
        arch_free(f->arch);
    gguf_close(f->g);
    *f = (struct grappa_file){0};
}

struct grappa_file *grappa_file_open(const char *path, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct gguf *g = gguf_open(path, &e);
    if (!g) {
        engine_fail(err, &e);
        return NULL;
    }
    /* A file that can't run can still be looked at: its error is not ours. */
    struct arch_model *arch = arch_build(g, &(struct arch_options){0}, NULL);
    struct grappa_file *f = xmalloc(sizeof *f);
    engine_file_init(f, g, arch);
    f->own_arch = true;
    return f;
}

void grappa_file_free(struct grappa_file *f)
{
    if (!f)
        return;
    engine_file_release(f);
    free(f);
}

size_t grappa_file_n_kv(const struct grappa_file *f)
{
    return gguf_n_kv(f->g);
}

static const char *const value_types[] = {
    [GGUF_U8] = "u8",         [GGUF_I8] = "i8",   [GGUF_U16] = "u16", [GGUF_I16] = "i16",
    [GGUF_U32] = "u32",       [GGUF_I32] = "i32", [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
    [GGUF_STRING] = "string", [GGUF_U64] = "u64", [GGUF_I64] = "i64", [GGUF_F64] = "f64",
};
static const char *const array_types[] = {
    [GGUF_U8] = "array of u8",   [GGUF_I8] = "array of i8",     [GGUF_U16] = "array of u16",
    [GGUF_I16] = "array of i16", [GGUF_U32] = "array of u32",   [GGUF_I32] = "array of i32",
    [GGUF_F32] = "array of f32", [GGUF_BOOL] = "array of bool", [GGUF_STRING] = "array of string",
    [GGUF_U64] = "array of u64", [GGUF_I64] = "array of i64",   [GGUF_F64] = "array of f64",
};

void grappa_file_kv(const struct grappa_file *f, size_t i, struct grappa_kv *out)
{
    const struct gguf_kv *kv = gguf_kv_at(f->g, i);
    out->key = f->keys[i];
    out->type = kv->is_array ? array_types[kv->type] : value_types[kv->type];
    out->n = kv->n;
    gguf_kv_print(kv, out->value, sizeof out->value);
}

size_t grappa_file_n_tensors(const struct grappa_file *f)
{
    return gguf_n_tensors(f->g);
}

/* A matrix of the plan, by tensor; NULL when it is not in it. */
static const struct weights_entry *planned(const struct grappa_file *f, const struct gguf_tensor *t)
{
    for (size_t i = 0; i < weights_n_entries(f->arch->weights); i++) {
        const struct weights_entry *e = weights_entry_at(f->arch->weights, i);
        if (e->tensor == t)
            return e;
    }
    return NULL;
}

static void runs_as(const struct grappa_file *f, const struct gguf_tensor *t, char *out, size_t size)
{
    static const char *const elems[] = {[QUANT_F32] = "f32", [QUANT_F16] = "f16", [QUANT_BF16] = "bf16",
                                        [QUANT_U4] = "u4",   [QUANT_I8] = "i8",   [QUANT_U8] = "u8"};
    if (!f->arch) {
        snprintf(out, size, "can't run");
        return;
    }
    const struct weights_entry *e = planned(f, t);
    const char *rows = t == f->arch->embd ? "rows on the host" : "";
    if (weights_in_place(f->arch->weights, t)) {
        snprintf(out, size, "%s blocks in place%s%s", ggml_type_info(t->type)->name, *rows ? "; " : "", rows);
        return;
    }
    if (!e) {
        snprintf(out, size, "%s",
                 *rows                               ? rows
                 : weights_used(f->arch->weights, t) ? "f32 constant"
                                                     : "not used");
        return;
    }
    const struct quant_image *im = quant_image_of(t->type);
    if (im->group == 0) {
        snprintf(out, size, "%s as it is%s%s", elems[im->elem], *rows ? ", " : "", rows);
        return;
    }
    char zero[16] = "";
    if (im->zero)
        snprintf(zero, sizeof zero, ", zero %d", im->zero);
    snprintf(out, size, "%s, groups of %u with %s scale%s%s%s%s", elems[im->elem], im->group,
             elems[im->scale], zero, im->has_min ? ", f32 min" : "", *rows ? "; " : "", rows);
}

void grappa_file_tensor(const struct grappa_file *f, size_t i, struct grappa_tensor *out)
{
    const struct gguf_tensor *t = gguf_tensor_at(f->g, i);
    out->name = f->tensor_names[i];
    out->type = ggml_type_info(t->type)->name;
    out->n_dims = t->n_dims;
    memcpy(out->ne, t->ne, sizeof out->ne);
    out->size = t->size;
    out->part = t->part;
    runs_as(f, t, out->runs_as, sizeof out->runs_as);
}

/* general.file_type (llama.cpp's LLAMA_FTYPE_*) in words. */
static const char *file_type(uint32_t t)
{
    static const char *const names[] = {
        [0] = "all F32",        [1] = "F16",
        [2] = "Q4_0",           [3] = "Q4_1",
        [7] = "Q8_0",           [8] = "Q5_0",
        [9] = "Q5_1",           [10] = "Q2_K - Medium",
        [11] = "Q3_K - Small",  [12] = "Q3_K - Medium",
        [13] = "Q3_K - Large",  [14] = "Q4_K - Small",
        [15] = "Q4_K - Medium", [16] = "Q5_K - Small",
        [17] = "Q5_K - Medium", [18] = "Q6_K",
        [32] = "BF16",          [38] = "MXFP4 MoE",
    };
    return t < sizeof names / sizeof *names && names[t] ? names[t] : NULL;
}

/* The type that most bytes of the file have, for files that don't say. */
static const char *commonest_type(const struct gguf *g)
{
    uint64_t sizes[64] = {0};
    uint32_t best = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->type < 64 && (sizes[t->type] += t->size) > sizes[best])
            best = t->type;
    }
    return ggml_type_info(best)->name;
}

/* 1.24e9 -> "1.24B", in the way model names are written. */
static void size_label(uint64_t n, char *out, size_t size)
{
    static const struct {
        double unit;
        char letter;
    } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double v = (double)n / units[i].unit;
        if (v >= 1) {
            snprintf(out, size, v < 10 ? "%.1f%c" : "%.0f%c", v, units[i].letter);
            return;
        }
    }
    snprintf(out, size, "%llu", (unsigned long long)n);
}

void grappa_file_info(const struct grappa_file *f, struct grappa_file_info *out)
{
    struct str arch = str_of("?"), name = {0}, label = {0};
    uint32_t type = UINT32_MAX;
    *out = (struct grappa_file_info){.path = gguf_path(f->g), .version = gguf_version(f->g)};
    gguf_string(f->g, "general.architecture", &arch, NULL);
    gguf_string(f->g, "general.name", &name, NULL);
    gguf_string(f->g, "general.size_label", &label, NULL);
    gguf_u32(f->g, "general.file_type", &type, NULL);
    snprintf(out->arch, sizeof out->arch, "%.*s", STR_ARG(arch));
    snprintf(out->name, sizeof out->name, "%.*s", STR_ARG(name));
    for (size_t i = 0; i < gguf_n_tensors(f->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->g, i);
        out->size += t->size;
        out->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    }
    char size[32];
    if (label.n)
        snprintf(size, sizeof size, "%.*s", STR_ARG(label));
    else
        size_label(out->n_params, size, sizeof size);
    const char *words = file_type(type);
    snprintf(out->type, sizeof out->type, "%.24s %.16s %.16s", out->arch, size,
             words ? words : commonest_type(f->g));
    out->supported = arch_supported(arch);
}

const char *grappa_architectures(void)
{
    return arch_names();
}

char *grappa_file_ir(const char *path, const char *device, size_t *len, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct buf xml = {0}, tail = {0};
    struct arch_model *arch = NULL;
    struct gguf *g = gguf_open(path, &e);
    if (g)
        arch = arch_build(g, &(struct arch_options){.device = device}, &e);
    if (!arch || ir_write(arch->graph, weights_blob_size(arch->weights), &xml, &tail, &e) < 0) {
        engine_fail(err, &e);
        buf_release(&xml);
    }
    *len = xml.n;
    buf_release(&tail);
    arch_free(arch);
    gguf_close(g);
    return xml.p;
}
