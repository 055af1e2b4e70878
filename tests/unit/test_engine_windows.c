/* Layers with a sliding window whose blocks are let go: texts several windows long, in any pieces, beside
 * each other, cut, copied and read back from files, compute what one batch computes that keeps everything. */
#define SUBJECT_N_CTX  2048
#define SUBJECT_LENGTH 250
#include "engine_subject.h"

#include "engine/context.h"

#include <unistd.h>

static int load_gemma3(void **state)
{
    return subject_load(state, TINY "gemma3.gguf", 1e-5f);
}

/* Attention sinks. */
static int load_gpt_oss(void **state)
{
    return subject_load(state, TINY "gpt-oss.gguf", 1e-5f);
}

/* Every layer with attention has a window, the others are recurrent. */
static int load_lfm2(void **state)
{
    return subject_load(state, TINY "lfm2-window.gguf", 1e-5f);
}

static struct grappa_context *windows_apart(struct subject *s, uint32_t n_seqs)
{
    struct grappa_context *c = new_context(s, 32, n_seqs);
    assert_true(c->swa.n_seqs > 0);
    return c;
}

static void expect_no_leak(struct subject *s)
{
    for (int32_t i = 0; i < s->c->kv.n_seqs; i++)
        assert_int_equal(grappa_seq_trim(s->c, i, 0, NULL), 0);
    assert_int_equal(s->c->kv.n_free, s->c->kv.n_blocks);
    assert_int_equal(s->c->swa.n_free, s->c->swa.n_blocks);
}

static void test_in_pieces(void **state)
{
    struct subject *s = *state;
    for (int32_t piece = 3; piece < LENGTH; piece = 8 * piece + 1) {
        struct grappa_context *c = windows_apart(s, 1);
        for (int32_t at = 0; at < LENGTH; at += piece) {
            int32_t end = at + piece < LENGTH ? at + piece : LENGTH;
            feed(c, 0, 0, at, end);
            expect_rows(s, c, 0, at, end);
        }
        assert_true(c->swa.seqs[0].first > 0);
        expect_no_leak(s);
    }
}

static void test_interleaved(void **state)
{
    mixed_to_the_end(*state, 1, 32);
    expect_no_leak(*state);
}

/* Between the batches sequences go some steps back, become others, are dropped for another text. */
static void test_interleaved_with_cuts_copies_and_drops(void **state)
{
    struct subject *s = *state;
    int32_t cuts = 0, copies = 0, drops = 0;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct mixed m = {{0, 1, 2, 3}, {0}};
        struct grappa_context *c = windows_apart(s, SEQS);
        uint64_t rng = seed;
        for (int round = 0; round < 80; round++) {
            mixed_batch(s, &m, &rng, 64);
            int32_t a = (int32_t)random_below(&rng, SEQS), b = (int32_t)random_below(&rng, SEQS);
            uint32_t what = random_below(&rng, 8);
            if (what < 2) {
                int32_t to = grappa_seq_trim_point(c, a, m.at[a] - (int32_t)random_below(&rng, 80));
                assert_int_equal(grappa_seq_trim(c, a, to, NULL), 0);
                cuts += to > 150 && to < m.at[a];
                m.at[a] = to;
            } else if (what == 2 && m.at[a] >= m.at[b]) {
                assert_int_equal(grappa_seq_copy(c, a, b, NULL), 0);
                copies += a != b && m.at[a] > 150;
                m.at[b] = m.at[a];
                m.text[b] = m.text[a];
            } else if (what == 3 && m.at[a] > 200) {
                assert_int_equal(grappa_seq_trim(c, a, 0, NULL), 0);
                m.at[a] = 0;
                m.text[a] = (int32_t)random_below(&rng, SEQS);
                drops++;
            }
        }
        while (mixed_batch(s, &m, &rng, 64) > 0)
            ;
        expect_no_leak(s);
    }
    assert_true((cuts > 0 || grappa_model_is_recurrent(s->m)) && copies > 0 && drops > 0);
}

/* Small steps back always, large ones to the end of what came in one piece. */
static void test_cuts(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = windows_apart(s, 1);
    struct grappa_err err;
    feed(c, 0, 0, 0, 50);
    for (int32_t i = 50; i < LENGTH; i++)
        feed(c, 0, 0, i, i + 1);
    bool recurrent = grappa_model_is_recurrent(s->m);
    if (!recurrent)
        assert_int_equal(grappa_seq_trim_point(c, 0, LENGTH - 60), LENGTH - 60);
    assert_int_equal(grappa_seq_trim_point(c, 0, LENGTH - 130), 50);
    assert_int_equal(grappa_seq_trim(c, 0, LENGTH - 130, &err), -1);
    assert_non_null(strstr(err.text, recurrent ? "recurrent layers keep no state of every length"
                                               : "what lies behind sliding windows is gone"));
    assert_int_equal(grappa_seq_len(c, 0), LENGTH);
    assert_int_equal(grappa_seq_trim(c, 0, 50, NULL), 0);
    feed(c, 0, 0, 50, 90);
    expect_rows(s, c, 0, 50, 90);
    expect_no_leak(s);
}

static void test_files(void **state)
{
    struct subject *s = *state;
    struct grappa_err err;
    grappa_token tokens[LENGTH], back[LENGTH];
    char path[] = "/tmp/grappa-windows-XXXXXX";
    close(mkstemp(path));
    for (int32_t i = 0; i < LENGTH; i++)
        tokens[i] = text_token(2, i);
    struct grappa_context *c = windows_apart(s, 2);
    for (int32_t at = 0; at < LENGTH - 10; at += 20)
        feed(c, 0, 2, at, at + 20);
    uint64_t bytes, all;
    assert_int_equal(grappa_seq_save(c, 0, tokens, path, &bytes, &err), LENGTH - 10);
    if (grappa_seq_restore(c, 1, path, back, LENGTH, NULL, &err) != LENGTH - 10)
        fail_msg("%s", err.text);
    assert_memory_equal(back, tokens, (LENGTH - 10) * sizeof *back);
    feed(c, 1, 2, LENGTH - 10, LENGTH);
    expect_rows(s, c, 2, LENGTH - 10, LENGTH);
    expect_no_leak(s);
    /* A context that keeps everything writes more, and neither reads what the other has written. */
    grappa_context_free(s->c);
    s->c = grappa_context_new(
        s->m,
        &(struct grappa_context_params){.n_ctx = N_CTX, .n_batch = 32, .n_seq_max = 2, .swa_full = true},
        &err);
    assert_int_equal(grappa_seq_restore(s->c, 0, path, back, LENGTH, NULL, &err), -1);
    assert_non_null(strstr(err.text, "saved with other cache types"));
    feed(s->c, 0, 2, 0, LENGTH - 10);
    assert_int_equal(grappa_seq_save(s->c, 0, tokens, path, &all, &err), LENGTH - 10);
    assert_true(all > bytes);
    unlink(path);
}

/* Without a window for everything in the budget, there is one pool. */
static void test_sizes(void **state)
{
    struct subject *s = *state;
    struct grappa_err err;
    assert_int_equal(windows_apart(s, 1)->n_ctx, N_CTX);
    struct kv *kv = &s->c->kv, *swa = &s->c->swa;
    uint64_t full = 0, windows = 0;
    for (size_t i = 0; i < kv->n_tensors; i++)
        full += kv->tensors[i].block_bytes;
    for (size_t i = 0; i < swa->n_tensors; i++)
        windows += swa->tensors[i].block_bytes;
    uint64_t fixed = windows * (uint64_t)swa->n_blocks;
    assert_true(swa->n_blocks < kv->n_blocks / 2);
    grappa_context_free(s->c);
    s->c = grappa_context_new(
        s->m, &(struct grappa_context_params){.kv_memory = fixed + 64 * full, .n_batch = 32, .n_seq_max = 1},
        &err);
    if (full > 0) {
        assert_int_equal(s->c->n_ctx, 64 * s->m->block_size);
        assert_true(s->c->swa.n_seqs > 0);
    }
    grappa_context_free(s->c);
    s->c = grappa_context_new(
        s->m, &(struct grappa_context_params){.kv_memory = 8 * (full + windows), .n_batch = 32}, &err);
    assert_int_equal(s->c->n_ctx, 8 * s->m->block_size);
    assert_int_equal(s->c->swa.n_seqs, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_pieces),
        cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_interleaved_with_cuts_copies_and_drops),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests_name("gemma3", tests, load_gemma3, subject_unload) +
           cmocka_run_group_tests_name("gpt-oss", tests, load_gpt_oss, subject_unload) +
           cmocka_run_group_tests_name("lfm2-window", tests, load_lfm2, subject_unload);
}
