/* Temperature, and the stages that choose a token: by the distribution that is left, or by mirostat. */
#include "sampler/chain.h"

#include <math.h>
#include <stdlib.h>

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

int init_adaptive(struct sampler *s, struct err *err)
{
    float *decay = &s->params.adaptive_decay;
    *decay = *decay < 0 ? 0 : *decay > 0.99f ? 0.99f : *decay;
    if (!s->adaptive.p)
        s->adaptive.p = calloc(s->cands.n_vocab, sizeof *s->adaptive.p);
    return s->adaptive.p ? 0 : err_set(err, ERR_MEMORY, "sampler: out of memory");
}

static float between(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

/* Adaptive-p: tokens near a probability are preferred, and the probability moves so that those chosen have
 * the target on average. */
size_t pick_adaptive(struct sampler *s, struct cands *c)
{
    const float width = 0.3f, peak = 5, sharpness = 10;
    struct adaptive *a = &s->adaptive;
    cands_softmax(c);
    if (s->params.adaptive_target < 0)
        return draw(&s->rng, c);
    float target = between(s->params.adaptive_target, 0, 1);
    if (a->total_weight != 0)
        target = between(2 * target - a->weighted_sum / a->total_weight, 0, 1);
    for (size_t i = 0; i < c->n; i++) {
        a->p[i] = c->p[i].p;
        if (c->p[i].logit == -INFINITY)
            continue;
        float distance = fabsf((c->p[i].p - target) * (1.0f / width));
        c->p[i].logit = peak - sharpness * distance * distance / (1 + distance);
    }
    cands_softmax(c);
    c->sorted = false;
    size_t chosen = draw(&s->rng, c);
    a->chosen = c->p[chosen].id;
    a->chosen_p = a->p[chosen];
    return chosen;
}

void accept_adaptive(struct sampler *s, token_id t)
{
    struct adaptive *a = &s->adaptive;
    if (a->p && a->chosen == t) {
        a->weighted_sum = a->chosen_p + s->params.adaptive_decay * a->weighted_sum;
        a->total_weight = 1 + s->params.adaptive_decay * a->total_weight;
    }
    a->chosen = TOKEN_NONE;
}

void reset_adaptive(struct sampler *s)
{
    float rest = 1 - s->params.adaptive_decay;
    s->adaptive.weighted_sum = s->params.adaptive_target / rest;
    s->adaptive.total_weight = 1 / rest;
    s->adaptive.chosen = TOKEN_NONE;
}
