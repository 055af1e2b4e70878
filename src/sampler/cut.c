/* Stages that leave candidates out. Formulas, the order of sums, and single or double precision are
 * llama.cpp's: near a threshold they decide. */
#include "sampler/chain.h"

#include <float.h>
#include <math.h>

void apply_top_k(struct sampler *s, struct cands *c)
{
    cands_keep_top(c, (size_t)s->params.top_k);
}

/* How many of the first n sorted candidates make up the probability `p`; 0 when they don't. */
static size_t enough(const struct sampler_candidate *sorted, size_t n, float p, size_t min_keep)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += sorted[i].p;
        if (sum >= p && i + 1 >= min_keep)
            return i + 1;
    }
    return 0;
}

/* The fewest best candidates that have the probability top_p together. They are few nearly always, so not all
 * are sorted at once. */
void apply_top_p(struct sampler *s, struct cands *c)
{
    enum { FEW = 256, WORTH_IT = 1024 };
    size_t min_keep = (size_t)s->params.min_keep;
    cands_softmax(c);
    if (!c->sorted && c->n > WORTH_IT) {
        size_t n = enough(cands_peek_top(c, FEW), FEW, s->params.top_p, min_keep);
        if (n > 0) {
            cands_take(c, n);
            return;
        }
    }
    cands_sort(c);
    size_t n = enough(c->p, c->n, s->params.top_p, min_keep);
    if (n > 0)
        c->n = n;
}

/* Those at least min_p times as probable as the best: a difference of logits, so nothing need be normalised.
 */
void apply_min_p(struct sampler *s, struct cands *c)
{
    size_t min_keep = (size_t)s->params.min_keep;
    float below_max = logf(s->params.min_p);
    cands_list(c);
    if (!c->sorted) {
        float max = -FLT_MAX;
        for (size_t i = 0; i < c->n; i++)
            max = c->p[i].logit > max ? c->p[i].logit : max;
        size_t n = 0;
        for (size_t i = 0; i < c->n; i++)
            n += c->p[i].logit >= max + below_max;
        if (n > 0 && n >= min_keep) {
            size_t kept = 0;
            for (size_t i = 0; i < c->n; i++) {
                if (c->p[i].logit >= max + below_max)
                    c->p[kept++] = c->p[i];
            }
            c->n = n;
            return;
        }
        cands_sort(c);
    }
    float bound = c->p[0].logit + below_max;
    size_t n = 1;
    while (n < c->n && (c->p[n].logit >= bound || n < min_keep))
        n++;
    c->n = n;
}

/* Those whose surprise is nearest to the expected surprise (C. Meister et al., Locally Typical Sampling,
 * 2022), until their probability exceeds typical_p. */
void apply_typical(struct sampler *s, struct cands *c)
{
    size_t min_keep = (size_t)s->params.min_keep;
    cands_sort(c);
    cands_softmax(c);
    float entropy = 0, sum = 0, max = c->p[0].logit;
    for (size_t i = 0; i < c->n; i++) {
        entropy += -c->p[i].p * logf(c->p[i].p);
        sum += expf(c->p[i].logit - max);
    }
    /* The sort is by distance, which takes the place of p; p comes again from the logit by the same sum. */
    for (size_t i = 0; i < c->n; i++)
        c->p[i].p = fabsf(-logf(c->p[i].p) - entropy);
    cands_sort_by_p(c);
    size_t kept = c->n;
    float cumulative = 0;
    for (size_t i = 0; i < c->n; i++) {
        c->p[i].p = expf(c->p[i].logit - max) / sum;
        cumulative += c->p[i].p;
        if (cumulative > s->params.typical_p && (min_keep == 0 || i >= min_keep - 1)) {
            kept = i + 1;
            break;
        }
    }
    c->n = kept;
}

/* Logits more than n standard deviations below the largest become impossible. */
void apply_top_n_sigma(struct sampler *s, struct cands *c)
{
    cands_list(c);
    if (c->n <= 1)
        return;
    float max = c->p[0].logit, sum = 0, squares = 0;
    size_t valid = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->p[i].logit == -INFINITY)
            continue;
        max = c->p[i].logit > max ? c->p[i].logit : max;
        sum += c->p[i].logit;
        valid++;
    }
    float mean = valid > 0 ? sum / (float)valid : 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->p[i].logit == -INFINITY)
            continue;
        double d = c->p[i].logit - mean;
        squares = (float)(squares + d * d);
    }
    float deviation = valid > 0 ? sqrtf(squares / (float)valid) : 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->p[i].logit < max - s->params.top_n_sigma * deviation)
            c->p[i].logit = -INFINITY;
    }
}

/* Exclude top choices: at times, all that reach the threshold go but the least of them. */
void apply_xtc(struct sampler *s, struct cands *c)
{
    if (c->n < 2)
        return;
    if (rng_float(&s->xtc_rng) > s->params.xtc_probability)
        return;
    cands_sort(c);
    cands_softmax(c);
    size_t last = 0;
    for (size_t i = 0; i < c->n && c->p[i].p >= s->params.xtc_threshold; i++)
        last = i;
    if (last > 0 && c->n - last >= (size_t)s->params.min_keep) {
        c->p += last;
        c->n -= last;
    }
}
