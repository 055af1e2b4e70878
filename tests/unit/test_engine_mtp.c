/* Layers of a model that guess a further token: what they compute is what llama.cpp's context of that type
 * does (tests/golden/mtp, by tests/tools/llama_mtp.cpp), requests with their guesses write what they write
 * without, and layers that are always right are always believed. */
#include "engine/context.h"

#include <grappa-engine.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY   SOURCE_DIR "/.models/tiny/"
#define GOLDEN SOURCE_DIR "/tests/golden/mtp/"

enum { VOCAB = 320, N = 48, ROWS = 4, DEEP = 2, MOST = 700, LAST = 317 }; /* tokens from LAST on end texts */

static const int32_t rows[ROWS] = {0, 5, 33, N - 1};
static struct grappa_err err;

static grappa_token text_token(int32_t i)
{
    return (7 * i + 3) % VOCAB;
}

static struct grappa_model *load(const char *name, bool mtp)
{
    char path[256];
    snprintf(path, sizeof path, TINY "%s.gguf", name);
    struct grappa_model *m = grappa_model_load(path,
                                               &(struct grappa_model_params){.precision = GRAPPA_TYPE_F32,
                                                                             .type_k = GRAPPA_TYPE_F32,
                                                                             .type_v = GRAPPA_TYPE_F32,
                                                                             .n_threads = 2,
                                                                             .mtp = mtp},
                                               &err);
    if (!m)
        fail_msg("%s", err.text);
    return m;
}

/* ---- logits ---- */

static void decode(struct grappa_context *c, int32_t n, const grappa_token *ids)
{
    int8_t wanted[N];
    memset(wanted, 1, sizeof wanted);
    if (grappa_decode(c, &(struct grappa_batch){.n = (size_t)n, .token = ids, .logits = wanted}, &err) != 0)
        fail_msg("%s", err.text);
}

/* Sum of squares of the difference, in those of what is expected. */
static void expect_row(const char *name, const float *got, const float *want, int32_t row)
{
    double difference = 0, all = 0;
    for (int32_t v = 0; v < VOCAB; v++) {
        difference += pow((double)got[v] - (double)want[v], 2);
        all += pow((double)want[v], 2);
    }
    if (!(difference <= 1e-10 * all))
        fail_msg("%s, row %d: NMSE %g", name, row, difference / all);
}

static grappa_token best_of(const float *logits)
{
    grappa_token best = 0;
    for (int32_t v = 1; v < VOCAB; v++)
        best = logits[v] > logits[best] ? v : best;
    return best;
}

static void compare(const char *name)
{
    static float want[ROWS + DEEP][VOCAB];
    char path[256];
    snprintf(path, sizeof path, GOLDEN "%s.f32", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(want, sizeof want, 1, f), 1);
    fclose(f);
    struct grappa_model *m = load(name, true);
    const struct grappa_context_params p = {.n_ctx = 256};
    struct grappa_context *trunk = grappa_context_new(m, &p, &err),
                          *mtp = grappa_context_new(m->nextn, &p, &err);
    assert_true(trunk && mtp);
    grappa_token ids[N];
    for (int32_t i = 0; i < N; i++)
        ids[i] = text_token(i);
    decode(trunk, N, ids);
    for (int32_t i = 1; i < N; i++)
        mtp->hidden_in[i] = context_hidden(trunk, i - 1);
    decode(mtp, N, ids);
    for (int32_t i = 0; i < ROWS; i++)
        expect_row(name, grappa_logits(mtp, rows[i]), want[i], rows[i]);
    for (int32_t i = 0, last = N - 1; i < DEEP; i++, last = 0) { /* on its own */
        grappa_token t = best_of(grappa_logits(mtp, last));
        mtp->hidden_in[0] = context_hidden(mtp, last);
        decode(mtp, 1, &t);
        expect_row(name, grappa_logits(mtp, 0), want[ROWS + i], N + i);
    }
    grappa_context_free(mtp);
    grappa_context_free(trunk);
    grappa_model_free(m);
}

static void test_logits(void **state)
{
    (void)state;
    compare("qwen35-mtp");
    compare("qwen35moe-mtp");
    compare("qwen3next-mtp");
    compare("glm4moe-mtp");
    compare("deepseek2-mtp");
}

/* ---- requests ---- */

struct written {
    grappa_token prompt[MOST], token[MOST];
    int32_t n;
    struct grappa_timings timings;
    struct grappa_request *r;
};

static bool on_event(void *user, const struct grappa_event *ev)
{
    struct written *w = user;
    if (ev->type == GRAPPA_EVENT_TOKEN)
        w->token[w->n++] = ev->token;
    if (ev->type == GRAPPA_EVENT_DONE)
        w->timings = *ev->timings;
    return true;
}

static void start(struct grappa_engine *e, struct written *w, int32_t n_prompt, int32_t n_predict,
                  int32_t n_draft)
{
    struct grappa_request_params p;
    grappa_request_defaults(&p);
    w->n = 0;
    p.prompt = w->prompt;
    p.n_prompt = (size_t)n_prompt;
    p.n_predict = n_predict;
    p.sampler.temp = 0;
    p.sampler.ignore_eos = true;
    p.n_draft = n_draft;
    p.on_event = on_event;
    p.user = w;
    w->r = grappa_request_new(e, &p, &err);
    if (!w->r)
        fail_msg("%s", err.text);
}

static void finish(struct written *w)
{
    grappa_request_wait(w->r);
    grappa_request_free(w->r);
}

static void fill(struct written *w, int32_t n, int32_t factor)
{
    memset(w, 0, sizeof *w);
    for (int32_t i = 0; i < n; i++)
        w->prompt[i] = (factor * i + 3) % LAST;
}

static struct grappa_engine *engine(struct grappa_model *m)
{
    struct grappa_engine *e = grappa_engine_new(
        m, &(struct grappa_engine_params){.n_ctx = 2048, .n_slots = 3, .n_batch = 64}, &err);
    if (!e)
        fail_msg("%s", err.text);
    return e;
}

/* Two turns of three texts side by side, the second of which goes on from the first, each with guesses as
 * many as its number. Pieces of prompts are shorter than prompts. */
static void converse(struct grappa_engine *e, struct written *w, bool guess)
{
    static const int32_t factor[] = {7, 11, 13};
    for (int32_t i = 0; i < 3; i++) {
        fill(&w[i], 100 + 40 * i, factor[i]);
        start(e, &w[i], 100 + 40 * i, 60, guess ? i + 1 : 0);
    }
    for (int32_t i = 0; i < 3; i++) {
        finish(&w[i]);
        memcpy(w[i].prompt + 100 + 40 * i, w[i].token, 60 * sizeof(grappa_token));
        for (int32_t k = 0; k < 10; k++)
            w[i].prompt[160 + 40 * i + k] = 50 + k;
    }
    for (int32_t i = 0; i < 3; i++)
        start(e, &w[i], 170 + 40 * i, 60, guess ? 3 - i : 0);
    for (int32_t i = 0; i < 3; i++)
        finish(&w[i]);
}

static void expect_the_same_text(const char *name)
{
    static struct written plain[3], guessed[3];
    struct grappa_model *m = load(name, false);
    struct grappa_engine *e = engine(m);
    converse(e, plain, false);
    grappa_engine_free(e);
    grappa_model_free(m);
    m = load(name, true);
    e = engine(m);
    converse(e, guessed, true);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(guessed[i].n, 60);
        assert_memory_equal(plain[i].token, guessed[i].token, 60 * sizeof(grappa_token));
        assert_int_equal(plain[i].timings.n_drafted, 0);
    }
    grappa_engine_free(e);
    grappa_model_free(m);
}

static void test_the_same_text(void **state)
{
    (void)state;
    expect_the_same_text("qwen35-mtp");
    expect_the_same_text("qwen35moe-mtp");
    expect_the_same_text("glm4moe-mtp");
    expect_the_same_text("qwen35-right");
}

static void test_always_right(void **state)
{
    (void)state;
    static struct written w;
    struct grappa_model *m = load("qwen35-right", true);
    struct grappa_engine *e = engine(m);
    for (int32_t n_draft = 1; n_draft <= 9; n_draft += 2) {
        fill(&w, 100, 7 + n_draft);
        start(e, &w, 100, 200, n_draft);
        finish(&w);
        assert_int_equal(w.n, 200);
        assert_true(w.timings.n_drafted > 0);
        assert_int_equal(w.timings.n_accepted, w.timings.n_drafted);
    }
    grappa_engine_free(e);
    grappa_model_free(m);
}

/* The layer knows the next token by the trunk's row for the token before the last, and by nothing else:
 * through pieces of prompts, second turns, pauses, and what comes out of memory. */
static void test_rows_are_in_their_places(void **state)
{
    (void)state;
    static struct written w[6];
    struct grappa_model *m = load("qwen35-rows", true);
    struct grappa_engine *e = engine(m);
    for (int32_t i = 0; i < 3; i++) {
        fill(&w[i], 200, 7 + 2 * i);
        start(e, &w[i], 200, 100, 1);
    }
    for (int32_t i = 0; i < 3; i++)
        finish(&w[i]);
    /* The first goes on, the third begins like it, the second is another text. */
    for (int32_t i = 3; i < 6; i++) {
        fill(&w[i], 200, i == 4 ? 3 : 7);
        for (int32_t k = 0; i != 4 && k < (i == 3 ? 100 : 20); k++)
            w[i].prompt[200 + k] = i == 3 ? w[0].token[k] : 40 + k;
        start(e, &w[i], i == 3 ? 300 : i == 4 ? 200 : 220, 100, 1);
    }
    for (int32_t i = 3; i < 6; i++)
        finish(&w[i]);
    int32_t n_drafted = 0; /* how many it is depends on what steps cost */
    for (int32_t i = 0; i < 6; i++) {
        assert_int_equal(w[i].n, 100);
        assert_int_equal(w[i].timings.n_accepted, w[i].timings.n_drafted);
        n_drafted += w[i].timings.n_drafted;
    }
    assert_true(n_drafted > 0);
    assert_true(w[3].timings.n_cached + w[5].timings.n_cached > 100);
    grappa_engine_free(e);
    grappa_model_free(m);
}

static void test_files_without(void **state)
{
    (void)state;
    const struct grappa_model_params p = {.mtp = true};
    assert_null(grappa_model_load(TINY "qwen35.gguf", &p, &err));
    assert_non_null(strstr(err.text, "no MTP layers"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),        cmocka_unit_test(test_the_same_text),
        cmocka_unit_test(test_always_right),  cmocka_unit_test(test_rows_are_in_their_places),
        cmocka_unit_test(test_files_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
