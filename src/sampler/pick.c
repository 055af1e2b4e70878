/* Temperature, and the stages that choose a token: by the distribution that is left, or by mirostat. */
#include "sampler/chain.h"

#include <math.h>

/* Not above zero: the largest logit alone stays possible. */
static void scale(struct cands *c, float temp)
{
    cands_list(c);
    if (temp > 0) {
        for (size_t i = 0; i < c->n; i++)
            c->p[i].logit /= temp;
        return;
    }
    size_t max = cands_max(c);
    for (size_t i = 0; i < c->n; i++) {
        if (i != max)
            c->p[i].logit = -INFINITY;
    }
}

/* Dynamic temperature: between temp - range and temp + range, by the entropy relative to the largest
 * possible. */
static float dynamic(const struct sampler_params *p, struct cands *c)
{
    float low = p->temp - p->dynatemp_range > 0 ? p->temp - p->dynatemp_range : 0;
    float high = p->temp + p->dynatemp_range;
    float max_entropy = -logf(1.0f / (float)c->n), entropy = 0;
    cands_sort(c);
    cands_softmax(c);
    for (size_t i = 0; i < c->n; i++) {
        if (c->p[i].p > 0)
            entropy -= c->p[i].p * logf(c->p[i].p);
    }
    return low + (high - low) * powf(entropy / max_entropy, p->dynatemp_exponent);
}

void apply_temperature(struct sampler *s, struct cands *c)
{
    if (s->params.dynatemp_range <= 0)
        scale(c, s->params.temp);
    else if (c->n > 1)
        scale(c, dynamic(&s->params, c));
}

size_t pick_dist(struct sampler *s, struct cands *c)
{
    cands_list(c);
    double random = rng_double(&s->rng); /* drawn also when there is no choice, to stay in step */
    if (c->n == 1) {
        c->p[0].p = 1;
        return 0;
    }
    float max = c->p[c->sorted ? 0 : cands_max(c)].logit;
    double sum = 0, run = 0;
    for (size_t i = 0; i < c->n; i++) {
        c->p[i].p = expf(c->p[i].logit - max);
        sum += c->p[i].p;
    }
    size_t chosen = c->n;
    for (size_t i = 0; i < c->n; i++) {
        if (chosen == c->n) {
            run += c->p[i].p;
            if (run >= sum * random)
                chosen = i;
        }
        c->p[i].p = (float)(c->p[i].p / sum);
    }
    return chosen < c->n ? chosen : c->n - 1;
}

/* std::discrete_distribution over p. */
static size_t draw(struct rng *r, const struct cands *c)
{
    if (c->n < 2)
        return 0;
    double sum = 0, run = 0;
    for (size_t i = 0; i < c->n; i++)
        sum += c->p[i].p;
    double random = rng_double(r);
    for (size_t i = 0; i + 1 < c->n; i++) {
        run += c->p[i].p / sum;
        if (run >= random)
            return i;
    }
    return c->n - 1;
}

/* The k whose tokens have a surprise near mu, if probabilities fall by Zipf's law; its exponent is estimated
 * from the best 100 (S. Basu et al., Mirostat, 2021). */
static size_t mirostat_k(const struct cands *c, size_t n_vocab, float mu)
{
    enum { BEST = 100 };
    float sum_tb = 0, sum_tt = 0;
    for (size_t i = 0; i < BEST - 1 && i + 1 < c->n; i++) {
        float t = logf((float)(i + 2) / (float)(i + 1));
        float b = logf(c->p[i].p / c->p[i + 1].p);
        sum_tb += t * b;
        sum_tt += t * t;
    }
    float exponent = sum_tb / sum_tt;
    float epsilon = exponent - 1;
    float k = powf(epsilon * powf(2, mu) / (1 - powf((float)n_vocab, -epsilon)), 1 / exponent);
    return k >= 1 && k < 0x1p31f ? (size_t)k : 1;
}

size_t pick_mirostat(struct sampler *s, struct cands *c)
{
    cands_sort(c);
    cands_softmax(c);
    if (s->params.mirostat == 1) {
        cands_keep_top(c, mirostat_k(c, c->n_vocab, s->mirostat_mu));
    } else {
        size_t n = 0;
        while (n < c->n && !(-log2f(c->p[n].p) > s->mirostat_mu))
            n++;
        c->n = n > 0 ? n : 1;
    }
    cands_softmax(c);
    size_t chosen = draw(&s->rng, c);
    float surprise = -log2f(c->p[chosen].p);
    s->mirostat_mu -= s->params.mirostat_eta * (surprise - s->params.mirostat_tau);
    return chosen;
}
