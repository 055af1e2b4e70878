/* Rotary tables against two other implementations: Hugging Face's frequencies, exact, and ggml's rotation, in
 * float32 (tests/golden/rope/cases.txt, made by tests/tools/golden_rope.py). */
#include "arch/rope.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN SOURCE_DIR "/tests/golden/rope/cases.txt"

enum { ROT_MAX = 256, PAIRS_MAX = ROT_MAX / 2 };

struct golden {
    char name[64];
    struct hparams h;
    float factors[2][PAIRS_MAX];
    bool has_factors[2];
    uint32_t n_ctx;
    double magnitude, frequencies[PAIRS_MAX];
    int n_pairs, pairs[PAIRS_MAX];
    struct rope rope;
};

/* What hparams_read sets before it looks at keys. */
static void set_defaults(struct golden *c)
{
    memset(c, 0, sizeof *c);
    c->h.rope_freq_base = 10000.0f;
    c->h.rope_freq_scale = 1.0f;
    c->h.rope_attn_factor = 1.0f;
    c->h.yarn_ext_factor = -1.0f;
    c->h.yarn_attn_factor = 1.0f;
    c->h.yarn_beta_fast = 32.0f;
    c->h.yarn_beta_slow = 1.0f;
}

static double number(FILE *f)
{
    double v;
    assert_int_equal(fscanf(f, "%lf", &v), 1);
    return v;
}

static void read_scaling(FILE *f, struct hparams *h)
{
    static const char *const names[] = {
        [ROPE_SCALING_NONE] = "none",
        [ROPE_SCALING_LINEAR] = "linear",
        [ROPE_SCALING_YARN] = "yarn",
        [ROPE_SCALING_LONGROPE] = "longrope",
    };
    char name[64];
    assert_int_equal(fscanf(f, "%63s", name), 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            h->rope_scaling = (enum rope_scaling)i;
            return;
        }
    }
    fail_msg("unknown scaling %s", name);
}

static void prepare(struct golden *c)
{
    rope_init(&c->rope, &c->h, false);
    c->rope.factors = c->has_factors[0] ? c->factors[0] : NULL;
    c->rope.factors_long = c->has_factors[1] ? c->factors[1] : NULL;
}

/* A field of the case; false for a word that is none. */
static bool read_field(FILE *f, const char *word, struct golden *c)
{
    const struct {
        const char *name;
        uint32_t *u32;
        float *f32;
    } fields[] = {
        {"n_rot", &c->h.n_rot, NULL},
        {"n_ctx_orig", &c->h.n_ctx_orig, NULL},
        {"n_ctx", &c->n_ctx, NULL},
        {"rope_freq_base", NULL, &c->h.rope_freq_base},
        {"rope_freq_scale", NULL, &c->h.rope_freq_scale},
        {"rope_attn_factor", NULL, &c->h.rope_attn_factor},
        {"yarn_log_mul", NULL, &c->h.yarn_log_mul},
        {"yarn_beta_fast", NULL, &c->h.yarn_beta_fast},
        {"yarn_beta_slow", NULL, &c->h.yarn_beta_slow},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(word, fields[i].name) != 0)
            continue;
        if (fields[i].u32)
            *fields[i].u32 = (uint32_t)number(f);
        else
            *fields[i].f32 = (float)number(f);
        return true;
    }
    return false;
}

static void read_factors(FILE *f, struct golden *c, int which)
{
    c->has_factors[which] = true;
    for (uint32_t i = 0; i < c->h.n_rot / 2; i++)
        c->factors[which][i] = (float)number(f);
}

/* Two units in the last place of the angle, as ggml computes it in the same order; and of the sine. */
static void check_row(FILE *f, const struct golden *c)
{
    float cos[ROT_MAX], sin[ROT_MAX];
    int32_t pos = (int32_t)number(f);
    rope_fill(&c->rope, c->n_ctx, &pos, 1, cos, sin);
    for (int k = 0; k < 2 * c->n_pairs; k++) {
        int pair = c->pairs[k % c->n_pairs];
        double want = number(f), got = (double)(k < c->n_pairs ? cos : sin)[pair];
        double allowed = 1e-6 + 2.4e-7 * pos * c->frequencies[pair];
        if (!(fabs(got - want) <= allowed))
            fail_msg("%s: %s of pair %d at %d is %.9g, ggml has %.9g", c->name,
                     k < c->n_pairs ? "cos" : "sin", pair, pos, got, want);
    }
}

/* Against the exact frequencies; the error of an angle grows with it, by the steps from pair to pair. */
static void check_frequencies(const struct golden *c)
{
    static const int32_t pos[] = {0, 1, 2, 3, 10, 100, 1000};
    enum { N = sizeof pos / sizeof *pos };
    float cos_table[N][ROT_MAX], sin_table[N][ROT_MAX];
    uint32_t n_rot = c->h.n_rot, pairs = n_rot / 2;
    float *flat_cos = malloc(N * n_rot * sizeof(float)), *flat_sin = malloc(N * n_rot * sizeof(float));
    rope_fill(&c->rope, c->n_ctx, pos, N, flat_cos, flat_sin);
    for (uint32_t i = 0; i < N; i++) {
        memcpy(cos_table[i], flat_cos + i * n_rot, n_rot * sizeof(float));
        memcpy(sin_table[i], flat_sin + i * n_rot, n_rot * sizeof(float));
        for (uint32_t p = 0; p < pairs; p++) {
            double angle = pos[i] * c->frequencies[p], allowed = 1e-6 + 6e-6 * angle;
            double cos_error = fabs((double)cos_table[i][p] - cos(angle) * c->magnitude);
            double sin_error = fabs((double)sin_table[i][p] - sin(angle) * c->magnitude);
            if (!(cos_error <= allowed && sin_error <= allowed))
                fail_msg("%s: pair %u at %d is off by %g and %g", c->name, p, pos[i], cos_error, sin_error);
            /* One column for each dimension: the second half repeats the first. */
            assert_memory_equal(&cos_table[i][p], &cos_table[i][p + pairs], sizeof(float));
            assert_memory_equal(&sin_table[i][p], &sin_table[i][p + pairs], sizeof(float));
        }
    }
    free(flat_cos);
    free(flat_sin);
}

static void test_tables(void **state)
{
    (void)state;
    static struct golden c;
    char word[64];
    int n_cases = 0, n_rows = 0;
    FILE *f = fopen(GOLDEN, "r");
    assert_non_null(f);
    while (fscanf(f, "%63s", word) == 1) {
        if (strcmp(word, "#") == 0) {
            assert_int_equal(fscanf(f, "%*[^\n]"), 0);
        } else if (strcmp(word, "case") == 0) {
            set_defaults(&c);
            assert_int_equal(fscanf(f, "%63s", c.name), 1);
            n_cases++;
        } else if (strcmp(word, "rope_scaling") == 0) {
            read_scaling(f, &c.h);
        } else if (strncmp(word, "factors", 7) == 0) {
            read_factors(f, &c, strcmp(word, "factors_long") == 0);
        } else if (strcmp(word, "magnitude") == 0) {
            c.magnitude = number(f);
        } else if (strcmp(word, "frequencies") == 0) {
            for (uint32_t i = 0; i < c.h.n_rot / 2; i++)
                c.frequencies[i] = number(f);
            prepare(&c);
            check_frequencies(&c);
        } else if (strcmp(word, "pairs") == 0) {
            c.n_pairs = (int)number(f);
            for (int i = 0; i < c.n_pairs; i++)
                c.pairs[i] = (int)number(f);
        } else if (strcmp(word, "row") == 0) {
            check_row(f, &c);
            n_rows++;
        } else if (!read_field(f, word, &c)) {
            fail_msg("unknown word %s", word);
        }
    }
    fclose(f);
    assert_int_equal(n_cases, 14);
    assert_int_equal(n_rows, 140);
}

/* Layers with a sliding window have a base and a scale of their own. */
static void test_sliding_window_layers(void **state)
{
    (void)state;
    static struct golden c;
    set_defaults(&c);
    c.h.n_rot = 4;
    c.h.n_ctx_orig = 4096;
    c.h.rope_scaling = ROPE_SCALING_LINEAR;
    c.h.rope_freq_base = 1e6f;
    c.h.rope_freq_scale = 0.125f;
    c.h.rope_freq_base_swa = 10000.0f;
    c.h.rope_freq_scale_swa = 1.0f;
    static const double base[] = {1e6, 1e4}, scale[] = {0.125, 1};
    for (int swa = 0; swa < 2; swa++) {
        struct rope r;
        float cos_row[4], sin_row[4];
        rope_init(&r, &c.h, swa == 1);
        rope_fill(&r, 4096, &(int32_t){7}, 1, cos_row, sin_row);
        for (int p = 0; p < 2; p++) {
            double angle = 7 * scale[swa] * pow(base[swa], -p / 2.0);
            assert_float_equal(cos_row[p], cos(angle), 1e-6);
            assert_float_equal(sin_row[p], sin(angle), 1e-6);
        }
    }
}

/* "none" turns a scale of the file off. */
static void test_no_scaling(void **state)
{
    (void)state;
    static struct golden c;
    struct rope r;
    float cos_row[2], sin_row[2];
    set_defaults(&c);
    c.h.n_rot = 2;
    c.h.n_ctx_orig = 64;
    c.h.rope_freq_scale = 0.25f;
    c.h.rope_scaling = ROPE_SCALING_NONE;
    rope_init(&r, &c.h, false);
    rope_fill(&r, 64, &(int32_t){3}, 1, cos_row, sin_row);
    assert_float_equal(cos_row[0], cos(3.0), 1e-6);
    assert_float_equal(sin_row[0], sin(3.0), 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_sliding_window_layers),
        cmocka_unit_test(test_no_scaling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
