/* Requests on OpenVINO itself: many at once write what each writes alone. Tiny models; in f32 only the order
 * of sums may differ, and with 8-bit activations nothing, see step_run. */
#include <grappa-engine.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TINY SOURCE_DIR "/.models/tiny/"

enum { MAX_TOKENS = 256, N = 24, N_PREDICT = 24 };

struct answer {
    grappa_token prompt[MAX_TOKENS], token[MAX_TOKENS];
    int32_t n_prompt, n;
    struct grappa_timings timings;
    struct grappa_request *r;
};

static struct grappa_model *model;
static struct grappa_engine *engine;

static bool on_event(void *user, const struct grappa_event *ev)
{
    struct answer *a = user;
    if (ev->type == GRAPPA_EVENT_TOKEN)
        a->token[a->n++] = ev->token;
    else if (ev->type == GRAPPA_EVENT_DONE)
        a->timings = *ev->timings;
    return true;
}

static void open_engine(const char *path, uint32_t n_slots)
{
    struct grappa_err err;
    const struct grappa_model_params exact = {
        .precision = GRAPPA_TYPE_F32, .type_k = GRAPPA_TYPE_F32, .type_v = GRAPPA_TYPE_F32, .n_threads = 2};
    model = grappa_model_load(path, &exact, &err);
    if (!model)
        fail_msg("%s", err.text);
    engine = grappa_engine_new(
        model, &(struct grappa_engine_params){.n_ctx = 2048, .n_slots = n_slots, .n_batch = 64}, &err);
    if (!engine)
        fail_msg("%s", err.text);
}

static int close_engine(void **state)
{
    (void)state;
    grappa_engine_free(engine);
    grappa_model_free(model);
    engine = NULL;
    model = NULL;
    return 0;
}

static void make_prompt(struct answer *a, int32_t number, int32_t n)
{
    memset(a, 0, sizeof *a);
    a->n_prompt = n;
    for (int32_t i = 0; i < n; i++)
        a->prompt[i] = (7 * i + 31 * number + 3) % 320;
}

static void start(struct answer *a, bool anew)
{
    struct grappa_err err;
    struct grappa_request_params p;
    grappa_request_defaults(&p);
    p.prompt = a->prompt;
    p.n_prompt = (size_t)a->n_prompt;
    p.n_predict = N_PREDICT;
    p.sampler.temp = 0;
    p.sampler.ignore_eos = true;
    p.no_cache_prompt = anew;
    p.on_event = on_event;
    p.user = a;
    a->n = 0;
    a->r = grappa_request_new(engine, &p, &err);
    if (!a->r)
        fail_msg("%s", err.text);
}

static void finish(struct answer *a)
{
    grappa_request_wait(a->r);
    grappa_request_free(a->r);
    assert_int_equal(a->n, N_PREDICT);
}

static void expect_same(const struct answer *a, const struct answer *b)
{
    assert_memory_equal(a->token, b->token, N_PREDICT * sizeof *a->token);
}

static void many_at_once(const char *path)
{
    static struct answer alone[N], together[N];
    open_engine(path, 8);
    for (int32_t i = 0; i < N; i++) {
        make_prompt(&alone[i], i, 1 + 37 * i % 100);
        start(&alone[i], true);
        finish(&alone[i]);
    }
    for (int32_t i = 0; i < N; i++) {
        together[i] = alone[i];
        start(&together[i], i % 2 == 0);
    }
    for (int32_t i = 0; i < N; i++) {
        finish(&together[i]);
        expect_same(&together[i], &alone[i]);
    }
}

static void test_many_at_once(void **state)
{
    (void)state;
    many_at_once(TINY "llama.gguf");
}

static void test_many_at_once_recurrent(void **state)
{
    (void)state;
    many_at_once(TINY "qwen35.gguf");
}

/* The same prompt four times, when nothing of it is in memory and when all of it is. */
static void test_four_times(void **state)
{
    (void)state;
    static struct answer alone, together[4];
    open_engine(TINY "llama-q4_1.gguf", 4);
    for (int32_t k = 0; k < 6; k++) {
        make_prompt(&alone, k, 10 + 20 * k);
        for (int i = 0; i < 4; i++) {
            together[i] = alone;
            start(&together[i], false);
        }
        for (int i = 0; i < 4; i++)
            finish(&together[i]);
        for (int again = 0; again < 2; again++) {
            start(&alone, again == 0);
            finish(&alone);
            for (int i = 0; i < 4; i++)
                expect_same(&together[i], &alone);
        }
        assert_int_equal(alone.timings.n_computed, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_many_at_once, close_engine),
        cmocka_unit_test_teardown(test_many_at_once_recurrent, close_engine),
        cmocka_unit_test_teardown(test_four_times, close_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
