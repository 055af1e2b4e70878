/* The head of a GGUF file: header, metadata, tensor directory. Nothing in it is trusted. A count is first
 * held against the bytes that are left, and memory grows with what was really read, never with what was
 * promised. Where the format leaves room (a tensor of no elements, a name of 64 bytes, gaps between tensors),
 * the rule is that of llama.cpp, so that both take and refuse the same files. */
#include "base/mem.h"
#include "gguf/cursor.h"
#include "gguf/part.h"
#include "gguf/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_STRINGS       ((uint64_t)1 << 24) /* in one array; the largest vocabularies have 2^18 */
#define MAX_TENSOR_NAME   63
#define DEFAULT_ALIGNMENT 32

/* The shortest records that can be, to hold counts against. */
#define MIN_KV     (8 + 1 + 4 + 1) /* key of one byte, type, one byte */
#define MIN_TENSOR (8 + 4 + 4 + 8) /* empty name, no dimensions, type, offset */
#define MIN_STRING 8               /* the length */

static int cut_short(const struct cursor *c, struct err *err, const char *where, uint64_t i)
{
    return err_set(err, ERR_FORMAT, "ends in the middle of %s %" PRIu64 " (at byte %zu)", where, i,
                   cursor_at(c));
}

/* Makes room for element n of an array; its size doubles, beginning with 64. */
static int grow(void **array, size_t n, size_t each, struct err *err)
{
    if (n != 0 && (n < 64 || (n & (n - 1)) != 0))
        return 0;
    size_t bytes;
    void *p = mul_size(n ? 2 * n : 64, each, &bytes) ? realloc(*array, bytes) : NULL;
    if (!p)
        return err_set(err, ERR_MEMORY, "out of memory for %zu entries of its directory", n);
    *array = p;
    return 0;
}

/* What a file begins with that is given for a GGUF file by mistake. */
static const struct {
    const char *magic, *what;
} mistaken[] = {
    {"FUGG", "its header is byte-swapped: a GGUF file for big-endian machines"},
    {"vers", "it looks like a Git LFS pointer; fetch the file that it stands for"},
    {"<!DO", "it looks like a web page, perhaps a failed download"},
    {"<!do", "it looks like a web page, perhaps a failed download"},
    {"<htm", "it looks like a web page, perhaps a failed download"},
    {"PK\3\4", "it looks like a zip archive or a PyTorch checkpoint"},
    {"\x1f\x8b\x08", "it is compressed with gzip"},
    {"\x28\xb5\x2f\xfd", "it is compressed with Zstandard"},
    {"lmgg", "it is a GGML file, older than GGUF"},
    {"tjgg", "it is a GGJT file, older than GGUF"},
    {"fmgg", "it is a GGMF file, older than GGUF"},
};

static int bad_magic(const uint8_t *magic, size_t n, struct err *err)
{
    for (size_t i = 0; i < sizeof mistaken / sizeof mistaken[0]; i++) {
        size_t len = strlen(mistaken[i].magic);
        if (n >= len && memcmp(magic, mistaken[i].magic, len) == 0)
            return err_set(err, i ? ERR_FORMAT : ERR_UNSUPPORTED, "not a GGUF file: %s", mistaken[i].what);
    }
    char hex[4 * 3 + 1] = "";
    for (size_t i = 0; i < n && i < 4; i++)
        snprintf(hex + 3 * i, 4, "%02x ", magic[i]);
    return err_set(err, ERR_FORMAT, "not a GGUF file: begins with %sinstead of \"GGUF\"", hex);
}

static int parse_header(struct part *p, struct cursor *c, uint64_t *n_kv, uint64_t *n_tensors,
                        struct err *err)
{
    if (p->size < 4 || memcmp(p->bytes, "GGUF", 4) != 0)
        return bad_magic(p->bytes, p->size, err);
    cursor_take(c, 4);
    p->version = cursor_u32(c);
    *n_tensors = cursor_u64(c);
    *n_kv = cursor_u64(c);
    if (c->failed)
        return err_set(err, ERR_FORMAT, "ends in the middle of its header (%zu bytes)", p->size);
    if (p->version != 0 && (p->version & 0xFFFF) == 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "its header is byte-swapped (version 0x%08" PRIx32
                       "): a GGUF file for big-endian machines",
                       p->version);
    if (p->version < 2 || p->version > 3)
        return err_set(err, ERR_UNSUPPORTED, "GGUF version %" PRIu32 "; versions 2 and 3 are supported",
                       p->version);
    if (!cursor_may_hold(c, *n_kv, MIN_KV))
        return err_set(err, ERR_FORMAT, "says it has %" PRIu64 " keys, more than fit in the file", *n_kv);
    if (!cursor_may_hold(c, *n_tensors, MIN_TENSOR))
        return err_set(err, ERR_FORMAT, "says it has %" PRIu64 " tensors, more than fit in the file",
                       *n_tensors);
    return 0;
}

static int parse_strings(struct gguf_kv *kv, struct cursor *c, struct err *err)
{
    if (kv->n > MAX_STRINGS)
        return err_set(err, ERR_FORMAT,
                       "key " NAME_FMT ": an array of %" PRIu64 " strings, more than %" PRIu64,
                       NAME_ARG(kv->key), kv->n, MAX_STRINGS);
    struct str *strings = malloc((kv->n ? kv->n : 1) * sizeof *strings);
    if (!strings)
        return err_set(err, ERR_MEMORY, "key " NAME_FMT ": out of memory for %" PRIu64 " strings",
                       NAME_ARG(kv->key), kv->n);
    kv->strings = strings;
    cursor_strs(c, kv->n, strings);
    return 0;
}

/* The value behind key and type. On failure kv->strings may be set; the caller owns it. */
static int parse_value(struct gguf_kv *kv, struct cursor *c, struct err *err)
{
    uint32_t type = cursor_u32(c);
    kv->n = 1;
    kv->is_array = type == GGUF_ARRAY;
    if (kv->is_array) {
        type = cursor_u32(c);
        kv->n = cursor_u64(c);
        if (type == GGUF_ARRAY)
            return err_set(err, ERR_UNSUPPORTED, "key " NAME_FMT ": an array of arrays", NAME_ARG(kv->key));
    }
    const struct value_type_info *info = value_type_info(type);
    if (!info)
        return err_set(err, ERR_FORMAT, "key " NAME_FMT ": unknown value type %" PRIu32, NAME_ARG(kv->key),
                       type);
    kv->type = (enum gguf_value_type)type;
    if (!c->failed && kv->is_array && !cursor_may_hold(c, kv->n, info->size ? info->size : MIN_STRING))
        return err_set(err, ERR_FORMAT,
                       "key " NAME_FMT ": an array of %" PRIu64 " values, more than fit in the file",
                       NAME_ARG(kv->key), kv->n);
    kv->data = c->p;
    if (!info->size) {
        if (parse_strings(kv, c, err) != 0)
            return -1;
    } else {
        cursor_take(c, kv->n * info->size);
    }
    if (c->failed)
        return err_set(err, ERR_FORMAT, "key " NAME_FMT ": its value runs over the end of the file",
                       NAME_ARG(kv->key));
    return 0;
}

static int parse_metadata(struct part *p, struct cursor *c, uint64_t n, struct err *err)
{
    for (uint64_t i = 0; i < n; i++) {
        if (grow((void **)&p->kv, p->n_kv, sizeof *p->kv, err) != 0)
            return -1;
        struct gguf_kv *kv = &p->kv[p->n_kv];
        *kv = (struct gguf_kv){.key = cursor_str(c)};
        if (c->failed)
            return cut_short(c, err, "key", i);
        if (kv->key.n == 0)
            return err_set(err, ERR_FORMAT, "key %" PRIu64 " has no name", i);
        p->n_kv++; /* from here on part_close frees its strings */
        if (!map_reserve(&p->keys, p->n_kv))
            return err_set(err, ERR_MEMORY, "out of memory for %zu keys", p->n_kv);
        if (!map_add(&p->keys, kv->key, i, NULL))
            return err_set(err, ERR_FORMAT, "key " NAME_FMT " is there twice", NAME_ARG(kv->key));
        if (parse_value(kv, c, err) != 0)
            return -1;
    }
    return 0;
}

/* Tensor data begin at, and are padded to, a multiple of this. 0 after an error. */
static uint32_t alignment_of(const struct part *p, struct err *err)
{
    uint32_t alignment;
    const struct gguf_kv *kv = part_find(p, "general.alignment");
    if (!kv)
        return DEFAULT_ALIGNMENT;
    if (kv->is_array || kv->type != GGUF_U32) {
        err_set(err, ERR_FORMAT, "key 'general.alignment' is of type %s%s instead of u32",
                kv->is_array ? "array of " : "", value_type_info(kv->type)->name);
        return 0;
    }
    memcpy(&alignment, kv->data, sizeof alignment);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        err_set(err, ERR_FORMAT, "key 'general.alignment' is %" PRIu32 ", not a power of two", alignment);
        return 0;
    }
    return alignment;
}

/* The bytes of a tensor out of its shape and type. */
static int measure(struct gguf_tensor *t, struct err *err)
{
    const struct ggml_type_info *info = ggml_type_info(t->type);
    if (!info)
        return err_set(err, ERR_UNSUPPORTED, "tensor " NAME_FMT ": unknown type %" PRIu32, NAME_ARG(t->name),
                       t->type);
    uint64_t elements = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) {
        if (t->ne[i] > INT64_MAX || __builtin_mul_overflow(elements, t->ne[i], &elements) ||
            elements > INT64_MAX)
            return err_set(err, ERR_FORMAT,
                           "tensor " NAME_FMT ": a shape of [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                           "] is impossible",
                           NAME_ARG(t->name), t->ne[0], t->ne[1], t->ne[2], t->ne[3]);
    }
    if (t->ne[0] % info->block != 0)
        return err_set(err, ERR_FORMAT,
                       "tensor " NAME_FMT ": %" PRIu64
                       " elements in a row, not a multiple of %s's block of %" PRIu32,
                       NAME_ARG(t->name), t->ne[0], info->name, info->block);
    if (__builtin_mul_overflow(elements / info->block, info->bytes, &t->size))
        return err_set(err, ERR_FORMAT,
                       "tensor " NAME_FMT ": %" PRIu64 " elements of type %s are more than 2^64 bytes",
                       NAME_ARG(t->name), elements, info->name);
    return 0;
}

static int parse_tensor(struct gguf_tensor *t, struct cursor *c, uint64_t i, struct err *err)
{
    t->name = cursor_str(c);
    t->n_dims = cursor_u32(c);
    if (c->failed)
        return cut_short(c, err, "tensor", i);
    if (t->name.n > MAX_TENSOR_NAME)
        return err_set(err, ERR_FORMAT, "tensor " NAME_FMT ": a name of %zu bytes, more than %d",
                       NAME_ARG(t->name), t->name.n, MAX_TENSOR_NAME);
    if (t->n_dims > GGUF_MAX_DIMS)
        return err_set(err, ERR_FORMAT, "tensor " NAME_FMT ": %" PRIu32 " dimensions, more than %d",
                       NAME_ARG(t->name), t->n_dims, GGUF_MAX_DIMS);
    for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++)
        t->ne[d] = d < t->n_dims ? cursor_u64(c) : 1;
    t->type = cursor_u32(c);
    t->offset = cursor_u64(c);
    if (c->failed)
        return cut_short(c, err, "tensor", i);
    return measure(t, err);
}

/* Tensors lie one after the other in the order of the directory, each padded to the alignment. */
static int parse_tensors(struct part *p, struct cursor *c, uint64_t n, uint32_t alignment, struct err *err)
{
    uint64_t next = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (grow((void **)&p->tensors, p->n_tensors, sizeof *p->tensors, err) != 0)
            return -1;
        struct gguf_tensor *t = &p->tensors[p->n_tensors];
        *t = (struct gguf_tensor){0};
        if (parse_tensor(t, c, i, err) != 0)
            return -1;
        if (t->offset % alignment != 0)
            return err_set(err, ERR_FORMAT,
                           "tensor " NAME_FMT ": offset %" PRIu64 " is not a multiple of %" PRIu32,
                           NAME_ARG(t->name), t->offset, alignment);
        if (t->offset != next)
            return err_set(err, ERR_FORMAT,
                           "tensor " NAME_FMT ": offset %" PRIu64 " where %" PRIu64 " was expected",
                           NAME_ARG(t->name), t->offset, next);
        if (__builtin_add_overflow(next, t->size, &next) ||
            __builtin_add_overflow(next, alignment - 1, &next))
            return err_set(err, ERR_FORMAT,
                           "tensor " NAME_FMT ": %" PRIu64 " bytes are more than any file holds",
                           NAME_ARG(t->name), t->size);
        next -= next % alignment;
        p->n_tensors++;
    }
    return 0;
}

/* Now that the end of the head is known: where tensors are in the file, and that all of them are. */
static int place_tensors(struct part *p, size_t head_end, uint32_t alignment, struct err *err)
{
    p->data_start = align_up(head_end, alignment);
    p->data_end = p->data_start;
    for (size_t i = 0; i < p->n_tensors; i++) {
        struct gguf_tensor *t = &p->tensors[i];
        uint64_t end;
        if (__builtin_add_overflow(t->offset, p->data_start, &t->offset) ||
            __builtin_add_overflow(t->offset, t->size, &end) || end > p->size)
            return err_set(err, ERR_FORMAT,
                           "tensor " NAME_FMT ": %" PRIu64 " bytes at %" PRIu64
                           " run over the end of the file (%zu bytes), which is incomplete or damaged",
                           NAME_ARG(t->name), t->size, t->offset, p->size);
        t->data = p->bytes + t->offset;
        p->data_end = align_up(end, alignment);
    }
    if (p->data_end > p->size)
        p->data_end = p->size;
    return 0;
}

int part_parse(struct part *p, struct err *err)
{
    struct cursor c = cursor_over(p->bytes, p->size);
    uint64_t n_kv = 0, n_tensors = 0;
    if (parse_header(p, &c, &n_kv, &n_tensors, err) != 0 || parse_metadata(p, &c, n_kv, err) != 0)
        return -1;
    uint32_t alignment = alignment_of(p, err);
    if (!alignment || parse_tensors(p, &c, n_tensors, alignment, err) != 0)
        return -1;
    return place_tensors(p, cursor_at(&c), alignment, err);
}
