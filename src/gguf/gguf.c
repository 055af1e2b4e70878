/* A model as one directory over its parts: opening, joining, and looking up by name. */
#include "gguf/gguf.h"
#include "base/mem.h"
#include "gguf/part.h"
#include "gguf/split.h"
#include "gguf/value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct gguf {
    char *path;
    struct part *parts;
    uint32_t n_parts;
    struct gguf_tensor *tensors; /* of all parts */
    size_t n_tensors;
    struct map names; /* tensor name → index into tensors */
};

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_MEMORY, "out of memory for the tensor directory");
}

/* One array and one index of the tensors of all parts, which finds names that are there twice. */
static int join(struct gguf *g, struct err *err)
{
    size_t total = 0;
    for (uint32_t i = 0; i < g->n_parts; i++)
        total += g->parts[i].n_tensors;
    g->tensors = calloc(total ? total : 1, sizeof *g->tensors);
    if (!g->tensors || !map_reserve(&g->names, total))
        return out_of_memory(err);
    for (uint32_t i = 0; i < g->n_parts; i++) {
        struct part *p = &g->parts[i];
        for (size_t j = 0; j < p->n_tensors; j++) {
            struct gguf_tensor *t = &g->tensors[g->n_tensors];
            *t = p->tensors[j];
            t->part = i;
            if (!map_add(&g->names, t->name, g->n_tensors, NULL)) {
                err_set(err, ERR_FORMAT, "tensor " NAME_FMT " is there twice", NAME_ARG(t->name));
                if (p->path)
                    err_prefix(err, "%s", p->path);
                return -1;
            }
            g->n_tensors++;
        }
        free(p->tensors);
        p->tensors = NULL;
    }
    return 0;
}

/* Finds out from the one part that is open whether there are others, and opens them. */
static int open_others(struct gguf *g, struct err *err)
{
    struct split s;
    if (split_read(&g->parts[0], &s, err) != 0) {
        err_prefix(err, "%s", g->path);
        return -1;
    }
    if (s.count == 1)
        return 0;
    struct part *parts = calloc(s.count, sizeof *parts);
    if (!parts)
        return out_of_memory(err);
    for (uint32_t i = 0; i < s.count; i++)
        parts[i].fd = -1;
    parts[s.no] = g->parts[0];
    free(g->parts);
    g->parts = parts;
    g->n_parts = s.count;
    return split_open_others(parts, &s, err);
}

/* A part that was lost on the way shows in the sum. */
static int check_total(const struct gguf *g, struct err *err)
{
    struct split s;
    if (g->n_parts == 1)
        return 0;
    if (split_read(&g->parts[0], &s, err) != 0)
        return -1;
    if (s.n_tensors && s.n_tensors != g->n_tensors)
        return err_set(err, ERR_FORMAT,
                       "%s: %zu tensors in %" PRIu32 " parts where %" PRIu32 " were expected", g->path,
                       g->n_tensors, g->n_parts, s.n_tensors);
    return 0;
}

static struct gguf *new_gguf(const char *path)
{
    struct gguf *g = xcalloc(1, sizeof *g);
    g->path = xstrdup(path);
    g->parts = xcalloc(1, sizeof *g->parts);
    g->parts[0].fd = -1;
    g->n_parts = 1;
    return g;
}

struct gguf *gguf_open(const char *path, struct err *err)
{
    struct gguf *g = new_gguf(path);
    if (part_open(&g->parts[0], path, err) == 0 && open_others(g, err) == 0 && join(g, err) == 0 &&
        check_total(g, err) == 0)
        return g;
    gguf_close(g);
    return NULL;
}

struct gguf *gguf_open_memory(const void *data, size_t n, struct err *err)
{
    struct gguf *g = new_gguf("(memory)");
    struct split s;
    g->parts[0].bytes = data;
    g->parts[0].size = n;
    if (part_parse(&g->parts[0], err) != 0 || split_read(&g->parts[0], &s, err) != 0)
        goto fail;
    if (s.count > 1) {
        err_set(err, ERR_UNSUPPORTED, "is part %" PRIu32 " of %" PRIu32 " of a split model", s.no + 1,
                s.count);
        goto fail;
    }
    if (join(g, err) == 0)
        return g;
fail:
    gguf_close(g);
    return NULL;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_parts; i++)
        part_close(&g->parts[i]);
    free(g->parts);
    free(g->tensors);
    map_release(&g->names);
    free(g->path);
    free(g);
}

int gguf_override(struct gguf *g, const char *spec, struct err *err)
{
    return part_override(&g->parts[0], spec, err);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->parts[0].version;
}

uint64_t gguf_file_size(const struct gguf *g)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_parts; i++)
        n += g->parts[i].size;
    return n;
}

int gguf_fd(const struct gguf *g, uint32_t part)
{
    return g->parts[part].fd;
}

int gguf_changed(const struct gguf *g, struct err *err)
{
    for (uint32_t i = 0; i < g->n_parts; i++) {
        if (part_changed(&g->parts[i], err) < 0)
            return -1;
    }
    return 0;
}

void gguf_want_pages(const struct gguf *g)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (uint32_t i = 0; i < g->n_parts; i++) {
        const struct part *p = &g->parts[i];
        size_t begin = align_up(p->data_start, page); /* the page before holds strings that are in use */
        if (p->fd >= 0 && begin < p->data_end)
            madvise((void *)(uintptr_t)(p->bytes + begin), p->data_end - begin, MADV_WILLNEED);
    }
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->parts[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    return &g->parts[0].kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return part_find(&g->parts[0], key);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    uint64_t i;
    return map_get(&g->names, str_of(name), &i) ? &g->tensors[i] : NULL;
}

/* The four scalars differ in their C type only. */
#define SCALAR(name, c_type)                                                                                 \
    int gguf_##name(const struct gguf *g, const char *key, c_type *out, struct err *err)                     \
    {                                                                                                        \
        const struct gguf_kv *kv = gguf_find(g, key);                                                        \
        if (!kv)                                                                                             \
            return 0;                                                                                        \
        if (value_##name(kv, out, err) == 0)                                                                 \
            return 1;                                                                                        \
        err_prefix(err, "%s", g->path);                                                                      \
        return -1;                                                                                           \
    }

SCALAR(u32, uint32_t)
SCALAR(f32, float)
SCALAR(bool, bool)
SCALAR(string, struct str)
