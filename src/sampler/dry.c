/* DRY, "don't repeat yourself": a token that would go on with a repetition of the text's end is punished by
 * the repetition's length, exponentially. Sequence breakers ("\n", ":") end what counts as one repetition.
 *
 * The method is p-e-w's, with the treatment of breakers by tokens that overlap them of koboldcpp, as in
 * llama.cpp. */
#include "sampler/chain.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

#define MAX_BREAKER_BYTES 40
#define MAX_TAIL          20
#define MAX_BREAKERS      128 /* each is looked for in every token of the vocabulary */

static const char *const default_breakers[] = {"\n", ":", "\"", "*"};

struct breaker_list {
    struct breaker *p;
    size_t n, size;
};

static bool same_tail(const struct dry *d, const struct breaker *b, const struct token_list *tail,
                      size_t from)
{
    return b->n_tail == tail->n - from &&
           (b->n_tail == 0 || memcmp(&d->tails.p[b->tail], &tail->p[from], b->n_tail * sizeof *tail->p) == 0);
}

/* Adds head + the tokens of d->tails from `from` on, unless this head has that tail already. */
static void add_breaker(struct dry *d, struct breaker_list *list, token_id head, size_t from)
{
    if (d->tails.n - from > MAX_TAIL)
        d->tails.n = from + MAX_TAIL;
    for (size_t i = list->n; i-- > 0 && list->p[i].head == head;) {
        if (same_tail(d, &list->p[i], &d->tails, from)) {
            d->tails.n = from;
            return;
        }
    }
    if (list->n == list->size) {
        list->size = list->size ? 2 * list->size : 64;
        list->p = xrealloc(list->p, list->size * sizeof *list->p);
    }
    list->p[list->n++] = (struct breaker){head, (uint32_t)from, (uint32_t)(d->tails.n - from)};
}

/* A token breaks if it holds the breaker, or if its end is the breaker's beginning and the breaker's rest, as
 * tokens, follows. */
static int overlap(struct sampler *s, struct breaker_list *list, token_id t, struct str word,
                   struct str breaker, struct err *err)
{
    struct dry *d = &s->dry;
    if (memmem(word.p, word.n, breaker.p, breaker.n)) {
        add_breaker(d, list, t, d->tails.n);
        return 0;
    }
    for (size_t at = 0; at < word.n; at++) {
        size_t n = word.n - at;
        if (n >= breaker.n || memcmp(word.p + at, breaker.p, n) != 0)
            continue;
        size_t from = d->tails.n;
        struct str rest = {breaker.p + n, breaker.n - n};
        if (vocab_tokenize(s->vocab, rest, false, false, &d->tails, err) != 0)
            return -1;
        add_breaker(d, list, t, from);
    }
    return 0;
}

static int find_breakers(struct sampler *s, struct err *err)
{
    const char *const *breakers = s->params.dry_breakers;
    size_t n = (size_t)s->params.n_dry_breakers;
    if (!breakers) {
        breakers = default_breakers;
        n = sizeof default_breakers / sizeof default_breakers[0];
    }
    if (n > MAX_BREAKERS)
        return err_set(err, ERR_USAGE, "more than %d sequence breakers", MAX_BREAKERS);
    struct breaker_list list = {0};
    struct buf word = {0};
    int status = 0;
    for (token_id t = 0; status == 0 && t < (token_id)s->cands.n_vocab; t++) {
        buf_clear(&word);
        vocab_detokenize(s->vocab, &t, 1, false, true, &word);
        for (size_t i = 0; status == 0 && word.n > 0 && i < n; i++) {
            size_t n_bytes = strnlen(breakers[i], MAX_BREAKER_BYTES);
            if (n_bytes > 0)
                status = overlap(s, &list, t, buf_str(&word), (struct str){breakers[i], n_bytes}, err);
        }
    }
    buf_release(&word);
    s->dry.breakers = list.p;
    s->dry.n_breakers = list.n;
    return status;
}

int init_dry(struct sampler *s, struct err *err)
{
    struct dry *d = &s->dry;
    if (d->repeat)
        return 0;
    if (window_init(&d->window, s->params.dry_penalty_last_n, s->params.n_ctx, err) != 0)
        return -1;
    d->newest_first = calloc(d->window.size + 1, sizeof *d->newest_first);
    d->match = calloc(d->window.size + 1, sizeof *d->match);
    d->repeat = calloc(s->cands.n_vocab, sizeof *d->repeat);
    if (!d->newest_first || !d->match || !d->repeat)
        return err_set(err, ERR_MEMORY, "sampler: no memory for DRY");
    return find_breakers(s, err);
}

void release_dry(struct dry *d)
{
    window_release(&d->window);
    free(d->breakers);
    free(d->tails.p);
    free(d->newest_first);
    free(d->match);
    free(d->repeat);
}

void reset_dry(struct dry *d)
{
    d->window.n = d->window.next = 0;
}

/* The first breaker with this head; those of the same head follow it. */
static size_t first_breaker(const struct dry *d, token_id head)
{
    size_t low = 0, high = d->n_breakers;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->breakers[middle].head < head)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The number of tokens since the newest breaker, n if there is none. */
static size_t since_breaker(const struct dry *d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        token_id head = d->newest_first[i];
        bool found = false;
        size_t longest = 0;
        for (size_t b = first_breaker(d, head); b < d->n_breakers && d->breakers[b].head == head; b++) {
            size_t n_tail = d->breakers[b].n_tail;
            if (n_tail > i || (found && n_tail <= longest))
                continue;
            size_t same = 0;
            while (same < n_tail && d->tails.p[d->breakers[b].tail + same] == d->newest_first[i - same - 1])
                same++;
            if (same == n_tail) {
                found = true;
                longest = n_tail;
            }
        }
        if (found)
            return i - longest;
    }
    return n;
}

static bool breaks_alone(const struct dry *d, token_id t)
{
    for (size_t b = first_breaker(d, t); b < d->n_breakers && d->breakers[b].head == t; b++) {
        if (d->breakers[b].n_tail == 0)
            return true;
    }
    return false;
}

/* match[k]: how long the sequence at k is the same as the one at 0 (the Z function, linear: inside the
 * stretch [left, right) that is known to equal the beginning, the answer is known from there up to its end).
 */
static void find_matches(const token_id *x, size_t n, int32_t *match)
{
    size_t left = 0, right = 0;
    for (size_t k = 1; k < n; k++) {
        size_t same = 0;
        if (k < right) {
            same = (size_t)match[k - left];
            if (same > right - k)
                same = right - k;
        }
        while (k + same < n && x[same] == x[k + same])
            same++;
        match[k] = (int32_t)same;
        if (k + same > right) {
            left = k;
            right = k + same;
        }
    }
}

static void punish(const struct sampler_params *p, const struct dry *d, struct cands *c, token_id t,
                   int32_t match)
{
    float *logit = cands_logit(c, t);
    if (!logit || breaks_alone(d, t))
        return;
    /* The power must stay a finite float. */
    int max_exponent = p->dry_base > 1.000001f ? (int)(88.7228391f / logf(p->dry_base)) : 0;
    int64_t exponent = (int64_t)match - p->dry_allowed_length;
    if (max_exponent > 0 && exponent > max_exponent)
        exponent = max_exponent;
    *logit -= (float)(p->dry_multiplier * pow(p->dry_base, (double)exponent));
}

void apply_dry(struct sampler *s, struct cands *c)
{
    struct dry *d = &s->dry;
    int64_t allowed = s->params.dry_allowed_length;
    size_t n = d->window.n;
    if ((int64_t)n <= allowed)
        return;
    for (size_t i = 0; i < n; i++)
        d->newest_first[i] = window_at(&d->window, i);
    size_t limit = since_breaker(d, n);
    if ((int64_t)limit < allowed)
        return;
    find_matches(d->newest_first, n, d->match);
    cands_index(c);
    for (size_t k = 1; k < n; k++) {
        int32_t match = d->match[k] < (int32_t)limit ? d->match[k] : (int32_t)limit;
        token_id next = d->newest_first[k - 1];
        if (match >= allowed && match + 1 > d->repeat[next])
            d->repeat[next] = match + 1;
    }
    for (size_t k = 1; k < n; k++) {
        token_id next = d->newest_first[k - 1];
        if (d->repeat[next] > 0)
            punish(&s->params, d, c, next, d->repeat[next] - 1);
        d->repeat[next] = 0; /* once for each token */
    }
    c->sorted = false;
}
