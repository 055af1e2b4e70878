/* Speculation, on a model whose text is a hash of its tokens (see fake_ov.h): with guesses a request writes
 * what it writes without, whoever made them and however wrong they were. Texts are kept to a few tokens by
 * bias or grammar, so that they repeat themselves and guesses are right now and then. */
#include "fake_ov.h"

#include "engine/context.h"
#include "engine/speculate.h"
#include "quant/quant.h"

#include <grappa-engine.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define TINY SOURCE_DIR "/.models/tiny/"

enum { MOST = 900 };

static struct grappa_model *model;
static struct grappa_engine *engine; /* of the test that runs */

static bool windows;       /* engines are made so that sliding windows have a pool of their own */
static bool lookup = true; /* else whatever the model has guesses */

static struct grappa_model *load_with(const char *path, bool mtp)
{
    struct grappa_err err;
    struct grappa_model *m = grappa_model_load(path, &(struct grappa_model_params){.mtp = mtp}, &err);
    if (!m) {
        print_error("%s\n", err.text);
        return NULL;
    }
    fake_n_vocab = (int32_t)m->arch->h.n_vocab;
    fake_layers(m->arch);
    return m;
}

static struct grappa_model *load(const char *path)
{
    return load_with(path, false);
}

/* Its guesses are nonsense, if not by chance. */
static int load_mtp(void **state)
{
    (void)state;
    lookup = false;
    return (model = load_with(TINY "qwen35-mtp.gguf", true)) ? 0 : -1;
}

static int load_llama(void **state)
{
    (void)state;
    return (model = load(TINY "llama.gguf")) ? 0 : -1;
}

static int load_windows(void **state)
{
    (void)state;
    windows = true;
    return (model = load(TINY "gemma3.gguf")) ? 0 : -1;
}

static int load_hybrid(void **state)
{
    (void)state;
    return (model = load(TINY "qwen35.gguf")) ? 0 : -1;
}

static int load_mamba(void **state)
{
    (void)state;
    return (model = load(TINY "mamba2.gguf")) ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    grappa_model_free(model);
    windows = false;
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    grappa_engine_free(engine);
    engine = NULL;
    fake_fail_at = -1;
    return 0;
}

static void open_engine(struct grappa_engine_params p)
{
    struct grappa_err err;
    if (windows) {
        p.n_batch = 64;
        p.swa_cache = 64;
    }
    engine = grappa_engine_new(model, &p, &err);
    if (!engine)
        fail_msg("%s", err.text);
    struct grappa_engine_stats st;
    grappa_engine_stats(engine, &st);
    assert_true(!windows || p.n_ctx < 768 || st.n_swa_blocks > 0);
}

/* ---- requests ---- */

struct written {
    grappa_token prompt[MOST], token[MOST];
    int32_t n;
    char text[8 * MOST], stop_text[32];
    size_t n_text;
    enum grappa_finish finish;
    struct grappa_timings timings;
    struct grappa_request *r;
};

static bool on_event(void *user, const struct grappa_event *ev)
{
    struct written *w = user;
    memcpy(w->text + w->n_text, ev->text, ev->n_text);
    w->n_text += ev->n_text;
    if (ev->type == GRAPPA_EVENT_TOKEN)
        w->token[w->n++] = ev->token;
    if (ev->type == GRAPPA_EVENT_DONE) {
        w->finish = ev->finish;
        w->timings = *ev->timings;
        snprintf(w->stop_text, sizeof w->stop_text, "%s", ev->stop_text ? ev->stop_text : "");
    }
    return true;
}

/* All but two tokens are out of the question, and one comes seldom. */
static const struct grappa_logit_bias few[] = {{70, 30}, {71, 26}};

static struct grappa_request_params params_of(struct written *w, uint64_t number, int32_t n_prompt)
{
    struct grappa_request_params p;
    grappa_request_defaults(&p);
    memset(w, 0, sizeof *w);
    for (int32_t i = 0; i < n_prompt; i++)
        w->prompt[i] = (grappa_token)(fake_mix(number, (uint64_t)i) % 256 + 4);
    p.prompt = w->prompt;
    p.n_prompt = (size_t)n_prompt;
    p.n_predict = 300;
    p.sampler.temp = 0;
    p.sampler.bias = few;
    p.sampler.n_bias = 2;
    p.on_event = on_event;
    p.user = w;
    return p;
}

static void start(struct written *w, const struct grappa_request_params *p)
{
    struct grappa_err err;
    w->r = grappa_request_new(engine, p, &err);
    if (!w->r)
        fail_msg("%s", err.text);
}

static void finish(struct written *w)
{
    grappa_request_wait(w->r);
    grappa_request_free(w->r);
    w->r = NULL;
}

static void expect_same(const struct written *a, const struct written *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->token, b->token, (size_t)a->n * sizeof *a->token);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n_text, b->n_text);
    assert_memory_equal(a->text, b->text, a->n_text);
    assert_string_equal(a->stop_text, b->stop_text);
    assert_int_equal(a->timings.n_predicted, b->timings.n_predicted);
}

static struct written plain, guessed, many[8];

/* The same request without and with guesses. How many there were depends on the time that steps take. */
static void compare(struct grappa_request_params p, int32_t n_draft)
{
    struct grappa_request_params q = p;
    p.no_cache_prompt = q.no_cache_prompt = true;
    p.user = &plain;
    start(&plain, &p);
    finish(&plain);
    q.user = &guessed;
    q.n_draft = n_draft;
    start(&guessed, &q);
    finish(&guessed);
    expect_same(&plain, &guessed);
    assert_int_equal(plain.timings.n_drafted, 0);
    assert_true(guessed.timings.n_accepted <= guessed.timings.n_drafted);
}

static void expect_no_leak(void)
{
    struct grappa_engine_stats st;
    for (uint32_t i = 0; i < grappa_engine_n_slots(engine); i++)
        assert_true(grappa_engine_slot_erase(engine, (int32_t)i, NULL) >= 0);
    grappa_engine_stats(engine, &st);
    assert_int_equal(st.n_blocks_used, st.n_blocks_cached);
    assert_true(st.accepted < st.drafted);   /* some were wrong … */
    assert_true(st.accepted > 0 || !lookup); /* … and some right */
}

/* ---- the text itself ---- */

static struct grappa_request_params lookup_of(uint64_t number, int32_t n_prompt)
{
    struct grappa_request_params p = params_of(&plain, number, n_prompt);
    memset(&guessed, 0, sizeof guessed);
    p.lookup = lookup;
    return p;
}

static void test_greedy(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 2});
    for (int32_t n_draft = 1; n_draft <= 200; n_draft = 3 * n_draft + 1)
        compare(lookup_of((uint64_t)n_draft, 50), n_draft);
    expect_no_leak();
}

static void test_sampled(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 1});
    for (uint32_t seed = 1; seed <= 4; seed++) {
        struct grappa_request_params p = lookup_of(seed, 60);
        p.sampler.temp = 0.8f;
        p.sampler.seed = seed;
        p.sampler.repeat_penalty = 1.1f;
        compare(p, 8);
    }
    expect_no_leak();
}

static void test_grammar(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 1});
    struct grappa_request_params p = lookup_of(7, 40);
    p.sampler.n_bias = 0;
    p.sampler.grammar = (struct grappa_grammar_params){.type = GRAPPA_GRAMMAR_GBNF,
                                                       .source = "root ::= (\"abcd\" | \"abce\"){40}"};
    compare(p, 6);
    assert_int_equal(guessed.n_text, 160);
    expect_no_leak();
}

/* Guesses that are right may go beyond the end of a text. */
static void test_ends(void **state)
{
    (void)state;
    static char stop[4] = "";
    static const char *const stops[] = {stop};
    open_engine((struct grappa_engine_params){.n_ctx = 256, .n_slots = 1});
    for (int32_t n_predict = 1; n_predict < 60; n_predict += 7) {
        struct grappa_request_params p = lookup_of(3, 20), q = p;
        p.n_predict = n_predict;
        p.user = &plain;
        start(&plain, &p);
        finish(&plain);
        q.n_predict = n_predict;
        q.n_draft = 16;
        q.user = &guessed;
        start(&guessed, &q);
        finish(&guessed);
        expect_same(&plain, &guessed);
        assert_int_equal(guessed.n, n_predict);
    }
    struct grappa_request_params p = lookup_of(4, 20);
    p.n_predict = -1; /* until the context is full */
    compare(p, 16);
    assert_int_equal(guessed.n, 236);
    assert_true(guessed.n_text > 100);
    memcpy(stop, guessed.text + 100, 3);
    p = lookup_of(4, 20);
    p.stop = stops;
    p.n_stop = 1;
    p.user = &plain;
    start(&plain, &p);
    finish(&plain);
    p.n_draft = 16;
    p.user = &guessed;
    start(&guessed, &p);
    finish(&guessed);
    expect_same(&plain, &guessed);
    assert_int_equal(guessed.finish, GRAPPA_FINISH_STOP);
    expect_no_leak();
}

/* A second turn goes on from a text that was written with guesses. */
static void test_a_second_turn(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 1});
    compare(lookup_of(5, 100), 12);
    int32_t n = 100 + guessed.n;
    grappa_token all[2 * MOST];
    memcpy(all, plain.prompt, 100 * sizeof *all);
    memcpy(all + 100, guessed.token, (size_t)guessed.n * sizeof *all);
    for (int i = 0; i < 10; i++)
        all[n++] = 10 + i;
    struct grappa_request_params p = params_of(&many[0], 1, 1);
    p.prompt = all;
    p.n_prompt = (size_t)n;
    p.n_predict = 50;
    start(&many[0], &p);
    finish(&many[0]);
    assert_true(many[0].timings.n_cached >= 64);
    p.no_cache_prompt = true;
    params_of(&many[1], 1, 1);
    p.user = &many[1];
    start(&many[1], &p);
    finish(&many[1]);
    expect_same(&many[0], &many[1]);
}

/* Side by side, in a pool too small for all of them, some without guesses. */
static void test_many(void **state)
{
    (void)state;
    static struct written alone[8];
    open_engine((struct grappa_engine_params){.n_ctx = 768, .n_slots = 4, .n_batch = 64});
    for (int with = 0; with < 2; with++) {
        struct written *w = with ? many : alone;
        for (int i = 0; i < 8; i++) {
            struct grappa_request_params p = params_of(&w[i], 100 + (uint64_t)i, 30 + 10 * i);
            p.sampler.temp = i % 2 ? 0.8f : 0;
            p.sampler.seed = (uint32_t)i;
            p.lookup = lookup;
            p.n_draft = with && i != 2 ? 4 * i + 1 : 0;
            p.no_cache_prompt = true;
            start(&w[i], &p);
            if (!with)
                finish(&w[i]);
        }
        for (int i = 0; with && i < 8; i++)
            finish(&w[i]);
    }
    for (int i = 0; i < 8; i++)
        expect_same(&alone[i], &many[i]);
    expect_no_leak();
}

static void test_a_step_that_fails(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 1});
    struct grappa_request_params p = lookup_of(8, 30);
    p.n_draft = 8;
    p.user = &guessed;
    fake_fail_at = 40;
    start(&guessed, &p);
    finish(&guessed);
    assert_int_equal(guessed.finish, GRAPPA_FINISH_ERROR);
    compare(lookup_of(8, 30), 8);
    expect_no_leak();
}

/* ---- a draft model ---- */

static void test_draft_model(void **state)
{
    (void)state;
    struct grappa_model *draft = load(TINY "llama.gguf"); /* as clever as the model itself */
    assert_non_null(draft);
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 2, .draft = draft});
    struct grappa_request_params p = lookup_of(20, 300);
    p.lookup = false;
    p.sampler.n_bias = 0;
    p.sampler.ignore_eos = true;
    p.n_predict = 200;
    compare(p, 4); /* right but where the model would have ended the text */
    assert_true(guessed.timings.n_accepted * 2 > guessed.timings.n_drafted);
    p = lookup_of(21, 30);
    p.lookup = false;
    p.sampler.temp = 0.8f;
    p.sampler.seed = 3;
    p.sampler.top_k = 3;
    p.sampler.n_bias = 0;
    p.sampler.ignore_eos = true;
    p.n_predict = 400;
    compare(p, 4); /* not always: the model draws lots */
    expect_no_leak();
    close_engine(NULL);
    grappa_model_free(draft);
}

static void refuse(const char *path, const char *why)
{
    struct grappa_err err;
    int32_t n_vocab = fake_n_vocab;
    struct grappa_model *draft = path ? load(path) : model;
    fake_n_vocab = n_vocab;
    assert_non_null(draft);
    assert_null(grappa_engine_new(model, &(struct grappa_engine_params){.n_ctx = 512, .draft = draft}, &err));
    assert_non_null(strstr(err.text, why));
    if (path)
        grappa_model_free(draft);
}

static void test_draft_models_that_cannot_be(void **state)
{
    (void)state;
    refuse(NULL, "own draft");
    refuse(TINY "mamba2.gguf", "recurrent");
}

/* ---- parts ---- */

static void test_lookup(void **state)
{
    (void)state;
    struct lookup l = {0};
    const grappa_token text[] = {1, 2, 3, 4, 9, 5, 2, 3, 4, 8, 5, 2, 3, 4};
    int32_t match;
    lookup_reset(&l, 100);
    assert_int_equal(lookup_find(&l, text, 2, &match), 0);
    assert_int_equal(lookup_find(&l, text, 8, &match), 0); /* two tokens are not enough */
    assert_int_equal(lookup_find(&l, text, 9, &match), 4);
    assert_int_equal(match, 3);
    assert_int_equal(lookup_find(&l, text, 14, &match), 9); /* 5 2 3 4 is longer than 2 3 4 */
    assert_int_equal(match, 4);
    assert_int_equal(lookup_find(&l, text, 9, &match), 4); /* the end is gone again */
    const grappa_token same[] = {6, 6, 6, 6, 6};
    lookup_reset(&l, 5);
    assert_int_equal(lookup_find(&l, same, 5, &match), 4);
    assert_int_equal(match, 4);
    lookup_release(&l);
}

static void test_costs(void **state)
{
    (void)state;
    struct row_cost free_rows = {0}, dear = {0};
    for (int i = 0; i < 10; i++) {
        for (int32_t rows = 1; rows <= 16; rows++) {
            cost_add(&free_rows, rows, 1);
            cost_add(&dear, rows, rows);
        }
    }
    assert_float_equal(cost_of(&dear, 7), 7, 1e-6);
    assert_true(cost_of(&dear, 20) > 16);
    struct offer o[2] = {{.right = 0.9f, .most = 15}, {.right = 0.3f, .most = 15}};
    cost_choose(&free_rows, o, 1, 1, 0);
    assert_int_equal(o[0].n, 15);
    cost_choose(&dear, o, 2, 2, 0); /* no guess is surer than its row costs */
    assert_int_equal(o[0].n + o[1].n, 0);
    cost_choose(&free_rows, o, 2, 2, 0); /* the sure ones first */
    assert_true(o[0].n > o[1].n);
    assert_true(o[0].n + o[1].n >= 14);
    cost_choose(&free_rows, o, 1, 1, 1); /* making one more takes as long as a step */
    assert_int_equal(o[0].n, 0);
}

#define TEST(name) cmocka_unit_test_teardown(name, close_engine)

int main(void)
{
    const struct CMUnitTest llama[] = {
        TEST(test_lookup),
        TEST(test_costs),
        TEST(test_greedy),
        TEST(test_sampled),
        TEST(test_grammar),
        TEST(test_ends),
        TEST(test_a_second_turn),
        TEST(test_many),
        TEST(test_a_step_that_fails),
        TEST(test_draft_model),
        TEST(test_draft_models_that_cannot_be),
    };
    const struct CMUnitTest recurrent[] = {
        TEST(test_greedy),        TEST(test_sampled), TEST(test_grammar),           TEST(test_ends),
        TEST(test_a_second_turn), TEST(test_many),    TEST(test_a_step_that_fails),
    };
    int failed = cmocka_run_group_tests_name("llama", llama, load_llama, unload);
    failed += cmocka_run_group_tests_name("gemma3, windows apart", recurrent, load_windows, unload);
    failed += cmocka_run_group_tests_name("qwen35", recurrent, load_hybrid, unload);
    failed += cmocka_run_group_tests_name("mamba2", recurrent, load_mamba, unload);
    failed += cmocka_run_group_tests_name("qwen35-mtp", recurrent, load_mtp, unload);
    return failed;
}
