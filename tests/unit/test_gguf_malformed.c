/* Files that break the format, each in one way (tests/tools/malformed_gguf.py), and paths that lead to no
 * file. All of them end in one line that names the file; none in a crash or a big allocation. */
#include "gguf/gguf.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER SOURCE_DIR "/tests/golden/gguf/malformed/"

static enum err_code code_of(const char *name)
{
    return strcmp(name, "FORMAT") == 0        ? ERR_FORMAT
           : strcmp(name, "UNSUPPORTED") == 0 ? ERR_UNSUPPORTED
                                              : ERR_NONE;
}

static void check(const char *path, enum err_code code, const char *words)
{
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open(path, &err);
    if (err.code != code || !g != (code != ERR_NONE) || !strstr(err.text, words) || strchr(err.text, '\n') ||
        (code != ERR_NONE && !strstr(err.text, path)))
        fail_msg("%s: code %d instead of %d, '%s' should hold '%s'", path, err.code, code, err.text, words);
    gguf_close(g);
}

static void every_case_of_the_table(void **state)
{
    (void)state;
    char line[512], path[1024];
    int n = 0;
    FILE *f = fopen(FOLDER "cases.tsv", "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n++) {
        char *name = line, *result = strchr(name, '\t'), *words = strchr(result + 1, '\t');
        *result++ = *words++ = '\0';
        words[strcspn(words, "\n")] = '\0';
        snprintf(path, sizeof path, FOLDER "%s", name);
        check(path, code_of(result), words);
    }
    fclose(f);
    assert_true(n > 100);
}

static void big_endian_file_of_gguf_py(void **state)
{
    (void)state;
    check(SOURCE_DIR "/tests/golden/gguf/big-endian.gguf", ERR_UNSUPPORTED, "byte-swapped");
}

/* What a user can name by mistake instead of a file. */
static void no_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/grappa-gguf-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    check(folder, ERR_IO, "is a folder");
    snprintf(path, sizeof path, "%s/none.gguf", folder);
    check(path, ERR_IO, "No such file");
    snprintf(path, sizeof path, "%s/fifo.gguf", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    check(path, ERR_IO, "not a regular file"); /* and does not wait for a writer */
    unlink(path);
    check("/dev/zero", ERR_IO, "not a regular file");

    snprintf(path, sizeof path, "%s/empty.gguf", folder);
    int fd = open(path, O_CREAT | O_WRONLY, 0000);
    assert_true(fd >= 0);
    if (geteuid() == 0) /* who may read everything */
        check(path, ERR_FORMAT, "is empty");
    else
        check(path, ERR_IO, "Permission denied");
    close(fd);
    unlink(path);
    rmdir(folder);
}

/* Every cut of a sound file is refused or, in the last padding and only there, accepted. */
static void every_cut(void **state)
{
    (void)state;
    static uint8_t bytes[16384];
    FILE *f = fopen(SOURCE_DIR "/tests/golden/gguf/everything.gguf", "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open_memory(bytes, n, &err);
    assert_non_null(g);
    const struct gguf_tensor *last = gguf_tensor_at(g, gguf_n_tensors(g) - 1);
    size_t needed = last->offset + last->size;
    gguf_close(g);
    for (size_t cut = 0; cut <= n; cut++) {
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, bytes, cut);
        err = (struct err)ERR_INIT;
        g = gguf_open_memory(copy, cut, &err);
        if (!g != (cut < needed) || (err.code != ERR_NONE) != (cut < needed))
            fail_msg("cut to %zu of %zu bytes: '%s'", cut, n, err.text);
        gguf_close(g);
        free(copy);
    }
}

/* Counts are believed only as far as the file goes, even where the file is huge: a sparse file of 64 GiB
 * takes no disk, and promises what it likes. With 1 GiB of address space for the rest, nothing may break. */
static void sparse_giant(void **state)
{
    (void)state;
    static const struct {
        const char *head;
        size_t n;
        const char *words;
    } cases[] = {
        {"GGUF\3\0\0\0"
         "\0\0\0\x80\0\0\0\0"
         "\0\0\0\0\0\0\0\0",
         24, "offset 0 where 32"},
        {"GGUF\3\0\0\0"
         "\0\0\0\0\0\0\0\0"
         "\0\0\0\x80\0\0\0\0",
         24, "key 0 has no name"},
        {"GGUF\3\0\0\0"
         "\0\0\0\0\0\0\0\0"
         "\1\0\0\0\0\0\0\0"
         "\1\0\0\0\0\0\0\0a"
         "\x9\0\0\0"
         "\x8\0\0\0"
         "\0\0\0\x80\1\0\0\0",
         49, "an array of 6442450944 strings"},
    };
    char path[] = "/tmp/grappa-sparse-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(pwrite(fd, cases[i].head, cases[i].n, 0), (ssize_t)cases[i].n);
        if (ftruncate(fd, (off_t)64 << 30) != 0) {
            unlink(path);
            skip();
        }
        check(path, ERR_FORMAT, cases[i].words);
        assert_int_equal(ftruncate(fd, 0), 0);
    }
    close(fd);
    unlink(path);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    assert_true(use.ru_maxrss < 512 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_of_the_table),
        cmocka_unit_test(big_endian_file_of_gguf_py),
        cmocka_unit_test(no_file),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(sparse_giant),
    };
    return cmocka_run_group_tests_name("gguf malformed", tests, NULL, NULL);
}
