/* OpenAI's chat completions. */
#include "server/chat.h"

#include <stdlib.h>

struct state {     /* of a stream */
    bool begun;    /* the first chunk, with the role, is out */
    json_t *probs; /* of tokens whose text is still held back */
};

json_t *delta_json(const struct grappa_delta *d)
{
    json_t *function;
    switch (d->type) {
    case GRAPPA_DELTA_CONTENT:
        return json_pack("{s:o}", "content", text_json(d->text, d->n_text));
    case GRAPPA_DELTA_REASONING:
        return json_pack("{s:o}", "reasoning_content", text_json(d->text, d->n_text));
    case GRAPPA_DELTA_TOOL:
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", d->index, "id",
                         d->id ? d->id : "", "type", "function", "function", "name", d->name ? d->name : "",
                         "arguments", "");
    default:
        function = json_pack("{s:o}", "arguments", text_json(d->text, d->n_text));
        return json_pack("{s:[{s:i, s:o}]}", "tool_calls", "index", d->index, "function", function);
    }
}

json_t *part_message(struct part *p)
{
    size_t n = 0;
    const char *text = p->parser ? grappa_chat_parser_message(p->parser, &n) : NULL;
    json_t *j = text ? json_loadb(text, n, JSON_ALLOW_NUL, NULL) : NULL;
    return j ? j : json_pack("{s:s, s:o}", "role", "assistant", "content", part_text(p));
}

static const char *finish_reason(const struct part *p)
{
    if (!stopped(p))
        return "length";
    return p->parser && grappa_chat_parser_n_calls(p->parser) > 0 ? "tool_calls" : "stop";
}

/* ---- whole ---- */

static json_t *chat_whole(struct part *p)
{
    struct run *r = p->run;
    json_t *choice = json_pack("{s:s, s:i, s:o}", "finish_reason", finish_reason(p), "index", p->index,
                               "message", part_message(p));
    if (p->probs)
        json_object_set_new(choice, "logprobs", json_pack("{s:O}", "content", p->probs));
    json_t *j = json_pack("{s:[o], s:I, s:s, s:s, s:s, s:o, s:s}", "choices", choice, "created",
                          (json_int_t)r->created, "model", r->model->name, "system_fingerprint", FINGERPRINT,
                          "object", "chat.completion", "usage", openai_usage(p), "id", r->id);
    if (r->s.verbose)
        json_object_set_new(j, "__verbose", native_whole(p));
    json_object_set_new(j, "timings", timings_json(&p->timings));
    return j;
}

/* ---- streamed ---- */

static json_t *chunk(struct part *p, json_t *delta, const char *finish)
{
    struct run *r = p->run;
    json_t *reason = finish ? json_string(finish) : json_null();
    return json_pack("{s:[{s:o, s:i, s:o}], s:I, s:s, s:s, s:s, s:s}", "choices", "finish_reason", reason,
                     "index", p->index, "delta", delta, "created", (json_int_t)r->created, "id", r->id,
                     "model", r->model->name, "system_fingerprint", FINGERPRINT, "object",
                     "chat.completion.chunk");
}

/* The chunks of an event, so that the last one can be added to before they go out. */
static void add_chunks(struct part *p, json_t *list, bool role)
{
    if (role)
        json_array_append_new(list, chunk(p, json_pack("{s:s, s:n}", "role", "assistant", "content"), NULL));
    for (size_t i = 0; i < p->n_deltas; i++)
        json_array_append_new(list, chunk(p, delta_json(&p->deltas[i]), NULL));
}

static json_t *last_of(json_t *list)
{
    return json_array_get(list, json_array_size(list) - 1);
}

static void attach_probs(struct part *p, json_t *c)
{
    struct state *s = p->state;
    if (!s->probs || json_array_size(s->probs) == 0)
        return;
    json_object_set_new(json_array_get(json_object_get(c, "choices"), 0), "logprobs",
                        json_pack("{s:o}", "content", s->probs));
    s->probs = NULL;
}

static void put_chunks(struct buf *out, json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        put_event(out, NULL, json_incref(json_array_get(list, i)));
    json_decref(list);
}

static void chat_token(struct part *p, const struct event *e, struct buf *out)
{
    struct state *s = p->state;
    json_t *list = json_array();
    if (p->run->s.n_probs > 0) {
        if (!s->probs)
            s->probs = json_array();
        json_array_append_new(s->probs, prob_json(p, e));
    }
    add_chunks(p, list, !s->begun);
    s->begun = true;
    if (p->n_deltas)
        attach_probs(p, last_of(list));
    if (json_array_size(list) && p->run->s.timings_per_token)
        json_object_set_new(last_of(list), "timings", timings_json(&e->timings));
    put_chunks(out, list);
}

static void chat_progress(struct part *p, const struct event *e, struct buf *out)
{
    json_t *list = json_array();
    p->n_deltas = 0;
    add_chunks(p, list, true);
    if (p->run->s.timings_per_token)
        json_object_set_new(last_of(list), "timings", timings_json(&e->timings));
    json_object_set_new(last_of(list), "prompt_progress", progress_json(e));
    put_chunks(out, list);
}

static void chat_finish(struct part *p, const struct event *e, struct buf *out)
{
    struct run *r = p->run;
    struct state *s = p->state;
    json_t *list = json_array();
    (void)e;
    add_chunks(p, list, !s->begun);
    if (json_array_size(list))
        attach_probs(p, last_of(list));
    json_array_append_new(list, chunk(p, json_object(), finish_reason(p)));
    attach_probs(p, last_of(list)); /* of text that never came, the stop's own */
    if (r->s.include_usage) {
        json_t *usage = chunk(p, json_object(), NULL);
        json_object_set_new(usage, "choices", json_array());
        json_object_set_new(usage, "usage", openai_usage(p));
        json_array_append_new(list, usage);
    }
    json_object_set_new(last_of(list), "timings", timings_json(&p->timings));
    if (r->s.verbose)
        json_object_set_new(json_array_get(list, 0), "__verbose", native_whole(p));
    put_chunks(out, list);
    json_decref(s->probs);
    s->probs = NULL;
}

static void chat_released(struct part *p)
{
    struct state *s = p->state;
    json_decref(s->probs);
}

static const struct dialect CHAT = {.name = "chat",
                                    .done_marker = true,
                                    .state_size = sizeof(struct state),
                                    .token = chat_token,
                                    .progress = chat_progress,
                                    .finish = chat_finish,
                                    .failed = stream_failed,
                                    .release = chat_released,
                                    .whole = chat_whole,
                                    .join = join_choices};

static void complete(struct exchange *x, json_t *body)
{
    chat_go(x, body, &CHAT);
}

void post_chat(struct exchange *x)
{
    with_body(x, complete);
}

static void count(struct exchange *x, json_t *body)
{
    chat_count(x, body, "response.input_tokens");
}

void post_chat_count(struct exchange *x)
{
    with_body(x, count);
}
