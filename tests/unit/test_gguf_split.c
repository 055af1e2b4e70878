/* Split models whose parts are missing, renamed, joined, swapped or of different families. */
#include "gguf/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define GOLDEN SOURCE_DIR "/tests/golden/gguf/"
#define PART1  GOLDEN "split-00001-of-00003.gguf"
#define PART2  GOLDEN "split-00002-of-00003.gguf"
#define PART3  GOLDEN "split-00003-of-00003.gguf"
#define OTHER  GOLDEN "malformed/data-and-more.gguf"

/* A folder to lay out parts in, emptied after each test. */
static char folder[32];

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/grappa-split-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                        "m-00003-of-00003.gguf", "m.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

static void append(const char *from, const char *name)
{
    char bytes[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(in_folder(name), "ab");
    assert_non_null(in);
    assert_non_null(out);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    fclose(out);
}

static void refused(const char *name, enum err_code code, const char *words)
{
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open(in_folder(name), &err);
    assert_null(g);
    assert_int_equal(err.code, code);
    if (!strstr(err.text, words))
        fail_msg("'%s' should hold '%s'", err.text, words);
}

static void whole_model_by_its_second_part(void **state)
{
    (void)state;
    append(PART1, "m-00001-of-00003.gguf");
    append(PART2, "m-00002-of-00003.gguf");
    append(PART3, "m-00003-of-00003.gguf");
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open(in_folder("m-00002-of-00003.gguf"), &err);
    assert_non_null(g);
    struct str name = {0};
    assert_int_equal(gguf_string(g, "general.name", &name, &err), 1); /* stands in the first part only */
    assert_true(str_is(name, "in three parts"));
    assert_int_equal(gguf_n_tensors(g), 5);
    assert_int_equal(gguf_find_tensor(g, "blk.0.weight")->part, 0);
    assert_int_equal(gguf_find_tensor(g, "blk.4.weight")->part, 2);
    assert_int_equal(gguf_file_size(g), 384 + 288 + 224);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(gguf_fd(g, i) >= 0);
    gguf_want_pages(g);
    gguf_close(g);
}

static void missing_part(void **state)
{
    (void)state;
    append(PART1, "m-00001-of-00003.gguf");
    append(PART3, "m-00003-of-00003.gguf");
    char words[128];
    snprintf(words, sizeof words, "part 2 of 3: %s/m-00002-of-00003.gguf: No such file or directory", folder);
    refused("m-00001-of-00003.gguf", ERR_IO, words);
    refused("m-00003-of-00003.gguf", ERR_IO, words);
    unlink(in_folder("m-00001-of-00003.gguf"));
    refused("m-00003-of-00003.gguf", ERR_IO, "m-00001-of-00003.gguf: No such file");
}

static void renamed_part(void **state)
{
    (void)state;
    append(PART1, "m.gguf");
    refused("m.gguf", ERR_FORMAT,
            "m.gguf: is part 1 of 3 of a split model, but its name does not end in "
            "-00001-of-00003.gguf");
}

static void joined_by_cat(void **state)
{
    (void)state;
    append(PART1, "m.gguf");
    append(PART2, "m.gguf");
    append(PART3, "m.gguf");
    refused("m.gguf", ERR_FORMAT, "m.gguf: holds several parts of a split model joined into one file");
}

static void swapped_parts(void **state)
{
    (void)state;
    append(PART1, "m-00001-of-00003.gguf");
    append(PART3, "m-00002-of-00003.gguf");
    append(PART2, "m-00003-of-00003.gguf");
    refused("m-00001-of-00003.gguf", ERR_FORMAT,
            "m-00002-of-00003.gguf: says it is part 3 of 3 where part 2 of 3 was expected");
}

static void part_of_nothing(void **state)
{
    (void)state;
    append(PART1, "m-00001-of-00003.gguf");
    append(OTHER, "m-00002-of-00003.gguf");
    append(PART3, "m-00003-of-00003.gguf");
    refused("m-00001-of-00003.gguf", ERR_FORMAT, "m-00002-of-00003.gguf: is no part of a split model");
}

static void broken_part(void **state)
{
    (void)state;
    append(PART1, "m-00001-of-00003.gguf");
    append(PART2, "m-00002-of-00003.gguf");
    append(PART3, "m-00003-of-00003.gguf");
    assert_int_equal(truncate(in_folder("m-00003-of-00003.gguf"), 195), 0);
    refused("m-00001-of-00003.gguf", ERR_FORMAT,
            "m-00003-of-00003.gguf: tensor 'blk.4.weight': 36 bytes at 160 run");
}

/* A part with the right number whose tensors are not the right ones. */
static void patched(const char *from, const char *to, const char *words)
{
    char bytes[4096];
    append(PART1, "m-00001-of-00003.gguf");
    append(PART2, "m-00002-of-00003.gguf");
    FILE *f = fopen(PART3, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    char *at = memmem(bytes, n, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    f = fopen(in_folder("m-00003-of-00003.gguf"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    refused("m-00002-of-00003.gguf", ERR_FORMAT, words);
}

static void tensor_in_two_parts(void **state)
{
    (void)state;
    patched("blk.4.weight", "blk.2.weight", "m-00003-of-00003.gguf: tensor 'blk.2.weight' is there twice");
}

/* The first part promises more tensors than the three hold. */
static void wrong_total(void **state)
{
    (void)state;
    append(PART1, "m-00001-of-00003.gguf");
    append(PART2, "m-00002-of-00003.gguf");
    append(PART3, "m-00003-of-00003.gguf");
    FILE *f = fopen(in_folder("m-00001-of-00003.gguf"), "r+b");
    assert_non_null(f);
    char bytes[4096];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    char *at = memmem(bytes, n, "split.tensors.count", 19);
    assert_non_null(at);
    fseek(f, at - bytes + 19 + 4, SEEK_SET); /* behind the key and its type */
    assert_int_equal(fputc(6, f), 6);
    fclose(f);
    refused("m-00001-of-00003.gguf", ERR_FORMAT, "5 tensors in 3 parts where 6 were expected");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(whole_model_by_its_second_part),
        TEST(missing_part),
        TEST(renamed_part),
        TEST(joined_by_cat),
        TEST(swapped_parts),
        TEST(part_of_nothing),
        TEST(broken_part),
        TEST(tensor_in_two_parts),
        TEST(wrong_total),
    };
    return cmocka_run_group_tests_name("gguf split", tests, NULL, NULL);
}
