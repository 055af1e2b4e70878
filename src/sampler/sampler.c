/* The sampler's life: parameters, the table of stages, the chain that is made of them, and its runs. */
#include "sampler/sampler.h"

#include "base/mem.h"
#include "sampler/chain.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#define DEFAULT_SAMPLERS "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"

static bool off_penalties(const struct sampler_params *p)
{
    return p->repeat_last_n == 0 ||
           (p->repeat_penalty == 1 && p->frequency_penalty == 0 && p->presence_penalty == 0);
}

static bool off_dry(const struct sampler_params *p)
{
    return p->dry_multiplier == 0 || p->dry_base < 1 || p->dry_penalty_last_n == 0;
}

static bool off_top_n_sigma(const struct sampler_params *p)
{
    return p->top_n_sigma <= 0;
}

static bool off_top_k(const struct sampler_params *p)
{
    return p->top_k <= 0;
}

static bool off_typical(const struct sampler_params *p)
{
    return p->typical_p >= 1;
}

static bool off_top_p(const struct sampler_params *p)
{
    return p->top_p >= 1;
}

static bool off_min_p(const struct sampler_params *p)
{
    return p->min_p <= 0;
}

static bool off_xtc(const struct sampler_params *p)
{
    return p->xtc_probability <= 0 || p->xtc_threshold > 0.5f;
}

static bool off_temperature(const struct sampler_params *p)
{
    return p->temp == 1 && p->dynatemp_range <= 0;
}

static bool never_off(const struct sampler_params *p)
{
    (void)p;
    return false;
}

const struct stage stages[] = {
    {"penalties", {0}, 'e', false, off_penalties, init_penalties, apply_penalties},
    {"dry", {0}, 'd', false, off_dry, init_dry, apply_dry},
    {"top_n_sigma", {"top-n-sigma", "topnsigma"}, 's', true, off_top_n_sigma, NULL, apply_top_n_sigma},
    {"top_k", {"top-k", "topk"}, 'k', true, off_top_k, NULL, apply_top_k},
    {"typ_p", {"typ-p", "typp", "typ"}, 'y', false, off_typical, NULL, apply_typical},
    {"top_p", {"top-p", "topp", "nucleus"}, 'p', true, off_top_p, NULL, apply_top_p},
    {"min_p", {"min-p", "minp"}, 'm', true, off_min_p, NULL, apply_min_p},
    {"xtc", {0}, 'x', false, off_xtc, NULL, apply_xtc},
    {"temperature", {"temp"}, 't', true, off_temperature, NULL, apply_temperature},
    {"infill", {0}, 'i', false, never_off, init_infill, apply_infill},
    {"adaptive_p", {"adaptive-p", "adaptivep"}, 'a', false, never_off, init_adaptive, NULL},
};
const size_t n_stages = sizeof stages / sizeof stages[0];

struct sampler_params sampler_defaults(void)
{
    return (struct sampler_params){
        .seed = SAMPLER_SEED_RANDOM,
        .temp = 0.8f,
        .dynatemp_exponent = 1,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .typical_p = 1,
        .top_n_sigma = -1,
        .xtc_threshold = 0.1f,
        .repeat_penalty = 1,
        .repeat_last_n = 64,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_penalty_last_n = 64,
        .mirostat_tau = 5,
        .mirostat_eta = 0.1f,
        .adaptive_target = -1,
        .adaptive_decay = 0.9f,
        .samplers = DEFAULT_SAMPLERS,
        .think_budget = -1,
    };
}

static bool named(struct str name, const char *z)
{
    return z && strlen(z) == name.n && strncasecmp(name.p, z, name.n) == 0;
}

static const struct stage *stage_named(struct str name)
{
    for (size_t i = 0; i < n_stages; i++) {
        const struct stage *st = &stages[i];
        if (named(name, st->name) || named(name, st->alts[0]) || named(name, st->alts[1]) ||
            named(name, st->alts[2]))
            return st;
    }
    return NULL;
}

int sampler_seq_names(const char *letters, struct buf *out, struct err *err)
{
    for (const char *l = letters; *l; l++) {
        const struct stage *st = stages;
        while (st < stages + n_stages && st->letter != *l)
            st++;
        if (st == stages + n_stages)
            return err_set(err, ERR_USAGE, "no sampler has the letter '%c'", *l);
        buf_printf(out, "%s%s", l == letters ? "" : ";", st->name);
    }
    return out->failed ? err_set(err, ERR_MEMORY, "too many samplers") : 0;
}

static int check_params(const struct sampler_params *p, struct err *err)
{
    if (!isfinite(p->repeat_penalty) || p->repeat_penalty <= 0 || !isfinite(1 / p->repeat_penalty))
        return err_set(err, ERR_USAGE, "repeat_penalty must be a finite number above 0");
    if (!isfinite(p->frequency_penalty) || !isfinite(p->presence_penalty))
        return err_set(err, ERR_USAGE, "frequency_penalty and presence_penalty must be finite numbers");
    if (p->mirostat < 0 || p->mirostat > 2)
        return err_set(err, ERR_USAGE, "mirostat must be 0, 1 or 2");
    return 0;
}

static int add_stage(struct sampler *s, const struct stage *st, struct err *err)
{
    if (st->off(&s->params))
        return 0;
    if (s->n_chain == SAMPLER_MAX_STAGES)
        return err_set(err, ERR_USAGE, "more than %d samplers", SAMPLER_MAX_STAGES);
    if (st->apply)
        s->chain[s->n_chain++] = st;
    return st->init ? st->init(s, err) : 0;
}

static int build_chain(struct sampler *s, struct err *err)
{
    const char *rest = s->params.samplers ? s->params.samplers : DEFAULT_SAMPLERS;
    if (s->params.mirostat != 0)
        rest = "temperature"; /* it replaces all others */
    while (*rest) {
        struct str name = {rest, strcspn(rest, ";")};
        rest += name.n + (rest[name.n] == ';');
        const struct stage *st = stage_named(name);
        if (!st)
            return err_set(err, ERR_USAGE, "unknown sampler \"%.*s\"", STR_ARG(name));
        if (add_stage(s, st, err) != 0)
            return -1;
    }
    return 0;
}

/* With a temperature of zero, stages behind the last one that can change the largest logit need not run. */
static int find_greedy(const struct sampler *s)
{
    bool greedy = false;
    int from = s->n_chain;
    while (from > 0 && s->chain[from - 1]->keeps_max)
        greedy |= s->chain[--from]->apply == apply_temperature;
    greedy &= s->params.temp <= 0 && s->params.dynatemp_range <= 0 && s->params.mirostat == 0;
    return greedy ? from : -1;
}

static void add_biases(struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    s->bias = xcalloc(p->n_bias + (p->ignore_eos ? s->cands.n_vocab : 0) + 1, sizeof *s->bias);
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token >= 0 && (size_t)p->bias[i].token < s->cands.n_vocab)
            s->bias[s->n_bias++] = p->bias[i];
    }
    for (token_id t = 0; p->ignore_eos && t < (token_id)s->cands.n_vocab; t++) {
        if (vocab_is_eog(s->vocab, t))
            s->bias[s->n_bias++] = (struct sampler_bias){t, -INFINITY};
    }
}

struct sampler *sampler_new(const struct sampler_params *p, const struct vocab *v, struct err *err)
{
    if (check_params(p, err) != 0)
        return NULL;
    int32_t n_vocab = vocab_n_tokens(v);
    if (n_vocab <= 0) {
        err_set(err, ERR_USAGE, "sampler: the vocabulary is empty");
        return NULL;
    }
    struct sampler *s = xcalloc(1, sizeof *s);
    s->params = *p;
    if (s->params.min_keep < 0)
        s->params.min_keep = 0;
    s->vocab = v;
    if (!cands_init(&s->cands, (size_t)n_vocab)) {
        err_set(err, ERR_MEMORY, "sampler: no memory for %d candidates", (int)n_vocab);
        goto fail;
    }
    if (build_chain(s, err) != 0)
        goto fail;
    add_biases(s);
    s->greedy_from = find_greedy(s);
    if (init_constraints(s, p, err) != 0)
        goto fail;
    s->params.samplers = NULL;
    s->params.dry_breakers = NULL;
    s->params.bias = NULL;
    s->params.grammar = (struct grammar_params){0};
    s->params.think_start = s->params.think_end = NULL;
    sampler_reset(s);
    return s;
fail:
    sampler_free(s);
    return NULL;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    release_penalties(&s->penalties);
    release_dry(&s->dry);
    release_infill(&s->infill);
    free(s->adaptive.p);
    release_constraints(s);
    cands_release(&s->cands);
    free(s->bias);
    free(s);
}

static uint32_t random_seed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint32_t)time(NULL);
    return seed;
}

void sampler_reset(struct sampler *s)
{
    s->seed = s->params.seed == SAMPLER_SEED_RANDOM ? random_seed() : s->params.seed;
    rng_seed(&s->rng, s->seed);
    rng_seed(&s->xtc_rng, s->seed);
    s->mirostat_mu = 2 * s->params.mirostat_tau;
    reset_penalties(&s->penalties);
    reset_dry(&s->dry);
    reset_adaptive(s);
    reset_constraints(s);
    s->cands.n = 0;
    s->cands.dense = NULL;
}

uint32_t sampler_seed(const struct sampler *s)
{
    return s->seed;
}

token_id sampler_sample(struct sampler *s, const float *logits)
{
    struct cands *c = &s->cands;
    cands_begin(c, logits);
    for (size_t i = 0; i < s->n_bias; i++)
        *cands_logit(c, s->bias[i].token) += s->bias[i].bias;
    apply_constraints(s, c);
    for (int i = 0; i < s->n_chain && i != s->greedy_from; i++)
        s->chain[i]->apply(s, c);
    size_t chosen = 0;
    if (s->greedy_from >= 0)
        cands_only(c, cands_max(c));
    else
        chosen = s->params.mirostat ? pick_mirostat(s, c)
                 : s->adaptive.p    ? pick_adaptive(s, c)
                                    : pick_dist(s, c);
    return s->sampled = c->p[chosen].id;
}

void sampler_accept(struct sampler *s, token_id t)
{
    if (t < 0 || (size_t)t >= s->cands.n_vocab)
        return;
    if (t == s->sampled)
        accept_constraints(s, t);
    s->sampled = TOKEN_NONE;
    accept_adaptive(s, t);
    if (s->penalties.count)
        accept_penalties(&s->penalties, t);
    if (s->dry.repeat)
        window_push(&s->dry.window, t);
}

size_t sampler_candidates(const struct sampler *s, const struct sampler_candidate **out)
{
    struct cands *c = (struct cands *)&s->cands; /* sorting doesn't change which they are */
    cands_sort(c);
    *out = c->p;
    return c->n;
}
