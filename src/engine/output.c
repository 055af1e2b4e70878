/* What comes out of a request: a token's text without cut characters and stop texts, its probability and that
 * of its rivals, and whether it was the last. */
#include "engine/schedule.h"

#include <math.h>
#include <stdlib.h>

/* ---- probabilities ---- */

/* log(sum(exp(logits))): what a logit is above a logarithm of its probability. */
static float log_sum(const float *logits, int32_t n)
{
    float max = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - max);
    /* cppcheck-suppress invalidFunctionArg ; n > 0, so the sum is at least 1 */
    return max + (float)log(sum);
}

/* Rising by probability, of equals the later token first: the order of a heap whose top is the worst. */
static bool worse(struct grappa_prob a, struct grappa_prob b)
{
    return a.logprob != b.logprob ? a.logprob < b.logprob : a.token > b.token;
}

static void sift(struct grappa_prob *h, int32_t n, int32_t i)
{
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && worse(h[child + 1], h[child]))
            child++;
        if (!worse(h[child], h[i]))
            return;
        struct grappa_prob t = h[i];
        h[i] = h[child];
        h[child] = t;
    }
}

static int by_falling_probability(const void *a, const void *b)
{
    const struct grappa_prob *x = a, *y = b;
    return worse(*x, *y) ? 1 : worse(*y, *x) ? -1 : 0;
}

/* The n most probable of all tokens, falling. */
static void find_best(struct grappa_prob *best, int32_t n, const float *logits, int32_t n_vocab, float sum)
{
    for (int32_t i = 0; i < n; i++)
        best[i] = (struct grappa_prob){i, logits[i] - sum};
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift(best, n, i);
    for (int32_t i = n; i < n_vocab; i++) {
        struct grappa_prob p = {i, logits[i] - sum};
        if (!worse(best[0], p))
            continue;
        best[0] = p;
        sift(best, n, 0);
    }
    qsort(best, (size_t)n, sizeof *best, by_falling_probability);
}

/* As the chain has left them. */
static void sampled_probs(struct grappa_request *r, grappa_token t, struct grappa_event *ev)
{
    const struct sampler_candidate *c;
    size_t n = engine_sampler_candidates(r->sampler, &c);
    ev->logprob = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (c[i].id == t)
            ev->logprob = logf(c[i].p);
        if (i < (size_t)r->n_probs) {
            r->probs[i] = (struct grappa_prob){c[i].id, logf(c[i].p)};
            ev->n_probs = (int32_t)i + 1;
        }
    }
}

static void add_probs(struct grappa_request *r, grappa_token t, const float *logits, struct grappa_event *ev)
{
    if (r->n_probs <= 0 && !r->p.want_logprob)
        return;
    ev->probs = r->probs;
    if (r->p.post_sampling_probs) {
        sampled_probs(r, t, ev);
        return;
    }
    float sum = log_sum(logits, r->n_vocab);
    ev->logprob = logits[t] - sum;
    ev->n_probs = r->n_probs > 0 ? r->n_probs : 0;
    if (ev->n_probs)
        find_best(r->probs, ev->n_probs, logits, r->n_vocab, sum);
}

/* ---- text ---- */

/* The token's own bytes, and the text that it lets out. True: a stop text is complete. */
static bool add_text(struct grappa_request *r, grappa_token t, bool silent, struct grappa_event *ev,
                     const char **stop_text)
{
    struct str text, out;
    text.p = grappa_stream_add(r->stream, t, &text.n);
    ev->piece = engine_stream_piece(r->stream, &ev->n_piece);
    if (silent)
        return false;
    bool stopped = stop_add(&r->stop, text, &out);
    ev->text = out.p;
    ev->n_text = out.n;
    *stop_text = stopped ? r->stop.texts[r->stop.hit].p : NULL;
    return stopped;
}

static bool tell(struct grappa_request *r, const struct grappa_event *ev)
{
    if (!r->p.on_event || r->p.on_event(r->p.user, ev))
        return true;
    atomic_store(&r->cancel, true);
    return false;
}

enum grappa_finish output_token(struct grappa_request *r, int32_t slot, grappa_token t, const float *logits,
                                const char **stop_text)
{
    struct grappa_event ev = {.type = GRAPPA_EVENT_TOKEN,
                              .token = t,
                              .slot = slot,
                              .text = "",
                              .truncated = r->truncated,
                              .timings = &r->timings};
    bool end = grappa_vocab_is_eog(r->e->vocab, t);
    r->timings.n_predicted++;
    r->timings.predict_s = engine_seconds() - r->first_at;
    *stop_text = NULL;
    add_probs(r, t, logits, &ev);
    bool stopped = add_text(r, t, end && !r->p.special, &ev, stop_text);
    if (!tell(r, &ev))
        return GRAPPA_FINISH_CANCEL;
    if (stopped)
        return GRAPPA_FINISH_STOP;
    if (end)
        return GRAPPA_FINISH_EOS;
    if (r->p.n_predict >= 0 && r->timings.n_predicted >= r->p.n_predict)
        return GRAPPA_FINISH_LENGTH;
    return GRAPPA_FINISH_NONE;
}

bool output_progress(struct grappa_request *r, int32_t slot, int32_t n_done)
{
    if (!r->p.want_progress)
        return true;
    if (r->first_at == 0) /* a shift computes some of the text again */
        r->timings.prompt_s = engine_seconds() - r->started_at;
    return tell(r, &(struct grappa_event){.type = GRAPPA_EVENT_PROGRESS,
                                          .token = GRAPPA_TOKEN_NONE,
                                          .piece = "",
                                          .text = "",
                                          .n_done = n_done,
                                          .slot = slot,
                                          .timings = &r->timings});
}
