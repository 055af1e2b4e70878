/* The scheduler, on a model whose text is a hash of its tokens (see fake_ov.h): whatever runs beside it, a
 * request writes what it writes alone; and every block is given back.
 *
 * With a number as argument the storm at the end lasts so many seconds. */
#include "fake_ov.h"

#include "engine/context.h"
#include "quant/quant.h"

#include <grappa-engine.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <unistd.h>

#include <cmocka.h>

#define TINY SOURCE_DIR "/.models/tiny/"

enum { MAX_TOKENS = 1024 };

static struct subject {
    struct grappa_model *m;
    struct grappa_engine *e; /* of the test that runs */
    uint64_t *hash;          /* by token: of its embedding */
    bool windows;            /* engines are made so that sliding windows have a pool of their own */
} subject;
static int storm_seconds = 2;

static int load(const char *path, const struct grappa_model_params *p)
{
    struct grappa_err err;
    subject.m = grappa_model_load(path, p, &err);
    if (!subject.m) {
        print_error("%s\n", err.text);
        return -1;
    }
    const struct arch_model *a = subject.m->arch;
    fake_n_vocab = (int32_t)a->h.n_vocab;
    fake_layers(a);
    subject.hash = calloc(a->h.n_vocab, sizeof *subject.hash);
    float *row = calloc(a->h.n_embd, sizeof *row);
    for (uint32_t t = 0; t < a->h.n_vocab; t++) {
        quant_dequantize(a->embd->type, a->embd->data + t * (a->embd->size / a->embd->ne[1]), a->h.n_embd,
                         row);
        for (uint32_t i = 0; i < a->h.n_embd; i++)
            row[i] *= a->embd_scale;
        subject.hash[t] = fake_row_hash(row, a->h.n_embd);
    }
    free(row);
    return 0;
}

static int load_llama(void **state)
{
    (void)state;
    return load(TINY "llama.gguf", NULL);
}

static int load_gemma3(void **state)
{
    (void)state;
    return load(TINY "gemma3.gguf", NULL);
}

static int load_windows(void **state)
{
    static const char *const longer[] = {"gemma3.context_length=int:16384"};
    (void)state;
    subject.windows = true;
    return load(TINY "gemma3.gguf", &(struct grappa_model_params){.override_kv = longer, .n_override_kv = 1});
}

static int load_hybrid(void **state)
{
    (void)state;
    return load(TINY "qwen35.gguf", NULL);
}

static int load_mamba(void **state)
{
    (void)state;
    return load(TINY "mamba2.gguf", NULL);
}

static int unload(void **state)
{
    (void)state;
    grappa_model_free(subject.m);
    free(subject.hash);
    subject = (struct subject){0};
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    grappa_engine_free(subject.e);
    subject.e = NULL;
    fake_fail_at = -1;
    return 0;
}

static struct grappa_engine *open_engine(struct grappa_engine_params p)
{
    struct grappa_err err;
    if (subject.windows) {
        p.n_batch = p.n_batch && p.n_batch < 64 ? p.n_batch : 64;
        p.n_ctx = p.n_slots || p.n_ctx >= 1024 ? p.n_ctx : 1024;
        p.swa_cache = p.swa_cache ? p.swa_cache : 64;
    }
    subject.e = grappa_engine_new(subject.m, &p, &err);
    if (!subject.e)
        fail_msg("%s", err.text);
    struct grappa_engine_stats st;
    grappa_engine_stats(subject.e, &st);
    assert_true(!subject.windows || st.n_swa_blocks > 0);
    return subject.e;
}

/* ---- what a request writes alone ---- */

/* Greedy tokens behind a prompt, by the fake's rule and nothing else. Returns how many. */
static int32_t expected(const grappa_token *prompt, int32_t n, int32_t n_predict, grappa_token *out)
{
    float *logits = malloc((size_t)fake_n_vocab * sizeof *logits);
    uint64_t h = 0;
    int32_t i = 0;
    for (int32_t k = 0; k < n; k++)
        h = fake_mix(h, subject.hash[prompt[k]]);
    while (i < n_predict) {
        grappa_token best = 0;
        fake_logits(h, logits);
        for (grappa_token v = 1; v < fake_n_vocab; v++)
            best = logits[v] > logits[best] ? v : best;
        out[i++] = best;
        if (grappa_vocab_is_eog(grappa_model_vocab(subject.m), best))
            break;
        h = fake_mix(h, subject.hash[best]);
    }
    free(logits);
    return i;
}

/* ---- requests ---- */

struct answer {
    grappa_token prompt[MAX_TOKENS], token[MAX_TOKENS];
    int32_t n_prompt, n, n_predict;
    int32_t cancel_at; /* token at which the callback ends it; 0: never */
    char text[8192];
    size_t n_text;
    int n_done, n_progress, progress;
    enum grappa_finish finish;
    struct grappa_timings timings;
    bool truncated;
    int32_t slot;
    char stop_text[32], err[2048];
    float logprob;
    struct grappa_prob probs[8];
    int32_t n_probs;
    struct grappa_request *r;
};

static void take_done(struct answer *a, const struct grappa_event *ev)
{
    a->n_done++;
    a->finish = ev->finish;
    a->truncated = ev->truncated;
    a->slot = ev->slot;
    a->timings = *ev->timings;
    snprintf(a->stop_text, sizeof a->stop_text, "%s", ev->stop_text ? ev->stop_text : "");
    snprintf(a->err, sizeof a->err, "%s", ev->err ? ev->err->text : "");
}

static bool on_event(void *user, const struct grappa_event *ev)
{
    struct answer *a = user;
    assert_true(a->n_done == 0);
    if (ev->n_text && a->n_text + ev->n_text < sizeof a->text)
        memcpy(a->text + a->n_text, ev->text, ev->n_text);
    a->n_text += ev->n_text;
    switch (ev->type) {
    case GRAPPA_EVENT_TOKEN:
        a->token[a->n++] = ev->token;
        a->logprob = ev->logprob;
        a->n_probs = ev->n_probs;
        for (int32_t i = 0; i < ev->n_probs && i < 8; i++)
            a->probs[i] = ev->probs[i];
        break;
    case GRAPPA_EVENT_PROGRESS:
        if (a->n_progress++ == 0) /* before anything is computed */
            assert_int_equal(ev->n_done, ev->timings->n_cached);
        else
            assert_true(ev->n_done > a->progress);
        assert_true(ev->n_done <= ev->timings->n_prompt);
        a->progress = ev->n_done;
        break;
    case GRAPPA_EVENT_DONE:
        take_done(a, ev);
        break;
    }
    return !(a->cancel_at && a->n >= a->cancel_at);
}

static struct grappa_request_params params_of(struct answer *a)
{
    struct grappa_request_params p;
    grappa_request_defaults(&p);
    p.prompt = a->prompt;
    p.n_prompt = (size_t)a->n_prompt;
    p.n_predict = a->n_predict;
    p.sampler.temp = 0;
    p.on_event = on_event;
    p.user = a;
    return p;
}

static void start(struct answer *a, const struct grappa_request_params *p)
{
    struct grappa_err err;
    a->r = grappa_request_new(subject.e, p, &err);
    if (!a->r)
        fail_msg("%s", err.text);
}

static void finish(struct answer *a)
{
    grappa_request_wait(a->r);
    grappa_request_free(a->r);
    a->r = NULL;
    assert_int_equal(a->n_done, 1);
}

/* Tokens that depend on a number, the first `shared` of them on another. */
static void make_prompt(struct answer *a, uint64_t beginning, int32_t shared, uint64_t number, int32_t n)
{
    memset(a, 0, sizeof *a);
    a->n_prompt = n;
    for (int32_t i = 0; i < n; i++)
        a->prompt[i] = (grappa_token)(fake_mix(i < shared ? beginning : number, (uint64_t)i) % 256 + 4);
}

/* As far as it came, it is what it writes alone. */
static void expect_alone(const struct answer *a)
{
    grappa_token want[MAX_TOKENS];
    int32_t n = expected(a->prompt, a->n_prompt, a->n, want);
    assert_int_equal(n, a->n);
    assert_memory_equal(want, a->token, (size_t)n * sizeof *want);
}

static void run_alone(struct answer *a)
{
    struct grappa_request_params p = params_of(a);
    start(a, &p);
    finish(a);
    expect_alone(a);
}

/* Nothing runs, nothing leaks: what is used is cached or held by slots, and none when those are erased. */
static void expect_no_leak(void)
{
    struct grappa_engine_stats st;
    for (uint32_t i = 0; i < grappa_engine_n_slots(subject.e); i++)
        assert_true(grappa_engine_slot_erase(subject.e, (int32_t)i, NULL) >= 0);
    grappa_engine_stats(subject.e, &st);
    assert_int_equal(st.n_running, 0);
    assert_int_equal(st.n_waiting, 0);
    assert_int_equal(st.n_blocks_used, st.n_blocks_cached);
    assert_int_equal(st.n_swa_blocks_used, st.n_swa_blocks_cached);
    assert_int_equal(st.n_done, st.n_requests);
}

/* ---- single requests ---- */

static struct answer one, more[64];

static void test_one_request(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 512});
    make_prompt(&one, 0, 0, 1, 100);
    one.n_predict = 20;
    run_alone(&one);
    bool ended = grappa_vocab_is_eog(grappa_model_vocab(subject.m), one.token[one.n - 1]);
    assert_int_equal(one.finish, ended ? GRAPPA_FINISH_EOS : GRAPPA_FINISH_LENGTH);
    assert_int_equal(one.timings.n_prompt, 100);
    assert_int_equal(one.timings.n_computed, 100);
    assert_int_equal(one.timings.n_cached, 0);
    assert_int_equal(one.timings.n_predicted, one.n);
    expect_no_leak();
}

static void test_prompts_in_pieces(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 512, .n_batch = 16});
    make_prompt(&one, 0, 0, 1, 100);
    one.n_predict = 5;
    struct grappa_request_params p = params_of(&one);
    p.want_progress = true;
    start(&one, &p);
    finish(&one);
    expect_alone(&one);
    assert_int_equal(one.progress, 100);
    assert_true(one.n_progress >= 7);
}

static void test_nothing_to_write(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 512});
    make_prompt(&one, 0, 0, 1, 10);
    one.n_predict = 0;
    run_alone(&one);
    assert_int_equal(one.finish, GRAPPA_FINISH_LENGTH);
    assert_int_equal(one.n, 0);
    make_prompt(&one, 0, 0, 1, 0);
    one.n_predict = 5;
    run_alone(&one);
    assert_int_equal(one.n, 0);
}

static void test_the_context_is_the_limit(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 512, .n_slots = 2, .kv_split = true});
    assert_int_equal(grappa_engine_n_ctx_slot(subject.e), 256);
    /* Until a text comes that doesn't end by itself. */
    for (uint64_t i = 0; i < 100; i++) {
        make_prompt(&one, 0, 0, i, 250);
        one.n_predict = -1;
        run_alone(&one);
        if (one.finish == GRAPPA_FINISH_LENGTH)
            break;
    }
    assert_int_equal(one.finish, GRAPPA_FINISH_LENGTH);
    assert_int_equal(one.n_prompt + one.n, 256);
    assert_true(one.truncated);
    expect_no_leak();
}

static void test_refusals(void **state)
{
    (void)state;
    struct grappa_err err;
    open_engine((struct grappa_engine_params){.n_ctx = 256, .n_slots = 1});
    make_prompt(&one, 0, 0, 1, 256);
    struct grappa_request_params p = params_of(&one);
    assert_null(grappa_request_new(subject.e, &p, &err));
    assert_int_equal(err.http_status, 400);
    assert_string_equal(err.text, "request (256 tokens) exceeds the available context size (256 tokens), try "
                                  "increasing it");
    p.n_prompt = 10;
    one.prompt[3] = fake_n_vocab;
    assert_null(grappa_request_new(subject.e, &p, &err));
    assert_int_equal(err.http_status, 400);
    assert_non_null(strstr(err.text, "token id 320 is out of range"));
    one.prompt[3] = -1;
    assert_null(grappa_request_new(subject.e, &p, &err));
    one.prompt[3] = 5;
    p.slot = 1;
    assert_null(grappa_request_new(subject.e, &p, &err));
    assert_int_equal(err.http_status, 400);
    p.slot = -1;
    p.embeddings = true;
    assert_null(grappa_request_new(subject.e, &p, &err));
    assert_int_equal(one.n_done, 0);
}

static void test_stop_texts_and_probabilities(void **state)
{
    (void)state;
    const struct grappa_vocab *v = grappa_model_vocab(subject.m);
    char piece[64];
    open_engine((struct grappa_engine_params){.n_ctx = 512});
    make_prompt(&one, 0, 0, 2, 30);
    one.n_predict = 12;
    run_alone(&one);
    size_t n = grappa_token_piece(v, one.token[2], false, piece, sizeof piece - 1);
    piece[n] = '\0';
    char before[8192];
    size_t n_before = one.n_text;
    memcpy(before, one.text, n_before);
    const char *at = memmem(before, n_before, piece, n);
    if (n == 0 || !at) /* no text of its own */
        return;
    make_prompt(&one, 0, 0, 2, 30);
    one.n_predict = 12;
    struct grappa_request_params p = params_of(&one);
    const char *stops[] = {"never appears", piece};
    p.stop = stops;
    p.n_stop = 2;
    p.n_probs = 3;
    start(&one, &p);
    finish(&one);
    assert_int_equal(one.finish, GRAPPA_FINISH_STOP);
    assert_string_equal(one.stop_text, piece);
    assert_int_equal(one.n_text, at - before);
    assert_memory_equal(one.text, before, one.n_text);
    assert_int_equal(one.n_probs, 3);
    assert_int_equal(one.probs[0].token, one.token[one.n - 1]); /* greedy */
    assert_true(one.probs[0].logprob == one.logprob && one.logprob < 0);
    assert_true(one.probs[0].logprob >= one.probs[1].logprob && one.probs[1].logprob >= one.probs[2].logprob);
}

static void test_a_step_that_fails(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 512});
    make_prompt(&one, 0, 0, 3, 30);
    one.n_predict = 50;
    fake_fail_at = 3;
    struct grappa_request_params p = params_of(&one);
    start(&one, &p);
    finish(&one);
    if (one.finish == GRAPPA_FINISH_EOS)
        return;
    assert_int_equal(one.finish, GRAPPA_FINISH_ERROR);
    assert_string_equal(one.err, "this step was to fail");
    make_prompt(&one, 0, 0, 3, 30);
    one.n_predict = 8;
    run_alone(&one);
    expect_no_leak();
}

/* ---- several ---- */

static void test_same_prompt_at_once(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 2048, .n_batch = 64});
    int32_t computed = 0;
    for (int i = 0; i < 4; i++) {
        make_prompt(&more[i], 0, 0, 9, 300);
        more[i].n_predict = 64;
        struct grappa_request_params p = params_of(&more[i]);
        start(&more[i], &p);
    }
    for (int i = 0; i < 4; i++) {
        finish(&more[i]);
        expect_alone(&more[i]);
        computed += more[i].timings.n_computed;
        assert_int_equal(more[i].timings.n_computed + more[i].timings.n_cached, 300);
    }
    assert_true(computed < 2 * 300);
    expect_no_leak();
}

static void test_a_second_turn(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024});
    make_prompt(&one, 0, 0, 10, 200);
    one.n_predict = 10;
    run_alone(&one);
    make_prompt(&more[0], 0, 0, 10, 200);
    memcpy(more[0].prompt + 200, one.token, (size_t)one.n * sizeof(grappa_token));
    more[0].n_prompt = 200 + one.n;
    for (int i = 0; i < 20; i++)
        more[0].prompt[more[0].n_prompt++] = 7 + i;
    more[0].n_predict = 10;
    run_alone(&more[0]);
    assert_int_equal(more[0].slot, one.slot);
    assert_true(more[0].timings.n_cached >= 200);
}

static void test_a_shared_beginning_after_others(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 2048, .n_slots = 1});
    make_prompt(&one, 1, 200, 11, 230);
    one.n_predict = 4;
    run_alone(&one);
    make_prompt(&one, 0, 0, 12, 230);
    one.n_predict = 4;
    run_alone(&one); /* its slot's own sequence is another now */
    make_prompt(&one, 1, 200, 13, 230);
    one.n_predict = 4;
    run_alone(&one);
    assert_true(one.timings.n_cached > 0);
    make_prompt(&one, 1, 200, 13, 230);
    one.n_predict = 4;
    struct grappa_request_params p = params_of(&one);
    p.no_cache_prompt = true;
    start(&one, &p);
    finish(&one);
    expect_alone(&one);
    assert_int_equal(one.timings.n_cached, 0);
    expect_no_leak();
}

static void test_the_same_prompt_again(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 2048, .n_batch = 128});
    for (int i = 0; i < 3; i++) {
        make_prompt(&one, 0, 0, 14, 300);
        one.n_predict = 20;
        run_alone(&one);
        assert_int_equal(one.timings.n_cached, i ? 299 : 0);
        assert_int_equal(one.timings.n_computed, i ? 1 : 300);
    }
    expect_no_leak();
}

/* Recurrent models go on from where a piece of the other prompt ended. */
static void test_a_shared_beginning_in_pieces(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 2048, .n_slots = 1, .n_batch = 64});
    for (uint64_t i = 0; i < 3; i++) {
        make_prompt(&one, 1, 200, 11 + i, 230);
        one.n_predict = 4;
        run_alone(&one);
        assert_true(one.timings.n_cached >= (i ? 192 : 0));
        make_prompt(&one, 0, 0, 100 + i, 230);
        one.n_predict = 4;
        run_alone(&one); /* its slot's own sequence is another now */
    }
    expect_no_leak();
}

static void test_more_than_the_pool_holds(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 512, .n_slots = 8, .n_batch = 64});
    for (int i = 0; i < 24; i++) {
        make_prompt(&more[i], 0, 0, 100 + (uint64_t)i, 60 + 5 * i);
        more[i].n_predict = 100;
        struct grappa_request_params p = params_of(&more[i]);
        start(&more[i], &p);
    }
    for (int i = 0; i < 24; i++) {
        finish(&more[i]);
        expect_alone(&more[i]);
        assert_true(more[i].finish == GRAPPA_FINISH_EOS || more[i].n == 100);
    }
    expect_no_leak();
}

/* ---- ends ---- */

static void test_cancel_and_deadline(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 1});
    make_prompt(&more[0], 0, 0, 20, 50);
    more[0].n_predict = 1000;
    more[0].cancel_at = 5;
    struct grappa_request_params p = params_of(&more[0]);
    start(&more[0], &p);
    /* Behind it in the queue: one that is cancelled there, one whose time is up, one that is served. */
    for (int i = 1; i < 4; i++) {
        make_prompt(&more[i], 0, 0, 20 + (uint64_t)i, 50);
        more[i].n_predict = 5;
        p = params_of(&more[i]);
        p.timeout_s = i == 2 ? 1e-9 : 0;
        start(&more[i], &p);
    }
    grappa_request_cancel(more[1].r);
    for (int i = 0; i < 4; i++)
        finish(&more[i]);
    assert_true(more[0].finish == GRAPPA_FINISH_CANCEL || more[0].finish == GRAPPA_FINISH_EOS);
    assert_true(more[1].finish == GRAPPA_FINISH_CANCEL || more[1].n > 0);
    assert_int_equal(more[2].finish, GRAPPA_FINISH_DEADLINE);
    expect_alone(&more[3]);
    expect_no_leak();
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_at_gate(int n_rows)
{
    (void)n_rows;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void test_priorities_and_a_full_queue(void **state)
{
    (void)state;
    struct grappa_err err;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 1, .n_queue = 3});
    fake_on_infer = wait_at_gate;
    pthread_mutex_lock(&gate);
    double first_at[4];
    struct grappa_engine_stats st;
    struct grappa_request_params p;
    for (int i = 0; i < 4; i++) {
        make_prompt(&more[i], 0, 0, 30 + (uint64_t)i, 20);
        more[i].n_predict = 3;
        p = params_of(&more[i]);
        p.priority = i == 3 ? 1 : 0;
        start(&more[i], &p);
        do /* the first has the slot, the others wait */
            grappa_engine_stats(subject.e, &st);
        while (st.n_waiting != i);
    }
    make_prompt(&one, 0, 0, 40, 20);
    p = params_of(&one);
    assert_null(grappa_request_new(subject.e, &p, &err));
    assert_int_equal(err.http_status, 503);
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < 4; i++) {
        finish(&more[i]);
        first_at[i] = more[i].timings.queue_s;
        expect_alone(&more[i]);
    }
    fake_on_infer = NULL;
    assert_true(more[0].finish != GRAPPA_FINISH_NONE);
    assert_true(first_at[3] < first_at[1] && first_at[1] < first_at[2]);
}

static void test_shutdown(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 2});
    for (int i = 0; i < 6; i++) {
        make_prompt(&more[i], 0, 0, 50 + (uint64_t)i, 20);
        more[i].n_predict = 900;
        struct grappa_request_params p = params_of(&more[i]);
        start(&more[i], &p);
    }
    close_engine(NULL);
    for (int i = 0; i < 6; i++) {
        finish(&more[i]); /* the request outlives the engine */
        assert_true(more[i].finish == GRAPPA_FINISH_SHUTDOWN || more[i].finish == GRAPPA_FINISH_EOS);
        expect_alone(&more[i]);
    }
}

static void test_erase_gives_all_back(void **state)
{
    (void)state;
    struct grappa_engine_stats st;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 1});
    make_prompt(&one, 0, 0, 60, 100);
    one.n_predict = 5;
    run_alone(&one);
    assert_true(grappa_engine_slot_erase(subject.e, 0, NULL) >= 100);
    grappa_engine_stats(subject.e, &st);
    assert_int_equal(st.n_blocks_used, 0);
}

/* ---- constraints, worked out on a thread of their own ---- */

static void test_grammars(void **state)
{
    (void)state;
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 4});
    for (int i = 0; i < 6; i++) {
        make_prompt(&more[i], 0, 0, 80 + (uint64_t)i, 30);
        more[i].n_predict = 40;
        struct grappa_request_params p = params_of(&more[i]);
        if (i % 2 == 0)
            p.sampler.grammar =
                (struct grappa_grammar_params){.type = GRAPPA_GRAMMAR_GBNF, .source = "root ::= [a-f]{7}"};
        start(&more[i], &p);
    }
    for (int i = 0; i < 6; i++) {
        finish(&more[i]);
        if (i % 2) {
            expect_alone(&more[i]);
            continue;
        }
        assert_true(more[i].finish == GRAPPA_FINISH_STOP || more[i].finish == GRAPPA_FINISH_EOS);
        assert_int_equal(more[i].n_text, 7);
        for (int k = 0; k < 7; k++)
            assert_true(more[i].text[k] >= 'a' && more[i].text[k] <= 'f');
    }
    struct grappa_err err;
    struct grappa_request_params p = params_of(&more[0]);
    p.sampler.grammar = (struct grappa_grammar_params){.type = GRAPPA_GRAMMAR_GBNF, .source = "root ::= ("};
    assert_null(grappa_request_new(subject.e, &p, &err));
    assert_int_equal(err.http_status, 400);
}

/* ---- when the context is full ---- */

/* llama-server's rule: behind n_keep tokens (and BOS), half of the rest goes. */
static int32_t shifted(grappa_token *all, int32_t n, int32_t keep)
{
    keep += grappa_vocab_add_bos(grappa_model_vocab(subject.m));
    int32_t discard = (n - 1 - keep) / 2;
    memmove(all + keep, all + keep + discard, (size_t)(n - keep - discard) * sizeof *all);
    return n - discard;
}

static void test_context_shift(void **state)
{
    (void)state;
    grappa_token all[MAX_TOKENS];
    int32_t n_shifts = 0;
    open_engine((struct grappa_engine_params){.n_ctx = 256, .n_slots = 1, .n_batch = 32});
    /* A text that doesn't end by itself. */
    for (uint64_t i = 0; i < 100 && one.n < 300; i++) {
        make_prompt(&one, 0, 0, 200 + i, 200);
        one.n_predict = 300;
        struct grappa_request_params p = params_of(&one);
        p.context_shift = true;
        p.n_keep = 10;
        start(&one, &p);
        finish(&one);
    }
    assert_int_equal(one.n, 300);
    assert_int_equal(one.finish, GRAPPA_FINISH_LENGTH);
    assert_true(one.truncated);
    assert_int_equal(one.timings.n_prompt, 200);
    memcpy(all, one.prompt, 200 * sizeof *all);
    for (int32_t i = 0, n = 200; i < one.n; i++) {
        grappa_token want;
        expected(all, n, 1, &want);
        assert_int_equal(one.token[i], want);
        all[n++] = want;
        if (n == 256) {
            n = shifted(all, n, 10);
            n_shifts++;
        }
    }
    assert_true(n_shifts >= 2);
    expect_no_leak();
}

static void test_no_context_shift(void **state)
{
    (void)state;
    struct grappa_err err;
    open_engine((struct grappa_engine_params){.n_ctx = 256, .n_slots = 1});
    make_prompt(&one, 0, 0, 1, 20);
    struct grappa_request_params p = params_of(&one);
    p.context_shift = true;
    assert_null(grappa_request_new(subject.e, &p, &err));
    assert_string_equal(err.text, "a context shift: the model's recurrent layers can't forget");
}

/* ---- sliding windows in a pool of their own ---- */

static const struct grappa_engine_params long_ones = {.n_ctx = 4096, .n_batch = 64, .swa_cache = 1024};

static void test_far_beyond_the_window(void **state)
{
    (void)state;
    open_engine(long_ones);
    for (uint64_t i = 0; i < 4; i++) {
        make_prompt(&more[i], 0, 0, 300 + i, 700);
        more[i].n_predict = 200;
        struct grappa_request_params p = params_of(&more[i]);
        start(&more[i], &p);
    }
    for (int i = 0; i < 4; i++) {
        finish(&more[i]);
        expect_alone(&more[i]);
    }
    expect_no_leak();
}

/* What came behind the prompt, more than any slack, isn't in the next one. */
static void test_an_answer_that_is_dropped(void **state)
{
    (void)state;
    open_engine(long_ones);
    for (uint64_t i = 0; i < 100; i++) {
        make_prompt(&one, 0, 0, 310 + i, 300);
        one.n_predict = 150;
        run_alone(&one);
        if (one.n == 150)
            break;
    }
    assert_int_equal(one.n, 150);
    one.n_prompt = 340;
    for (int i = 300; i < 340; i++)
        one.prompt[i] = 9 + i % 200;
    one.n = one.n_done = one.n_progress = 0;
    run_alone(&one);
    assert_true(one.timings.n_cached >= 288);
    expect_no_leak();
}

/* A batch of many slices moves the windows on; when one fails, what was there before is still remembered. */
static void test_a_batch_that_fails_far_in(void **state)
{
    (void)state;
    struct grappa_err err;
    grappa_token want, got = 0;
    const float *logits;
    struct grappa_context *c = grappa_context_new(
        subject.m, &(struct grappa_context_params){.n_ctx = 2048, .n_batch = 32, .n_seq_max = 2}, &err);
    assert_true(c && c->swa.n_seqs > 0);
    make_prompt(&one, 0, 0, 340, 500);
    assert_int_equal(grappa_decode(c, &(struct grappa_batch){.n = 150, .token = one.prompt}, &err), 0);
    const struct grappa_batch rest = {.n = 350, .token = one.prompt + 150};
    fake_fail_at = 8;
    assert_int_equal(grappa_decode(c, &rest, &err), -1);
    assert_string_equal(err.text, "this step was to fail");
    assert_int_equal(grappa_seq_len(c, 0), 150);
    assert_int_equal(grappa_decode(c, &rest, &err), 0);
    logits = grappa_logits(c, -1);
    for (grappa_token v = 1; v < fake_n_vocab; v++)
        got = logits[v] > logits[got] ? v : got;
    expected(one.prompt, 500, 1, &want);
    assert_int_equal(got, want);
    assert_int_equal(grappa_seq_trim(c, 0, 0, NULL), 0);
    assert_int_equal(c->swa.n_free, c->swa.n_blocks);
    assert_int_equal(c->kv.n_free, c->kv.n_blocks);
    grappa_context_free(c);
}

static void write_four(uint64_t common, int32_t n_common, uint64_t own, int32_t n)
{
    make_prompt(&one, common, n_common, own, n);
    one.n_predict = 4;
    run_alone(&one);
}

/* The second request of a beginning finds it, since the pool has room; what is found once stays, also when
 * many others want the room. */
static void test_what_is_worth_keeping(void **state)
{
    (void)state;
    struct grappa_engine_params p = long_ones;
    p.n_slots = 1;
    p.n_ctx = 16384;
    open_engine(p);
    for (uint64_t i = 0; i < 3; i++) {
        write_four(1, 600, 320 + i, 690);
        assert_true(one.timings.n_cached >= (i ? 592 : 0));
        for (uint64_t k = 0; k < (i ? 12 : 0); k++) {
            write_four(0, 0, 330 + 20 * i + k, 900);
            assert_int_equal(one.timings.n_cached, 0);
        }
    }
    expect_no_leak();
}

/* Lost, and found to be a place where prompts part: from then on it stays. */
static void test_a_branch_is_worth_keeping(void **state)
{
    (void)state;
    struct grappa_engine_params p = long_ones;
    p.n_slots = 1;
    p.n_ctx = 16384;
    open_engine(p);
    for (uint64_t i = 0; i < 3; i++) {
        write_four(1, 600, 320 + i, 690);
        if (i == 1)
            assert_true(one.timings.n_cached < 592);
        if (i == 2)
            assert_true(one.timings.n_cached >= 592);
        for (uint64_t k = 0; k < 8; k++) {
            write_four(0, 0, 330 + 20 * i + k, 900);
        }
    }
    expect_no_leak();
}

/* ---- slots in files ---- */

static void test_save_restore(void **state)
{
    (void)state;
    struct grappa_err err;
    uint64_t bytes;
    char path[] = "/tmp/grappa-slot-XXXXXX";
    close(mkstemp(path));
    open_engine((struct grappa_engine_params){.n_ctx = 1024, .n_slots = 2});
    make_prompt(&one, 0, 0, 70, 200);
    one.n_predict = 10;
    struct grappa_request_params p = params_of(&one);
    p.slot = 0;
    start(&one, &p);
    finish(&one);
    int64_t n = grappa_engine_slot_save(subject.e, 0, path, &bytes, &err);
    assert_int_equal(n, 200 + one.n - 1);
    assert_true(bytes > 0);
    expect_no_leak(); /* all is forgotten */
    assert_int_equal(grappa_engine_slot_restore(subject.e, 1, path, &bytes, &err), n);
    make_prompt(&more[0], 0, 0, 70, 200);
    memcpy(more[0].prompt + 200, one.token, (size_t)one.n * sizeof(grappa_token));
    more[0].n_prompt = 200 + one.n;
    for (int i = 0; i < 10; i++)
        more[0].prompt[more[0].n_prompt++] = 9 + i;
    more[0].n_predict = 10;
    run_alone(&more[0]);
    assert_int_equal(more[0].slot, 1);
    assert_int_equal(more[0].timings.n_cached, n);
    assert_int_equal(grappa_engine_slot_save(subject.e, 2, path, &bytes, &err), -1);
    assert_int_equal(err.http_status, 400);
    unlink(path);
    assert_int_equal(grappa_engine_slot_restore(subject.e, 1, path, &bytes, &err), -1);
    expect_no_leak();
}

/* In a context that is full of one sequence, which the cache of beginnings has, too. */
static void test_restore_in_full_context(void **state)
{
    (void)state;
    struct grappa_err err = {0};
    char path[] = "/tmp/grappa-slot-XXXXXX";
    close(mkstemp(path));
    open_engine((struct grappa_engine_params){.n_ctx = 256, .n_slots = 1});
    for (int i = 0; i < 2; i++) {
        make_prompt(&one, 0, 0, i ? 70 : 90, 200);
        one.n_predict = 10;
        run_alone(&one);
        if (i == 0)
            assert_int_equal(grappa_engine_slot_save(subject.e, 0, path, NULL, &err), 200 + one.n - 1);
    }
    if (grappa_engine_slot_restore(subject.e, 0, path, NULL, &err) != 200 + one.n - 1)
        fail_msg("%s", err.text);
    make_prompt(&more[0], 0, 0, 90, 200);
    more[0].n_predict = 10;
    run_alone(&more[0]);
    assert_int_equal(more[0].timings.n_cached, 199);
    unlink(path);
}

/* ---- the storm ---- */

static atomic_int storm_left;

static void *client(void *arg)
{
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    struct answer *a = malloc(sizeof *a);
    while (atomic_load(&storm_left) > 0) {
        rng = fake_mix(rng, 1);
        make_prompt(a, rng % 5, (int32_t)(rng >> 8) % 60, rng, 1 + (int32_t)((rng >> 16) % 120));
        a->n_predict = (int32_t)((rng >> 24) % 60);
        a->cancel_at = (rng >> 32) % 4 == 0 ? 1 + (int32_t)((rng >> 34) % 8) : 0;
        struct grappa_request_params p = params_of(a);
        p.priority = (int32_t)((rng >> 40) % 3);
        p.n_probs = (rng >> 42) % 8 == 0 ? 3 : 0;
        p.slot = (rng >> 46) % 8 == 0 ? (int32_t)((rng >> 50) % 64) : -1;
        p.want_progress = (rng >> 56) % 2;
        a->r = grappa_request_new(subject.e, &p, NULL);
        if (!a->r)
            continue;
        if ((rng >> 58) % 8 == 0)
            grappa_request_cancel(a->r);
        if ((rng >> 58) % 8 == 1)
            grappa_engine_slot_erase(subject.e, (int32_t)((rng >> 50) % 64), NULL);
        if ((rng >> 58) % 8 != 2)
            grappa_request_wait(a->r);
        grappa_request_free(a->r);
        if (a->n_done != 1)
            abort();
        grappa_token want[MAX_TOKENS];
        if (expected(a->prompt, a->n_prompt, a->n, want) != a->n ||
            memcmp(want, a->token, (size_t)a->n * sizeof *want) != 0)
            atomic_store(&storm_left, -1);
    }
    free(a);
    return NULL;
}

/* Many slots, a pool that is too small for them, clients that leave. */
static void storm(uint32_t n_slots)
{
    enum { CLIENTS = 80 };
    pthread_t thread[CLIENTS];
    struct grappa_slot slots[64];
    struct grappa_engine_stats st;
    open_engine((struct grappa_engine_params){
        .n_ctx = 4096, .n_slots = n_slots, .n_batch = 128, .swa_cache = subject.windows ? 256 : 0});
    atomic_store(&storm_left, storm_seconds);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, client, (void *)(uintptr_t)(i + 1)), 0);
    for (int left = storm_seconds; left > 0 && atomic_load(&storm_left) > 0; left--) {
        sleep(1);
        assert_int_equal(grappa_engine_slots(subject.e, slots, 64), n_slots);
        grappa_engine_stats(subject.e, &st);
        assert_true(st.n_blocks_used <= st.n_blocks && st.n_swa_blocks_used <= st.n_swa_blocks);
    }
    bool wrong = atomic_exchange(&storm_left, 0) < 0;
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(thread[i], NULL);
    assert_false(wrong);
    grappa_engine_stats(subject.e, &st);
    print_message("%" PRIu64 " requests, %" PRIu64 " cancelled, %" PRIu64 " steps, %" PRIu64
                  " tokens of prompts "
                  "computed, %" PRIu64 " found\n",
                  st.n_requests, st.n_cancelled, st.n_steps, st.prompt_tokens, st.cached_tokens);
    expect_no_leak();
}

static void test_storm(void **state)
{
    (void)state;
    storm(subject.windows ? 24 : 64);
}

#define TEST(name) cmocka_unit_test_teardown(name, close_engine)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_request),
        TEST(test_prompts_in_pieces),
        TEST(test_nothing_to_write),
        TEST(test_the_context_is_the_limit),
        TEST(test_refusals),
        TEST(test_stop_texts_and_probabilities),
        TEST(test_a_step_that_fails),
        TEST(test_same_prompt_at_once),
        TEST(test_a_second_turn),
        TEST(test_a_shared_beginning_after_others),
        TEST(test_the_same_prompt_again),
        TEST(test_a_shared_beginning_in_pieces),
        TEST(test_more_than_the_pool_holds),
        TEST(test_cancel_and_deadline),
        TEST(test_priorities_and_a_full_queue),
        TEST(test_shutdown),
        TEST(test_erase_gives_all_back),
        TEST(test_grammars),
        TEST(test_context_shift),
        TEST(test_save_restore),
        TEST(test_restore_in_full_context),
        TEST(test_storm),
    };
    const struct CMUnitTest windows[] = {
        TEST(test_one_request),
        TEST(test_prompts_in_pieces),
        TEST(test_a_step_that_fails),
        TEST(test_same_prompt_at_once),
        TEST(test_a_second_turn),
        TEST(test_the_same_prompt_again),
        TEST(test_erase_gives_all_back),
        TEST(test_grammars),
        TEST(test_context_shift),
        TEST(test_far_beyond_the_window),
        TEST(test_an_answer_that_is_dropped),
        TEST(test_a_batch_that_fails_far_in),
        TEST(test_what_is_worth_keeping),
        TEST(test_a_branch_is_worth_keeping),
        TEST(test_save_restore),
        TEST(test_storm),
    };
    const struct CMUnitTest recurrent[] = {
        TEST(test_one_request),
        TEST(test_prompts_in_pieces),
        TEST(test_a_second_turn),
        TEST(test_more_than_the_pool_holds),
        TEST(test_same_prompt_at_once),
        TEST(test_the_same_prompt_again),
        TEST(test_a_shared_beginning_in_pieces),
        TEST(test_no_context_shift),
        TEST(test_save_restore),
        TEST(test_restore_in_full_context),
        TEST(test_storm),
    };
    if (argc > 1)
        storm_seconds = atoi(argv[1]);
    return cmocka_run_group_tests_name("llama", tests, load_llama, unload) +
           cmocka_run_group_tests_name("gemma3", tests, load_gemma3, unload) +
           cmocka_run_group_tests_name("gemma3, windows apart", windows, load_windows, unload) +
           cmocka_run_group_tests_name("qwen35", recurrent, load_hybrid, unload) +
           cmocka_run_group_tests_name("mamba2", recurrent, load_mamba, unload);
}
