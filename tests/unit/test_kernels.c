/* Products with blocks against sums in f64 over the values that the blocks and the rounded rows of x stand
 * for.
 *
 * The rounding of x is written here a second time, from ggml's definition of Q8_0, Q8_1 and Q8_K as its x86
 * code computes them, so a single value that is rounded another way shows as an error far above the limit. */
#include "kernels/linear.h"
#include "quant/blocks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const uint32_t all_types[] = {GGML_Q4_0,   GGML_Q4_1,   GGML_Q5_0, GGML_Q5_1, GGML_Q8_0,
                                     GGML_Q2_K,   GGML_Q3_K,   GGML_Q4_K, GGML_Q5_K, GGML_Q6_K,
                                     GGML_IQ4_NL, GGML_IQ4_XS, GGML_MXFP4};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };

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

/* Memory whose end is the end of a page, with one behind it that can't be touched. */
struct guarded {
    uint8_t *map, *p;
    size_t size;
};

static struct guarded guarded(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (n + page - 1) / page * page + page;
    uint8_t *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + size - page, page, PROT_NONE), 0);
    return (struct guarded){map, map + size - page - n, size};
}

static void guarded_release(struct guarded *g)
{
    munmap(g->map, g->size);
}

static void put_f16(uint8_t h[2], bool negative)
{
    /* 2^-6 … 2^-3 */
    uint32_t v = 0x2400 + random_u32() % 0xc00 + (negative ? 0x8000 : 0);
    h[0] = (uint8_t)v;
    h[1] = (uint8_t)(v >> 8);
}

/* Random bytes are blocks of every type, once their scales are numbers of a sensible size. */
static void fill_blocks(uint32_t type, uint8_t *p, size_t n_blocks)
{
    size_t bytes = ggml_type_info(type)->bytes;
    for (size_t i = 0; i < n_blocks * bytes; i++)
        p[i] = (uint8_t)random_u32();
    for (size_t i = 0; i < n_blocks; i++, p += bytes) {
        bool negative = random_u32() % 2;
        switch (type) {
        case GGML_Q4_1:
        case GGML_Q5_1:
        case GGML_Q4_K:
        case GGML_Q5_K:
            put_f16(p, negative);
            put_f16(p + 2, random_u32() % 2);
            break;
        case GGML_Q2_K:
            put_f16(((struct block_q2_k *)p)->d, negative);
            put_f16(((struct block_q2_k *)p)->dmin, random_u32() % 2);
            break;
        case GGML_Q3_K:
            put_f16(((struct block_q3_k *)p)->d, negative);
            break;
        case GGML_Q6_K:
            put_f16(((struct block_q6_k *)p)->d, negative);
            break;
        case GGML_MXFP4:
            p[0] = (uint8_t)(120 + random_u32() % 8);
            break;
        default:
            put_f16(p, negative);
        }
    }
}

static bool is_k(uint32_t type)
{
    return ggml_type_info(type)->block == 256;
}

static float f16(float f)
{
    /* By search among the two neighbours; f is in the range of normal and subnormal f16. */
    uint16_t low = 0, high = 0x7c00;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (quant_f16_to_f32(middle) <= fabsf(f))
            low = middle;
        else
            high = middle;
    }
    double below = fabs((double)f) - (double)quant_f16_to_f32(low);
    double above = (double)quant_f16_to_f32(high) - fabs((double)f);
    bool up = above < below || (above == below && low % 2);
    return copysignf(quant_f16_to_f32(up ? high : low), f);
}

/* A row of x rounded for `type`: values, and for each 32 of them Q8_1's s less what the values add up to. */
static void round_row(uint32_t type, const float *x, size_t cols, double *to, double *s)
{
    size_t n = is_k(type) ? 256 : 32;
    for (size_t k = 0; k < cols; k += n) {
        float max = 0;
        for (size_t i = 0; i < n; i++)
            if (fabsf(x[k + i]) > fabsf(max))
                max = x[k + i];
        if (!is_k(type))
            max = fabsf(max);
        float times = max == 0 ? 0 : is_k(type) ? -127 / max : 127 / max;
        float d = is_k(type) ? (max == 0 ? 0 : 1 / times) : max / 127;
        double sum = 0, stored = is_k(type) ? (double)d : (double)f16(d);
        for (size_t i = 0; i < n; i++) {
            float q = isfinite(times) ? rintf(x[k + i] * times) : 0;
            sum += (double)q;
            to[k + i] = (double)q * stored;
        }
        if (!is_k(type))
            s[k / 32] = (double)f16(d * (float)sum) - sum * stored;
    }
}

/* What differs from a product with the rounded x: Q8_1 keeps the sum of its values apart, as an f16. */
static double min_of(uint32_t type, const uint8_t *row, size_t block)
{
    if (type == GGML_Q4_1)
        return (double)load_f16(((const struct block_q4_1 *)row)[block].m);
    if (type == GGML_Q5_1)
        return (double)load_f16(((const struct block_q5_1 *)row)[block].m);
    return 0;
}

struct problem {
    uint32_t type;
    size_t m, rows, cols, row_bytes;
    float *x, *w;
    double *expected, *plain, *limit; /* [m][rows] each; limit: of a relative error of 1 */
    struct guarded blocks;
    struct linear l;
};

static void problem_init(struct problem *p, uint32_t type, size_t m, size_t rows, size_t cols)
{
    const struct ggml_type_info *info = ggml_type_info(type);
    *p = (struct problem){.type = type, .m = m, .rows = rows, .cols = cols};
    p->row_bytes = cols / info->block * info->bytes;
    p->blocks = guarded(rows * p->row_bytes);
    fill_blocks(type, p->blocks.p, rows * cols / info->block);
    p->x = malloc(m * cols * sizeof *p->x);
    p->w = malloc(rows * cols * sizeof *p->w);
    p->expected = calloc(m * rows * 3, sizeof *p->expected);
    p->plain = p->expected + m * rows;
    p->limit = p->plain + m * rows;
    for (size_t i = 0; i < m * cols; i++)
        p->x[i] = random_float();
    quant_dequantize(type, p->blocks.p, rows * cols, p->w);
    p->l = (struct linear){cols, rows, 1, {{type, rows, p->blocks.p, NULL}}};
}

static void problem_release(struct problem *p)
{
    free(p->x);
    free(p->w);
    free(p->expected);
    guarded_release(&p->blocks);
}

static void problem_solve(struct problem *p)
{
    double *x = calloc(p->cols + p->cols / 32, sizeof *x), *s = x + p->cols;
    for (size_t i = 0; i < p->m; i++) {
        round_row(p->type, p->x + i * p->cols, p->cols, x, s);
        for (size_t n = 0; n < p->rows; n++) {
            const float *w = p->w + n * p->cols;
            double sum = 0, plain = 0, most = 0, size = 0;
            for (size_t k = 0; k < p->cols; k++) {
                sum += x[k] * (double)w[k];
                plain += (double)p->x[i * p->cols + k] * (double)w[k];
                size += fabs(x[k]);
                most = fmax(most, fabs((double)w[k]));
            }
            for (size_t b = 0; b < p->cols / 32 && !is_k(p->type); b++)
                sum += s[b] * min_of(p->type, p->blocks.p + n * p->row_bytes, b);
            p->expected[i * p->rows + n] = sum;
            p->plain[i * p->rows + n] = plain;
            p->limit[i * p->rows + n] = size * most;
        }
    }
    free(x);
}

/* y by the current kernels, the rows of x rounded and the rows of W multiplied in two ranges each. */
static float *multiply(const struct linear *l, size_t m, const float *x, size_t split)
{
    size_t size = linear_scratch_size(l, m);
    void *scratch = aligned_alloc(64, (size + 63) / 64 * 64);
    float *y = malloc((m * l->rows + 1) * sizeof *y);
    memset(scratch, 0xee, size);
    memset(y, 0xee, m * l->rows * sizeof *y);
    linear_quantize(l, m, x, 0, m / 2, scratch);
    linear_quantize(l, m, x, m / 2, m, scratch);
    linear_multiply(l, m, scratch, split, l->rows, y);
    linear_multiply(l, m, scratch, 0, split, y);
    free(scratch);
    return y;
}

static void check(const struct problem *p, const float *y, const char *what)
{
    for (size_t i = 0; i < p->m * p->rows; i++) {
        double error = fabs((double)y[i] - p->expected[i]), rounding = fabs((double)y[i] - p->plain[i]);
        if (!(error <= 1e-6 * p->limit[i]) || !(rounding <= 0.02 * p->limit[i]))
            fail_msg("%s, %s, m %zu, rows %zu, cols %zu: y[%zu][%zu] is %.9g, not %.9g (unrounded x: %.9g)",
                     ggml_type_info(p->type)->name, what, p->m, p->rows, p->cols, i / p->rows, i % p->rows,
                     (double)y[i], p->expected[i], p->plain[i]);
    }
}

static const char *const isa_name[] = {"portable", "avx2", "avx512"};

static void check_isas(const struct problem *p)
{
    for (int isa = 0; isa < LINEAR_N_ISA; isa++) {
        if (!linear_has_isa((enum linear_isa)isa))
            continue;
        linear_set_isa((enum linear_isa)isa);
        float *y = multiply(&p->l, p->m, p->x, 0);
        check(p, y, isa_name[isa]);
        /* Another split gives the same bits. */
        float *again = multiply(&p->l, p->m, p->x, p->rows * 2 / 3);
        assert_memory_equal(y, again, p->m * p->rows * sizeof *y);
        free(again);
        free(y);
    }
}

static void test_shapes(void **unused)
{
    (void)unused;
    static const size_t ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 32, 33, 64}, rows[] = {1, 7, 16, 33};
    for (size_t t = 0; t < N_TYPES; t++) {
        uint32_t type = all_types[t];
        size_t block = ggml_type_info(type)->block;
        const size_t cols[] = {block, 2 * block, is_k(type) ? 3 * block : 9 * block,
                               is_k(type) ? 4 * block : 576};
        for (size_t c = 0; c < 4; c++)
            for (size_t r = 0; r < 4; r++)
                for (size_t m = 0; m < sizeof ms / sizeof ms[0]; m++) {
                    struct problem p;
                    problem_init(&p, type, ms[m], rows[r], cols[c]);
                    problem_solve(&p);
                    check_isas(&p);
                    problem_release(&p);
                }
    }
}

/* A row of x has the same product to the last bit however many others go through with it. */
static void test_alike(void **unused)
{
    (void)unused;
    enum { ROWS = 37, MAX_M = 40 };
    for (size_t t = 0; t < N_TYPES; t++) {
        size_t block = ggml_type_info(all_types[t])->block,
               cols = is_k(all_types[t]) ? 3 * block : 19 * block;
        struct problem p;
        problem_init(&p, all_types[t], MAX_M, ROWS, cols);
        for (int isa = 0; isa < LINEAR_N_ISA; isa++) {
            if (!linear_has_isa((enum linear_isa)isa))
                continue;
            linear_set_isa((enum linear_isa)isa);
            float *alone[MAX_M];
            for (size_t i = 0; i < MAX_M; i++)
                alone[i] = multiply(&p.l, 1, p.x + i * cols, 0);
            for (size_t m = 2; m <= MAX_M; m++) {
                float *y = multiply(&p.l, m, p.x, ROWS / 2);
                for (size_t i = 0; i < m; i++) {
                    const void *among = y + i * ROWS, *by_itself = alone[i]; /* bits count here, not values */
                    if (memcmp(among, by_itself, ROWS * sizeof *y) != 0)
                        fail_msg("%s, %s: row %zu of %zu is not what it is alone",
                                 ggml_type_info(p.type)->name, isa_name[isa], i, m);
                }
                free(y);
            }
            for (size_t i = 0; i < MAX_M; i++)
                free(alone[i]);
        }
        problem_release(&p);
    }
}

/* Parts of several types, one of them with its rows in another order, in ranges that begin and end anywhere.
 */
static void test_parts(void **unused)
{
    (void)unused;
    enum { COLS = 512, M = 11, ROWS = 24 };
    static const uint32_t types[LINEAR_MAX_PARTS] = {GGML_Q4_K, GGML_Q6_K, GGML_Q8_0, GGML_Q4_1};
    static const size_t ms[] = {1, 3, M}, cuts[] = {0, 1, 23, 25, 40, 41, 70, ROWS * LINEAR_MAX_PARTS};
    struct problem part[LINEAR_MAX_PARTS];
    struct linear l = {COLS, ROWS * LINEAR_MAX_PARTS, LINEAR_MAX_PARTS, {{0}}};
    uint32_t map[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        map[i] = i * 7 % ROWS;
    for (int i = 0; i < LINEAR_MAX_PARTS; i++) {
        problem_init(&part[i], types[i], M, ROWS, COLS);
        memcpy(part[i].x, part[0].x, M * COLS * sizeof(float));
        problem_solve(&part[i]);
        l.part[i] = part[i].l.part[0];
    }
    l.part[1].row_map = l.part[3].row_map = map;
    float *y = malloc(M * l.rows * sizeof *y);
    for (int isa = 0; isa < LINEAR_N_ISA; isa++)
        for (size_t c = 0; c < 3 && linear_has_isa((enum linear_isa)isa); c++) {
            size_t m = ms[c];
            linear_set_isa((enum linear_isa)isa);
            void *scratch = aligned_alloc(64, (linear_scratch_size(&l, m) + 63) / 64 * 64);
            linear_quantize(&l, m, part[0].x, 0, m, scratch);
            for (size_t i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++)
                linear_multiply(&l, m, scratch, cuts[i], cuts[i + 1], y);
            for (size_t i = 0; i < m; i++)
                for (size_t n = 0; n < l.rows; n++) {
                    const struct problem *p = &part[n / ROWS];
                    size_t row = l.part[n / ROWS].row_map ? map[n % ROWS] : n % ROWS;
                    double expected = p->expected[i * ROWS + row], limit = p->limit[i * ROWS + row];
                    if (!(fabs((double)y[i * l.rows + n] - expected) <= 1e-6 * limit))
                        fail_msg("%s, m %zu: y[%zu][%zu] is %g, not %g", isa_name[isa], m, i, n,
                                 (double)y[i * l.rows + n], expected);
                }
            free(scratch);
        }
    free(y);
    for (int i = 0; i < LINEAR_MAX_PARTS; i++)
        problem_release(&part[i]);
}

/* Rows of nothing but zeros, and values at the ends of what 8 bits with an f16 scale hold. A block whose
 * values are too small for such a scale has no part in a sum, as in ggml. */
static void test_extremes(void **unused)
{
    (void)unused;
    static const float sizes[] = {0, 1e-42f, 1e-8f, 1e-4f, 1e3f, 4e6f};
    for (size_t t = 0; t < N_TYPES; t++)
        for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++)
            for (size_t m = 2; m <= 16; m += 14) {
                /* Q8_1's sums are f16 and become infinite sooner. */
                if (sizes[z] > 1e6f && (all_types[t] == GGML_Q4_1 || all_types[t] == GGML_Q5_1))
                    continue;
                struct problem p;
                problem_init(&p, all_types[t], m, 20, 512);
                /* The same size everywhere, and one step of it among other values. */
                for (size_t i = 0; i < m * 512; i++)
                    if (i / 512 % 2 == 0 || i % 512 < 256)
                        p.x[i] *= sizes[z];
                /* The largest value twice, with both signs. */
                p.x[3] = -(p.x[7] = 1.5f * sizes[z]);
                problem_solve(&p);
                for (size_t i = 0; i < m * 20; i++)
                    p.plain[i] = p.expected[i];
                check_isas(&p);
                problem_release(&p);
            }
}

static void test_supports(void **unused)
{
    (void)unused;
    size_t n = 0;
    for (uint32_t type = 0; type < 100; type++)
        n += linear_supports(type);
    for (size_t t = 0; t < N_TYPES; t++)
        assert_true(linear_supports(all_types[t]));
    assert_int_equal(n, N_TYPES);
    assert_false(linear_supports(UINT32_MAX));
    assert_true(linear_has_isa(LINEAR_PORTABLE));
    assert_true(linear_has_isa(linear_isa()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_supports), cmocka_unit_test(test_shapes),   cmocka_unit_test(test_alike),
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
