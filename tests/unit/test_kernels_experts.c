/* Experts against sums in f64 over the values that the blocks stand for.
 *
 * Rows of x hold whole numbers up to 127 times a power of two, with a 127 in each 32: rounding to 8 bits
 * leaves them as they are, so act(gate) * up must be right to the last bits of f32. Its own rounding is
 * bounded: half a step of the largest value. */
#include "kernels/experts.h"
#include "quant/quant.h"

#include "gguf/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t state = 1;

static uint32_t random_u32(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static float random_float(void)
{
    return (float)random_u32() * 0x1p-30f - 1;
}

struct matrix {
    uint8_t *blocks;
    float *w; /* what the blocks stand for */
};

/* Random blocks, with halves of a sensible size where scales lie. */
static struct matrix matrix(uint32_t type, size_t rows, size_t cols)
{
    static const struct {
        uint32_t type;
        int at[2];
    } scales[] = {{GGML_Q4_0, {0, -1}}, {GGML_Q4_1, {0, 2}},    {GGML_Q8_0, {0, -1}},
                  {GGML_Q4_K, {0, 2}},  {GGML_Q6_K, {208, -1}}, {GGML_MXFP4, {-1, -1}}};
    const struct ggml_type_info *info = ggml_type_info(type);
    size_t n = rows * cols / info->block;
    struct matrix m = {malloc(n * info->bytes), malloc(rows * cols * sizeof(float))};
    for (size_t i = 0; i < n * info->bytes; i++)
        m.blocks[i] = (uint8_t)random_u32();
    for (size_t i = 0; i < n; i++) {
        uint8_t *b = m.blocks + i * info->bytes;
        for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
            for (int j = 0; j < 2 && scales[s].type == type; j++)
                if (scales[s].at[j] >= 0) {
                    uint32_t half = 0x1800 + random_u32() % 0x400; /* 2^-9 to 2^-8 */
                    b[scales[s].at[j]] = (uint8_t)half;
                    b[scales[s].at[j] + 1] = (uint8_t)(half >> 8);
                }
        if (type == GGML_MXFP4)
            b[0] = (uint8_t)(120 + random_u32() % 3);
    }
    assert_true(quant_dequantize(type, m.blocks, rows * cols, m.w));
    return m;
}

static void matrix_release(struct matrix m)
{
    free(m.blocks);
    free(m.w);
}

static float *random_floats(size_t n)
{
    float *v = malloc(n * sizeof *v);
    for (size_t i = 0; i < n; i++)
        v[i] = random_float();
    return v;
}

struct shape {
    uint32_t type, down_type, n;
    size_t cols, ff, m, k;
    enum gate act;
    bool fused, after; /* with scales and biases */
    bool single;       /* up is its own gate */
};

struct problem {
    struct shape s;
    struct experts e;
    struct matrix gate, up, down; /* fused: up holds both */
    float *x, *weights, *y, *companions[6];
    int32_t *ids;
};

static void problem_init(struct problem *p, const struct shape *s)
{
    *p = (struct problem){.s = *s};
    size_t stack = (size_t)s->n * s->ff;
    if (!s->fused && !s->single)
        p->gate = matrix(s->type, stack, s->cols);
    p->up = matrix(s->type, s->fused ? 2 * stack : stack, s->cols);
    p->down = matrix(s->down_type, s->n * s->cols, s->ff);
    p->e = (struct experts){.n = s->n, .cols = s->cols, .ff = s->ff, .fused = s->fused, .act = s->act};
    p->e.single = s->single;
    p->e.down =
        (struct linear){s->ff, s->n * s->cols, 1, {{s->down_type, s->n * s->cols, p->down.blocks, NULL}}};
    p->e.gate_up = (struct linear){.cols = s->cols, .rows = 2 * stack, .n_parts = s->fused ? 1 : 2};
    if (s->single)
        p->e.gate_up = (struct linear){s->cols, stack, 1, {{s->type, stack, p->up.blocks, NULL}}};
    else if (s->fused)
        p->e.gate_up.part[0] = (struct linear_part){s->type, 2 * stack, p->up.blocks, NULL};
    else {
        p->e.gate_up.part[0] = (struct linear_part){s->type, stack, p->gate.blocks, NULL};
        p->e.gate_up.part[1] = (struct linear_part){s->type, stack, p->up.blocks, NULL};
    }
    struct experts_after *after[] = {&p->e.after_gate, &p->e.after_up, &p->e.after_down};
    for (int i = 0; i < 3 && s->after; i++) {
        after[i]->scale = p->companions[2 * i] = random_floats(s->n);
        after[i]->bias = p->companions[2 * i + 1] = random_floats(s->n * (i == 2 ? s->cols : s->ff));
    }
    p->x = malloc(s->m * s->cols * sizeof *p->x);
    for (size_t i = 0; i < s->m * s->cols; i++)
        p->x[i] = (i % 32 == 5 ? 127 : (float)(random_u32() % 253) - 126) * 0x1p-7f;
    p->weights = random_floats(s->m * s->k);
    p->ids = malloc(s->m * s->k * sizeof *p->ids);
    for (size_t i = 0; i < s->m; i++) {
        uint32_t first = random_u32();
        for (size_t j = 0; j < s->k; j++)
            p->ids[i * s->k + j] = (int32_t)((first + j) % s->n);
    }
    p->y = malloc(s->m * s->cols * sizeof *p->y);
}

static void problem_release(struct problem *p)
{
    matrix_release(p->gate);
    matrix_release(p->up);
    matrix_release(p->down);
    for (int i = 0; i < 6; i++)
        free(p->companions[i]);
    free(p->x);
    free(p->weights);
    free(p->ids);
    free(p->y);
}

/* A row of a product and what acts on it; `size` receives the sum of the absolute terms. */
static double dot(const float *w, const void *x, bool x_is_double, size_t n, double *size)
{
    double sum = 0;
    *size = 0;
    for (size_t i = 0; i < n; i++) {
        double term = (double)w[i] * (x_is_double ? ((const double *)x)[i] : (double)((const float *)x)[i]);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static double after(const struct experts_after *a, uint32_t expert, size_t rows, size_t row, double y)
{
    if (a->scale)
        y *= (double)a->scale[expert];
    return a->bias ? y + (double)a->bias[expert * rows + row] : y;
}

/* The activations by their definitions, `error` what an error of gate and up makes of it at most. */
static double act(enum gate kind, double g, double u, double g_error, double u_error, double *error)
{
    double a;
    if (kind == GATE_SWIGLU_OAI) {
        g = fmin(g, 7);
        u = fmax(-7, fmin(u, 7)) + 1;
        a = g / (1 + exp(-1.702 * g));
    } else if (kind == GATE_RELU) {
        a = fmax(g, 0);
    } else {
        a = g / (1 + exp(-g));
    }
    *error = 1.2 * g_error * fabs(u) + fabs(a) * u_error + 1e-6 * fabs(a * u) + 1e-30;
    return a * u;
}

static void check_middle(const struct problem *p, const float *x, uint32_t e, const float *got, double *h)
{
    const struct shape *s = &p->s;
    for (size_t f = 0; f < s->ff; f++) {
        const float *gate = s->single  ? p->up.w + (e * s->ff + f) * s->cols
                            : s->fused ? p->up.w + (e * 2 * s->ff + f) * s->cols
                                       : p->gate.w + (e * s->ff + f) * s->cols;
        const float *up = p->up.w + ((s->fused ? (2 * e + 1) * s->ff : e * s->ff) + f) * s->cols;
        double g_size, u_size, error;
        double g = after(s->single ? &p->e.after_up : &p->e.after_gate, e, s->ff, f,
                         dot(gate, x, false, s->cols, &g_size));
        double u = after(&p->e.after_up, e, s->ff, f, dot(up, x, false, s->cols, &u_size));
        h[f] = act(s->act, g, u, 2e-6 * (g_size + 1), 2e-6 * (u_size + 1), &error);
        if (!(fabs((double)got[f] - h[f]) <= error))
            fail_msg("expert %u, %zu: %.9g is not %.9g (%.2g)", e, f, (double)got[f], h[f], error);
    }
}

static void check(const struct problem *p, const struct experts_run *r)
{
    const struct shape *s = &p->s;
    double *h = malloc(s->ff * sizeof *h);
    double *y = calloc(s->m * s->cols, sizeof *y), *limit = calloc(s->m * s->cols, sizeof *limit);
    for (size_t i = 0; i < s->m * s->k; i++) {
        uint32_t e = (uint32_t)p->ids[i];
        size_t row = i / s->k;
        double weight = (double)p->weights[i], most = 0, size;
        check_middle(p, p->x + row * s->cols, e, r->gate + r->place[i] * s->ff, h);
        for (size_t f = 0; f < s->ff; f++)
            most = fmax(most, fabs(h[f]));
        for (size_t c = 0; c < s->cols; c++) {
            const float *w = p->down.w + (e * s->cols + c) * s->ff;
            double scale = p->e.after_down.scale ? fabs((double)p->e.after_down.scale[e]) : 1, all = 0;
            y[row * s->cols + c] +=
                weight * after(&p->e.after_down, e, s->cols, c, dot(w, h, true, s->ff, &size));
            for (size_t f = 0; f < s->ff; f++)
                all += fabs((double)w[f]);
            limit[row * s->cols + c] += fabs(weight) * (scale * all * most * (0.51 / 127 + 1e-3) + 1e-5);
        }
    }
    for (size_t i = 0; i < s->m * s->cols; i++)
        if (!(fabs((double)p->y[i] - y[i]) <= limit[i]))
            fail_msg("y[%zu] is %.9g, not %.9g (%.2g)", i, (double)p->y[i], y[i], limit[i]);
    free(h);
    free(y);
    free(limit);
}

/* All phases, each in pieces from the first to the last or one by one from the last. */
static void *run(struct problem *p, struct experts_run *r, size_t n_threads, bool backwards)
{
    size_t size = experts_scratch_size(&p->e, p->s.m, p->s.k);
    assert_true(size > 0);
    void *scratch = aligned_alloc(64, (size + 63) / 64 * 64);
    memset(scratch, 0xee, size);
    memset(p->y, 0xee, p->s.m * p->s.cols * sizeof *p->y);
    assert_int_equal(
        experts_begin(r, &p->e, p->s.m, p->s.k, p->x, p->ids, p->weights, p->y, scratch, n_threads), 0);
    for (int phase = 0; phase < EXPERTS_N_PHASES; phase++) {
        size_t n = experts_pieces(r, (enum experts_phase)phase);
        for (size_t i = n; backwards && i > 0; i--)
            experts_do(r, (enum experts_phase)phase, i - 1, i);
        if (!backwards)
            experts_do(r, (enum experts_phase)phase, 0, n);
    }
    return scratch;
}

static void check_isas(const struct shape *s)
{
    struct problem p;
    problem_init(&p, s);
    for (int isa = 0; isa < LINEAR_N_ISA; isa++) {
        if (!linear_has_isa((enum linear_isa)isa))
            continue;
        linear_set_isa((enum linear_isa)isa);
        struct experts_run r;
        size_t bytes = s->m * s->cols * sizeof(float);
        void *scratch = run(&p, &r, 1, false);
        check(&p, &r);
        free(scratch);
        float *y = malloc(bytes);
        memcpy(y, p.y, bytes);
        free(run(&p, &r, 16, true));
        assert_memory_equal(y, p.y, bytes);
        free(y);
    }
    problem_release(&p);
}

static void test_types(void **unused)
{
    (void)unused;
    static const uint32_t types[][2] = {{GGML_Q4_0, GGML_Q4_0},
                                        {GGML_Q4_1, GGML_Q8_0},
                                        {GGML_Q4_K, GGML_Q6_K},
                                        {GGML_MXFP4, GGML_MXFP4},
                                        {GGML_Q8_0, GGML_Q4_K}};
    static const size_t ms[] = {1, 2, 5, 40};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++)
            check_isas(&(struct shape){types[t][0], types[t][1], 7, 256, 256, ms[i], 3, GATE_SILU, false,
                                       false, false});
}

static void test_forms(void **unused)
{
    (void)unused;
    for (int form = 0; form < 8; form++)
        check_isas(&(struct shape){.type = GGML_Q4_0,
                                   .down_type = GGML_Q8_0,
                                   .n = 5,
                                   .cols = 96,
                                   .ff = 160,
                                   .m = form % 2 ? 1 : 11,
                                   .k = 2,
                                   .act = form & 2 ? GATE_SWIGLU_OAI : GATE_SILU,
                                   .fused = form & 4,
                                   .after = form & 2});
}

static void test_without_a_gate(void **unused)
{
    (void)unused;
    for (int form = 0; form < 4; form++)
        check_isas(&(struct shape){.type = form & 2 ? GGML_Q8_0 : GGML_Q4_0,
                                   .down_type = GGML_Q8_0,
                                   .n = 5,
                                   .cols = 96,
                                   .ff = 160,
                                   .m = form % 2 ? 1 : 11,
                                   .k = 2,
                                   .act = GATE_RELU,
                                   .after = form & 1,
                                   .single = true});
}

/* One expert for all rows, all experts for each, and no rows at all. */
static void test_ends(void **unused)
{
    (void)unused;
    check_isas(&(struct shape){GGML_Q8_0, GGML_Q8_0, 1, 64, 32, 9, 1, GATE_SILU, false, false, false});
    check_isas(&(struct shape){GGML_Q8_0, GGML_Q8_0, 4, 64, 32, 3, 4, GATE_SILU, false, true, false});
    check_isas(&(struct shape){GGML_Q8_0, GGML_Q8_0, 200, 32, 32, 4, 1, GATE_SILU, false, false, false});
}

static void test_refusals(void **unused)
{
    (void)unused;
    struct problem p;
    problem_init(&p, &(struct shape){GGML_Q8_0, GGML_Q8_0, 4, 64, 32, 3, 2, GATE_SILU, false, false, false});
    void *scratch = aligned_alloc(64, (experts_scratch_size(&p.e, 3, 2) + 63) / 64 * 64);
    struct experts_run r;
    static const int32_t wrong[] = {-1, 4, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        p.ids[4] = wrong[i];
        assert_int_equal(experts_begin(&r, &p.e, 3, 2, p.x, p.ids, p.weights, p.y, scratch, 1), -1);
    }
    assert_int_equal(experts_scratch_size(&p.e, (size_t)1 << 33, 2), 0);
    free(scratch);
    problem_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types), cmocka_unit_test(test_forms),    cmocka_unit_test(test_without_a_gate),
        cmocka_unit_test(test_ends),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
