/* llama-server's own dialect: /completion and /infill. */
#include "server/chat.h"

#include <stdlib.h>

static json_t *native_final(struct part *p, json_t *content, bool with_tokens)
{
    struct run *r = p->run;
    json_t *j = json_object();
    json_object_set_new(j, "index", json_integer(p->index));
    json_object_set_new(j, "content", content);
    json_object_set_new(j, "tokens", with_tokens ? tokens_json(p->tokens, p->n_tokens) : json_array());
    json_object_set_new(j, "id_slot", json_integer(p->slot));
    json_object_set_new(j, "stop", json_true());
    json_object_set_new(j, "model", json_string(r->model->name));
    json_object_set_new(j, "tokens_predicted", json_integer(p->timings.n_predicted));
    json_object_set_new(j, "tokens_evaluated", json_integer(p->timings.n_prompt));
    json_object_set_new(j, "generation_settings", settings_json(&r->s, false));
    json_object_set_new(j, "prompt", prompt_text(p));
    json_object_set_new(j, "has_new_line", json_boolean(p->has_new_line));
    json_object_set_new(j, "truncated", json_boolean(p->last && p->last->e.truncated));
    json_object_set_new(j, "stop_type", json_string(stop_type(p)));
    json_object_set_new(j, "stopping_word", text_json(stop_word(p), strlen(stop_word(p))));
    json_object_set_new(j, "tokens_cached", json_integer(p->timings.n_prompt + p->timings.n_predicted - 1));
    json_object_set_new(j, "timings", timings_json(&p->timings));
    if (p->probs)
        json_object_set(j, "completion_probabilities", p->probs);
    return j;
}

/* Only the members that were asked for; "a/b" is member b of member a. */
static json_t *chosen(const struct server_texts *paths, json_t *whole)
{
    if (paths->n == 0)
        return whole;
    json_t *out = json_object();
    for (size_t i = 0; i < paths->n; i++) {
        json_t *at = whole;
        for (const char *p = paths->v[i]; at && *p;) {
            char key[128];
            size_t n = strcspn(p, "/");
            snprintf(key, sizeof key, "%.*s", (int)n, p);
            at = json_object_get(at, key);
            p += n + (p[n] == '/');
        }
        if (at)
            json_object_set(out, paths->v[i], at);
    }
    json_decref(whole);
    return out;
}

json_t *native_whole(struct part *p)
{
    return chosen(&p->run->s.response_fields, native_final(p, part_text(p), p->run->s.return_tokens));
}

static json_t *native_part(struct part *p, const struct event *e)
{
    bool token = e->e.type == GRAPPA_EVENT_TOKEN;
    return json_pack("{s:i, s:o, s:o, s:b, s:i, s:i, s:i}", "index", p->index, "content",
                     text_json(e->e.text, token ? e->e.n_text : 0), "tokens",
                     tokens_json(&e->e.token, token ? 1 : 0), "stop", 0, "id_slot", e->e.slot,
                     "tokens_predicted", e->timings.n_predicted, "tokens_evaluated", e->timings.n_prompt);
}

static void native_token(struct part *p, const struct event *e, struct buf *out)
{
    json_t *j = native_part(p, e);
    if (p->run->s.timings_per_token)
        json_object_set_new(j, "timings", timings_json(&e->timings));
    if (p->run->s.n_probs > 0) {
        json_t *probs = json_array();
        json_array_append_new(probs, prob_json(p, e));
        json_object_set_new(j, "completion_probabilities", probs);
    }
    put_event(out, NULL, j);
}

static void native_progress(struct part *p, const struct event *e, struct buf *out)
{
    json_t *j = native_part(p, e);
    if (p->run->s.timings_per_token)
        json_object_set_new(j, "timings", timings_json(&e->timings));
    json_object_set_new(j, "prompt_progress", progress_json(e));
    put_event(out, NULL, j);
}

static void native_finish(struct part *p, const struct event *e, struct buf *out)
{
    put_event(out, NULL,
              chosen(&p->run->s.response_fields, native_final(p, text_json(e->e.text, e->e.n_text), false)));
}

void stream_failed(struct part *p, const struct event *e, struct buf *out)
{
    (void)p;
    put_event(out, NULL, json_pack("{s:o}", "error", error_body(e->err.http_status, e->err.text)));
}

static const struct dialect NATIVE = {.name = "native",
                                      .token = native_token,
                                      .progress = native_progress,
                                      .finish = native_finish,
                                      .failed = stream_failed,
                                      .whole = native_whole};

/* ---- OpenAI's text completions ---- */

static json_t *usage_json(const struct part *p)
{
    const struct grappa_timings *t = &p->timings;
    return json_pack("{s:i, s:i, s:i, s:{s:i}}", "completion_tokens", t->n_predicted, "prompt_tokens",
                     t->n_prompt, "total_tokens", t->n_predicted + t->n_prompt, "prompt_tokens_details",
                     "cached_tokens", t->n_cached);
}

json_t *openai_usage(const struct part *p)
{
    return usage_json(p);
}

static json_t *text_body(struct part *p, json_t *text, json_t *finish, json_t *probs)
{
    struct run *r = p->run;
    json_t *logprobs = probs ? json_pack("{s:o}", "content", probs) : json_null();
    return json_pack("{s:[{s:o, s:i, s:o, s:o}], s:I, s:s, s:s, s:s, s:s}", "choices", "text", text, "index",
                     p->index, "logprobs", logprobs, "finish_reason", finish, "created",
                     (json_int_t)r->created, "model", r->model->name, "system_fingerprint", FINGERPRINT,
                     "object", "text_completion", "id", r->id);
}

static json_t *text_final(struct part *p, json_t *text)
{
    json_t *j = text_body(p, text, json_string(stopped(p) ? "stop" : "length"), json_incref(p->probs));
    json_object_set_new(j, "usage", usage_json(p));
    if (p->run->s.verbose)
        json_object_set_new(j, "__verbose", native_final(p, part_text(p), true));
    json_object_set_new(j, "timings", timings_json(&p->timings));
    return j;
}

static json_t *text_whole(struct part *p)
{
    return text_final(p, part_text(p));
}

static json_t *text_part(struct part *p, const struct event *e, bool token)
{
    json_t *probs = NULL;
    if (token && p->run->s.n_probs > 0) {
        probs = json_array();
        json_array_append_new(probs, prob_json(p, e));
    }
    json_t *j = text_body(p, text_json(e->e.text, token ? e->e.n_text : 0), json_null(), probs);
    if (p->run->s.timings_per_token)
        json_object_set_new(j, "timings", timings_json(&e->timings));
    return j;
}

static void text_token(struct part *p, const struct event *e, struct buf *out)
{
    put_event(out, NULL, text_part(p, e, true));
}

static void text_progress(struct part *p, const struct event *e, struct buf *out)
{
    json_t *j = text_part(p, e, false);
    json_object_set_new(j, "prompt_progress", progress_json(e));
    put_event(out, NULL, j);
}

static void text_finish(struct part *p, const struct event *e, struct buf *out)
{
    put_event(out, NULL, text_final(p, text_json(e->e.text, e->e.n_text)));
}

/* One answer with the choices of all. */
json_t *join_choices(json_t *answers)
{
    json_t *one = json_incref(json_array_get(answers, 0)), *choices = json_object_get(one, "choices");
    for (size_t i = 1; i < json_array_size(answers); i++)
        json_array_extend(choices, json_object_get(json_array_get(answers, i), "choices"));
    json_decref(answers);
    return one;
}

static const struct dialect TEXT = {.name = "text",
                                    .done_marker = true,
                                    .token = text_token,
                                    .progress = text_progress,
                                    .finish = text_finish,
                                    .failed = stream_failed,
                                    .whole = text_whole,
                                    .join = join_choices};

/* ---- routes ---- */

static void add_prompt(void *user, grappa_token *ids, size_t n)
{
    run_add_prompt(user, ids, n);
}

/* A run with its settings read; NULL: replied with an error. */
struct run *begin_run(struct exchange *x, const json_t *body, const struct dialect *d)
{
    struct grappa_err err = {0};
    struct model *m = acquire_for(x, body, &err);
    if (!m) {
        reply_error(x, &err);
        return NULL;
    }
    struct run *r = run_new(x, m, d);
    if (settings_init(&r->s, x->srv->p, m, body, &err)) {
        reply_error(x, &err);
        return NULL;
    }
    return r;
}

/* The run belongs to the exchange, also when this fails. */
static void complete(struct exchange *x, const json_t *body, const struct dialect *d)
{
    struct grappa_err err = {0};
    if (!member(body, "prompt")) {
        reply_fail(x, 400, "\"prompt\" is required");
        return;
    }
    if (x->srv->p->embeddings) {
        reply_fail(x, 501, "This server does not support completions. Start it without `--embeddings`");
        return;
    }
    struct run *r = begin_run(x, body, d);
    if (!r)
        return;
    if (each_prompt(r->model, json_object_get(body, "prompt"), true, true, add_prompt, r, &err))
        reply_error(x, &err);
    else
        run_go(r);
}

static void completion(struct exchange *x, json_t *body)
{
    complete(x, body, &NATIVE);
}

void post_completion(struct exchange *x)
{
    with_body(x, completion);
}

static void text_completion(struct exchange *x, json_t *body)
{
    static const char *const unsupported[] = {"best_of", "suffix"};
    if (json_is_true(json_object_get(body, "echo"))) {
        reply_fail(x, 400, "Only no echo is supported");
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        if (member(body, unsupported[i])) {
            reply_fail(x, 400, "Unsupported param: %s", unsupported[i]);
            return;
        }
    }
    complete(x, body, &TEXT);
}

void post_text_completion(struct exchange *x)
{
    with_body(x, text_completion);
}

void run_infill(struct exchange *x, json_t *body, grappa_token *ids, size_t n)
{
    struct run *r = begin_run(x, body, &NATIVE);
    if (!r) {
        free(ids);
        return;
    }
    run_add_prompt(r, ids, n);
    run_go(r);
}
