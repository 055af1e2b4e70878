/* grappa.h over tiny models: however tokens are put into batches, a sequence computes what it computes alone;
 * and what is refused is named and changes nothing. Everything in f32, so that only the order of sums
 * differs. */
#include "engine_subject.h"

#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

static int load_llama(void **state)
{
    return subject_load(state, TINY "llama.gguf", 1e-5f);
}

/* Activations are rounded to 8 bits, and what differs in the last bit before may round to the other side: up
 * to 1.3e-2 of the largest logit. A row that is mixed up with another is at 1. */
static int load_quantised(void **state)
{
    return subject_load(state, TINY "llama-q4_k_m.gguf", 1e-1f);
}

/* Sliding windows of 32 and two kinds of RoPE. */
static int load_gemma3(void **state)
{
    return subject_load(state, TINY "gemma3.gguf", 1e-5f);
}

/* Experts, attention sinks, windows in every other layer. */
static int load_gpt_oss(void **state)
{
    return subject_load(state, TINY "gpt-oss.gguf", 1e-5f);
}

/* ---- what must not make a difference ---- */

/* Batches of a few tokens of any sequence, in any order between sequences; some wanted. */
static void interleave(struct subject *s, uint64_t seed, uint32_t n_batch)
{
    struct grappa_context *c = new_context(s, n_batch, SEQS);
    int32_t at[SEQS] = {0}, left = SEQS * LENGTH;
    uint64_t rng = seed;
    while (left > 0) {
        grappa_token token[64];
        int32_t seq[64], pos[64], n = 0, of[64], n_wanted = 0;
        int8_t wanted[64];
        int32_t size = 1 + (int32_t)random_below(&rng, 64);
        for (size = size < left ? size : left; n < size; n++) {
            int32_t q = (int32_t)random_below(&rng, SEQS);
            while (at[q] == LENGTH)
                q = (q + 1) % SEQS;
            wanted[n] = random_below(&rng, 3) > 0;
            seq[n] = q;
            pos[n] = at[q];
            token[n] = text_token(q, at[q]++);
            if (wanted[n])
                of[n_wanted++] = n;
        }
        left -= n;
        /* Positions and wanted logits are optional. */
        bool given = random_below(&rng, 2) > 0;
        decode(c, &(struct grappa_batch){(size_t)n, token, given ? pos : NULL, seq, wanted});
        assert_int_equal(grappa_n_logits(c), n_wanted);
        for (int32_t i = 0; i < n_wanted; i++) {
            expect_row(s, grappa_logits(c, i), seq[of[i]], pos[of[i]]);
            assert_ptr_equal(grappa_logits(c, i), grappa_logits(c, i - n_wanted));
        }
        assert_null(grappa_logits(c, n_wanted));
        assert_null(grappa_logits(c, -n_wanted - 1));
    }
    for (int32_t q = 0; q < SEQS; q++)
        assert_int_equal(grappa_seq_len(c, q), LENGTH);
}

static void test_interleaved_sequences(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++)
        interleave(*state, seed, 0);
}

static void test_interleaved_in_slices(void **state)
{
    interleave(*state, 5, 7);
    interleave(*state, 6, 32);
}

static void test_interleaved_with_cuts_copies_and_drops(void **state)
{
    mixed_and_disturbed(*state, 7, 0);
    mixed_and_disturbed(*state, 8, 7);
}

static void test_one_token_at_a_time(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = new_context(s, 0, 1);
    for (int32_t i = 0; i < LENGTH; i++) {
        grappa_token t = text_token(2, i);
        decode(c, &(struct grappa_batch){.n = 1, .token = &t});
        expect_rows(s, c, 2, i, i + 1);
    }
}

static void test_long_batches_are_sliced(void **state)
{
    struct subject *s = *state;
    static const uint32_t sizes[] = {1, 7, 32, 33, 99, 100};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct grappa_context *c = new_context(s, sizes[i], 1);
        assert_int_equal(grappa_n_batch(c), sizes[i]);
        feed(c, 0, 3, 0, LENGTH);
        expect_rows(s, c, 3, 0, LENGTH);
    }
}

static void test_only_the_last_by_default(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = new_context(s, 9, 1);
    grappa_token t[LENGTH];
    int8_t none[LENGTH] = {0}, first[LENGTH] = {1};
    for (int32_t i = 0; i < LENGTH; i++)
        t[i] = text_token(0, i);
    decode(c, &(struct grappa_batch){.n = 50, .token = t});
    assert_int_equal(grappa_n_logits(c), 1);
    expect_row(s, grappa_logits(c, -1), 0, 49);
    decode(c, &(struct grappa_batch){.n = 20, .token = t + 50, .logits = none});
    assert_int_equal(grappa_n_logits(c), 0);
    assert_null(grappa_logits(c, 0));
    assert_null(grappa_logits(c, -1));
    decode(c, &(struct grappa_batch){.n = 30, .token = t + 70, .logits = first});
    assert_int_equal(grappa_n_logits(c), 1);
    expect_row(s, grappa_logits(c, 0), 0, 70);
}

static void test_trimmed_sequences_go_on(void **state)
{
    struct subject *s = *state;
    /* At the end of a block of 32, on both sides of it, and back to nothing. */
    static const int32_t cuts[] = {99, 65, 64, 63, 33, 32, 31, 1, 0};
    struct grappa_context *c = new_context(s, 0, 2);
    feed(c, 0, 2, 0, LENGTH);
    feed(c, 1, 3, 0, LENGTH);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_int_equal(grappa_seq_trim(c, 0, cuts[i], NULL), 0);
        assert_int_equal(grappa_seq_len(c, 0), cuts[i]);
        feed(c, 0, 2, cuts[i], LENGTH);
        expect_rows(s, c, 2, cuts[i], LENGTH);
    }
    /* Another text behind a common beginning. */
    assert_int_equal(grappa_seq_trim(c, 0, 0, NULL), 0);
    feed(c, 0, 0, 0, LENGTH);
    assert_int_equal(grappa_seq_trim(c, 0, LENGTH / 2, NULL), 0);
    feed(c, 0, 1, LENGTH / 2, LENGTH);
    expect_rows(s, c, 1, LENGTH / 2, LENGTH);
    /* The neighbour has noticed nothing. */
    assert_int_equal(grappa_seq_trim(c, 1, 40, NULL), 0);
    feed(c, 1, 3, 40, LENGTH);
    expect_rows(s, c, 3, 40, LENGTH);
}

static void test_copies_part_ways(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = new_context(s, 0, SEQS);
    feed(c, 0, 0, 0, LENGTH / 2); /* texts 0 and 1 are one so far; 50 is in the middle of a block */
    feed(c, 3, 3, 0, 10);
    assert_int_equal(grappa_seq_copy(c, 0, 1, NULL), 0);
    assert_int_equal(grappa_seq_copy(c, 0, 3, NULL), 0);
    assert_int_equal(grappa_seq_copy(c, 0, 0, NULL), 0);
    assert_int_equal(grappa_seq_len(c, 1), LENGTH / 2);
    assert_int_equal(grappa_seq_len(c, 3), LENGTH / 2);
    for (int32_t i = LENGTH / 2; i < LENGTH; i++) { /* both in a batch, each into a block of its own */
        grappa_token t[] = {text_token(1, i), text_token(0, i)};
        decode(c, &(struct grappa_batch){2, t, NULL, (int32_t[]){1, 0}, (int8_t[]){1, 1}});
        expect_row(s, grappa_logits(c, 0), 1, i);
        expect_row(s, grappa_logits(c, 1), 0, i);
    }
    feed(c, 3, 1, LENGTH / 2, LENGTH); /* the third still has the beginning alone */
    expect_rows(s, c, 1, LENGTH / 2, LENGTH);
    /* A copy outlives what it was copied from. */
    assert_int_equal(grappa_seq_copy(c, 0, 2, NULL), 0);
    assert_int_equal(grappa_seq_trim(c, 0, 0, NULL), 0);
    assert_int_equal(grappa_seq_trim(c, 2, 70, NULL), 0);
    feed(c, 0, 2, 0, LENGTH);
    expect_rows(s, c, 2, 0, LENGTH);
    feed(c, 2, 0, 70, LENGTH);
    expect_rows(s, c, 0, 70, LENGTH);
}

static void test_a_new_context_starts_empty(void **state)
{
    struct subject *s = *state;
    for (int i = 0; i < 2; i++) {
        struct grappa_context *c = new_context(s, 0, 2);
        assert_int_equal(grappa_seq_len(c, 0), 0);
        assert_int_equal(grappa_n_logits(c), 0);
        assert_null(grappa_logits(c, -1));
        feed(c, 1, 1 + i, 0, LENGTH);
        expect_rows(s, c, 1 + i, 0, LENGTH);
    }
}

/* ---- what is refused ---- */

static void expect_refusal(int result, const struct grappa_err *err, int http_status, const char *text)
{
    assert_int_equal(result, -1);
    assert_string_equal(err->text, text);
    assert_int_equal(err->http_status, http_status);
    assert_int_equal(err->exit_status, 1);
}

static void test_refused_batches_change_nothing(void **state)
{
    struct subject *s = *state;
    const struct {
        struct grappa_batch batch;
        const char *text;
    } wrong[] = {
        {{0, (grappa_token[]){1}, NULL, NULL, NULL}, "an empty batch"},
        {{1, (grappa_token[]){-1}, NULL, NULL, NULL}, "token id -1 is out of range: the model has 320"},
        {{2, (grappa_token[]){1, 320}, NULL, NULL, NULL}, "token id 320 is out of range: the model has 320"},
        {{1, (grappa_token[]){INT32_MAX}, NULL, NULL, NULL},
         "token id 2147483647 is out of range: the model has 320"},
        {{1, (grappa_token[]){1}, NULL, (int32_t[]){-1}, NULL},
         "sequence -1 is out of range: the context has 2"},
        {{2, (grappa_token[]){1, 1}, NULL, (int32_t[]){1, 2}, NULL},
         "sequence 2 is out of range: the context has 2"},
        {{1, (grappa_token[]){1}, (int32_t[]){-1}, NULL, NULL},
         "position -1 of sequence 0 doesn't continue it at 40"},
        {{1, (grappa_token[]){1}, (int32_t[]){39}, NULL, NULL},
         "position 39 of sequence 0 doesn't continue it at 40"},
        {{1, (grappa_token[]){1}, (int32_t[]){1}, (int32_t[]){1}, NULL},
         "position 1 of sequence 1 doesn't continue it at 0"},
        {{3, (grappa_token[]){1, 1, 1}, (int32_t[]){40, 0, 42}, (int32_t[]){0, 1, 0}, NULL},
         "position 42 of sequence 0 doesn't continue it at 41"},
        {{3, (grappa_token[]){1, 1, 1}, (int32_t[]){40, 41, 41}, NULL, NULL},
         "position 41 of sequence 0 doesn't continue it at 42"},
    };
    struct grappa_context *c = new_context(s, 0, 2);
    feed(c, 0, 2, 0, 40);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct grappa_err err = {0};
        expect_refusal(grappa_decode(c, &wrong[i].batch, &err), &err, 400, wrong[i].text);
        assert_int_equal(grappa_decode(c, &wrong[i].batch, NULL), -1);
        assert_int_equal(grappa_seq_len(c, 0), 40);
        assert_int_equal(grappa_seq_len(c, 1), 0);
        feed(c, 0, 2, 40, 60);
        expect_rows(s, c, 2, 40, 60);
        assert_int_equal(grappa_seq_trim(c, 0, 40, NULL), 0);
    }
}

static void test_refused_sequence_operations(void **state)
{
    struct subject *s = *state;
    struct grappa_err err = {0};
    struct grappa_context *c = new_context(s, 0, 2);
    feed(c, 0, 2, 0, 40);
    expect_refusal(grappa_seq_trim(c, 2, 0, &err), &err, 400,
                   "sequence 2 is out of range: the context has 2");
    expect_refusal(grappa_seq_trim(c, -1, 0, &err), &err, 400,
                   "sequence -1 is out of range: the context has 2");
    expect_refusal(grappa_seq_trim(c, 0, 41, &err), &err, 400,
                   "sequence 0 holds 40 tokens, it can't be cut to 41");
    expect_refusal(grappa_seq_trim(c, 0, -1, &err), &err, 400,
                   "sequence 0 holds 40 tokens, it can't be cut to -1");
    expect_refusal(grappa_seq_copy(c, 0, 2, &err), &err, 400,
                   "sequence 2 is out of range: the context has 2");
    expect_refusal(grappa_seq_copy(c, 7, 0, &err), &err, 400,
                   "sequence 7 is out of range: the context has 2");
    assert_int_equal(grappa_seq_len(c, 0), 40);
    assert_int_equal(grappa_seq_len(c, 2), 0);
    assert_int_equal(grappa_seq_len(c, -1), 0);
    feed(c, 0, 2, 40, LENGTH);
    expect_rows(s, c, 2, 40, LENGTH);
}

static int fill(struct grappa_context *c, int32_t seq, size_t n, struct grappa_err *err)
{
    grappa_token token[N_CTX + 1];
    int32_t seqs[N_CTX + 1];
    for (size_t i = 0; i < n; i++) {
        token[i] = 9;
        seqs[i] = seq;
    }
    return grappa_decode(c, &(struct grappa_batch){n, token, NULL, seqs, NULL}, err);
}

static void test_full_context(void **state)
{
    struct subject *s = *state;
    struct grappa_err err = {0};
    struct grappa_context *c = new_context(s, 0, 2);
    assert_int_equal(grappa_n_ctx(c), N_CTX);
    expect_refusal(fill(c, 0, N_CTX + 1, &err), &err, 400,
                   "sequence 0 is longer than the context of 512 tokens");
    assert_int_equal(grappa_seq_len(c, 0), 0);
    assert_int_equal(fill(c, 0, N_CTX, &err), 0);
    expect_refusal(fill(c, 0, 1, &err), &err, 400, "sequence 0 is longer than the context of 512 tokens");
    /* The other one finds no more than the rest that each sequence is granted for its last block. */
    expect_refusal(fill(c, 1, N_CTX, &err), &err, 400, "the context of 512 tokens is full");
    assert_int_equal(grappa_seq_len(c, 0), N_CTX);
    assert_int_equal(grappa_seq_len(c, 1), 0);
    int32_t held = 0;
    while (fill(c, 1, 1, &err) == 0)
        held++;
    assert_string_equal(err.text, "the context of 512 tokens is full");
    assert_int_equal(grappa_seq_len(c, 1), held);
    assert_true(held < N_CTX / 2);
    /* Room that is given back can be used again. */
    assert_int_equal(grappa_seq_trim(c, 0, 0, NULL), 0);
    assert_int_equal(grappa_seq_trim(c, 1, 0, NULL), 0);
    feed(c, 1, 2, 0, LENGTH);
    expect_rows(s, c, 2, 0, LENGTH);
    feed(c, 0, 3, 0, LENGTH);
    expect_rows(s, c, 3, 0, LENGTH);
}

static void test_contexts_that_can_not_be(void **state)
{
    struct subject *s = *state;
    static const struct {
        struct grappa_context_params p;
        int http_status;
        const char *start;
    } wrong[] = {
        {{.n_ctx = UINT32_MAX}, 503, "a context of 4294967295 tokens takes "},
        {{.n_ctx = 1u << 30}, 503, "a context of 1073741824 tokens takes "}, /* 512 GB and more */
        {{.n_ctx = N_CTX, .n_seq_max = 1025}, 400, "1025 sequences: at most 1024"},
    };
    grappa_context_free(s->c);
    s->c = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct grappa_err err = {0};
        assert_null(grappa_context_new(s->m, &wrong[i].p, &err));
        assert_int_equal(strncmp(err.text, wrong[i].start, strlen(wrong[i].start)), 0);
        assert_int_equal(err.http_status, wrong[i].http_status);
    }
    struct grappa_err err = {0};
    struct grappa_context *c = new_context(s, 0, 1);
    assert_null(grappa_context_new(s->m, NULL, &err));
    assert_string_equal(err.text, "a model has one context at a time");
    feed(c, 0, 2, 0, LENGTH); /* the first one is as it was */
    expect_rows(s, c, 2, 0, LENGTH);
    grappa_context_free(NULL);
}

/* ---- models ---- */

static bool stop_at_once(float done, void *user)
{
    (void)done;
    ++*(int *)user;
    return false;
}

static void test_models_that_can_not_be(void **state)
{
    (void)state;
    int calls = 0;
    static const char *const specs[] = {"llama.block_count=int:x"};
    static const struct grappa_property unknown = {"NO_SUCH_PROPERTY", "1"};
    const struct {
        const char *path;
        struct grappa_model_params p;
        int exit_status;
        const char *part;
    } wrong[] = {
        {TINY "none.gguf", {0}, 1, TINY "none.gguf: No such file or directory"},
        {TINY "llama.gguf", {.device = "XPU"}, 1, "device XPU is unknown"},
        {TINY "llama.gguf", {.device = "CPU.9"}, 1, "device CPU.9"},
        {TINY "llama.gguf", {.rope_scaling = "cubic"}, 2, "RoPE scaling \"cubic\" is not"},
        {TINY "llama.gguf", {.override_kv = specs, .n_override_kv = 1}, 2, "'llama.block_count=int:x'"},
        {TINY "llama.gguf", {.properties = &unknown, .n_properties = 1}, 1, "NO_SUCH_PROPERTY"},
        {TINY "llama.gguf", {.progress = stop_at_once, .progress_user = &calls}, 1, "loading was stopped"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct grappa_err err = {0};
        assert_null(grappa_model_load(wrong[i].path, &wrong[i].p, &err));
        if (!strstr(err.text, wrong[i].part) || strchr(err.text, '\n'))
            fail_msg("\"%s\" is not in: %s", wrong[i].part, err.text);
        assert_int_equal(err.exit_status, wrong[i].exit_status);
        assert_null(grappa_model_load(wrong[i].path, &wrong[i].p, NULL));
    }
    assert_int_equal(calls, 2);
    grappa_model_free(NULL);
}

/* Learned positions end somewhere. */
static void test_contexts_longer_than_the_positions(void **state)
{
    struct grappa_err err;
    struct grappa_model *m = grappa_model_load(TINY "gpt2.gguf", &exact, &err);
    (void)state;
    assert_non_null(m);
    assert_null(grappa_context_new(m, &(struct grappa_context_params){.n_ctx = 513}, &err));
    assert_string_equal(err.text, "a context of 513 tokens: gpt2 can have 512 at most");
    struct grappa_context *c = grappa_context_new(m, &(struct grappa_context_params){0}, &err);
    assert_non_null(c);
    assert_int_equal(grappa_n_ctx(c), 512);
    grappa_context_free(c);
    grappa_model_free(m);
}

/* Under a model in use: a step says what happened instead of ending the process, and changes nothing. */
static void copy_file(const char *from, int to)
{
    char block[4096];
    FILE *f = fopen(from, "rb");
    assert_non_null(f);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        assert_int_equal(write(to, block, n), n);
    fclose(f);
}

static void change_file(const char *path, size_t how)
{
    static const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(how == 2 ? utimensat(AT_FDCWD, path, long_ago, 0)
                              : truncate(path, st.st_size + (how == 0 ? -4096 : 1)),
                     0);
}

/* Cut, grown, or written to. */
static void test_a_file_that_changes(void **state)
{
    static const char *const words[] = {"bytes now and had", "bytes now and had", "was written to"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char path[] = "/tmp/grappa-model-XXXXXX";
        int fd = mkstemp(path);
        copy_file(TINY "llama-q4_0.gguf", fd);
        close(fd);
        struct subject s = {0};
        struct grappa_err err = {0};
        s.m = grappa_model_load(path, &exact, &err);
        assert_non_null(s.m);
        new_context(&s, 64, 1);
        feed(s.c, 0, 0, 0, 5);
        change_file(path, i);
        grappa_token t = text_token(0, 5);
        assert_int_equal(grappa_decode(s.c, &(struct grappa_batch){.n = 1, .token = &t}, &err), -1);
        if (!strstr(err.text, path) || !strstr(err.text, words[i]))
            fail_msg("%s, \"%s\" are not in: %s", path, words[i], err.text);
        assert_int_equal(grappa_seq_len(s.c, 0), 5);
        grappa_context_free(s.c);
        grappa_model_free(s.m);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest alike[] = {
        cmocka_unit_test(test_interleaved_sequences),
        cmocka_unit_test(test_interleaved_in_slices),
        cmocka_unit_test(test_interleaved_with_cuts_copies_and_drops),
        cmocka_unit_test(test_one_token_at_a_time),
        cmocka_unit_test(test_long_batches_are_sliced),
        cmocka_unit_test(test_trimmed_sequences_go_on),
        cmocka_unit_test(test_copies_part_ways),
    };
    const struct CMUnitTest rules[] = {
        cmocka_unit_test(test_only_the_last_by_default),
        cmocka_unit_test(test_a_new_context_starts_empty),
        cmocka_unit_test(test_refused_batches_change_nothing),
        cmocka_unit_test(test_refused_sequence_operations),
        cmocka_unit_test(test_full_context),
        cmocka_unit_test(test_contexts_that_can_not_be),
    };
    const struct CMUnitTest models[] = {cmocka_unit_test(test_models_that_can_not_be),
                                        cmocka_unit_test(test_contexts_longer_than_the_positions),
                                        cmocka_unit_test(test_a_file_that_changes)};
    return cmocka_run_group_tests_name("llama", alike, load_llama, subject_unload) +
           cmocka_run_group_tests_name("gemma3", alike, load_gemma3, subject_unload) +
           cmocka_run_group_tests_name("gpt-oss", alike, load_gpt_oss, subject_unload) +
           cmocka_run_group_tests_name("quantised", alike, load_quantised, subject_unload) +
           cmocka_run_group_tests_name("rules", rules, load_llama, subject_unload) +
           cmocka_run_group_tests_name("models", models, NULL, NULL);
}
