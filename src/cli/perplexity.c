/* grappa perplexity: how well a model predicts a text, by llama-perplexity's method. The text is cut into
 * chunks of n_ctx tokens, each computed on its own (starting with BOS if the vocabulary adds one); scored are
 * the predictions in the second half of a chunk, so that each has some text before it. The logits can be kept
 * in a file, and those of another model compared with them. */
#include "cli/common.h"
#include "cli/kld.h"
#include "cli/logits_file.h"
#include "cli/score.h"

#include "base/par.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a scored position gives: nll alone, or the comparison. */
struct ppl {
    const struct options *o;
    struct grappa_model *model;
    struct grappa_context *ctx;
    int32_t n_vocab, n_ctx, first, n_chunk;
    const grappa_token *tokens; /* [n_chunk * n_ctx] */
    grappa_token *own_tokens;   /* the same, when they come from the text */
    struct logits_file file;    /* written, or read with --kl-divergence */
    struct kld kld;
    struct score_sum nll;
    double start;

    /* One step: up to n_step tokens, of one chunk or of several whole ones. */
    size_t n_step;
    grappa_token *batch_tokens;
    int32_t *batch_seq;
    int8_t *batch_wanted;

    /* The rows of a step that are scored. */
    size_t n_rows;
    const float **row;        /* logits */
    grappa_token *row_target; /* the token that came next */
    struct score_pair *row_score;
    uint16_t *packed; /* rows of the file, or NULL */
};

/* ---- the text ---- */

static int open_base(struct ppl *p, struct grappa_err *err)
{
    const struct options *o = p->o;
    if (!o->logits_file)
        return cli_error(err, 2, "--kl-divergence needs a file to compare with: --kl-divergence-base FILE");
    if (logits_file_read(&p->file, o->logits_file, err))
        return -1;
    p->n_ctx = p->file.n_ctx;
    p->n_chunk = p->file.n_chunk;
    p->tokens = p->file.tokens;
    return 0;
}

static int check_options(struct ppl *p, struct grappa_err *err)
{
    if (p->o->kl_divergence)
        return open_base(p, err);
    if (!has_prompt(p->o))
        return cli_error(err, 2, "`perplexity` needs a text: -f FILE or -p TEXT");
    if (p->o->n_ctx < 4 || p->o->n_ctx > 1 << 24)
        return cli_error(err, 2, "-c %u: chunks must have at least 4 positions", p->o->n_ctx);
    p->n_ctx = (int32_t)p->o->n_ctx;
    return 0;
}

static int read_text(struct ppl *p, struct grappa_err *err)
{
    struct buf text = {0};
    size_t n = 0;
    if (read_prompt(p->o, false, &text, err) == 0)
        p->own_tokens =
            grappa_tokenize_new(grappa_model_vocab(p->model), text.p, text.n, true, false, &n, err);
    buf_release(&text);
    if (!p->own_tokens)
        return -1;
    p->tokens = p->own_tokens;
    size_t n_chunk = n / (size_t)p->n_ctx;
    if (n_chunk < 2)
        return cli_error(err, 1, "the text has %zu tokens; for chunks of %d there must be at least %d", n,
                         p->n_ctx, 2 * p->n_ctx);
    p->n_chunk = n_chunk > INT32_MAX ? INT32_MAX : (int32_t)n_chunk;
    return 0;
}

static int limit_chunks(struct ppl *p, struct grappa_err *err)
{
    if (p->o->n_chunks == 0)
        return cli_error(err, 2, "--chunks 0: nothing to compute");
    if (p->o->n_chunks > 0 && p->o->n_chunks < p->n_chunk)
        p->n_chunk = p->o->n_chunks;
    return 0;
}

/* ---- memory ---- */

/* Steps have the size of an inference, since larger ones are computed in several anyway, and their logits
 * would all have to be kept. Where chunks are smaller than that, several go in one step. */
static int make_room(struct ppl *p, struct grappa_err *err)
{
    size_t step = p->o->n_batch < p->o->n_ubatch ? p->o->n_batch : p->o->n_ubatch, n_ctx = (size_t)p->n_ctx;
    size_t n_seq = step / n_ctx;
    if (n_seq > (size_t)p->n_chunk)
        n_seq = (size_t)p->n_chunk;
    p->n_step = n_seq ? n_seq * n_ctx : step;
    size_t n_rows = p->n_step;
    size_t packed = 0;
    if (p->o->logits_file && !mul_size(n_rows, score_row_u16(p->n_vocab) * sizeof *p->packed, &packed))
        return cli_error(err, 1, "out of memory");
    p->batch_tokens = calloc(p->n_step, sizeof *p->batch_tokens);
    p->batch_seq = calloc(p->n_step, sizeof *p->batch_seq);
    p->batch_wanted = calloc(p->n_step, sizeof *p->batch_wanted);
    p->row = calloc(n_rows, sizeof *p->row);
    p->row_target = calloc(n_rows, sizeof *p->row_target);
    p->row_score = calloc(n_rows, sizeof *p->row_score);
    p->packed = packed ? malloc(packed) : NULL;
    if (!p->batch_tokens || !p->batch_seq || !p->batch_wanted || !p->row || !p->row_target || !p->row_score ||
        (packed && !p->packed))
        return cli_error(err, 1, "out of memory");
    if (p->o->kl_divergence && !kld_init(&p->kld, (size_t)p->n_chunk * (size_t)scored_positions(p->n_ctx)))
        return cli_error(err, 1, "out of memory");
    struct grappa_context_params c = {
        .n_ctx = (uint32_t)(n_seq ? p->n_step : n_ctx),
        .n_batch = (uint32_t)p->n_step,
        .n_seq_max = (uint32_t)(n_seq ? n_seq : 1),
        .swa_full = p->o->swa_full,
    };
    p->ctx = grappa_context_new(p->model, &c, err);
    return p->ctx ? 0 : -1;
}

static void release(struct ppl *p, struct grappa_err *err)
{
    logits_file_close(&p->file, err);
    grappa_context_free(p->ctx);
    grappa_model_free(p->model);
    kld_release(&p->kld);
    free(p->own_tokens);
    free(p->batch_tokens);
    free(p->batch_seq);
    free(p->batch_wanted);
    free(p->row);
    free(p->row_target);
    free(p->row_score);
    free(p->packed);
}

/* ---- scoring ---- */

static void score_rows(void *ctx, size_t begin, size_t end)
{
    struct ppl *p = ctx;
    size_t width = score_row_u16(p->n_vocab);
    for (size_t i = begin; i < end; i++) {
        if (p->o->kl_divergence)
            score_compare(p->row[i], p->packed + i * width, p->n_vocab, p->row_target[i], &p->row_score[i]);
        else if (p->packed)
            p->row_score[i].nll =
                score_nll_packed(p->row[i], p->n_vocab, p->row_target[i], p->packed + i * width);
        else
            p->row_score[i].nll = score_nll(p->row[i], p->n_vocab, p->row_target[i]);
    }
}

static void show_chunk(const struct ppl *p, int32_t chunk)
{
    if (p->o->kl_divergence) {
        kld_print_chunk(&p->kld, chunk + 1);
        out_flush();
        return;
    }
    double mean = score_mean(&p->nll);
    if (p->o->ppl_output_type == 0)
        printf("[%d]%.4f,", chunk + 1, exp(mean));
    else
        printf("%8lld  %.4f  %4f  %4f\n", (long long)chunk * p->n_ctx, exp(mean), mean,
               score_uncertainty(&p->nll));
    out_flush();
}

/* Scores the rows of a step and adds them up in their order, so that the sums do not depend on threads. */
static int score_step(struct ppl *p, int32_t *chunk, struct grappa_err *err)
{
    if (p->n_rows == 0)
        return 0;
    if (p->o->kl_divergence && logits_file_read_rows(&p->file, p->packed, p->n_rows, err))
        return -1;
    par_for(p->n_rows, 1, p->o->n_threads > 0 ? p->o->n_threads : 0, score_rows, p);
    if (p->packed && !p->o->kl_divergence && logits_file_write_rows(&p->file, p->packed, p->n_rows, err))
        return -1;
    size_t per_chunk = (size_t)scored_positions(p->n_ctx);
    for (size_t i = 0; i < p->n_rows; i++) {
        score_sum_add(&p->nll, p->row_score[i].nll);
        if (p->o->kl_divergence)
            kld_add(&p->kld, &p->row_score[i]);
        if (p->nll.n % per_chunk == 0)
            show_chunk(p, (*chunk)++);
    }
    return 0;
}

/* ---- computing ---- */

/* Adds positions [begin, end) of a chunk to the step. */
static void add_to_step(struct ppl *p, size_t at, int32_t chunk, int32_t seq, int32_t begin, int32_t end)
{
    const struct grappa_vocab *v = grappa_model_vocab(p->model);
    const grappa_token *tokens = p->tokens + (size_t)chunk * (size_t)p->n_ctx;
    for (int32_t pos = begin; pos < end; pos++, at++) {
        bool scored = pos >= p->first && pos + 1 < p->n_ctx;
        p->batch_tokens[at] = pos == 0 && grappa_vocab_add_bos(v) ? grappa_vocab_bos(v) : tokens[pos];
        p->batch_seq[at] = seq;
        p->batch_wanted[at] = scored;
        if (scored)
            p->row_target[p->n_rows++] = tokens[pos + 1];
    }
}

static int compute_step(struct ppl *p, size_t n, struct grappa_err *err)
{
    struct grappa_batch batch = {
        .n = n, .token = p->batch_tokens, .seq_id = p->batch_seq, .logits = p->batch_wanted};
    if (grappa_decode(p->ctx, &batch, err))
        return -1;
    for (size_t i = 0; i < p->n_rows; i++) {
        p->row[i] = grappa_logits(p->ctx, (int32_t)i);
        if (!p->row[i])
            return cli_error(err, 1, "the model gave no logits");
    }
    return 0;
}

/* Chunks [chunk, chunk + n), each a sequence of its own; more than one only if they fit one step. */
static int compute_chunks(struct ppl *p, int32_t chunk, int32_t n, int32_t *done, struct grappa_err *err)
{
    int32_t length = (int32_t)p->n_step / n < p->n_ctx ? (int32_t)p->n_step / n : p->n_ctx;
    for (int32_t seq = 0; seq < n; seq++) {
        if (grappa_seq_trim(p->ctx, seq, 0, err))
            return -1;
    }
    for (int32_t begin = 0; begin < p->n_ctx; begin += length) {
        int32_t end = p->n_ctx - begin < length ? p->n_ctx : begin + length;
        p->n_rows = 0;
        for (int32_t seq = 0; seq < n; seq++)
            add_to_step(p, (size_t)seq * (size_t)(end - begin), chunk + seq, seq, begin, end);
        if (compute_step(p, (size_t)n * (size_t)(end - begin), err) || score_step(p, done, err))
            return -1;
    }
    return 0;
}

static int compute(struct ppl *p, struct grappa_err *err)
{
    int32_t at_once = (int32_t)p->n_step / p->n_ctx > 1 ? (int32_t)p->n_step / p->n_ctx : 1, done = 0;
    p->first = p->n_ctx / 2;
    log_info("%d chunks of %d positions, %d at once", p->n_chunk, p->n_ctx, at_once);
    if (p->o->kl_divergence)
        kld_print_head();
    for (int32_t chunk = 0; chunk < p->n_chunk && out_flush(); chunk += at_once) {
        int32_t n = p->n_chunk - chunk < at_once ? p->n_chunk - chunk : at_once;
        double start = now_s();
        if (compute_chunks(p, chunk, n, &done, err))
            return -1;
        if (chunk == 0)
            log_info("%.2f s for %d chunk(s), about %.1f minutes for all", now_s() - start, n,
                     (now_s() - start) * p->n_chunk / n / 60);
    }
    return 0;
}

static void show_result(struct ppl *p)
{
    if (p->o->kl_divergence) {
        kld_print(&p->kld);
    } else {
        double ppl = exp(score_mean(&p->nll));
        printf("\nFinal estimate: PPL = %.4f +/- %.5f\n", ppl, ppl * score_uncertainty(&p->nll));
    }
    if (p->o->perf || p->o->verbose) {
        double s = now_s() - p->start;
        size_t n = (size_t)p->n_chunk * (size_t)p->n_ctx;
        fprintf(stderr, "%zu tokens in %.2f s, %.2f tokens per second\n", n, s, s > 0 ? (double)n / s : 0);
    }
    print_profile(p->o, p->ctx);
}

int cmd_perplexity(const struct options *o)
{
    struct grappa_err err = {0};
    struct ppl p = {.o = o};
    if (check_options(&p, &err) || !(p.model = load_model_of(o, &err)))
        goto cleanup;
    p.n_vocab = grappa_vocab_n_tokens(grappa_model_vocab(p.model));
    if (o->kl_divergence && p.file.n_vocab != p.n_vocab) {
        cli_error(&err, 1, "%s: its vocabulary has %d tokens, that of the model %d", o->logits_file,
                  p.file.n_vocab, p.n_vocab);
        goto cleanup;
    }
    if ((!o->kl_divergence && read_text(&p, &err)) || limit_chunks(&p, &err) || make_room(&p, &err))
        goto cleanup;
    if (o->logits_file && !o->kl_divergence) {
        p.file = (struct logits_file){.n_ctx = p.n_ctx, .n_vocab = p.n_vocab, .n_chunk = p.n_chunk};
        if (logits_file_write(&p.file, o->logits_file, p.tokens, &err))
            goto cleanup;
    }
    p.start = now_s();
    if (compute(&p, &err) == 0)
        show_result(&p);
cleanup:
    release(&p, &err);
    return err.exit_status ? cli_fail(&err) : 0;
}
