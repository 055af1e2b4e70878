/* Gated delta nets against the formulas in f64, row by row, on every instruction set: sequences of different
 * lengths in a step, heads tiled and side by side, states in place, in other slots, and at intervals. */
#include "kernels/delta.h"
#include "kernels/linear.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_T = 96, SLOTS = 16, TAPS = 4 };

struct layer {
    struct delta d;
    size_t channels, values;
    float *conv, *bias, *dt, *a, *norm, *qkv, *z, *alpha, *beta, *y;
    float *conv_states, *states;
    double *want, *conv_now, *now; /* [T, values]; the states of one sequence */
};

/* The same numbers in every run: a linear congruential generator. */
static float *numbers(size_t n, float from, float to)
{
    static uint32_t seed = 1;
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        v[i] = from + (to - from) * (float)(seed >> 8) / (float)(1 << 24);
    }
    return v;
}

static struct layer layer(uint32_t key_heads, uint32_t heads, uint32_t key, uint32_t value, bool tiled,
                          bool bias)
{
    struct layer l = {.channels = 2 * (size_t)key_heads * key + (size_t)heads * value,
                      .values = (size_t)heads * value};
    l.conv = numbers(TAPS * l.channels, -1, 1);
    l.bias = numbers(l.channels, -1, 1);
    l.dt = numbers(heads, -1, 1);
    l.a = numbers(heads, -1, -0.05f);
    l.norm = numbers(value, 0.5f, 1.5f);
    l.qkv = numbers(MAX_T * l.channels, -2, 2);
    l.z = numbers(MAX_T * l.values, -2, 2);
    l.alpha = numbers((size_t)MAX_T * heads, -2, 2);
    l.beta = numbers((size_t)MAX_T * heads, -2, 2);
    l.y = calloc(MAX_T * l.values, sizeof *l.y);
    l.conv_states = numbers(SLOTS * (TAPS - 1) * l.channels, -1, 1);
    l.states = numbers((size_t)SLOTS * heads * value * key, -1, 1);
    l.want = calloc(MAX_T * l.values, sizeof *l.want);
    l.conv_now = calloc((TAPS - 1) * l.channels, sizeof *l.conv_now);
    l.now = calloc((size_t)heads * value * key, sizeof *l.now);
    l.d = (struct delta){.key_heads = key_heads,
                         .heads = heads,
                         .key = key,
                         .value = value,
                         .taps = TAPS,
                         .tiled = tiled,
                         .norm_eps = 1e-6f,
                         .conv = l.conv,
                         .conv_bias = bias ? l.bias : NULL,
                         .dt = l.dt,
                         .a = l.a,
                         .norm = l.norm};
    return l;
}

static void release(struct layer *l)
{
    void *all[] = {l->conv, l->bias, l->dt,          l->a,      l->norm, l->qkv,      l->z,  l->alpha,
                   l->beta, l->y,    l->conv_states, l->states, l->want, l->conv_now, l->now};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void want_load(struct layer *l, int32_t slot)
{
    size_t n = (TAPS - 1) * l->channels, m = l->values * l->d.key;
    for (size_t i = 0; i < n; i++)
        l->conv_now[i] = (double)l->conv_states[(size_t)slot * n + i];
    for (size_t i = 0; i < m; i++)
        l->now[i] = (double)l->states[(size_t)slot * m + i];
}

/* The formulas, for row t of the step. */
static void want_row(struct layer *l, size_t t)
{
    const struct delta *d = &l->d;
    double *x = calloc(l->channels, sizeof *x);
    for (size_t c = 0; c < l->channels; c++) {
        double sum = d->conv_bias ? (double)d->conv_bias[c] : 0;
        for (size_t j = 0; j < TAPS; j++)
            sum += (double)l->conv[j * l->channels + c] *
                   (j + 1 < TAPS ? l->conv_now[j * l->channels + c] : (double)l->qkv[t * l->channels + c]);
        x[c] = silu(sum);
    }
    memmove(l->conv_now, l->conv_now + l->channels, (TAPS - 2) * l->channels * sizeof *x);
    for (size_t c = 0; c < l->channels; c++)
        l->conv_now[(TAPS - 2) * l->channels + c] = (double)l->qkv[t * l->channels + c];
    for (size_t h = 0; h < d->heads; h++) {
        size_t kh = d->tiled ? h % d->key_heads : h / (d->heads / d->key_heads), key = d->key;
        const double *q = x + kh * key, *k = x + (d->key_heads + kh) * key;
        const double *v = x + 2 * (size_t)d->key_heads * key + h * d->value;
        double qq = 0, kk = 0, squares = 0, *S = l->now + h * d->value * key,
               *y = l->want + t * l->values + h * d->value;
        for (size_t i = 0; i < key; i++)
            qq += q[i] * q[i], kk += k[i] * k[i];
        double g = exp((double)l->a[h] * log1p(exp((double)l->alpha[t * d->heads + h] + (double)l->dt[h])));
        double b = 1 / (1 + exp(-(double)l->beta[t * d->heads + h]));
        for (size_t r = 0; r < d->value; r++) {
            double sk = 0, sq = 0;
            for (size_t i = 0; i < key; i++)
                sk += g * S[r * key + i] * k[i] / sqrt(kk);
            for (size_t i = 0; i < key; i++) {
                S[r * key + i] = g * S[r * key + i] + b * (v[r] - sk) * k[i] / sqrt(kk);
                sq += S[r * key + i] * q[i] / sqrt(qq) / sqrt((double)key);
            }
            y[r] = sq;
            squares += sq * sq;
        }
        for (size_t r = 0; r < d->value; r++)
            y[r] *= (double)l->norm[r] / sqrt(squares / d->value + (double)d->norm_eps) *
                    silu((double)l->z[t * l->values + h * d->value + r]);
    }
    free(x);
}

static void assert_close(const float *got, const double *want, size_t n, double bound)
{
    double error = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += want[i] * want[i];
    }
    assert_true(error <= bound * all);
}

/* A slot holds what the reference has now. */
static void assert_slot(const struct layer *l, int32_t slot)
{
    size_t n = (TAPS - 1) * l->channels, m = l->values * l->d.key;
    assert_close(l->conv_states + (size_t)slot * n, l->conv_now, n, 0);
    assert_close(l->states + (size_t)slot * m, l->now, m, 1e-11);
}

static void run(const struct layer *l, struct delta_step *s)
{
    s->qkv = l->qkv, s->z = l->z, s->alpha = l->alpha, s->beta = l->beta, s->y = l->y;
    s->conv_states = l->conv_states, s->states = l->states;
    void *scratch = aligned_alloc(64, (delta_scratch_size(&l->d) + 63) / 64 * 64);
    size_t n = delta_pieces(&l->d, s);
    delta_do(&l->d, s, n / 2, n, scratch); /* pieces in any order */
    delta_do(&l->d, s, 0, n / 2, scratch);
    free(scratch);
}

/* Three sequences: 1, 2 and 37 rows, two with a state in another slot and one in place. */
static void check_step(struct layer *l)
{
    const int32_t begins[] = {0, 1, 3, 40}, slots[] = {1, 2, 3, 3, 4, 5}, slot_begins[] = {0, 2, 4, 6};
    const int32_t past[] = {7, 0, 100}, interval[] = {0, 0, 1 << 30};
    struct delta_step s = {.n_seqs = 3,
                           .begins = begins,
                           .slots = slots,
                           .slot_begins = slot_begins,
                           .past = past,
                           .interval = interval};
    struct layer before = *l;
    size_t conv_bytes = SLOTS * (TAPS - 1) * l->channels * sizeof(float);
    size_t bytes = SLOTS * l->values * l->d.key * sizeof(float);
    before.conv_states = memcpy(malloc(conv_bytes), l->conv_states, conv_bytes);
    before.states = memcpy(malloc(bytes), l->states, bytes);
    run(l, &s);
    for (int i = 0; i < 3; i++) {
        want_load(&before, slots[2 * i]);
        for (int32_t t = begins[i]; t < begins[i + 1]; t++)
            want_row(l, (size_t)t);
        assert_slot(l, slots[2 * i + 1]);
    }
    assert_close(l->y, l->want, 40 * l->values, 1e-11);
    free(before.conv_states);
    free(before.states);
}

/* After 5 rows, a step of 11 with an interval of 4: states after 8, 12 and 16. */
static void check_interval(struct layer *l)
{
    const int32_t begins[] = {0, 11}, slots[] = {6, 7, 8, 9}, slot_begins[] = {0, 4}, past[] = {5},
                  interval[] = {4};
    struct delta_step s = {.n_seqs = 1,
                           .begins = begins,
                           .slots = slots,
                           .slot_begins = slot_begins,
                           .past = past,
                           .interval = interval};
    want_load(l, 6);
    run(l, &s);
    for (size_t t = 0; t < 11; t++) {
        want_row(l, t);
        if ((t + 6) % 4 == 0)
            assert_slot(l, slots[(t + 6) / 4 - 1]);
    }
    assert_close(l->y, l->want, 11 * l->values, 1e-11);
}

static void check_all(enum linear_isa isa)
{
    static const struct {
        uint32_t key_heads, heads, key, value;
    } shapes[] = {{2, 4, 128, 128}, {1, 3, 64, 64}, {2, 2, 16, 5}, {3, 6, 96, 32}, {1, 2, 256, 17}};
    enum linear_isa best = linear_isa();
    if (!linear_has_isa(isa))
        skip();
    linear_set_isa(isa);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int flags = 0; flags < 4; flags++) {
            struct layer l = layer(shapes[i].key_heads, shapes[i].heads, shapes[i].key, shapes[i].value,
                                   (flags & 1) != 0, (flags & 2) != 0);
            assert_true(delta_supports(&l.d));
            check_step(&l);
            check_interval(&l);
            release(&l);
        }
    }
    linear_set_isa(best);
}

static void portable(void **state)
{
    (void)state;
    check_all(LINEAR_PORTABLE);
}

static void avx2(void **state)
{
    (void)state;
    check_all(LINEAR_AVX2);
}

static void avx512(void **state)
{
    (void)state;
    check_all(LINEAR_AVX512);
}

static void sizes(void **state)
{
    (void)state;
    struct delta d = {.key_heads = 2, .heads = 4, .key = 128, .value = 128, .taps = 4}, bad;
    assert_true(delta_supports(&d));
    bad = d, bad.heads = 5;
    assert_false(delta_supports(&bad));
    bad = d, bad.key = 100;
    assert_false(delta_supports(&bad));
    bad = d, bad.key = 512;
    assert_false(delta_supports(&bad));
    bad = d, bad.taps = 1;
    assert_false(delta_supports(&bad));
    bad = d, bad.key_heads = 0;
    assert_false(delta_supports(&bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(portable), cmocka_unit_test(avx2),
                                       cmocka_unit_test(avx512), cmocka_unit_test(sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
