/* Values from outside: replaced and added keys are read like those of the file, and a spec that makes no
 * sense changes nothing. The forms are those of llama.cpp's --override-kv. */
#include "gguf/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define FILE_NAME SOURCE_DIR "/tests/golden/gguf/everything.gguf"

static int open_file(void **state)
{
    struct err err = ERR_INIT;
    *state = gguf_open(FILE_NAME, &err);
    if (!*state)
        fail_msg("%s", err.text);
    return 0;
}

static int close_file(void **state)
{
    gguf_close(*state);
    return 0;
}

static void override(struct gguf *g, const char *spec)
{
    struct err err = ERR_INIT;
    if (gguf_override(g, spec, &err) != 0)
        fail_msg("%s: %s", spec, err.text);
}

static uint32_t u32(const struct gguf *g, const char *key)
{
    struct err err = ERR_INIT;
    uint32_t v = 0;
    if (gguf_u32(g, key, &v, &err) != 1)
        fail_msg("%s: %s", key, err.text);
    return v;
}

static void test_added_keys(void **state)
{
    struct gguf *g = *state;
    struct err err = ERR_INIT;
    size_t before = gguf_n_kv(g);
    float f = 0;
    bool b = false;
    struct str s = {0};

    override(g, "new.int=int:-42");
    override(g, "new.u32=int:4294967295");
    override(g, "new.float=float:1e6");
    override(g, "new.bool=bool:true");
    override(g, "new.str=str:a=b:c, d");
    override(g, "new.empty=str:");
    assert_int_equal(gguf_n_kv(g), before + 6);
    assert_int_equal(gguf_i64_at(gguf_find(g, "new.int"), 0), -42);
    assert_int_equal(u32(g, "new.u32"), UINT32_MAX);
    assert_int_equal(gguf_f32(g, "new.float", &f, &err), 1);
    assert_float_equal(f, 1e6, 0);
    assert_int_equal(gguf_bool(g, "new.bool", &b, &err), 1);
    assert_true(b);
    assert_int_equal(gguf_string(g, "new.str", &s, &err), 1);
    assert_true(str_is(s, "a=b:c, d"));
    assert_int_equal(gguf_string(g, "new.empty", &s, &err), 1);
    assert_int_equal(s.n, 0);
    /* A count stands for a number of any kind, but a number of any kind does not stand for a count. */
    assert_int_equal(gguf_f32(g, "new.u32", &f, &err), 1);
    assert_int_equal(gguf_u32(g, "new.float", &(uint32_t){0}, &err), -1);

    const struct gguf_kv *last = gguf_kv_at(g, before + 5);
    assert_true(str_is(last->key, "new.empty"));
    assert_ptr_equal(gguf_find(g, "new.empty"), last);
}

/* Each key of the file, whatever its type, gives way to each type; its neighbours stay. */
static void test_replaced_keys(void **state)
{
    static const char *const values[] = {"int:7", "float:0.5", "bool:false", "str:seven", "int:8"};
    struct gguf *g = *state;
    size_t n = gguf_n_kv(g);
    for (size_t i = 0; i < n; i++) {
        char key[256], next[128] = "", now[128];
        snprintf(key, sizeof key, "%.*s", STR_ARG(gguf_kv_at(g, i)->key));
        if (i + 1 < n)
            gguf_kv_print(gguf_kv_at(g, i + 1), next, sizeof next);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char spec[512];
            snprintf(spec, sizeof spec, "%s=%s", key, values[v]);
            override(g, spec);
            const struct gguf_kv *kv = gguf_find(g, key);
            gguf_kv_print(kv, now, sizeof now);
            assert_string_equal(now, strchr(values[v], ':') + 1);
            assert_false(kv->is_array);
            assert_int_equal(kv->n, 1);
            assert_ptr_equal(kv, gguf_kv_at(g, i));
        }
        if (i + 1 < n) {
            gguf_kv_print(gguf_kv_at(g, i + 1), now, sizeof now);
            assert_string_equal(now, next);
        }
    }
    assert_int_equal(gguf_n_kv(g), n);
}

/* Enough for the directory and its index to grow several times. */
static void test_many(void **state)
{
    struct gguf *g = *state;
    char spec[64];
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(spec, sizeof spec, "many.%u=int:%u", i, i * i);
        override(g, spec);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(spec, sizeof spec, "many.%u", i);
        assert_int_equal(u32(g, spec), i * i);
    }
}

static void test_wrong_specs(void **state)
{
    static const struct {
        const char *spec, *reason;
    } wrong[] = {
        {"", "must be KEY=TYPE:VALUE"},
        {"key", "must be KEY=TYPE:VALUE"},
        {"=int:1", "must be KEY=TYPE:VALUE"},
        {"key=", "the type must be int:, float:, bool: or str:"},
        {"key=1", "the type must be int:, float:, bool: or str:"},
        {"key=int", "the type must be int:, float:, bool: or str:"},
        {"key=u32:1", "the type must be int:, float:, bool: or str:"},
        {"key=INT:1", "the type must be int:, float:, bool: or str:"},
        {"key=int:", "not a whole number"},
        {"key=int:1.5", "not a whole number"},
        {"key=int:x", "not a whole number"},
        {"key=int: 1", "not a whole number"},
        {"key=int:9223372036854775808", "does not fit into 64 bits"},
        {"key=float:", "not a finite number"},
        {"key=float:1,5", "not a finite number"},
        {"key=float:nan", "not a finite number"},
        {"key=float:1e999", "not a finite number"},
        {"key=bool:", "neither true nor false"},
        {"key=bool:1", "neither true nor false"},
        {"key=bool:True", "neither true nor false"},
    };
    struct gguf *g = *state;
    size_t before = gguf_n_kv(g);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = ERR_INIT;
        char text[256];
        snprintf(text, sizeof text, "override '%s': %s", wrong[i].spec, wrong[i].reason);
        assert_int_equal(gguf_override(g, wrong[i].spec, &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
        assert_string_equal(err.text, text);
    }
    assert_int_equal(gguf_n_kv(g), before);
    assert_null(gguf_find(g, "key"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_added_keys, open_file, close_file),
        cmocka_unit_test_setup_teardown(test_replaced_keys, open_file, close_file),
        cmocka_unit_test_setup_teardown(test_many, open_file, close_file),
        cmocka_unit_test_setup_teardown(test_wrong_specs, open_file, close_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
