/* grappa bench -npl: many sequences at a time, as llama-batched-bench measures them. For each number of them:
 * the prompts in one batch, then steps that give every sequence a token. With -pps there is one prompt, which
 * all sequences go on from. */
#include "cli/bench.h"

#include "cli/common.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct batched {
    const struct options *o;
    struct grappa_model *model;
    struct grappa_context *ctx;
    grappa_token *token; /* a batch: [largest] each */
    int32_t *seq;
    int8_t *logits;
    uint64_t random;
};

struct batched_test {
    int32_t pp, tg, pl;
    double t_pp, t_tg; /* seconds */
};

/* Any token will do, but the same ones in each run: xorshift64. */
static grappa_token random_token(struct batched *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    int32_t n = grappa_vocab_n_tokens(grappa_model_vocab(b->model));
    return (grappa_token)(b->random % (uint64_t)(n > 0 ? n : 1));
}

/* `each` tokens of each of n sequences, with logits for the last one of each; in batches of -b tokens. */
static int run(struct batched *b, int32_t n, int32_t each, struct grappa_err *err)
{
    size_t most = (size_t)b->o->bench_batch.v[0], used = 0;
    for (int32_t s = 0; s < n; s++) {
        for (int32_t i = 0; i < each; i++) {
            b->token[used] = random_token(b);
            b->seq[used] = s;
            b->logits[used++] = i + 1 == each;
            if (used < most && (s + 1 < n || i + 1 < each))
                continue;
            struct grappa_batch batch = {.n = used, .token = b->token, .seq_id = b->seq, .logits = b->logits};
            if (grappa_decode(b->ctx, &batch, err))
                return -1;
            used = 0;
        }
    }
    return 0;
}

static int measure(struct batched *b, struct batched_test *t, struct grappa_err *err)
{
    int32_t prompts = b->o->prompt_shared ? 1 : t->pl;
    double start = now_s();
    if (run(b, prompts, t->pp, err))
        return -1;
    for (int32_t s = prompts; s < t->pl; s++) {
        if (grappa_seq_copy(b->ctx, 0, s, err))
            return -1;
    }
    double middle = now_s();
    for (int32_t i = 0; i < t->tg; i++) {
        if (run(b, t->pl, 1, err))
            return -1;
    }
    t->t_pp = middle - start;
    t->t_tg = now_s() - middle;
    return 0;
}

/* Positions of all sequences together. */
static uint32_t positions(const struct batched_test *t)
{
    /* Sequences take whole blocks of the cache, of at most this many positions. */
    enum { BLOCK = 256 };
    uint64_t each = ((uint64_t)t->pp + (uint64_t)t->tg + BLOCK) / BLOCK * BLOCK + BLOCK;
    uint64_t all = each * (uint64_t)t->pl;
    return all > UINT32_MAX ? UINT32_MAX : (uint32_t)all;
}

static double rate(double tokens, double seconds)
{
    return seconds > 0 ? tokens / seconds : 0;
}

static void print_result(const struct options *o, const struct batched_test *t)
{
    double prompts = o->prompt_shared ? 1 : t->pl, pp = prompts * t->pp, tg = (double)t->pl * t->tg;
    int64_t n_kv = (int64_t)t->pl * (t->pp + t->tg);
    double all = t->t_pp + t->t_tg;
    if (strcmp(o->output_format, "md") == 0)
        printf("|%6d | %6d | %4d | %6" PRId64 " | %8.3f | %8.2f | %8.3f | %8.2f | %8.3f | %8.2f |\n", t->pp,
               t->tg, t->pl, n_kv, t->t_pp, rate(pp, t->t_pp), t->t_tg, rate(tg, t->t_tg), all,
               rate((double)n_kv, all));
    else
        printf(
            "{\"n_batch\": %d, \"n_ubatch\": %d, \"is_pp_shared\": %d, \"pp\": %d, \"tg\": %d, \"pl\": %d, "
            "\"n_kv\": %" PRId64 ", \"t_pp\": %f, \"speed_pp\": %f, \"t_tg\": %f, \"speed_tg\": %f, "
            "\"t\": %f, \"speed\": %f}\n",
            o->bench_batch.v[0], o->bench_ubatch.v[0], o->prompt_shared, t->pp, t->tg, t->pl, n_kv, t->t_pp,
            rate(pp, t->t_pp), t->t_tg, rate(tg, t->t_tg), all, rate((double)n_kv, all));
}

static void print_header(const struct options *o)
{
    static const char *const names[] = {"T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s"};
    if (strcmp(o->output_format, "md") != 0)
        return;
    printf("|%6s | %6s | %4s | %6s |", "PP", "TG", "B", "N_KV");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf(" %8s |", names[i]);
    printf("\n|-------|--------|------|--------|");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("----------|");
    printf("\n");
}

static int run_test(struct batched *b, struct batched_test *t, struct grappa_err *err)
{
    const struct options *o = b->o;
    struct grappa_context_params p = {
        .n_ctx = positions(t), .n_batch = (uint32_t)o->bench_ubatch.v[0], .n_seq_max = (uint32_t)t->pl};
    int status = -1;
    b->random = 88172645463325252u;
    b->ctx = grappa_context_new(b->model, &p, err);
    if (!b->ctx)
        return -1;
    if (!o->no_warmup && (run(b, 1, 16, err) || grappa_seq_trim(b->ctx, 0, 0, err)))
        goto cleanup;
    status = measure(b, t, err);
    if (status == 0) {
        print_result(o, t);
        print_profile(o, b->ctx);
    }
cleanup:
    grappa_context_free(b->ctx);
    b->ctx = NULL;
    return status;
}

static int all_tests(struct batched *b, struct grappa_err *err)
{
    const struct options *o = b->o;
    for (size_t i = 0; i < o->batched_pp.n; i++) {
        for (size_t j = 0; j < o->batched_tg.n; j++) {
            for (size_t k = 0; k < o->batched_pl.n && out_flush(); k++) {
                struct batched_test t = {
                    .pp = o->batched_pp.v[i], .tg = o->batched_tg.v[j], .pl = o->batched_pl.v[k]};
                if (run_test(b, &t, err))
                    return -1;
            }
        }
    }
    return 0;
}

static int load(struct batched *b, const char *path, struct grappa_err *err)
{
    const struct options *o = b->o;
    struct model_setup setup;
    int status = model_setup_init(&setup, o, err);
    struct grappa_model_params *p = &setup.params;
    p->device = device_name(o->bench_devices.n ? o->bench_devices.v[0] : NULL);
    p->n_threads = o->bench_threads.v[0];
    if (status == 0)
        status =
            type_parse("--cache-type-k", o->bench_type_k.n ? o->bench_type_k.v[0] : NULL, &p->type_k, err);
    if (status == 0)
        status =
            type_parse("--cache-type-v", o->bench_type_v.n ? o->bench_type_v.v[0] : NULL, &p->type_v, err);
    b->model = status == 0 ? load_model(path, p, err) : NULL;
    model_setup_release(&setup);
    return b->model ? 0 : -1;
}

static int check(const struct options *o, struct grappa_err *err)
{
    const struct {
        const char *option;
        size_t n;
    } lists[] = {{"-t", o->bench_threads.n},  {"-dev", o->bench_devices.n}, {"-ctk", o->bench_type_k.n},
                 {"-ctv", o->bench_type_v.n}, {"-b", o->bench_batch.n},     {"-ub", o->bench_ubatch.n}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (lists[i].n > 1)
            return cli_error(err, 2, "%s takes one value together with -npl", lists[i].option);
    }
    if (strcmp(o->output_format, "md") != 0 && strcmp(o->output_format, "jsonl") != 0)
        return cli_error(err, 2, "-o %s: with -npl it is md or jsonl", o->output_format);
    return 0;
}

int bench_batched(const struct options *o)
{
    struct grappa_err err = {0};
    struct batched b = {.o = o};
    if (check(o, &err))
        return cli_fail(&err);
    size_t most = (size_t)o->bench_batch.v[0];
    b.token = xcalloc(most, sizeof *b.token);
    b.seq = xcalloc(most, sizeof *b.seq);
    b.logits = xcalloc(most, sizeof *b.logits);
    print_header(o);
    for (size_t i = 0; i < o->models.n && out_flush(); i++) {
        int status = load(&b, o->models.v[i], &err);
        if (status == 0)
            status = all_tests(&b, &err);
        grappa_model_free(b.model);
        if (status)
            break;
    }
    free(b.token);
    free(b.seq);
    free(b.logits);
    return err.exit_status ? cli_fail(&err) : 0;
}
