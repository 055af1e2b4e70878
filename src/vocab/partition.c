/* Special tokens in a text. The rule is that of a search token by token, the longest first, each in what the
 * ones before have left over; done so that the number of tokens (thousands in Gemma's case) doesn't matter.
 *
 * Every place where a token begins waits in a heap under the rank of the longest one. When its turn comes and
 * the bytes are still free, the token is taken; if they are not, the place waits again under the next
 * shorter. */
#include "vocab/inside.h"

#include <ctype.h>
#include <stdlib.h>

struct hit {
    size_t at, n; /* with the spaces that it takes away */
    token_id token;
};

struct search {
    const struct vocab *v;
    struct str text;
    bool control; /* control and unknown tokens, too */
    struct heap waiting;
    bool *taken;
    struct hit *hits;
    size_t n_hits, size_hits;
};

static bool wanted(const struct search *s, const struct special *special)
{
    return s->control || !(s->v->attrs[special->id] & (VOCAB_ATTR_CONTROL | VOCAB_ATTR_UNKNOWN));
}

/* The longest special token of less than `limit` bytes that the text has at `at`; NULL when there is none. */
static const struct special *longest_at(const struct search *s, size_t at, size_t limit)
{
    const struct special *all = s->v->specials, *best = NULL;
    unsigned char first = (unsigned char)s->text.p[at];
    size_t lo = s->v->special_first[first], hi = s->v->special_first[first + 1];
    /* all[lo, hi) are the tokens that agree with the text in the first n bytes; shorter ones come first */
    for (size_t n = 1; lo < hi && n < limit; n++) {
        if (all[lo].text.n == n) {
            if (wanted(s, &all[lo]))
                best = &all[lo];
            lo++;
        }
        if (at + n >= s->text.n)
            break;
        unsigned char c = (unsigned char)s->text.p[at + n];
        for (size_t a = lo, b = hi; a < b;) { /* the first whose next byte is not below c */
            size_t mid = (a + b) / 2;
            if ((unsigned char)all[mid].text.p[n] < c)
                a = mid + 1;
            else
                b = mid;
            lo = a;
        }
        for (size_t a = lo, b = hi; a < b;) { /* the first whose next byte is above c */
            size_t mid = (a + b) / 2;
            if ((unsigned char)all[mid].text.p[n] <= c)
                a = mid + 1;
            else
                b = mid;
            hi = b;
        }
    }
    return best;
}

static bool wait_at(struct search *s, size_t at, size_t limit)
{
    const struct special *special = longest_at(s, at, limit);
    if (!special)
        return true;
    return heap_push(&s->waiting, (struct pair){(uint64_t)special->rank << 32 | (uint32_t)at, 0, 0});
}

static bool take(struct search *s, size_t at, const struct special *special)
{
    size_t begin = at, end = at + special->text.n;
    unsigned attr = s->v->attrs[special->id];
    if (attr & VOCAB_ATTR_LSTRIP) {
        while (begin > 0 && !s->taken[begin - 1] && isspace((unsigned char)s->text.p[begin - 1]))
            begin--;
    }
    if (attr & VOCAB_ATTR_RSTRIP) {
        while (end < s->text.n && !s->taken[end] && isspace((unsigned char)s->text.p[end]))
            end++;
    }
    if (s->n_hits == s->size_hits) {
        size_t size = s->size_hits ? 2 * s->size_hits : 16;
        struct hit *p = realloc(s->hits, size * sizeof *p);
        if (!p)
            return false;
        s->hits = p;
        s->size_hits = size;
    }
    s->hits[s->n_hits++] = (struct hit){begin, end - begin, special->id};
    memset(s->taken + begin, true, end - begin);
    return true;
}

/* Spans that are taken are never shorter than the one in hand, so that its ends tell whether it is free. */
static bool find_hits(struct search *s)
{
    for (size_t at = 0; at < s->text.n; at++) {
        unsigned char c = (unsigned char)s->text.p[at];
        if (s->v->special_first[c] != s->v->special_first[c + 1] && !wait_at(s, at, SIZE_MAX))
            return false;
    }
    if (!s->waiting.n)
        return true;
    s->taken = calloc(s->text.n, sizeof *s->taken);
    if (!s->taken)
        return false;
    while (s->waiting.n) {
        struct pair next = heap_pop(&s->waiting);
        const struct special *special = &s->v->specials[s->v->special_at_rank[next.order >> 32]];
        size_t at = (uint32_t)next.order, n = special->text.n;
        if (s->taken[at])
            continue;
        if (!(s->taken[at + n - 1] ? wait_at(s, at, n) : take(s, at, special)))
            return false;
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct hit *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

int partition(const struct vocab *v, struct str text, bool parse_special, struct fragments *out,
              struct err *err)
{
    struct search s = {.v = v, .text = text, .control = parse_special};
    int rc = -1;
    if (!find_hits(&s)) {
        no_memory(err);
        goto out;
    }
    if (s.n_hits)
        qsort(s.hits, s.n_hits, sizeof *s.hits, by_place);
    out->p = malloc((2 * s.n_hits + 1) * sizeof *out->p);
    out->n = 0;
    if (!out->p) {
        no_memory(err);
        goto out;
    }
    size_t at = 0;
    for (size_t i = 0; i < s.n_hits; at = s.hits[i].at + s.hits[i].n, i++) {
        if (s.hits[i].at > at)
            out->p[out->n++] = (struct fragment){at, s.hits[i].at - at, TOKEN_NONE};
        out->p[out->n++] = (struct fragment){0, 0, s.hits[i].token};
    }
    if (at < text.n)
        out->p[out->n++] = (struct fragment){at, text.n - at, TOKEN_NONE};
    rc = 0;
out:
    heap_release(&s.waiting);
    free(s.taken);
    free(s.hits);
    return rc;
}
