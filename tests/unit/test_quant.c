/* Images and dequantisation against gguf-py: tests/golden/quant/make.py wrote random blocks and their values.
 */
#include "quant/quant.h"
#include "quant/repack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 5, COLS = 512 };

static const struct {
    uint32_t type;
    const char *name;
} types[] = {
#define T(t)                                                                                                 \
    {                                                                                                        \
        GGML_##t, #t                                                                                         \
    }
    T(F32),  T(F16),  T(BF16), T(Q4_0), T(Q4_1), T(Q5_0),   T(Q5_1),   T(Q8_0),
    T(Q2_K), T(Q3_K), T(Q4_K), T(Q5_K), T(Q6_K), T(IQ4_NL), T(IQ4_XS), T(MXFP4),
#undef T
};
#define N_TYPES (sizeof types / sizeof types[0])

/* Exactly n bytes, so that the address sanitizer sees a step too far. */
static void *exact(size_t n)
{
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    memset(p, 0xa5, n);
    return p;
}

static uint8_t *golden(const char *name, const char *suffix, size_t expected)
{
    char path[512];
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/quant/%s.%s", name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    uint8_t *data = exact(expected);
    size_t n = fread(data, 1, expected, f);
    int more = fgetc(f);
    fclose(f);
    if (n != expected || more != EOF)
        fail_msg("%s has not %zu bytes", path, expected);
    return data;
}

static size_t bytes_of(uint32_t type, uint64_t elements)
{
    const struct ggml_type_info *info = ggml_type_info(type);
    return elements / info->block * info->bytes;
}

/* Random blocks of one type. */
struct sample {
    uint32_t type;
    const char *name;
    const struct quant_image *image;
    uint8_t *blocks;
    float *values;
};

static struct sample sample_of(size_t i)
{
    struct sample s = {.type = types[i].type, .name = types[i].name, .image = quant_image_of(types[i].type)};
    if (!s.image)
        fail_msg("%s has no image", s.name);
    s.blocks = golden(s.name, "blocks", bytes_of(s.type, ROWS * COLS));
    s.values = (float *)golden(s.name, "f32", ROWS * COLS * sizeof(float));
    return s;
}

static void sample_free(struct sample *s)
{
    free(s->blocks);
    free(s->values);
}

struct parts {
    struct quant_sizes size;
    uint8_t *q, *scale, *min;
};

static struct parts parts_for(uint32_t type, uint64_t rows)
{
    struct parts p;
    struct err err = ERR_INIT;
    if (quant_sizes(type, rows, COLS, &p.size, &err) != 0)
        fail_msg("%s", err.text);
    p.q = exact(p.size.q);
    p.scale = p.size.scale ? exact(p.size.scale) : NULL;
    p.min = p.size.min ? exact(p.size.min) : NULL;
    return p;
}

static void parts_free(struct parts *p)
{
    free(p->q);
    free(p->scale);
    free(p->min);
}

static void assert_same(const char *name, const void *a, const void *b, size_t n)
{
    if (n && memcmp(a, b, n) != 0)
        fail_msg("%s: bytes differ", name);
}

/* Bytes of `rows` rows of each part of `b` equal those of `a` from row `at`. */
static void assert_rows_equal(const char *name, const struct parts *a, size_t at, const struct parts *b,
                              size_t rows, size_t rows_of_b)
{
    size_t q = b->size.q / rows_of_b, scale = b->size.scale / rows_of_b, min = b->size.min / rows_of_b;
    assert_same(name, a->q + at * q, b->q, rows * q);
    if (scale)
        assert_same(name, a->scale + at * scale, b->scale, rows * scale);
    if (min)
        assert_same(name, a->min + at * min, b->min, rows * min);
}

static void test_dequantize_equals_gguf(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        struct sample s = sample_of(i);
        float *out = exact(ROWS * COLS * sizeof *out);
        assert_true(quant_dequantize(s.type, s.blocks, ROWS * COLS, out));
        assert_same(s.name, out, s.values, ROWS * COLS * sizeof *out);
        free(out);
        sample_free(&s);
    }
    float f;
    assert_false(quant_dequantize(GGML_I32, &f, 1, &f));
    assert_false(quant_dequantize(GGML_IQ1_S, &f, 0, &f));
    assert_false(quant_dequantize(1000, &f, 1, &f));
}

/* A unit in the last place of x. */
static float ulp(float x)
{
    return nextafterf(fabsf(x), INFINITY) - fabsf(x);
}

static float scale_at(const struct quant_image *image, const struct parts *p, size_t g)
{
    uint16_t h;
    float f;
    if (image->scale == QUANT_F16) {
        memcpy(&h, p->scale + 2 * g, sizeof h);
        return quant_f16_to_f32(h);
    }
    memcpy(&f, p->scale + 4 * g, sizeof f);
    return f;
}

/* Inexact types split their offset in another way: each of the two sums may round once more. */
static void assert_close(const struct sample *s, const struct parts *p, size_t i, float got)
{
    float min;
    memcpy(&min, p->min + i / s->image->group * sizeof min, sizeof min);
    float centre = 16 * fabsf(scale_at(s->image, p, i / s->image->group));
    float largest = fmaxf(fmaxf(centre, fabsf(min)), fabsf(s->values[i]));
    if (!(fabsf(got - s->values[i]) <= 2 * ulp(largest)))
        fail_msg("%s: element %zu is %.9g, not %.9g", s->name, i, (double)got, (double)s->values[i]);
}

static void test_image_equals_gguf(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        struct sample s = sample_of(i);
        struct parts p = parts_for(s.type, ROWS);
        quant_repack_all(s.type, s.blocks, ROWS, COLS, NULL, p.q, p.scale, p.min);
        assert_int_equal(s.image->has_min, p.size.min != 0);
        for (size_t r = 0; r < ROWS; r++) {
            float out[COLS];
            quant_image_row(s.image, p.q, p.scale, p.min, COLS, r, out);
            if (s.image->exact)
                assert_same(s.name, out, s.values + r * COLS, sizeof out);
            else
                for (size_t c = 0; c < COLS; c++)
                    assert_close(&s, &p, r * COLS + c, out[c]);
        }
        parts_free(&p);
        sample_free(&s);
    }
}

/* Ranges of rows make the same bytes as the whole, wherever they are cut. */
static void test_ranges(void **state)
{
    (void)state;
    for (size_t i = 3; i < N_TYPES; i++) {
        struct sample s = sample_of(i);
        struct parts whole = parts_for(s.type, ROWS);
        quant_repack_all(s.type, s.blocks, ROWS, COLS, NULL, whole.q, whole.scale, whole.min);
        for (size_t first = 0; first < ROWS; first++)
            for (size_t rows = 1; first + rows <= ROWS; rows++) {
                struct parts some = parts_for(s.type, rows);
                quant_repack(s.type, s.blocks, COLS, NULL, first, rows, some.q, some.scale, some.min);
                assert_rows_equal(s.name, &whole, first, &some, rows, rows);
                parts_free(&some);
            }
        parts_free(&whole);
        sample_free(&s);
    }
}

static void test_row_map(void **state)
{
    (void)state;
    static const uint32_t map[] = {4, 0, 3, 3, 1, 2, 4}; /* more rows out than in, and not a permutation */
    enum { OUT = sizeof map / sizeof map[0] };
    for (size_t i = 0; i < N_TYPES; i++) {
        struct sample s = sample_of(i);
        struct parts whole = parts_for(s.type, ROWS), mapped = parts_for(s.type, OUT);
        quant_repack_all(s.type, s.blocks, ROWS, COLS, NULL, whole.q, whole.scale, whole.min);
        quant_repack_all(s.type, s.blocks, OUT, COLS, map, mapped.q, mapped.scale, mapped.min);
        for (size_t r = 0; r < OUT; r++) {
            struct parts row = mapped;
            row.q += r * (mapped.size.q / OUT);
            row.scale = row.scale ? row.scale + r * (mapped.size.scale / OUT) : NULL;
            row.min = row.min ? row.min + r * (mapped.size.min / OUT) : NULL;
            assert_rows_equal(s.name, &whole, map[r], &row, 1, OUT);
        }
        if (s.image->group) {
            struct parts some = parts_for(s.type, 3);
            quant_repack(s.type, s.blocks, COLS, map, 4, 3, some.q, some.scale, some.min);
            assert_rows_equal(s.name, &mapped, 4, &some, 3, 3);
            parts_free(&some);
        }
        parts_free(&whole);
        parts_free(&mapped);
        sample_free(&s);
    }
}

/* A matrix large enough for several threads, with an odd number of rows, equals its rows one at a time. */
static void test_threads(void **state)
{
    (void)state;
    enum { MANY = 4999 };
    uint32_t *map = exact(MANY * sizeof *map);
    for (size_t r = 0; r < MANY; r++)
        map[r] = (uint32_t)(r * 7 / 3 % ROWS);
    for (size_t i = 0; i < N_TYPES; i++) {
        struct sample s = sample_of(i);
        size_t row = bytes_of(s.type, COLS);
        uint8_t *src = exact(MANY * row);
        for (size_t r = 0; r < MANY; r++)
            memcpy(src + r * row, s.blocks + map[r] * row, row);
        struct parts plain = parts_for(s.type, MANY), mapped = parts_for(s.type, MANY);
        quant_repack_all(s.type, src, MANY, COLS, NULL, plain.q, plain.scale, plain.min);
        quant_repack_all(s.type, s.blocks, MANY, COLS, map, mapped.q, mapped.scale, mapped.min);
        assert_rows_equal(s.name, &plain, 0, &mapped, MANY, MANY);
        struct parts one = parts_for(s.type, ROWS);
        quant_repack_all(s.type, s.blocks, ROWS, COLS, NULL, one.q, one.scale, one.min);
        assert_same(s.name, plain.q + (MANY - 1) * (plain.size.q / MANY),
                    one.q + map[MANY - 1] * (one.size.q / ROWS), one.size.q / ROWS);
        parts_free(&one);
        parts_free(&plain);
        parts_free(&mapped);
        free(src);
        sample_free(&s);
    }
    free(map);
}

static void test_levels_agree(void **state)
{
    (void)state;
    const struct repack_level *levels[REPACK_MAX_LEVELS];
    size_t n = repack_levels(levels);
    assert_in_range(n, 1, REPACK_MAX_LEVELS);
    assert_ptr_equal(levels[n - 1], &repack_portable);
    for (size_t i = 0; i < N_TYPES; i++) {
        struct sample s = sample_of(i);
        size_t blocks = ROWS * COLS / ggml_type_info(s.type)->block;
        struct parts first = parts_for(s.type, ROWS);
        for (size_t l = 0; l < n && s.image->group; l++) {
            assert_non_null(levels[l]->kernel[s.type]);
            struct parts p = parts_for(s.type, ROWS);
            levels[l]->kernel[s.type](s.blocks, blocks, p.q, p.scale, p.min);
            if (l == 0)
                quant_repack_all(s.type, s.blocks, ROWS, COLS, NULL, first.q, first.scale, first.min);
            assert_rows_equal(levels[l]->name, &first, 0, &p, ROWS, ROWS);
            parts_free(&p);
        }
        parts_free(&first);
        sample_free(&s);
    }
}

static void assert_sizes(uint32_t type, uint64_t rows, uint64_t cols, size_t q, size_t scale, size_t min)
{
    struct quant_sizes s;
    struct err err = ERR_INIT;
    assert_int_equal(quant_sizes(type, rows, cols, &s, &err), 0);
    assert_int_equal(s.q, q);
    assert_int_equal(s.scale, scale);
    assert_int_equal(s.min, min);
}

static void assert_no_sizes(uint32_t type, uint64_t rows, uint64_t cols, enum err_code code)
{
    struct quant_sizes s;
    struct err err = ERR_INIT;
    assert_int_equal(quant_sizes(type, rows, cols, &s, &err), -1);
    assert_int_equal(err.code, code);
    assert_true(err.text[0]);
}

static void test_sizes(void **state)
{
    (void)state;
    assert_sizes(GGML_F32, 3, 5, 60, 0, 0);
    assert_sizes(GGML_F16, 3, 5, 30, 0, 0);
    assert_sizes(GGML_BF16, 0, 5, 0, 0, 0);
    assert_sizes(GGML_Q4_0, 3, 64, 96, 12, 0);
    assert_sizes(GGML_Q4_1, 3, 64, 96, 12, 24);
    assert_sizes(GGML_Q8_0, 3, 64, 192, 12, 0);
    assert_sizes(GGML_Q4_K, 2, 512, 512, 128, 128);
    assert_sizes(GGML_Q5_K, 2, 512, 1024, 128, 128);
    assert_sizes(GGML_Q6_K, 1, 256, 256, 64, 0);
    assert_sizes(GGML_Q2_K, 1, 256, 128, 64, 64);

    assert_no_sizes(GGML_Q4_0, 3, 33, ERR_FORMAT);
    assert_no_sizes(GGML_Q4_K, 3, 32, ERR_FORMAT);
    assert_no_sizes(GGML_F32, UINT64_MAX / 2, 3, ERR_FORMAT);
    assert_no_sizes(GGML_F32, 1, (uint64_t)1 << 62, ERR_FORMAT);
    assert_no_sizes(GGML_Q4_0, (uint64_t)1 << 40, (uint64_t)1 << 30, ERR_FORMAT);
    assert_no_sizes(GGML_I32, 1, 1, ERR_UNSUPPORTED);
    assert_no_sizes(GGML_Q8_K, 1, 256, ERR_UNSUPPORTED);
    assert_no_sizes(UINT32_MAX, 1, 256, ERR_UNSUPPORTED);
    assert_null(quant_image_of(GGML_I8));
    assert_null(quant_image_of(4)); /* an id that is not in use */
    assert_null(quant_image_of(UINT32_MAX));
}

/* Known values, and where the compiler has 16-bit floats all of them by its own conversion. */
static void test_f16(void **state)
{
    (void)state;
    static const struct {
        uint16_t bits;
        float value;
    } known[] = {{0x0000, 0.0f},        {0x3c00, 1.0f},     {0xc000, -2.0f},
                 {0x7bff, 65504.0f},    {0x0400, 0x1p-14f}, {0x0001, 0x1p-24f},
                 {0x83ff, -0x3ffp-24f}, {0x7c00, INFINITY}, {0x3555, 0x1.554p-2f}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        float f = quant_f16_to_f32(known[i].bits);
        assert_memory_equal(&f, &known[i].value, sizeof f);
    }
    assert_true(signbit(quant_f16_to_f32(0x8000)) && quant_f16_to_f32(0x8000) == 0.0f);
    assert_true(isnan(quant_f16_to_f32(0x7e00)));
#if defined(__FLT16_MANT_DIG__) && !defined(__clang__)
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        if ((bits & 0x7fff) > 0x7c00)
            continue; /* NaNs may become quiet */
        uint16_t h = (uint16_t)bits;
        _Float16 f16;
        memcpy(&f16, &h, sizeof f16);
        float expected = (float)f16, f = quant_f16_to_f32(h);
        assert_memory_equal(&f, &expected, sizeof f);
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantize_equals_gguf),
        cmocka_unit_test(test_image_equals_gguf),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_row_map),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_levels_agree),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
