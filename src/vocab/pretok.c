/* Compiles the rules of pretok.def and runs them one after the other. */
#include "vocab/pretok.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#define PRETOK(set, ...) static const char *const rules_##set[] = {__VA_ARGS__, NULL};
#include "vocab/pretok.def"

static const struct pretok_name {
    const char *name;
    const char *const *rules;
    unsigned flags;
} names[] = {
#define PRETOK_NAME(name, set, flags) {name, rules_##set, flags},
#include "vocab/pretok.def"
};

#define MAX_RULES 8

struct pretok {
    const struct pretok_name *def;
    size_t n;
    struct rule {
        pcre2_code *code;
        char kind; /* '@' and '^': see pretok.def; 0: the matches are the pieces */
    } rules[MAX_RULES];
};

static int compile(struct rule *r, const char *text, struct err *err)
{
    r->kind = *text == '@' || *text == '^' ? *text++ : 0;
    int code;
    PCRE2_SIZE at;
    r->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (!r->code) {
        char message[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        return err_set(err, ERR_UNSUPPORTED, "pre-tokenizer rule at %zu: %s", (size_t)at, message);
    }
    pcre2_jit_compile(r->code,
                      PCRE2_JIT_COMPLETE); /* where there is no JIT, matching is slower, not different */
    return 0;
}

struct pretok *pretok_new(struct str name, struct err *err)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!str_is(name, names[i].name))
            continue;
        struct pretok *p = calloc(1, sizeof *p);
        if (!p) {
            err_set(err, ERR_MEMORY, "out of memory");
            return NULL;
        }
        p->def = &names[i];
        for (const char *const *rule = p->def->rules; *rule && p->n < MAX_RULES; rule++) {
            if (compile(&p->rules[p->n++], *rule, err) != 0) {
                pretok_free(p);
                return NULL;
            }
        }
        return p;
    }
    err_set(err, ERR_UNSUPPORTED, "tokenizer.ggml.pre: unknown pre-tokenizer '%.*s'", STR_ARG(name));
    return NULL;
}

void pretok_free(struct pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        pcre2_code_free(p->rules[i].code);
    free(p);
}

unsigned pretok_flags(const struct pretok *p)
{
    return p->def->flags;
}

void cuts_release(struct cuts *c)
{
    free(c->end);
    *c = (struct cuts){0};
}

static bool cut(struct cuts *c, size_t end)
{
    if (c->n == c->size) {
        size_t size = c->size ? 2 * c->size : 256;
        uint32_t *p = realloc(c->end, size * sizeof *p);
        if (!p)
            return false;
        c->end = p;
        c->size = size;
    }
    c->end[c->n++] = (uint32_t)end;
    return true;
}

/* Cuts a number into threes from its right end: behind every group, or before every whole one. */
static bool cut_threes(struct cuts *c, const char *text, size_t begin, size_t end, bool behind)
{
    size_t chars = 0;
    for (size_t i = begin; i < end; i++)
        chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    for (size_t i = begin; i < end; chars--) {
        if (!behind && chars % 3 == 0 && i && !cut(c, i))
            return false;
        do
            i++;
        while (i < end && ((unsigned char)text[i] & 0xC0) == 0x80);
        if (behind && (chars - 1) % 3 == 0 && !cut(c, i))
            return false;
    }
    return true;
}

/* One step through a piece: the next match, or no more. */
static int next_match(const struct rule *r, struct str piece, size_t from, pcre2_match_data *data,
                      struct err *err)
{
    int rc = pcre2_match(r->code, (PCRE2_SPTR)piece.p, piece.n, from, PCRE2_NO_UTF_CHECK, data, NULL);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, (PCRE2_SPTR)piece.p, piece.n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                         NULL);
    if (rc >= 0)
        return 1;
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    char message[128] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)message, sizeof message);
    return err_set(err, ERR_MEMORY, "pre-tokenizer: %s", message);
}

static int split_piece(const struct rule *r, struct str text, size_t begin, size_t end, struct cuts *out,
                       pcre2_match_data *data, struct err *err)
{
    struct str piece = {text.p + begin, end - begin};
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(data);
    size_t done = 0;
    bool room = true;
    while (done < piece.n && room) {
        int rc = next_match(r, piece, done, data, err);
        if (rc < 0)
            return -1;
        if (rc == 0 || match[1] <= done) /* no rule matches nothing, but don't count on it */
            break;
        if (r->kind)
            room = cut_threes(out, text.p, begin + match[0], begin + match[1], r->kind == '@');
        else
            room = (match[0] == done || cut(out, begin + match[0])) && cut(out, begin + match[1]);
        done = match[1];
    }
    if (room && (!out->n || out->end[out->n - 1] != end))
        room = cut(out, end);
    return room ? 0 : err_set(err, ERR_MEMORY, "out of memory");
}

int pretok_split(const struct pretok *p, struct str text, struct cuts *cuts, struct err *err)
{
    int rc = -1;
    struct cuts before = {0};
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    cuts->n = 0;
    if (!data || !cut(cuts, text.n)) {
        err_set(err, ERR_MEMORY, "out of memory");
        goto out;
    }
    for (size_t i = 0; i < p->n; i++) {
        struct cuts t = before;
        before = *cuts;
        *cuts = t;
        cuts->n = 0;
        for (size_t k = 0, begin = 0; k < before.n; begin = before.end[k++]) {
            if (split_piece(&p->rules[i], text, begin, before.end[k], cuts, data, err) != 0)
                goto out;
        }
    }
    rc = 0;
out:
    pcre2_match_data_free(data);
    cuts_release(&before);
    return rc;
}
