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

enum { N_CTX = 512, LENGTH = 100, SEQS = 4 };

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
    s->c = grappa_context_new(s->m, &(struct grappa_context_params){N_CTX, n_batch, n_seqs}, &err);
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
