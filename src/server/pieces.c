/* Parts of answers that several dialects have. */
#include "server/run.h"

#include "base/utf8.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static double per(double n, double d)
{
    return d > 0 ? n / d : 0;
}

json_t *timings_json(const struct grappa_timings *t)
{
    /* What a shift of the context computes again is no part of the prompt. */
    int32_t most = t->n_prompt - t->n_cached, n_computed = t->n_computed < most ? t->n_computed : most;
    double prompt_ms = n_computed > 0 ? 1e3 * t->prompt_s : 0, text_ms = 1e3 * t->predict_s;
    /* The first token comes out of the prompt's last step, so n tokens take n - 1 steps. */
    double steps = t->n_predicted > 0 ? t->n_predicted - 1 : 0;
    if (steps == 0 && t->n_predicted == 0)
        text_ms = 0;
    json_t *j =
        json_pack("{s:i, s:i, s:f, s:f, s:f, s:i, s:f, s:f, s:f}", "cache_n", t->n_cached, "prompt_n",
                  n_computed, "prompt_ms", prompt_ms, "prompt_per_token_ms", per(prompt_ms, n_computed),
                  "prompt_per_second", per(1e3 * n_computed, prompt_ms), "predicted_n", t->n_predicted,
                  "predicted_ms", text_ms, "predicted_per_token_ms", per(text_ms, steps),
                  "predicted_per_second", steps > 0 ? per(1e3 * steps, text_ms) : 0.0);
    if (j && t->n_drafted) {
        json_object_set_new(j, "draft_n", json_integer(t->n_drafted));
        json_object_set_new(j, "draft_n_accepted", json_integer(t->n_accepted));
    }
    return j;
}

json_t *progress_json(const struct event *e)
{
    return json_pack("{s:i, s:i, s:i, s:I}", "total", e->timings.n_prompt, "cache", e->timings.n_cached,
                     "processed", e->e.n_done, "time_ms", (json_int_t)(1e3 * e->timings.prompt_s));
}

/* ---- probabilities ---- */

/* Bytes of a token without a character that is cut at the end. */
static size_t whole_characters(const char *p, size_t n)
{
    for (size_t back = 1; back <= 4 && back <= n; back++) {
        unsigned char c = (unsigned char)p[n - back];
        size_t need = (c & 0xE0) == 0xC0 ? 2 : (c & 0xF0) == 0xE0 ? 3 : (c & 0xF8) == 0xF0 ? 4 : 0;
        if (need)
            return need > back ? n - back : n;
    }
    return n;
}

static json_t *prob_entry(grappa_token t, const char *piece, size_t n, bool post, float logprob)
{
    json_t *value;
    if (post)
        value = real_json(exp((double)logprob));
    else
        value = json_real(isfinite(logprob) ? (double)logprob : (double)-FLT_MAX);
    return json_pack("{s:i, s:o, s:o, s:o}", "id", t, "token", text_json(piece, whole_characters(piece, n)),
                     "bytes", bytes_json(piece, n), post ? "prob" : "logprob", value);
}

json_t *prob_json(const struct part *p, const struct event *e)
{
    bool post = p->run->s.post_sampling_probs;
    json_t *top = json_array();
    for (int32_t i = 0; i < e->e.n_probs; i++) {
        const struct grappa_prob *q = &e->e.probs[i];
        char piece[512];
        size_t n = grappa_token_piece(p->run->model->v, q->token, p->run->s.p->special, piece, sizeof piece);
        if (post && !(q->logprob > -FLT_MAX))
            continue; /* what can't come is not shown */
        json_array_append_new(
            top, prob_entry(q->token, piece, n < sizeof piece ? n : sizeof piece, post, q->logprob));
    }
    json_t *j = prob_entry(e->e.token, e->e.piece, e->e.n_piece, post, e->e.logprob);
    json_object_set_new(j, post ? "top_probs" : "top_logprobs", top);
    return j;
}

/* ---- ends ---- */

bool stopped(const struct part *p)
{
    return p->last && (p->last->e.finish == GRAPPA_FINISH_EOS || p->last->e.finish == GRAPPA_FINISH_STOP);
}

const char *stop_type(const struct part *p)
{
    if (!p->last)
        return "none";
    switch (p->last->e.finish) {
    case GRAPPA_FINISH_EOS:
        return "eos";
    case GRAPPA_FINISH_STOP:
        return p->last->e.stop_text ? "word" : "eos"; /* a grammar at its end is as good as the model's own */
    case GRAPPA_FINISH_LENGTH:
    case GRAPPA_FINISH_DEADLINE:
        return "limit";
    default:
        return "none";
    }
}

const char *stop_word(const struct part *p)
{
    return p->last && p->last->e.stop_text ? p->last->e.stop_text : "";
}

/* ---- text ---- */

json_t *part_text(const struct part *p)
{
    return text_json(p->text.p, p->text.n);
}

json_t *prompt_text(const struct part *p)
{
    struct buf b = {0};
    char piece[512];
    for (size_t i = 0; i < p->n_prompt; i++) {
        size_t n = grappa_token_piece(p->run->model->v, p->prompt[i], true, piece, sizeof piece);
        buf_add(&b, piece, n < sizeof piece ? n : sizeof piece);
    }
    json_t *j = text_json(b.p, b.n);
    buf_release(&b);
    return j;
}

json_t *tokens_json(const grappa_token *ids, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer(ids[i]));
    return a;
}

void put_event(struct buf *out, const char *event, json_t *j)
{
    if (event)
        buf_printf(out, "event: %s\n", event);
    buf_puts(out, "data: ");
    if (j)
        dump_json(out, j);
    else
        out->failed = true;
    buf_puts(out, "\n\n");
    json_decref(j);
}
