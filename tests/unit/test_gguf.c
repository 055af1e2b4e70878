/* Files that gguf-py wrote, held against what gguf-py reads out of them (tests/tools/golden_gguf.py). */
#include "base/buf.h"
#include "gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define GOLDEN     SOURCE_DIR "/tests/golden/gguf/"
#define EVERYTHING GOLDEN "everything.gguf"

static struct gguf *open_sound(const char *path)
{
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open(path, &err);
    if (!g)
        fail_msg("%s", err.text);
    return g;
}

static void read_file(struct buf *b, const char *path)
{
    char chunk[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        buf_add(b, chunk, n);
    fclose(f);
}

static void list_element(struct buf *out, const struct gguf_kv *kv, uint64_t i)
{
    switch (kv->type) {
    case GGUF_STRING: {
        struct str s = gguf_str_at(kv, i);
        for (size_t j = 0; j < s.n; j++)
            buf_printf(out, "%02x", (unsigned char)s.p[j]);
        if (s.n == 0)
            buf_puts(out, "-");
        break;
    }
    case GGUF_F32:
    case GGUF_F64:
        buf_printf(out, "%.17g", gguf_f64_at(kv, i));
        break;
    case GGUF_U64: /* wider than _i64 */
        if (gguf_f64_at(kv, i) > 1e18) {
            buf_printf(out, "%" PRIu64, UINT64_MAX);
            assert_int_equal(gguf_i64_at(kv, i), INT64_MAX);
            break;
        }
        __attribute__((fallthrough));
    default:
        buf_printf(out, "%" PRId64, gguf_i64_at(kv, i));
    }
}

static uint64_t fnv1a(const uint8_t *p, uint64_t n)
{
    uint64_t h = 0xCBF29CE484222325;
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001B3;
    return h;
}

/* The lines of golden_gguf.py's listing(). */
static void list(struct buf *out, const struct gguf *g)
{
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        buf_printf(out, "kv\t%.*s\t%d\t%d\t%" PRIu64, STR_ARG(kv->key), (int)kv->type, kv->is_array, kv->n);
        for (uint64_t j = 0; j < kv->n; j++) {
            buf_puts(out, "\t");
            list_element(out, kv, j);
        }
        buf_puts(out, "\n");
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const struct ggml_type_info *info = ggml_type_info(t->type);
        buf_printf(out, "tensor\t%.*s\t%s\t%u\t%u\t%u", STR_ARG(t->name), info->name, info->block,
                   info->bytes, t->n_dims);
        for (int d = 0; d < GGUF_MAX_DIMS; d++)
            buf_printf(out, "\t%" PRIu64, t->ne[d]);
        buf_printf(out, "\t%" PRIu64 "\t%u\t%" PRIu64 "\t%016" PRIx64 "\n", t->size, t->part, t->offset,
                   fnv1a(t->data, t->size));
    }
}

static void compare(const char *model, const char *listing)
{
    struct buf expected = {0}, got = {0};
    struct gguf *g = open_sound(model);
    read_file(&expected, listing);
    list(&got, g);
    assert_true(expected.n > 100);
    assert_string_equal(got.p, expected.p);
    gguf_close(g);
    buf_release(&expected);
    buf_release(&got);
}

static void everything_is_what_gguf_py_reads(void **state)
{
    (void)state;
    compare(EVERYTHING, GOLDEN "everything.txt");
}

static void split_is_what_gguf_py_reads_by_any_part(void **state)
{
    (void)state;
    compare(GOLDEN "split-00001-of-00003.gguf", GOLDEN "split.txt");
    compare(GOLDEN "split-00002-of-00003.gguf", GOLDEN "split.txt");
    compare(GOLDEN "split-00003-of-00003.gguf", GOLDEN "split.txt");
}

static void memory_gives_the_same_as_the_file(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct buf bytes = {0}, expected = {0}, got = {0};
    read_file(&bytes, EVERYTHING);
    read_file(&expected, GOLDEN "everything.txt");
    struct gguf *g = gguf_open_memory(bytes.p, bytes.n, &err);
    assert_non_null(g);
    list(&got, g);
    assert_string_equal(got.p, expected.p);
    assert_int_equal(gguf_fd(g, 0), -1);
    gguf_want_pages(g); /* must leave foreign memory alone */
    buf_clear(&got);
    list(&got, g);
    assert_string_equal(got.p, expected.p);
    gguf_close(g);

    buf_clear(&bytes);
    read_file(&bytes, GOLDEN "split-00001-of-00003.gguf");
    assert_null(gguf_open_memory(bytes.p, bytes.n, &err));
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_string_equal(err.text, "is part 1 of 3 of a split model");
    buf_release(&bytes);
    buf_release(&expected);
    buf_release(&got);
}

static void lookups(void **state)
{
    (void)state;
    struct gguf *g = open_sound(EVERYTHING);
    assert_string_equal(gguf_path(g), EVERYTHING);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_file_size(g), 11904);
    assert_true(gguf_fd(g, 0) >= 0);
    assert_null(gguf_find(g, "scalar.uint8"));
    assert_null(gguf_find(g, ""));
    assert_null(gguf_find_tensor(g, "tensor.Q4"));
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", STR_ARG(gguf_kv_at(g, i)->key));
        assert_ptr_equal(gguf_find(g, key), gguf_kv_at(g, i));
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", STR_ARG(gguf_tensor_at(g, i)->name));
        assert_ptr_equal(gguf_find_tensor(g, name), gguf_tensor_at(g, i));
    }
    gguf_close(g);
    gguf_close(NULL);
}

/* Result 1: *out is `value`; 0: untouched; -1: an error with these words. */
static const struct {
    const char *key;
    int result;
    uint32_t value;
    const char *words;
} u32_cases[] = {
    {"scalar.uint8.1", 1, 255, ""},
    {"scalar.int8.1", 1, 127, ""},
    {"scalar.uint16.1", 1, 65535, ""},
    {"scalar.int16.1", 1, 32767, ""},
    {"scalar.uint32.1", 1, 4294967295, ""},
    {"scalar.int32.1", 1, 2147483647, ""},
    {"scalar.uint64.0", 1, 0, ""},
    {"scalar.none", 0, 0, ""},
    {"scalar.int8.0", -1, 0, EVERYTHING ": key 'scalar.int8.0' is -128, outside"},
    {"scalar.int64.0", -1, 0, "key 'scalar.int64.0' is -9223372036854775808, outside"},
    {"scalar.int64.1", -1, 0, "key 'scalar.int64.1' is 9223372036854775807, outside"},
    {"scalar.uint64.1", -1, 0, "key 'scalar.uint64.1' is 18446744073709551615, outside"},
    {"scalar.bool.1", -1, 0, "key 'scalar.bool.1' is of type bool instead of u32"},
    {"scalar.float32.0", -1, 0, "key 'scalar.float32.0' is of type f32 instead of u32"},
    {"scalar.string.0", -1, 0, "key 'scalar.string.0' is of type string instead of u32"},
    {"array.uint32", -1, 0, "key 'array.uint32' is of type array of u32 instead of u32"},
};

static void u32_by_key(void **state)
{
    (void)state;
    struct gguf *g = open_sound(EVERYTHING);
    for (size_t i = 0; i < sizeof u32_cases / sizeof u32_cases[0]; i++) {
        struct err err = ERR_INIT;
        uint32_t out = 77;
        assert_int_equal(gguf_u32(g, u32_cases[i].key, &out, &err), u32_cases[i].result);
        assert_int_equal(out, u32_cases[i].result == 1 ? u32_cases[i].value : 77);
        assert_int_equal(err.code, u32_cases[i].result < 0 ? ERR_FORMAT : ERR_NONE);
        if (!strstr(err.text, u32_cases[i].words))
            fail_msg("%s: '%s'", u32_cases[i].key, err.text);
    }
    gguf_close(g);
}

static void other_scalars_by_key(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct gguf *g = open_sound(EVERYTHING);
    float f = 7;
    assert_int_equal(gguf_f32(g, "none", &f, &err), 0);
    assert_true(f == 7);
    assert_int_equal(gguf_f32(g, "scalar.float32.0", &f, &err), 1);
    assert_true(f == 1e-05f);
    assert_int_equal(gguf_f32(g, "scalar.float64.0", &f, &err), 1);
    assert_true(f == 0.1f);
    assert_int_equal(gguf_f32(g, "scalar.int16.0", &f, &err), 1);
    assert_true(f == -32768.0f);
    assert_int_equal(gguf_f32(g, "scalar.float32.3", &f, &err), 1);
    assert_true(isinf(f));

    bool b = true;
    assert_int_equal(gguf_bool(g, "none", &b, &err), 0);
    assert_true(b);
    assert_int_equal(gguf_bool(g, "scalar.bool.0", &b, &err), 1);
    assert_false(b);
    assert_int_equal(gguf_bool(g, "scalar.bool.1", &b, &err), 1);
    assert_true(b);

    struct str s = {"x", 1};
    assert_int_equal(gguf_string(g, "none", &s, &err), 0);
    assert_int_equal(gguf_string(g, "scalar.string.1", &s, &err), 1);
    assert_true(str_is(s, "naïve 🦙"));
    assert_int_equal(gguf_string(g, "scalar.string.0", &s, &err), 1);
    assert_int_equal(s.n, 0);
    assert_int_equal(err.code, ERR_NONE);

    assert_int_equal(gguf_bool(g, "scalar.uint8.0", &b, &err), -1);
    assert_string_equal(err.text, EVERYTHING ": key 'scalar.uint8.0' is of type u8 instead of bool");
    err = (struct err)ERR_INIT;
    assert_int_equal(gguf_string(g, "array.string", &s, &err), -1);
    assert_string_equal(err.text,
                        EVERYTHING ": key 'array.string' is of type array of string instead of string");
    err = (struct err)ERR_INIT;
    assert_int_equal(gguf_f32(g, "scalar.bool.0", &f, &err), -1);
    assert_string_equal(err.text, EVERYTHING ": key 'scalar.bool.0' is of type bool instead of f32");
    gguf_close(g);
}

static void elements_of_another_type_are_zero(void **state)
{
    (void)state;
    struct gguf *g = open_sound(EVERYTHING);
    assert_int_equal(gguf_i64_at(gguf_find(g, "scalar.string.1"), 0), 0);
    assert_int_equal(gguf_i64_at(gguf_find(g, "scalar.float32.1"), 0), 0);
    assert_true(gguf_f64_at(gguf_find(g, "array.bool"), 1) == 1.0);
    assert_true(gguf_f64_at(gguf_find(g, "array.string"), 1) == 0.0);
    assert_int_equal(gguf_str_at(gguf_find(g, "array.int8"), 1).n, 0);
    gguf_close(g);
}

static const struct {
    const char *key;
    size_t size;
    const char *text;
} print_cases[] = {
    {"scalar.float32.0", 64, "1e-05"},
    {"scalar.float32.1", 64, "-3.5"},
    {"scalar.float32.3", 64, "inf"},
    {"scalar.float64.0", 64, "0.1"},
    {"scalar.bool.1", 64, "true"},
    {"scalar.uint64.1", 64, "18446744073709551615"},
    {"scalar.int64.0", 64, "-9223372036854775808"},
    {"scalar.string.0", 64, ""},
    {"scalar.string.2", 64, "two\\nlines, a \"quote\""},
    {"scalar.string.1", 64, "naïve 🦙"},
    {"scalar.string.1", 12, "naïve 🦙"},
    {"scalar.string.1", 11, "naïve ..."}, /* never half a character */
    {"array.string", 64, "[\"\", \"naïve 🦙\", \"two\\nlines, a \"quote\"\", \"\", ...]"},
    {"array.bool", 64, "[false, true, false, true, false, true]"},
    {"array.bool", 40, "[false, true, false, true, false, true]"},
    {"array.bool", 39, "[false, true, false, true, false, ...]"},
    {"array.bool", 38, "[false, true, false, true, ...]"},
    {"array.bool", 12, "[...]"},
    {"array.bool", 3, ""},
    {"array.bool", 1, ""},
};

static void values_print_cut_to_fit(void **state)
{
    (void)state;
    struct gguf *g = open_sound(EVERYTHING);
    for (size_t i = 0; i < sizeof print_cases / sizeof print_cases[0]; i++) {
        char *out = malloc(print_cases[i].size); /* exact, for the sanitizer */
        memset(out, 'x', print_cases[i].size);
        gguf_kv_print(gguf_find(g, print_cases[i].key), out, print_cases[i].size);
        assert_string_equal(out, print_cases[i].text);
        free(out);
    }
    gguf_kv_print(gguf_find(g, "array.bool"), NULL, 0);
    gguf_close(g);
}

/* Sizes that gguf-py lacks or has otherwise; from the static_asserts of ggml-common.h. */
static void type_table(void **state)
{
    (void)state;
    assert_int_equal(ggml_type_info(GGML_Q8_1)->bytes, 2 * 2 + 32);
    assert_int_equal(ggml_type_info(GGML_Q2_0)->bytes, 2 + 64 / 4);
    assert_int_equal(ggml_type_info(GGML_Q2_0)->block, 64);
    static const uint32_t unused[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
        assert_null(ggml_type_info(unused[i]));
}

static void dropped_pages_come_back(void **state)
{
    (void)state;
    struct buf before = {0}, after = {0};
    struct gguf *g = open_sound(EVERYTHING);
    list(&before, g);
    gguf_want_pages(g);
    list(&after, g);
    assert_string_equal(before.p, after.p);
    gguf_close(g);
    buf_release(&before);
    buf_release(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_what_gguf_py_reads),
        cmocka_unit_test(split_is_what_gguf_py_reads_by_any_part),
        cmocka_unit_test(memory_gives_the_same_as_the_file),
        cmocka_unit_test(lookups),
        cmocka_unit_test(u32_by_key),
        cmocka_unit_test(other_scalars_by_key),
        cmocka_unit_test(elements_of_another_type_are_zero),
        cmocka_unit_test(values_print_cut_to_fit),
        cmocka_unit_test(type_table),
        cmocka_unit_test(dropped_pages_come_back),
    };
    return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
