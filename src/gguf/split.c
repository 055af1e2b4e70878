/* The other parts of a split model are found by name: the one given must end in -NNNNN-of-NNNNN.gguf with its
 * own number, and the rest differ in that number only. */
#include "gguf/split.h"
#include "gguf/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SUFFIX_MAX 64

static int read_u32(const struct part *p, const char *key, uint32_t *out, struct err *err)
{
    const struct gguf_kv *kv = part_find(p, key);
    return kv ? value_u32(kv, out, err) : 0;
}

int split_read(const struct part *p, struct split *s, struct err *err)
{
    *s = (struct split){.count = 1};
    if (read_u32(p, "split.no", &s->no, err) < 0 || read_u32(p, "split.count", &s->count, err) < 0 ||
        read_u32(p, "split.tensors.count", &s->n_tensors, err) < 0)
        return -1;
    if (s->count <= 1) {
        *s = (struct split){.count = 1};
        return 0;
    }
    if (s->count > UINT16_MAX)
        return err_set(err, ERR_FORMAT, "key 'split.count' is %" PRIu32 ", more than %d", s->count,
                       UINT16_MAX);
    if (s->no >= s->count)
        return err_set(err, ERR_FORMAT, "key 'split.no' is %" PRIu32 " of %" PRIu32 " parts", s->no,
                       s->count);
    return 0;
}

static void suffix(char out[SUFFIX_MAX], uint32_t no, uint32_t count)
{
    snprintf(out, SUFFIX_MAX, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", no + 1, count);
}

/* Length of the path before the suffix. */
static int prefix_of(const struct part *p, const struct split *s, size_t *n, struct err *err)
{
    char end[SUFFIX_MAX];
    suffix(end, s->no, s->count);
    size_t path_n = strlen(p->path), end_n = strlen(end);
    if (path_n > end_n && strcmp(p->path + path_n - end_n, end) == 0) {
        *n = path_n - end_n;
        return 0;
    }
    if (p->size - p->data_end >= 4 && memcmp(p->bytes + p->data_end, "GGUF", 4) == 0)
        return err_set(
            err, ERR_FORMAT,
            "%s: holds several parts of a split model joined into one file; keep the parts as they are, "
            "or merge them with llama-gguf-split --merge",
            p->path);
    return err_set(err, ERR_FORMAT,
                   "%s: is part %" PRIu32 " of %" PRIu32
                   " of a split model, but its name does not end in %s, "
                   "so the other parts cannot be found",
                   p->path, s->no + 1, s->count, end);
}

static int check_sibling(const struct part *p, const struct split *first, uint32_t no, struct err *err)
{
    struct split s;
    int r = split_read(p, &s, err);
    if (r == 0 && !part_find(p, "split.no"))
        r = err_set(err, ERR_FORMAT, "is no part of a split model: key 'split.no' is missing");
    else if (r == 0 && (s.no != no || s.count != first->count))
        r = err_set(err, ERR_FORMAT,
                    "says it is part %" PRIu32 " of %" PRIu32 " where part %" PRIu32 " of %" PRIu32
                    " was expected",
                    s.no + 1, s.count, no + 1, first->count);
    if (r != 0)
        err_prefix(err, "%s", p->path);
    return r;
}

int split_open_others(struct part *parts, const struct split *s, struct err *err)
{
    size_t n = 0;
    if (prefix_of(&parts[s->no], s, &n, err) != 0)
        return -1;
    char *path = malloc(n + SUFFIX_MAX);
    if (!path)
        return err_set(err, ERR_MEMORY, "out of memory for a path");
    memcpy(path, parts[s->no].path, n);
    int r = 0;
    for (uint32_t i = 0; i < s->count && r == 0; i++) {
        if (i == s->no)
            continue;
        suffix(path + n, i, s->count);
        r = part_open(&parts[i], path, err);
        if (r != 0)
            err_prefix(err, "part %" PRIu32 " of %" PRIu32, i + 1, s->count);
        else
            r = check_sibling(&parts[i], s, i, err);
    }
    free(path);
    return r;
}
