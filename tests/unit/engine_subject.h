/* Tiny models under test in contexts of their own: texts of random-looking tokens, what each gives alone, and
 * comparisons with that. For the tests of grappa.h. */
#ifndef ENGINE_SUBJECT_H
#define ENGINE_SUBJECT_H

#include <grappa.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY SOURCE_DIR "/.models/tiny/"

#ifndef SUBJECT_N_CTX
#define SUBJECT_N_CTX  512
#define SUBJECT_LENGTH 100
#endif
enum { N_CTX = SUBJECT_N_CTX, LENGTH = SUBJECT_LENGTH, SEQS = 4 };

/* ---- models and contexts ---- */

static const struct grappa_model_params exact = {
    .precision = GRAPPA_TYPE_F32, .type_k = GRAPPA_TYPE_F32, .type_v = GRAPPA_TYPE_F32, .n_threads = 2};

struct subject {
    struct grappa_model *m;
    struct grappa_context *c; /* of the test that runs */
    int32_t n_vocab;
    float limit;        /* of differences, relative to the largest logit */
    float *alone[SEQS]; /* [LENGTH, n_vocab]: each text's logits, computed in one batch of its own */
};

/* Four texts, the first two with a common beginning; multipliers prime to the vocabulary of 320. */
static grappa_token text_token(int32_t text, int32_t i)
{
    static const int32_t factor[SEQS] = {7, 7, 11, 13};
    if (text == 1 && i >= LENGTH / 2)
        return (17 * i + 5) % 320;
    return (factor[text] * i + 3) % 320;
}

/* In the place of the one before. */
static struct grappa_context *new_context(struct subject *s, uint32_t n_batch, uint32_t n_seqs)
{
    struct grappa_err err;
    grappa_context_free(s->c);
    s->c = grappa_context_new(
        s->m, &(struct grappa_context_params){.n_ctx = N_CTX, .n_batch = n_batch, .n_seq_max = n_seqs}, &err);
    if (!s->c)
        fail_msg("%s", err.text);
    return s->c;
}

static void decode(struct grappa_context *c, const struct grappa_batch *b)
{
    struct grappa_err err;
    if (grappa_decode(c, b, &err) != 0)
        fail_msg("%s", err.text);
}

/* Tokens [from, to) of a text onto a sequence; logits of all. */
static void feed(struct grappa_context *c, int32_t seq, int32_t text, int32_t from, int32_t to)
{
    grappa_token token[LENGTH];
    int32_t pos[LENGTH], seqs[LENGTH];
    int8_t wanted[LENGTH];
    for (int32_t i = from; i < to; i++) {
        token[i - from] = text_token(text, i);
        pos[i - from] = i;
        seqs[i - from] = seq;
        wanted[i - from] = 1;
    }
    decode(c, &(struct grappa_batch){(size_t)(to - from), token, pos, seqs, wanted});
}

/* Equal within the limit, or the place and size of the difference. */
static void expect_row(const struct subject *s, const float *got, int32_t text, int32_t i)
{
    const float *want = s->alone[text] + (size_t)i * (size_t)s->n_vocab;
    float largest = 0, difference = 0;
    assert_non_null(got);
    for (int32_t v = 0; v < s->n_vocab; v++) {
        largest = fmaxf(largest, fabsf(want[v]));
        difference = fmaxf(difference, fabsf(got[v] - want[v]));
    }
    if (!(difference <= s->limit * largest))
        fail_msg("text %d, token %d: logits differ by %g, the largest is %g", text, i, (double)difference,
                 (double)largest);
}

static void expect_rows(const struct subject *s, struct grappa_context *c, int32_t text, int32_t from,
                        int32_t to)
{
    assert_int_equal(grappa_n_logits(c), to - from);
    for (int32_t i = from; i < to; i++)
        expect_row(s, grappa_logits(c, i - from), text, i);
}

/* ---- many sequences in the same steps ---- */

static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

struct mixed { /* what each sequence holds: the first `at` tokens of a text */
    int32_t text[SEQS], at[SEQS];
};

/* One batch of up to `most` tokens of any sequences that aren't full. How many there were. */
static inline int32_t mixed_batch(struct subject *s, struct mixed *m, uint64_t *rng, uint32_t most)
{
    grappa_token token[64];
    int32_t seq[64], pos[64], text[64], n = 0, size = 1 + (int32_t)random_below(rng, most), left = 0;
    int8_t wanted[64];
    for (int32_t q = 0; q < SEQS; q++)
        left += LENGTH - m->at[q];
    for (size = size < left ? size : left; n < size; n++) {
        int32_t q = (int32_t)random_below(rng, SEQS);
        while (m->at[q] == LENGTH)
            q = (q + 1) % SEQS;
        wanted[n] = 1;
        seq[n] = q;
        text[n] = m->text[q];
        pos[n] = m->at[q];
        token[n] = text_token(text[n], m->at[q]++);
    }
    if (n > 0)
        decode(s->c, &(struct grappa_batch){(size_t)n, token, pos, seq, wanted});
    for (int32_t i = 0; i < n; i++)
        expect_row(s, grappa_logits(s->c, i), text[i], pos[i]);
    return n;
}

/* All texts, each in its sequence, in batches of a few tokens of any, computed in slices. */
static inline void mixed_to_the_end(struct subject *s, uint64_t rng, uint32_t n_batch)
{
    struct mixed m = {{0, 1, 2, 3}, {0}};
    new_context(s, n_batch, SEQS);
    while (mixed_batch(s, &m, &rng, 64) > 0)
        ;
}

/* The same, and between the batches sequences are cut back, copied over each other and dropped for another
 * text. What each then computes stays what its text gives alone. */
static inline void mixed_and_disturbed(struct subject *s, uint64_t rng, uint32_t n_batch)
{
    struct mixed m = {{0, 1, 2, 3}, {0}};
    struct grappa_context *c = new_context(s, n_batch, SEQS);
    int32_t cuts = 0, copies = 0, drops = 0;
    for (int round = 0; round < 60; round++) {
        mixed_batch(s, &m, &rng, 24);
        int32_t a = (int32_t)random_below(&rng, SEQS), b = (int32_t)random_below(&rng, SEQS);
        switch (random_below(&rng, 4)) {
        case 0: {
            int32_t to = grappa_seq_trim_point(c, a, (int32_t)random_below(&rng, (uint32_t)m.at[a] + 1));
            assert_int_equal(grappa_seq_trim(c, a, to, NULL), 0);
            cuts += to > 0 && to < m.at[a];
            m.at[a] = to;
            break;
        }
        case 1:
            assert_int_equal(grappa_seq_copy(c, a, b, NULL), 0);
            copies += a != b && m.at[a] > 0;
            m.at[b] = m.at[a];
            m.text[b] = m.text[a];
            break;
        case 2:
            if (m.at[a] < LENGTH / 2)
                break;
            assert_int_equal(grappa_seq_trim(c, a, 0, NULL), 0);
            m.at[a] = 0;
            m.text[a] = (int32_t)random_below(&rng, SEQS);
            drops++;
            break;
        default:
            break;
        }
        for (int32_t q = 0; q < SEQS; q++)
            assert_int_equal(grappa_seq_len(c, q), m.at[q]);
    }
    assert_true(cuts > 0 && copies > 0 && drops > 0);
    while (mixed_batch(s, &m, &rng, 64) > 0)
        ;
}

/* ---- */

static int subject_load(void **state, const char *path, float limit)
{
    struct grappa_err err;
    struct subject *s = calloc(1, sizeof *s);
    s->limit = limit;
    s->m = grappa_model_load(path, &exact, &err);
    if (!s->m) {
        print_error("%s\n", err.text);
        free(s);
        return -1;
    }
    s->n_vocab = grappa_vocab_n_tokens(grappa_model_vocab(s->m));
    size_t row = (size_t)s->n_vocab * sizeof(float);
    for (int32_t t = 0; t < SEQS; t++) {
        struct grappa_context *c = new_context(s, N_CTX, 1);
        feed(c, 0, t, 0, LENGTH);
        s->alone[t] = malloc(LENGTH * row);
        memcpy(s->alone[t], grappa_logits(c, 0), LENGTH * row);
    }
    *state = s;
    return 0;
}

static int subject_unload(void **state)
{
    struct subject *s = *state;
    grappa_context_free(s->c);
    grappa_model_free(s->m);
    for (int t = 0; t < SEQS; t++)
        free(s->alone[t]);
    free(s);
    return 0;
}

#endif
