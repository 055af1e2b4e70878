/* The sampler stage by stage, with the numbers of llama.cpp's tests/test-sampling.cpp, and what no other
 * implementation is needed for: names, limits, and odd input. */
#include "sampler/sampler.h"
#include "sampler/rng.h"

#include "test_sampler_vocab.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

static struct sampler *make(const struct sampler_params *p, struct vocab *v, int32_t n)
{
    struct err err = ERR_INIT;
    v->n = n;
    v->eog = 2;
    struct sampler *s = sampler_new(p, v, &err);
    if (!s)
        fail_msg("%s", err.text);
    return s;
}

static struct sampler_params only(const char *stage)
{
    struct sampler_params p = sampler_defaults();
    p.seed = 0;
    p.samplers = stage;
    p.n_ctx = 64;
    return p;
}

/* Logits are logarithms of the probabilities that go in; candidates are compared in falling order,
 * normalised. */
struct expectation {
    struct sampler_params params;
    float in[8];
    token_id accepted[8];
    int n_accepted;
    float out[8];
};

static void check(const struct expectation *e)
{
    struct vocab v = {0};
    float logits[8], sum = 0;
    int n_in = 0, n_out = 0;
    for (; n_in < 8 && e->in[n_in] > 0; n_in++)
        logits[n_in] = logf(e->in[n_in]);
    for (; n_out < 8 && e->out[n_out] > 0; n_out++)
        sum += e->out[n_out];
    struct sampler *s = make(&e->params, &v, n_in);
    for (int i = 0; i < e->n_accepted; i++)
        sampler_accept(s, e->accepted[i]);
    sampler_sample(s, logits);
    const struct sampler_candidate *list;
    size_t n = sampler_candidates(s, &list);
    assert_true(n >= (size_t)n_out);
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(list[i].p - (i < (size_t)n_out ? e->out[i] / sum : 0)) < 1e-5f);
    sampler_free(s);
}

static struct sampler_params with_top_k(int k)
{
    struct sampler_params p = only("top_k");
    p.top_k = k;
    return p;
}

static struct sampler_params with_top_p(float top_p)
{
    struct sampler_params p = only("top_p");
    p.top_p = top_p;
    return p;
}

static struct sampler_params with_min_p(float min_p)
{
    struct sampler_params p = only("min_p");
    p.min_p = min_p;
    return p;
}

static struct sampler_params with_temp(float temp)
{
    struct sampler_params p = only("temperature");
    p.temp = temp;
    return p;
}

static struct sampler_params with_typical(float typical_p)
{
    struct sampler_params p = only("typ_p");
    p.typical_p = typical_p;
    return p;
}

static struct sampler_params with_xtc(float threshold)
{
    struct sampler_params p = only("xtc");
    p.xtc_probability = 0.99f;
    p.xtc_threshold = threshold;
    return p;
}

static struct sampler_params with_sigma(float n)
{
    struct sampler_params p = only("top_n_sigma");
    p.top_n_sigma = n;
    return p;
}

static struct sampler_params with_penalties(int last_n, float repeat, float frequency, float presence)
{
    struct sampler_params p = only("penalties");
    p.repeat_last_n = last_n;
    p.repeat_penalty = repeat;
    p.frequency_penalty = frequency;
    p.presence_penalty = presence;
    return p;
}

static struct sampler_params with_dry(float multiplier, int allowed, int last_n)
{
    struct sampler_params p = only("dry");
    p.dry_multiplier = multiplier;
    p.dry_base = 1.1f;
    p.dry_allowed_length = allowed;
    p.dry_penalty_last_n = last_n;
    return p;
}

#define RISING                                                                                               \
    {                                                                                                        \
        0.1f, 0.2f, 0.3f, 0.4f                                                                               \
    }
#define FALLING                                                                                              \
    {                                                                                                        \
        0.4f, 0.3f, 0.2f, 0.1f                                                                               \
    }
#define FIFTHS                                                                                               \
    {                                                                                                        \
        0.2f, 0.2f, 0.2f, 0.2f, 0.2f                                                                         \
    }
#define TINY 1e-30f /* stands for the zeros of the original */

static void llama_cpp_tests(void **state)
{
    (void)state;
    const struct expectation expectations[] = {
        {with_temp(1), RISING, .out = FALLING},
        {with_temp(0), RISING, .out = {1}},
        {with_top_k(1), RISING, .out = {1}},
        {with_top_k(3), RISING, .out = {0.44444f, 0.33333f, 0.22222f}},
        {with_top_k(4), RISING, .out = FALLING},
        {with_top_k(0), RISING, .out = FALLING},
        {with_top_p(0), RISING, .out = {1}},
        {with_top_p(0.7f), RISING, .out = {0.571429f, 0.428571f}},
        {with_top_p(0.8f), RISING, .out = {0.44444f, 0.33333f, 0.22222f}},
        {with_top_p(1), RISING, .out = FALLING},
        {with_min_p(0), RISING, .out = FALLING},
        {with_min_p(0.24f), RISING, .out = FALLING},
        {with_min_p(0.26f), RISING, .out = {0.4f, 0.3f, 0.2f}},
        {with_min_p(0.49f), RISING, .out = {0.4f, 0.3f, 0.2f}},
        {with_min_p(0.51f), RISING, .out = {0.4f, 0.3f}},
        {with_min_p(0.74f), RISING, .out = {0.4f, 0.3f}},
        {with_min_p(0.76f), RISING, .out = {0.4f}},
        {with_min_p(1), RISING, .out = {0.4f}},
        {with_min_p(1.05f), RISING, .out = {0.4f}},
        {with_xtc(0.09f), FALLING, .out = {0.1f}},
        {with_xtc(0.19f), FALLING, .out = {0.2f, 0.1f}},
        {with_xtc(0.29f), FALLING, .out = {0.3f, 0.2f, 0.1f}},
        {with_xtc(0.39f), FALLING, .out = FALLING},
        {with_typical(0.5f), {0.97f, 0.01f, 0.01f, 0.01f}, .out = {0.97f}},
        {with_typical(0.5f), {0.4f, 0.2f, 0.2f, 0.2f}, .out = {0.2f, 0.2f, 0.2f}},
        {with_sigma(1), RISING, .out = {0.571429f, 0.428571f}},
        {with_sigma(0), RISING, .out = FALLING},
        {with_sigma(3), RISING, .out = FALLING},
        {with_penalties(1, 50, 0, 0), FIFTHS, {0}, 1, {0.25f, 0.25f, 0.25f, 0.25f, TINY}},
        {with_penalties(3, 50, 0, 0), FIFTHS, {0, 1, 2}, 3, {0.5f, 0.5f, TINY, TINY, TINY}},
        {with_penalties(5, 50, 0, 0), FIFTHS, {0, 1, 2, 0, 0}, 5, {0.5f, 0.5f, TINY, TINY, TINY}},
        {with_penalties(1, 1, 5, 5), FIFTHS, {0}, 1, {0.249997f, 0.249997f, 0.249997f, 0.249997f, 0.000011f}},
        {with_penalties(3, 1, 5, 5),
         FIFTHS,
         {0, 1, 2},
         3,
         {0.499966f, 0.499966f, 0.000023f, 0.000023f, 0.000023f}},
        {with_penalties(5, 1, 5, 5),
         FIFTHS,
         {0, 1, 2, 0, 0},
         5,
         {0.499977f, 0.499977f, 0.000023f, 0.000023f, TINY}},
        {with_dry(1, 2, 4), {0.25f, 0.25f, 0.25f, 0.25f}, {0, 1}, 2, {0.25f, 0.25f, 0.25f, 0.25f}},
        {with_dry(1, 2, 5),
         {0.25f, 0.25f, 0.25f, 0.25f},
         {0, 1, 2, 0, 1},
         5,
         {0.296923f, 0.296923f, 0.296923f, 0.109232f}},
        {with_dry(2, 2, 5),
         FIFTHS,
         {0, 1, 2, 0, 1},
         5,
         {0.241818f, 0.241818f, 0.241818f, 0.241818f, 0.032727f}},
        {with_dry(1, 4, 7), FIFTHS, {0, 1, 2, 3, 4, 0, 1}, 7, FIFTHS},
    };
    for (size_t i = 0; i < sizeof expectations / sizeof expectations[0]; i++)
        check(&expectations[i]);
}

/* The queues of the same file: over logits log(i), the best are the last. */
static void queues(void **state)
{
    (void)state;
    enum { N = 10000 };
    static const struct {
        const char *samplers;
        int top_k;
        float top_p, min_p;
        size_t left;
    } rows[] = {
        {"top_k", 10000, 1, 1, 10000},
        {"top_k", 1, 1, 1, 1},
        {"top_k", 100, 1, 1, 100},
        {"top_p", 0, 0, 1, 1},
        {"min_p", 0, 1, 9997.9f / 9999.0f, 2},
        {"min_p", 0, 1, 0.1f, 9000},
        {"top_k;min_p", 100, 0.8f, 0.1f, 100},
        {"min_p;top_k", 100, 0.8f, 0.1f, 100},
        {"min_p;top_p", 100, 0.8f, 9997.9f / 9999.0f, 2},
        {"top_k;top_p", 100, 0.8f, 0.1f, 80},
    };
    float *logits = malloc(N * sizeof *logits);
    for (int i = 0; i < N; i++)
        logits[i] = logf((float)i);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_params p = only(rows[i].samplers);
        p.top_k = rows[i].top_k;
        p.top_p = rows[i].top_p;
        p.min_p = rows[i].min_p;
        p.min_keep = 1;
        struct vocab v = {0};
        struct sampler *s = make(&p, &v, N);
        sampler_sample(s, logits);
        const struct sampler_candidate *list;
        assert_int_equal(sampler_candidates(s, &list), rows[i].left);
        assert_int_equal(list[0].id, N - 1);
        assert_int_equal(list[rows[i].left - 1].id, N - (int)rows[i].left);
        sampler_free(s);
    }
    free(logits);
}

/* A draw is made also when there is one candidate, so that seeds stay in step: with equal logits the n-th
 * draw tells its number by the token. */
static void one_candidate_draws(void **state)
{
    (void)state;
    enum { N = 256 };
    struct sampler_params p = with_top_k(0);
    struct vocab v = {0};
    float equal[N] = {0}, single[N];
    for (int i = 0; i < N; i++)
        single[i] = -INFINITY;
    single[9] = 1;
    p.samplers = "min_p"; /* leaves one of `single` */
    p.min_p = 0.5f;
    p.seed = 4242;
    struct sampler *a = make(&p, &v, N), *b = make(&p, &v, N);
    token_id third = 0;
    for (int i = 0; i < 3; i++)
        third = sampler_sample(a, equal);
    assert_int_equal(sampler_sample(b, single), 9);
    assert_int_equal(sampler_sample(b, single), 9);
    assert_int_equal(sampler_sample(b, equal), third);
    sampler_free(a);
    sampler_free(b);
}

/* ISO C++ 2011, 26.5.5: the 10000th number of a default std::mt19937. */
static void mersenne_twister(void **state)
{
    (void)state;
    struct rng r;
    rng_seed(&r, 5489);
    uint32_t x = 0;
    for (int i = 0; i < 10000; i++)
        x = rng_next(&r);
    assert_int_equal(x, 4123659995u);
}

static void defaults(void **state)
{
    (void)state;
    struct sampler_params p = sampler_defaults();
    assert_int_equal(p.top_k, 40);
    assert_true(p.temp == 0.8f && p.top_p == 0.95f && p.min_p == 0.05f && p.repeat_penalty == 1);
    assert_string_equal(p.samplers, "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature");
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *samplers;
        bool good;
    } rows[] = {
        {"top-k;TOPK;Top_K;nucleus;temp;typ", true},
        {"topnsigma;top-n-sigma;min-p;typ-p", true},
        {"", true},
        {"top_k;", true},
        {"top_kk", false},
        {"top", false},
        {"top_k;;top_p", false},
        {"top_k, top_p", false},
        {"top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;top_k;"
         "top_k",
         false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sampler_params p = only(rows[i].samplers);
        struct vocab v = {.n = 10};
        struct err err = ERR_INIT;
        struct sampler *s = sampler_new(&p, &v, &err);
        assert_int_equal(s != NULL, rows[i].good);
        assert_int_equal(err.code, rows[i].good ? ERR_NONE : ERR_USAGE);
        sampler_free(s);
    }
}

static void letters(void **state)
{
    (void)state;
    struct buf out = {0};
    struct err err = ERR_INIT;
    assert_int_equal(sampler_seq_names("edskypmxt", &out, &err), 0);
    assert_string_equal(out.p, sampler_defaults().samplers);
    assert_int_equal(sampler_seq_names("kq", &out, &err), -1);
    assert_non_null(strstr(err.text, "'q'"));
    buf_release(&out);
}

static void bad_parameters(void **state)
{
    (void)state;
    struct sampler_params rows[] = {
        with_penalties(64, 0, 0, 0),
        with_penalties(64, -1, 0, 0),
        with_penalties(64, NAN, 0, 0),
        with_penalties(64, 1e-45f, 0, 0),
        with_penalties(64, 1, INFINITY, 0),
        with_penalties(64, 1, 0, NAN),
        only("top_k"),
    };
    rows[6].mirostat = 3;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct vocab v = {.n = 10};
        struct err err = ERR_INIT;
        assert_null(sampler_new(&rows[i], &v, &err));
        assert_int_equal(err.code, ERR_USAGE);
    }
    struct vocab empty = {.n = 0};
    struct err err = ERR_INIT;
    struct sampler_params p = only("top_k");
    assert_null(sampler_new(&p, &empty, &err));
}

/* Two equal largest logits, and a vocabulary that fills no whole block: the first one wins. */
static void greedy_takes_the_first(void **state)
{
    (void)state;
    float logits[1000];
    for (int n = 1; n <= 1000; n += 37) {
        for (int at = 0; at < n; at += 1 + n / 9) {
            for (int i = 0; i < n; i++)
                logits[i] = (float)(i % 7) - 20;
            logits[at] = logits[n - 1] = 3;
            struct sampler_params p = with_temp(0);
            struct vocab v = {0};
            struct sampler *s = make(&p, &v, n);
            assert_int_equal(sampler_sample(s, logits), at);
            const struct sampler_candidate *list;
            assert_int_equal(sampler_candidates(s, &list), 1);
            assert_true(list[0].p == 1 && list[0].logit == 3);
            sampler_free(s);
        }
    }
}

/* The short way for a temperature of zero chooses as the long one does: the largest that is left. */
static void greedy_respects_other_stages(void **state)
{
    (void)state;
    const float logits[5] = {1, 5, 2, 4.5f, 3};
    struct sampler_params p = sampler_defaults();
    struct sampler_bias ban = {1, -INFINITY};
    struct vocab v = {0};
    p.temp = 0;
    p.bias = &ban;
    p.n_bias = 1;
    struct sampler *s = make(&p, &v, 5);
    assert_int_equal(sampler_sample(s, logits), 3);
    sampler_free(s);
    p.repeat_penalty = 2;
    s = make(&p, &v, 5);
    sampler_accept(s, 3);
    assert_int_equal(sampler_sample(s, logits), 4);
    sampler_reset(s);
    assert_int_equal(sampler_sample(s, logits), 3);
    sampler_free(s);
    p.repeat_penalty = 1;
    p.xtc_probability = 1;
    p.xtc_threshold = 0.01f;
    s = make(&p, &v, 5);
    assert_int_equal(sampler_sample(s, logits), 2); /* of the three above the threshold, the least */
    sampler_free(s);
}

static void ignore_eos(void **state)
{
    (void)state;
    const float logits[4] = {0, 1, 90, 2};
    struct vocab v = {0};
    struct sampler_params p = sampler_defaults();
    p.ignore_eos = true;
    struct sampler *s = make(&p, &v, 4);
    for (int i = 0; i < 50; i++)
        assert_int_not_equal(sampler_sample(s, logits), 2);
    assert_true(logits[2] == 90);
    sampler_free(s);
}

static void reset_begins_anew(void **state)
{
    (void)state;
    struct vocab v = {0};
    float logits[100];
    for (int i = 0; i < 100; i++)
        logits[i] = (float)(i * 37 % 100) / 20;
    struct sampler_params rows[4] = {sampler_defaults(), sampler_defaults(), sampler_defaults(),
                                     sampler_defaults()};
    rows[1].mirostat = 1;
    rows[2].xtc_probability = 0.5f;
    rows[3].dry_multiplier = 1;
    rows[3].repeat_penalty = 1.5f;
    for (int row = 0; row < 4; row++) {
        rows[row].seed = 99;
        rows[row].n_ctx = 64;
        struct sampler *s = make(&rows[row], &v, 100);
        token_id first[30];
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 30; i++) {
                token_id t = sampler_sample(s, logits);
                if (round == 0)
                    first[i] = t;
                assert_int_equal(t, first[i]);
                sampler_accept(s, t);
            }
            sampler_reset(s);
        }
        assert_int_equal(sampler_seed(s), 99);
        sampler_free(s);
    }
}

static void random_seeds_differ(void **state)
{
    (void)state;
    struct vocab v = {0};
    struct sampler_params p = sampler_defaults();
    struct sampler *a = make(&p, &v, 10), *b = make(&p, &v, 10);
    assert_true(sampler_seed(a) != sampler_seed(b));
    sampler_free(a);
    sampler_free(b);
}

/* A model that went wrong must not take the process with it: any token of the vocabulary is a good answer. */
static void odd_logits(void **state)
{
    (void)state;
    enum { N = 1500 };
    static float logits[N];
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 3e38f, -3e38f, -0.0f};
    struct sampler_params rows[8];
    for (size_t i = 0; i < 8; i++) {
        rows[i] = sampler_defaults();
        rows[i].seed = 1;
    }
    rows[1].temp = 0;
    rows[2].top_k = 0;
    rows[3].mirostat = 1;
    rows[4].mirostat = 2;
    rows[5].top_k = 0;
    rows[5].typical_p = 0.5f;
    rows[5].top_n_sigma = 1;
    rows[6].xtc_probability = 1;
    rows[6].dynatemp_range = 0.5f;
    rows[7].top_k = 1200;
    for (size_t row = 0; row < 8; row++) {
        struct vocab v = {0};
        struct sampler *s = make(&rows[row], &v, N);
        for (size_t kind = 0; kind < 7; kind++) {
            for (int step = 1; step <= N; step *= 7) {
                for (int i = 0; i < N; i++)
                    logits[i] = i % step == 0 ? odd[kind] : (float)(i % 13);
                token_id t = sampler_sample(s, logits);
                assert_in_range(t, 0, N - 1);
                const struct sampler_candidate *list;
                assert_in_range(sampler_candidates(s, &list), 1, N);
            }
        }
        sampler_free(s);
    }
}

static void odd_tokens(void **state)
{
    (void)state;
    struct vocab v = {0};
    struct sampler_bias far[3] = {{-1, 5}, {10, 5}, {INT32_MAX, 5}};
    struct sampler_params p = sampler_defaults();
    p.repeat_penalty = 1.5f;
    p.repeat_last_n = INT32_MAX;
    p.dry_multiplier = 1;
    p.dry_penalty_last_n = -1;
    p.n_ctx = 32;
    p.bias = far;
    p.n_bias = 3;
    const float logits[10] = {0};
    struct sampler *s = make(&p, &v, 10);
    static const token_id tokens[] = {-1, 10, INT32_MIN, INT32_MAX, 3};
    for (int i = 0; i < 200; i++)
        sampler_accept(s, tokens[i % 5]);
    assert_in_range(sampler_sample(s, logits), 0, 9);
    sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_cpp_tests),
        cmocka_unit_test(queues),
        cmocka_unit_test(one_candidate_draws),
        cmocka_unit_test(mersenne_twister),
        cmocka_unit_test(defaults),
        cmocka_unit_test(names),
        cmocka_unit_test(letters),
        cmocka_unit_test(bad_parameters),
        cmocka_unit_test(greedy_takes_the_first),
        cmocka_unit_test(greedy_respects_other_stages),
        cmocka_unit_test(ignore_eos),
        cmocka_unit_test(reset_begins_anew),
        cmocka_unit_test(random_seeds_differ),
        cmocka_unit_test(odd_logits),
        cmocka_unit_test(odd_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
