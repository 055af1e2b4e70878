/* grappa.h over tiny models whose layers keep states instead of keys and values: sequences compute what they
 * compute alone, copies part ways, and a sequence goes back only to where its states were kept. */
#include "engine_subject.h"

#include "engine/context.h"

static int load_qwen35(void **state)
{
    return subject_load(state, TINY "qwen35.gguf", 1e-5f);
}

static int load_qwen35moe(void **state)
{
    return subject_load(state, TINY "qwen35moe.gguf", 1e-5f);
}

static int load_lfm2(void **state)
{
    return subject_load(state, TINY "lfm2.gguf", 1e-5f);
}

/* No layer has attention: no keys and values at all. */
static int load_mamba2(void **state)
{
    return subject_load(state, TINY "mamba2.gguf", 1e-5f);
}

/* Mamba 1, and experts. */
static int load_jamba(void **state)
{
    return subject_load(state, TINY "jamba.gguf", 1e-5f);
}

static int load_falcon(void **state)
{
    return subject_load(state, TINY "falcon-h1.gguf", 1e-5f);
}

static void test_interleaved_sequences(void **state)
{
    mixed_to_the_end(*state, 1, 0);
    mixed_to_the_end(*state, 2, 7);
}

static void test_interleaved_with_cuts_copies_and_drops(void **state)
{
    mixed_and_disturbed(*state, 3, 0);
    mixed_and_disturbed(*state, 4, 7);
}

static void test_pieces_and_single_tokens(void **state)
{
    struct subject *s = *state;
    static const int32_t ends[] = {3, 4, 5, 37, 38, LENGTH};
    struct grappa_context *c = new_context(s, 0, 1);
    for (int32_t i = 0, from = 0; i < 6; from = ends[i++]) {
        feed(c, 0, 2, from, ends[i]);
        expect_rows(s, c, 2, from, ends[i]);
    }
}

static void test_copies_part_ways(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = new_context(s, 0, SEQS);
    feed(c, 0, 0, 0, LENGTH / 2); /* texts 0 and 1 are one so far */
    feed(c, 3, 3, 0, 10);
    assert_int_equal(grappa_seq_copy(c, 0, 1, NULL), 0);
    assert_int_equal(grappa_seq_copy(c, 0, 3, NULL), 0);
    assert_int_equal(grappa_seq_copy(c, 0, 0, NULL), 0);
    for (int32_t i = LENGTH / 2; i < LENGTH; i++) {
        grappa_token t[] = {text_token(1, i), text_token(0, i)};
        decode(c, &(struct grappa_batch){2, t, NULL, (int32_t[]){1, 0}, (int8_t[]){1, 1}});
        expect_row(s, grappa_logits(c, 0), 1, i);
        expect_row(s, grappa_logits(c, 1), 0, i);
    }
    feed(c, 3, 1, LENGTH / 2, LENGTH); /* the third still has the beginning alone */
    expect_rows(s, c, 1, LENGTH / 2, LENGTH);
    /* A copy outlives what it was copied from, and has its states to go back to. */
    assert_int_equal(grappa_seq_copy(c, 0, 2, NULL), 0);
    assert_int_equal(grappa_seq_trim(c, 0, 0, NULL), 0);
    feed(c, 0, 2, 0, LENGTH);
    expect_rows(s, c, 2, 0, LENGTH);
    assert_int_equal(grappa_seq_trim(c, 2, LENGTH / 2, NULL), 0);
    feed(c, 2, 1, LENGTH / 2, LENGTH);
    expect_rows(s, c, 1, LENGTH / 2, LENGTH);
}

/* Tokens that are guesses can be taken back one by one. Some of them are wrong here, which mustn't be seen.
 */
static void test_guesses_are_taken_back(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = new_context(s, 0, 2);
    feed(c, 0, 2, 0, 10);
    feed(c, 1, 3, 0, 10);
    for (int32_t at = 10, right = 0; at + 6 < LENGTH; at += right + 1, right = (right + 1) % 6) {
        grappa_token t[7];
        for (int32_t i = 0; i < 6; i++)
            t[i] = i <= right ? text_token(2, at + i) : 1;
        t[6] = text_token(3, at); /* beside it one without guesses */
        c->guesses[0] = 5;
        decode(c, &(struct grappa_batch){7, t, NULL, (int32_t[]){0, 0, 0, 0, 0, 0, 1},
                                         (int8_t[]){1, 1, 1, 1, 1, 1, 1}});
        c->guesses[0] = 0;
        for (int32_t i = 0; i <= right; i++)
            expect_row(s, grappa_logits(c, i), 2, at + i);
        expect_row(s, grappa_logits(c, 6), 3, at);
        assert_int_equal(grappa_seq_trim(c, 0, at + right + 1, NULL), 0);
        for (int32_t i = at + 1; i <= at + right; i++)
            feed(c, 1, 3, i, i + 1);
    }
}

static void test_trims_to_where_pieces_ended(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = new_context(s, 0, 2);
    struct grappa_err err = {0};
    feed(c, 0, 2, 0, 20);
    feed(c, 0, 2, 20, 50);
    for (int32_t i = 50; i < 60; i++) /* single tokens push nothing out */
        feed(c, 0, 2, i, i + 1);
    static const int32_t points[][2] = {{0, 0},   {19, 0},  {20, 20}, {49, 20}, {50, 50},
                                        {59, 50}, {60, 60}, {61, 60}, {-1, 0}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        assert_int_equal(grappa_seq_trim_point(c, 0, points[i][0]), points[i][1]);
    assert_int_equal(grappa_seq_trim_point(c, 1, 10), 0);
    assert_int_equal(grappa_seq_trim_point(c, 2, 10), 0);

    assert_int_equal(grappa_seq_trim(c, 0, 55, &err), -1);
    assert_string_equal(err.text,
                        "sequence 0 can be cut to 50 tokens, not to 55: recurrent layers keep no state "
                        "of every length");
    assert_int_equal(err.http_status, 400);
    assert_int_equal(grappa_seq_len(c, 0), 60);
    feed(c, 0, 2, 60, 61);
    expect_rows(s, c, 2, 60, 61);

    assert_int_equal(grappa_seq_trim(c, 0, 50, NULL), 0);
    feed(c, 0, 2, 50, LENGTH);
    expect_rows(s, c, 2, 50, LENGTH);
    assert_int_equal(grappa_seq_trim(c, 0, 20, NULL), 0);
    assert_int_equal(grappa_seq_trim_point(c, 0, 50), 20);
    feed(c, 0, 2, 20, LENGTH);
    expect_rows(s, c, 2, 20, LENGTH);
    /* From nothing, in the slots that others have used. */
    assert_int_equal(grappa_seq_trim(c, 0, 0, NULL), 0);
    feed(c, 0, 3, 0, LENGTH);
    expect_rows(s, c, 3, 0, LENGTH);
}

static void test_only_the_last_pieces_are_kept(void **state)
{
    struct grappa_context *c = new_context(*state, 0, 1);
    for (int32_t i = 0; i < LENGTH; i += 10)
        feed(c, 0, 2, i, i + 10);
    int32_t point = LENGTH, kept = 0;
    while ((point = grappa_seq_trim_point(c, 0, point - 1)) > 0) {
        assert_int_equal(point, LENGTH - 10 * ++kept);
        assert_true(kept < LENGTH / 10);
    }
    assert_true(kept >= 2);
}

static void test_refused_batches_change_nothing(void **state)
{
    struct subject *s = *state;
    struct grappa_context *c = new_context(s, 0, 1);
    feed(c, 0, 2, 0, 40);
    grappa_token wrong[] = {1, 320};
    assert_int_equal(grappa_decode(c, &(struct grappa_batch){.n = 2, .token = wrong}, NULL), -1);
    assert_int_equal(grappa_seq_len(c, 0), 40);
    feed(c, 0, 2, 40, LENGTH);
    expect_rows(s, c, 2, 40, LENGTH);
}

static void test_is_said_to_be_recurrent(void **state)
{
    struct subject *s = *state;
    assert_true(grappa_model_is_recurrent(s->m));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interleaved_sequences),
        cmocka_unit_test(test_interleaved_with_cuts_copies_and_drops),
        cmocka_unit_test(test_pieces_and_single_tokens),
        cmocka_unit_test(test_copies_part_ways),
        cmocka_unit_test(test_guesses_are_taken_back),
        cmocka_unit_test(test_trims_to_where_pieces_ended),
        cmocka_unit_test(test_only_the_last_pieces_are_kept),
        cmocka_unit_test(test_refused_batches_change_nothing),
        cmocka_unit_test(test_is_said_to_be_recurrent),
    };
    return cmocka_run_group_tests_name("qwen35", tests, load_qwen35, subject_unload) +
           cmocka_run_group_tests_name("qwen35moe", tests, load_qwen35moe, subject_unload) +
           cmocka_run_group_tests_name("lfm2", tests, load_lfm2, subject_unload) +
           cmocka_run_group_tests_name("mamba2", tests, load_mamba2, subject_unload) +
           cmocka_run_group_tests_name("jamba", tests, load_jamba, subject_unload) +
           cmocka_run_group_tests_name("falcon-h1", tests, load_falcon, subject_unload);
}
