/* grappa bench: times prompts and decoding as llama-bench does. Every combination of the values given is a
 * test; they are run in an order that loads each model once. */
#include "cli/bench.h"

#include "cli/common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ---- the tests ---- */

struct shape {
    int32_t n_prompt, n_gen;
};

/* What a test is made of. Slow things to change stand first: a new model or context is made when they do. */
enum axis {
    AX_MODEL,
    AX_DEVICE,
    AX_THREADS,
    AX_TYPE_K,
    AX_TYPE_V,
    AX_BATCH,
    AX_UBATCH,
    AX_DEPTH,
    AX_SHAPE,
    N_AXES
};

struct bench {
    const struct options *o;
    struct shape *shapes;
    size_t count[N_AXES], n_tests;
    struct bench_printer out, err_out;

    /* The model in memory and what it was loaded with. */
    struct grappa_model *model;
    size_t loaded[N_AXES];
    double load_s;
    bool loaded_anew;

    struct grappa_context *ctx;
    grappa_token *tokens; /* [n_batch] */
    uint64_t *ns;         /* [repetitions] */
    uint64_t random;
};

static int parse_pg(const char *text, struct shape *out, struct grappa_err *err)
{
    char *end;
    long pp = strtol(text, &end, 10), tg = -1;
    if (end != text && *end == ',' && end[1] >= '0' && end[1] <= '9')
        tg = strtol(end + 1, &end, 10);
    if (*end || pp < 0 || tg < 0 || pp > 1 << 24 || tg > 1 << 24)
        return cli_error(err, 2, "-pg %s: must be two numbers, PP,TG", text);
    *out = (struct shape){(int32_t)pp, (int32_t)tg};
    return 0;
}

/* Prompts, then decoding, then both; of no tokens at all there is no test. */
static int make_shapes(struct bench *b, struct grappa_err *err)
{
    const struct options *o = b->o;
    size_t n = 0;
    b->shapes = xcalloc(o->bench_prompt.n + o->bench_gen.n + o->bench_pg.n + 1, sizeof *b->shapes);
    for (size_t i = 0; i < o->bench_prompt.n; i++) {
        b->shapes[n] = (struct shape){o->bench_prompt.v[i], 0};
        n += o->bench_prompt.v[i] > 0;
    }
    for (size_t i = 0; i < o->bench_gen.n; i++) {
        b->shapes[n] = (struct shape){0, o->bench_gen.v[i]};
        n += o->bench_gen.v[i] > 0;
    }
    for (size_t i = 0; i < o->bench_pg.n; i++) {
        if (parse_pg(o->bench_pg.v[i], &b->shapes[n], err))
            return -1;
        n += b->shapes[n].n_prompt + b->shapes[n].n_gen > 0;
    }
    b->count[AX_SHAPE] = n;
    return n ? 0 : cli_error(err, 2, "nothing to measure: -p and -n are 0");
}

static size_t at_least_one(size_t n)
{
    return n ? n : 1;
}

static int count_tests(struct bench *b, struct grappa_err *err)
{
    const struct options *o = b->o;
    b->count[AX_MODEL] = o->models.n;
    b->count[AX_DEVICE] = at_least_one(o->bench_devices.n);
    b->count[AX_THREADS] = o->bench_threads.n;
    b->count[AX_TYPE_K] = at_least_one(o->bench_type_k.n);
    b->count[AX_TYPE_V] = at_least_one(o->bench_type_v.n);
    b->count[AX_BATCH] = o->bench_batch.n;
    b->count[AX_UBATCH] = o->bench_ubatch.n;
    b->count[AX_DEPTH] = o->bench_depth.n;
    if (make_shapes(b, err))
        return -1;
    b->n_tests = 1;
    for (int a = 0; a < N_AXES; a++) {
        if (!mul_size(b->n_tests, b->count[a], &b->n_tests) || b->n_tests > 1000000)
            return cli_error(err, 2, "too many tests");
    }
    return 0;
}

/* The n-th test as an index on each axis, the last axis fastest. */
static void test_at(const struct bench *b, size_t n, size_t index[N_AXES])
{
    for (int a = N_AXES - 1; a >= 0; a--) {
        index[a] = n % b->count[a];
        n /= b->count[a];
    }
}

static const char *text_at(const struct strings *s, size_t i)
{
    return i < s->n ? s->v[i] : NULL;
}

/* ---- model and context ---- */

static int load(struct bench *b, const size_t index[N_AXES], struct grappa_err *err)
{
    b->loaded_anew = !b->model || memcmp(b->loaded, index, AX_BATCH * sizeof *index) != 0;
    if (!b->loaded_anew)
        return 0;
    grappa_model_free(b->model);
    b->model = NULL;
    const struct options *o = b->o;
    struct model_setup setup;
    int status = model_setup_init(&setup, o, err);
    struct grappa_model_params *p = &setup.params;
    p->device = device_name(text_at(&o->bench_devices, index[AX_DEVICE]));
    p->n_threads = o->bench_threads.v[index[AX_THREADS]];
    if (status == 0)
        status = type_parse("--cache-type-k", text_at(&o->bench_type_k, index[AX_TYPE_K]), &p->type_k, err);
    if (status == 0)
        status = type_parse("--cache-type-v", text_at(&o->bench_type_v, index[AX_TYPE_V]), &p->type_v, err);
    double start = now_s();
    if (status == 0)
        b->model = load_model(o->models.v[index[AX_MODEL]], p, err);
    b->load_s = now_s() - start;
    memcpy(b->loaded, index, sizeof b->loaded);
    model_setup_release(&setup);
    return b->model ? 0 : -1;
}

/* ---- measuring ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Any token will do, but the same ones in each run: xorshift64. */
static grappa_token random_token(struct bench *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    int32_t n = grappa_vocab_n_tokens(grappa_model_vocab(b->model));
    return (grappa_token)(b->random % (uint64_t)(n > 0 ? n : 1));
}

static grappa_token first_token(struct bench *b)
{
    const struct grappa_vocab *v = grappa_model_vocab(b->model);
    return grappa_vocab_add_bos(v) ? grappa_vocab_bos(v) : random_token(b);
}

static int run_prompt(struct bench *b, int32_t n, int32_t n_batch, struct grappa_err *err)
{
    for (int32_t done = 0; done < n;) {
        int32_t step = n - done < n_batch ? n - done : n_batch;
        for (int32_t i = 0; i < step; i++)
            b->tokens[i] = done + i == 0 ? first_token(b) : random_token(b);
        struct grappa_batch batch = {.n = (size_t)step, .token = b->tokens};
        if (grappa_decode(b->ctx, &batch, err))
            return -1;
        done += step;
    }
    return 0;
}

static int run_gen(struct bench *b, int32_t n, struct grappa_err *err)
{
    grappa_token t = n ? first_token(b) : 0;
    for (int32_t i = 0; i < n; i++) {
        struct grappa_batch batch = {.n = 1, .token = &t};
        if (grappa_decode(b->ctx, &batch, err))
            return -1;
        t = random_token(b);
    }
    return 0;
}

/* The context with `depth` tokens in it: cut back to them if it still holds them, computed otherwise. */
static int prepare_depth(struct bench *b, int32_t depth, int32_t n_batch, struct grappa_err *err)
{
    if (depth > 0 && grappa_seq_len(b->ctx, 0) > depth && grappa_seq_trim(b->ctx, 0, depth, NULL) == 0)
        return 0;
    if (grappa_seq_trim(b->ctx, 0, 0, err))
        return -1;
    return run_prompt(b, depth, n_batch, err);
}

static void say(const struct bench *b, size_t test, const char *what, int run)
{
    if (!b->o->bench_progress)
        return;
    if (run)
        fprintf(stderr, "grappa bench: test %zu/%zu: %s %d/%d\n", test + 1, b->n_tests, what, run,
                b->o->repetitions);
    else
        fprintf(stderr, "grappa bench: test %zu/%zu: %s\n", test + 1, b->n_tests, what);
}

static int measure(struct bench *b, size_t test, const struct bench_result *r, struct grappa_err *err)
{
    if (!b->o->no_warmup) {
        say(b, test, "warmup", 0);
        if (run_prompt(b, r->n_prompt, r->n_batch, err) || run_gen(b, r->n_gen ? 1 : 0, err) ||
            grappa_seq_trim(b->ctx, 0, 0, err))
            return -1;
    }
    for (int i = 0; i < b->o->repetitions; i++) {
        if (prepare_depth(b, r->n_depth, r->n_batch, err))
            return -1;
        say(b, test, "run", i + 1);
        uint64_t start = now_ns();
        if (run_prompt(b, r->n_prompt, r->n_batch, err) || run_gen(b, r->n_gen, err))
            return -1;
        b->ns[i] = now_ns() - start;
    }
    return 0;
}

static uint64_t peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static void describe(const struct bench *b, const size_t index[N_AXES], struct bench_result *r)
{
    const struct options *o = b->o;
    const char *type_k = text_at(&o->bench_type_k, index[AX_TYPE_K]);
    const char *type_v = text_at(&o->bench_type_v, index[AX_TYPE_V]);
    *r = (struct bench_result){
        .model = o->models.v[index[AX_MODEL]],
        .device = device_name(text_at(&o->bench_devices, index[AX_DEVICE])),
        .type_k = type_k ? type_k : "default",
        .repack = o->repack,
        .type_v = type_v ? type_v : "default",
        .n_batch = o->bench_batch.v[index[AX_BATCH]],
        .n_ubatch = o->bench_ubatch.v[index[AX_UBATCH]],
        .n_threads = o->bench_threads.v[index[AX_THREADS]],
        .n_prompt = b->shapes[index[AX_SHAPE]].n_prompt,
        .n_gen = b->shapes[index[AX_SHAPE]].n_gen,
        .n_depth = o->bench_depth.v[index[AX_DEPTH]],
        .load_s = b->load_s,
        .loaded_anew = b->loaded_anew,
        .ns = b->ns,
        .n = (size_t)o->repetitions,
    };
    grappa_file_info(grappa_model_file(b->model), &r->file);
    time_t now = time(NULL);
    struct tm utc;
    strftime(r->test_time, sizeof r->test_time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
}

static int run_test(struct bench *b, size_t test, struct grappa_err *err)
{
    size_t index[N_AXES];
    struct bench_result r;
    int status = -1;
    test_at(b, test, index);
    say(b, test, "start", 0);
    if (load(b, index, err))
        return -1;
    describe(b, index, &r);
    struct grappa_context_params p = {
        .n_ctx = (uint32_t)r.n_prompt + (uint32_t)r.n_gen + (uint32_t)r.n_depth,
        .n_batch = (uint32_t)r.n_ubatch,
        .n_seq_max = 1,
    };
    b->random = 88172645463325252u;
    b->tokens = xcalloc((size_t)r.n_batch, sizeof *b->tokens);
    b->ctx = grappa_context_new(b->model, &p, err);
    if (!b->ctx)
        goto cleanup;
    if (b->o->delay)
        sleep((unsigned)b->o->delay);
    status = measure(b, test, &r, err);
    if (status == 0) {
        r.peak_bytes = peak_bytes();
        bench_print_result(&b->out, &r);
        bench_print_result(&b->err_out, &r);
        print_profile(b->o, b->ctx);
    }
cleanup:
    grappa_context_free(b->ctx);
    b->ctx = NULL;
    free(b->tokens);
    b->tokens = NULL;
    return status;
}

int cmd_bench(const struct options *o)
{
    struct grappa_err err = {0};
    struct bench b = {
        .o = o,
        .out = {.format = o->output_format, .f = stdout, .o = o},
        .err_out = {.format = o->output_err, .f = stderr, .o = o},
    };
    if (o->batched_pl.n)
        return bench_batched(o);
    if (count_tests(&b, &err))
        goto cleanup;
    b.ns = xcalloc((size_t)o->repetitions, sizeof *b.ns);
    bench_print_header(&b.out);
    bench_print_header(&b.err_out);
    for (size_t i = 0; i < b.n_tests && out_flush(); i++) {
        if (run_test(&b, i, &err))
            break;
    }
    /* Also after a failure: what was measured stays well-formed. */
    bench_print_footer(&b.out);
    bench_print_footer(&b.err_out);
cleanup:
    grappa_model_free(b.model);
    free(b.shapes);
    free(b.ns);
    return err.exit_status ? cli_fail(&err) : 0;
}
