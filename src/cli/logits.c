/* grappa logits: float32 [positions, vocabulary] of given tokens, for comparing implementations. */
#include "cli/common.h"

#include <stdlib.h>
#include <string.h>

static int check_arguments(const struct options *o, struct grappa_err *err)
{
    if (o->ids.n == 0)
        return cli_error(err, 2, "`logits` needs tokens: --ids ID,ID,…");
    if (!o->output)
        return cli_error(err, 2, "`logits` needs a place to write: -o FILE");
    size_t sum = 0;
    for (size_t i = 0; i < o->steps.n; i++)
        sum += (size_t)o->steps.v[i];
    if (o->steps.n && sum != o->ids.n)
        return cli_error(err, 2, "--steps: the calls compute %zu tokens, --ids has %zu", sum, o->ids.n);
    return 0;
}

static int check_ids(const struct options *o, int32_t n_vocab, struct grappa_err *err)
{
    for (size_t i = 0; i < o->ids.n; i++) {
        if (o->ids.v[i] >= n_vocab)
            return cli_error(err, 2, "--ids %d: the vocabulary has %d tokens", (int)o->ids.v[i],
                             (int)n_vocab);
    }
    return 0;
}

/* One call; all of its logits. */
static int step(struct grappa_context *ctx, const int32_t *ids, size_t n, const int8_t *wanted,
                int32_t n_vocab, FILE *f, const struct options *o, struct grappa_err *err)
{
    struct grappa_batch batch = {.n = n, .token = ids, .logits = wanted};
    if (grappa_decode(ctx, &batch, err))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const float *row = grappa_logits(ctx, (int32_t)i);
        if (!row)
            return cli_error(err, 1, "the model gave no logits");
        if (write_output(f, o->output, row, (size_t)n_vocab * sizeof *row, err))
            return -1;
    }
    return 0;
}

int cmd_logits(const struct options *o)
{
    struct grappa_err err = {0};
    struct grappa_model *model = NULL;
    struct grappa_context *ctx = NULL;
    int8_t *wanted = NULL;
    FILE *f = NULL;
    if (check_arguments(o, &err) || !(model = load_model_of(o, &err)))
        goto cleanup;
    int32_t n_vocab = grappa_vocab_n_tokens(grappa_model_vocab(model));
    if (check_ids(o, n_vocab, &err))
        goto cleanup;
    /* Just long enough, unless the model is to be told more. */
    uint32_t n = (uint32_t)o->ids.n, n_ctx = o->n_ctx > n ? o->n_ctx : n;
    struct grappa_context_params p = {
        .n_ctx = n_ctx, .n_batch = o->n_ubatch, .n_seq_max = 1, .swa_full = o->swa_full};
    ctx = grappa_context_new(model, &p, &err);
    if (!ctx || !(f = open_output(o->output, &err)))
        goto cleanup;
    wanted = xmalloc(o->ids.n);
    memset(wanted, 1, o->ids.n);
    const int32_t all = (int32_t)o->ids.n, *sizes = o->steps.n ? o->steps.v : &all;
    size_t n_steps = o->steps.n ? o->steps.n : 1, at = 0;
    for (size_t i = 0; i < n_steps; i++) {
        if (step(ctx, o->ids.v + at, (size_t)sizes[i], wanted, n_vocab, f, o, &err))
            break;
        at += (size_t)sizes[i];
    }
    if (!err.exit_status)
        log_info("%zu positions of %d logits", at, (int)n_vocab);
    print_profile(o, ctx);
cleanup:
    close_output(f, o->output, &err);
    free(wanted);
    grappa_context_free(ctx);
    grappa_model_free(model);
    return err.exit_status ? cli_fail(&err) : 0;
}
