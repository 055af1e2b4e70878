/* Values from outside in the place of a file's: a "KEY=TYPE:VALUE" becomes a key like those that were parsed.
 * An int is held as i64 and a float as f64: whoever reads the key asks for a kind of number, not a width. */
#include "base/mem.h"
#include "gguf/part.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Numbers begin with the number: strtoll and strtod would skip white space. */
static bool starts_with_space(const char *text)
{
    return isspace((unsigned char)*text);
}

/* Each fills kv->data, and kv->strings where there are some. NULL, or what is wrong with the text. */
static const char *parse_int(struct part *p, const char *text, struct gguf_kv *kv)
{
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (end == text || *end || starts_with_space(text))
        return "not a whole number";
    if (errno == ERANGE)
        return "does not fit into 64 bits";
    int64_t v = parsed;
    kv->data = memcpy(arena_alloc(&p->owned, sizeof v), &v, sizeof v);
    return NULL;
}

static const char *parse_float(struct part *p, const char *text, struct gguf_kv *kv)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || starts_with_space(text) || !isfinite(v))
        return "not a finite number";
    kv->data = memcpy(arena_alloc(&p->owned, sizeof v), &v, sizeof v);
    return NULL;
}

static const char *parse_bool(struct part *p, const char *text, struct gguf_kv *kv)
{
    (void)p;
    static const uint8_t values[] = {0, 1};
    bool v = strcmp(text, "true") == 0;
    if (!v && strcmp(text, "false") != 0)
        return "neither true nor false";
    kv->data = &values[v];
    return NULL;
}

/* Laid out as in a file: length, then bytes. */
static const char *parse_string(struct part *p, const char *text, struct gguf_kv *kv)
{
    uint64_t n = strlen(text);
    struct str *strings = malloc(sizeof *strings); /* freed with the part, like any key's */
    if (!strings)
        return "out of memory";
    char *data = arena_alloc(&p->owned, sizeof n + n);
    memcpy(data, &n, sizeof n);
    memcpy(data + sizeof n, text, n);
    *strings = (struct str){data + sizeof n, n};
    kv->data = (const uint8_t *)data;
    kv->strings = strings;
    return NULL;
}

static const struct kind {
    const char *prefix;
    enum gguf_value_type type;
    const char *(*parse)(struct part *p, const char *text, struct gguf_kv *kv);
} kinds[] = {
    {"int:", GGUF_I64, parse_int},
    {"float:", GGUF_F64, parse_float},
    {"bool:", GGUF_BOOL, parse_bool},
    {"str:", GGUF_STRING, parse_string},
};

static const struct kind *kind_of(const char *typed)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(typed, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return &kinds[i];
    }
    return NULL;
}

/* Puts the key into its old place, or behind all others. */
static int store(struct part *p, struct gguf_kv kv)
{
    uint64_t at;
    if (map_get(&p->keys, kv.key, &at)) {
        free((void *)(uintptr_t)p->kv[at].strings);
        kv.key = p->kv[at].key;
        p->kv[at] = kv;
        return 0;
    }
    struct gguf_kv *grown = realloc(p->kv, (p->n_kv + 1) * sizeof *grown);
    if (grown)
        p->kv = grown;
    if (!grown || !map_reserve(&p->keys, p->n_kv + 1))
        return -1;
    kv.key.p = arena_strndup(&p->owned, kv.key.p, kv.key.n);
    map_add(&p->keys, kv.key, p->n_kv, NULL);
    p->kv[p->n_kv++] = kv;
    return 0;
}

int part_override(struct part *p, const char *spec, struct err *err)
{
    struct str name = str_of(spec);
    const char *equals = strchr(spec, '=');
    if (!equals || equals == spec)
        return err_set(err, ERR_USAGE, "override " NAME_FMT ": must be KEY=TYPE:VALUE", NAME_ARG(name));
    const struct kind *kind = kind_of(equals + 1);
    if (!kind)
        return err_set(err, ERR_USAGE,
                       "override " NAME_FMT ": the type must be int:, float:, bool: or str:", NAME_ARG(name));
    struct gguf_kv kv = {.key = {spec, (size_t)(equals - spec)}, .type = kind->type, .n = 1};
    const char *wrong = kind->parse(p, equals + 1 + strlen(kind->prefix), &kv);
    if (wrong)
        return err_set(err, ERR_USAGE, "override " NAME_FMT ": %s", NAME_ARG(name), wrong);
    if (store(p, kv) == 0)
        return 0;
    free((void *)(uintptr_t)kv.strings);
    return err_set(err, ERR_MEMORY, "override " NAME_FMT ": out of memory", NAME_ARG(name));
}
