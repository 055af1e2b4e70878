/* Sequences in files: what is read back goes on as what was written; a broken or foreign file changes
 * nothing; and a process that is killed while it writes leaves the file as it was. On the stand-in for
 * OpenVINO. */
#include "fake_ov.h"

#include "engine/context.h"
#include "quant/quant.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TINY SOURCE_DIR "/.models/tiny/"

enum { LENGTH = 60, BEHIND = 5 };

static struct grappa_model *model;
static struct grappa_context *ctx;
static char folder[64], path[96];

static grappa_token token_at(int text, int i)
{
    return (grappa_token)(fake_mix((uint64_t)text + 1, (uint64_t)i) % 256 + 4);
}

static void open_context(const char *file)
{
    struct grappa_err err;
    model = grappa_model_load(file, NULL, &err);
    if (!model) {
        fail_msg("%s", err.text);
        return;
    }
    fake_n_vocab = (int32_t)model->arch->h.n_vocab;
    ctx = grappa_context_new(model, &(struct grappa_context_params){.n_ctx = 256, .n_seq_max = 2}, &err);
    if (!ctx)
        fail_msg("%s", err.text);
}

static void close_context(void)
{
    grappa_context_free(ctx);
    grappa_model_free(model);
    ctx = NULL;
    model = NULL;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/grappa-save-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/seq", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    close_context();
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d));) /* who was killed left something beside */
        unlinkat(dirfd(d), f->d_name, 0);
    if (d)
        closedir(d);
    return rmdir(folder);
}

/* A text onto a sequence, in two pieces. Returns the last token's logits. */
static const float *feed(int32_t seq, int text, int from, int to)
{
    struct grappa_err err;
    grappa_token t[LENGTH + BEHIND];
    int32_t seqs[LENGTH + BEHIND];
    for (int i = from; i < to; i++) {
        t[i - from] = token_at(text, i);
        seqs[i - from] = seq;
    }
    if (grappa_decode(ctx, &(struct grappa_batch){.n = (size_t)(to - from), .token = t, .seq_id = seqs},
                      &err) != 0)
        fail_msg("%s", err.text);
    return grappa_logits(ctx, -1);
}

static void save(int32_t seq, int text)
{
    struct grappa_err err;
    uint64_t bytes = 0;
    grappa_token t[LENGTH];
    struct stat st;
    for (int i = 0; i < LENGTH; i++)
        t[i] = token_at(text, i);
    if (grappa_seq_save(ctx, seq, t, path, &bytes, &err) != LENGTH)
        fail_msg("%s", err.text);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, bytes);
}

/* What is in the sequence is the text, and it goes on as the text does. */
static void expect_text(int32_t seq, int text)
{
    float *want = malloc((size_t)fake_n_vocab * sizeof *want);
    assert_int_equal(grappa_seq_len(ctx, seq), LENGTH);
    assert_int_equal(grappa_seq_trim(ctx, 1 - seq, 0, NULL), 0);
    feed(1 - seq, text, 0, LENGTH - 10);
    feed(1 - seq, text, LENGTH - 10, LENGTH);
    memcpy(want, feed(1 - seq, text, LENGTH, LENGTH + BEHIND), (size_t)fake_n_vocab * sizeof *want);
    assert_memory_equal(want, feed(seq, text, LENGTH, LENGTH + BEHIND), (size_t)fake_n_vocab * sizeof *want);
    free(want);
}

static void save_and_restore(const char *file)
{
    struct grappa_err err;
    grappa_token t[LENGTH];
    uint64_t bytes;
    open_context(file);
    feed(0, 1, 0, LENGTH - 10);
    feed(0, 1, LENGTH - 10, LENGTH);
    int32_t point = grappa_seq_trim_point(ctx, 0, LENGTH - 5);
    save(0, 1);
    feed(1, 2, 0, 30); /* what was in the place before */
    if (grappa_seq_restore(ctx, 1, path, t, LENGTH, &bytes, &err) != LENGTH)
        fail_msg("%s", err.text);
    for (int i = 0; i < LENGTH; i++)
        assert_int_equal(t[i], token_at(1, i));
    assert_int_equal(grappa_seq_trim_point(ctx, 1, LENGTH - 5), point);
    expect_text(1, 1);
    close_context();
}

static void test_attention(void **state)
{
    (void)state;
    save_and_restore(TINY "llama.gguf");
}

static void test_hybrid(void **state)
{
    (void)state;
    save_and_restore(TINY "qwen35.gguf");
}

static void test_recurrent(void **state)
{
    (void)state;
    save_and_restore(TINY "mamba2.gguf");
}

/* ---- what is refused ---- */

static char *slurp(size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    char *p = malloc((size_t)st.st_size);
    *n = fread(p, 1, (size_t)st.st_size, f);
    fclose(f);
    return p;
}

static void spill(const char *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* Refused in one line that names the file and says `what`; and the sequence is the text that it was. */
static void expect_refused(const char *what)
{
    struct grappa_err err = {0};
    grappa_token t[LENGTH];
    assert_int_equal(grappa_seq_restore(ctx, 0, path, t, LENGTH, NULL, &err), -1);
    assert_ptr_equal(strstr(err.text, path), err.text);
    if (!strstr(err.text, what))
        fail_msg("%s: expected \"%s\"", err.text, what);
    assert_int_equal(grappa_seq_len(ctx, 0), 20);
}

static void test_broken_files(void **state)
{
    (void)state;
    open_context(TINY "llama.gguf");
    feed(1, 1, 0, LENGTH);
    save(1, 1);
    feed(0, 3, 0, 20);
    size_t n;
    char *good = slurp(&n), *bad = malloc(n + 1);
    /* A bit anywhere, in the head or behind it. */
    for (size_t i = 0; i < n; i += i < 100 ? 1 : 97) {
        memcpy(bad, good, n);
        bad[i] ^= 4;
        spill(bad, n);
        expect_refused("");
    }
    for (size_t cut = 0; cut < n; cut += cut < 100 ? 9 : 997) {
        spill(good, cut);
        expect_refused(cut < 24 + 4 * LENGTH + 72 ? "not a saved sequence" : "broken");
    }
    memcpy(bad, good, n);
    bad[n] = 0;
    spill(bad, n + 1);
    expect_refused("broken");
    spill("GGUF and nothing more, but long enough for a head of a file of that kind", 73);
    expect_refused("not a saved sequence");
    unlink(path);
    expect_refused("No such file");
    assert_int_equal(mkdir(path, 0700), 0);
    expect_refused("not a saved sequence");
    assert_int_equal(rmdir(path), 0);
    free(good);
    free(bad);
}

static void test_too_long(void **state)
{
    struct grappa_err err = {0};
    grappa_token t[LENGTH];
    (void)state;
    open_context(TINY "llama.gguf");
    feed(1, 1, 0, LENGTH);
    save(1, 1);
    feed(0, 3, 0, 20);
    assert_int_equal(grappa_seq_restore(ctx, 0, path, t, LENGTH - 1, NULL, &err), -1);
    assert_non_null(strstr(err.text, "it has 60 tokens, there is room for 59"));
    assert_int_equal(grappa_seq_len(ctx, 0), 20);
}

static void test_another_model(void **state)
{
    (void)state;
    open_context(TINY "llama.gguf");
    feed(1, 1, 0, LENGTH);
    save(1, 1);
    close_context();
    open_context(TINY "qwen3.gguf");
    feed(0, 3, 0, 20);
    expect_refused("saved with another model");
}

static void test_a_folder_that_is_not_there(void **state)
{
    struct grappa_err err = {0};
    grappa_token t[LENGTH] = {0};
    (void)state;
    open_context(TINY "llama.gguf");
    feed(0, 1, 0, 20);
    snprintf(path, sizeof path, "%s/none/seq", folder);
    assert_int_equal(grappa_seq_save(ctx, 0, t, path, NULL, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
}

/* ---- kill -9 ---- */

static void save_for_ever(void)
{
    for (int i = 0;; i++)
        save(i % 2, 1 + i % 2);
}

static void test_killed_while_saving(void **state)
{
    enum { ROUNDS = 25 };
    int found = 0;
    (void)state;
    open_context(TINY "llama.gguf");
    feed(0, 1, 0, LENGTH);
    feed(1, 2, 0, LENGTH);
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            save_for_ever();
            _exit(0);
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000 + i * 700000}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (access(path, F_OK) != 0)
            continue; /* not even the first time */
        struct grappa_err err;
        grappa_token t[LENGTH];
        if (grappa_seq_restore(ctx, 0, path, t, LENGTH, NULL, &err) != LENGTH)
            fail_msg("%s", err.text);
        int text = t[0] == token_at(1, 0) ? 1 : 2;
        for (int k = 0; k < LENGTH; k++)
            assert_int_equal(t[k], token_at(text, k));
        expect_text(0, text);
        for (int s = 0; s < 2; s++) {
            assert_int_equal(grappa_seq_trim(ctx, s, 0, NULL), 0);
            feed(s, 1 + s, 0, LENGTH);
        }
        found++;
    }
    assert_true(found > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_attention),
        TEST(test_hybrid),
        TEST(test_recurrent),
        TEST(test_broken_files),
        TEST(test_too_long),
        TEST(test_another_model),
        TEST(test_a_folder_that_is_not_there),
        TEST(test_killed_while_saving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
