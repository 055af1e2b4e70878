/* The array of candidates: sorting by radix, the k best by a heap, the largest in one pass of 16 lanes. */
#include "sampler/cands.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

bool cands_init(struct cands *c, size_t n_vocab)
{
    *c = (struct cands){.n_vocab = n_vocab};
    c->changed = calloc(n_vocab, sizeof *c->changed);
    c->list = calloc(n_vocab, sizeof *c->list);
    c->spare = calloc(n_vocab, sizeof *c->spare);
    c->place = calloc(n_vocab, sizeof *c->place);
    return c->changed && c->list && c->spare && c->place;
}

void cands_release(struct cands *c)
{
    free(c->changed);
    free(c->list);
    free(c->spare);
    free(c->place);
}

void cands_begin(struct cands *c, const float *logits)
{
    c->dense = logits;
    c->p = c->list;
    c->n = c->n_vocab;
    c->sorted = false;
}

void cands_list(struct cands *c)
{
    if (!c->dense)
        return;
    for (size_t i = 0; i < c->n; i++)
        c->p[i] = (struct sampler_candidate){(token_id)i, c->dense[i], 0};
    c->dense = NULL;
}

/* Makes what is in `spare` the list. */
static void exchange(struct cands *c, size_t n)
{
    struct sampler_candidate *made = c->spare;
    c->spare = c->list;
    c->list = c->p = made;
    c->n = n;
    c->dense = NULL;
}

void cands_only(struct cands *c, size_t i)
{
    c->spare[0] = c->dense ? (struct sampler_candidate){(token_id)i, c->dense[i], 0} : c->p[i];
    c->spare[0].p = 1;
    exchange(c, 1);
    c->sorted = true;
}

void cands_allow(struct cands *c, const uint32_t *mask)
{
    size_t n = 0;
    struct sampler_candidate hopeless = {TOKEN_NONE, -INFINITY, 0};
    for (size_t word = 0; word < (c->n_vocab + 31) / 32; word++) {
        for (uint32_t bits = mask[word]; bits; bits &= bits - 1) {
            size_t t = 32 * word + (size_t)__builtin_ctz(bits);
            if (c->dense[t] > -INFINITY)
                c->p[n++] = (struct sampler_candidate){(token_id)t, c->dense[t], 0};
            else if (hopeless.id == TOKEN_NONE)
                hopeless.id = (token_id)t;
        }
    }
    if (n == 0)
        c->p[n++] = hopeless;
    c->n = n;
    c->dense = NULL;
}

/* Radix sort: three stable passes over digits of 11, 11 and 10 bits. A float's bits, with the sign bit turned
 * over for positive numbers and all bits for negative ones, are in the order of the numbers. */
#define DIGIT_BITS 11
#define DIGITS     (1u << DIGIT_BITS)

static uint32_t ordered(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static uint32_t key_falling_logit(const struct sampler_candidate *s)
{
    return ~ordered(s->logit + 0.0f); /* -0 is 0 */
}

static uint32_t key_rising_p(const struct sampler_candidate *s)
{
    return ordered(s->p + 0.0f);
}

static inline void radix_sort(struct cands *c, uint32_t (*key)(const struct sampler_candidate *))
{
    for (int shift = 0; shift < 32; shift += DIGIT_BITS) {
        size_t at[DIGITS] = {0};
        for (size_t i = 0; i < c->n; i++)
            at[key(&c->p[i]) >> shift & (DIGITS - 1)]++;
        size_t sum = 0;
        for (size_t d = 0; d < DIGITS; d++) {
            size_t count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (size_t i = 0; i < c->n; i++)
            c->spare[at[key(&c->p[i]) >> shift & (DIGITS - 1)]++] = c->p[i];
        exchange(c, c->n);
    }
}

void cands_sort(struct cands *c)
{
    cands_list(c);
    if (!c->sorted)
        radix_sort(c, key_falling_logit);
    c->sorted = true;
}

void cands_sort_by_p(struct cands *c)
{
    cands_list(c);
    radix_sort(c, key_rising_p);
    c->sorted = false;
}

/* A heap of the k best seen so far with the worst of them on top. Of equal logits the later token is worse.
 */
static inline bool worse(const struct sampler_candidate *a, const struct sampler_candidate *b)
{
    return a->logit < b->logit || (a->logit == b->logit && a->id > b->id);
}

static void sift_down(struct sampler_candidate *heap, size_t n, size_t i, struct sampler_candidate x)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && worse(&heap[child + 1], &heap[child]))
            child++;
        if (!worse(&heap[child], &x))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = x;
}

static void make_heap(struct sampler_candidate *heap, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i, heap[i]);
}

/* From a heap to falling order. */
static void drain_heap(struct sampler_candidate *heap, size_t n)
{
    while (n > 1) {
        struct sampler_candidate last = heap[--n];
        heap[n] = heap[0];
        sift_down(heap, n, 0, last);
    }
}

/* Does any of LANES·4 numbers exceed the bound? Written so that compilers make vector compares of it. */
#define LANES 16
#define BLOCK ((size_t)LANES * 4)

static bool any_above(const float *x, float bound)
{
    int above = 0;
    for (size_t i = 0; i < BLOCK; i++)
        above |= x[i] > bound;
    return above != 0;
}

static void top_of_dense(struct cands *c, struct sampler_candidate *heap, size_t k)
{
    const float *x = c->dense;
    for (size_t i = 0; i < k; i++)
        heap[i] = (struct sampler_candidate){(token_id)i, x[i], 0};
    make_heap(heap, k);
    for (size_t i = k; i < c->n;) {
        size_t end = c->n - i < BLOCK ? c->n : i + BLOCK;
        if (end - i == BLOCK && !any_above(x + i, heap[0].logit)) {
            i = end;
            continue;
        }
        for (; i < end; i++) {
            if (x[i] > heap[0].logit)
                sift_down(heap, k, 0, (struct sampler_candidate){(token_id)i, x[i], 0});
        }
    }
}

static void top_of_list(struct cands *c, struct sampler_candidate *heap, size_t k)
{
    memcpy(heap, c->p, k * sizeof *heap);
    make_heap(heap, k);
    for (size_t i = k; i < c->n; i++) {
        if (worse(&heap[0], &c->p[i]))
            sift_down(heap, k, 0, c->p[i]);
    }
}

const struct sampler_candidate *cands_peek_top(struct cands *c, size_t k)
{
    if (c->dense)
        top_of_dense(c, c->spare, k);
    else
        top_of_list(c, c->spare, k);
    drain_heap(c->spare, k);
    return c->spare;
}

void cands_take(struct cands *c, size_t n)
{
    exchange(c, n);
    c->sorted = true;
}

void cands_keep_top(struct cands *c, size_t k)
{
    if (k < c->n && k <= CANDS_PEEK_MAX && !c->sorted) {
        cands_peek_top(c, k);
        cands_take(c, k);
        return;
    }
    cands_sort(c);
    if (k < c->n)
        c->n = k;
}

void cands_softmax(struct cands *c)
{
    cands_list(c);
    float max = c->p[c->sorted ? 0 : cands_max(c)].logit;
    float sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        c->p[i].p = expf(c->p[i].logit - max);
        sum += c->p[i].p;
    }
    for (size_t i = 0; i < c->n; i++)
        c->p[i].p /= sum;
}

static float max_of_block(const float *x)
{
    float lane[LANES];
    for (size_t j = 0; j < LANES; j++)
        lane[j] = -INFINITY;
    for (size_t i = 0; i < BLOCK; i += LANES) {
        for (size_t j = 0; j < LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    for (size_t half = LANES / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; j++)
            lane[j] = lane[j + half] > lane[j] ? lane[j + half] : lane[j];
    }
    return lane[0];
}

static size_t max_of_dense(const float *x, size_t n)
{
    float best = -INFINITY;
    size_t from = 0, i = 0; /* the largest is in the block that begins at `from` */
    for (; i + BLOCK <= n; i += BLOCK) {
        float max = max_of_block(x + i);
        if (max > best) {
            best = max;
            from = i;
        }
    }
    for (; i < n; i++) {
        if (x[i] > best) {
            best = x[i];
            from = i;
        }
    }
    for (size_t j = from; j < n; j++) {
        if (x[j] == best)
            return j;
    }
    return 0; /* only NaN */
}

size_t cands_max(const struct cands *c)
{
    if (c->dense)
        return max_of_dense(c->dense, c->n);
    size_t found = 0;
    for (size_t i = 1; i < c->n; i++) {
        if (c->p[i].logit > c->p[found].logit)
            found = i;
    }
    return found;
}

/* A sparse set: `place` is right for every candidate and anything for the others, so it needs no clearing. */
void cands_index(struct cands *c)
{
    if (c->dense)
        return;
    for (size_t i = 0; i < c->n; i++)
        c->place[c->p[i].id] = (int32_t)i;
}

float *cands_logit(struct cands *c, token_id t)
{
    if (c->dense) {
        if (c->dense != c->changed) {
            memcpy(c->changed, c->dense, c->n * sizeof *c->changed);
            c->dense = c->changed;
        }
        return &c->changed[t];
    }
    size_t i = (size_t)c->place[t];
    return i < c->n && c->p[i].id == t ? &c->p[i].logit : NULL;
}
