/* OpenAI's responses: translated to a chat, answered as items. */
#include "server/chat.h"

#include <stdlib.h>
#include <time.h>

/* ---- in: from items to messages ---- */

static bool is_string(const json_t *o, const char *name)
{
    return json_is_string(json_object_get(o, name));
}

static const char *string_of(const json_t *o, const char *name)
{
    const json_t *j = json_object_get(o, name);
    return json_is_string(j) ? json_string_value(j) : "";
}

static bool says(const json_t *o, const char *name, const char *value)
{
    return strcmp(string_of(o, name), value) == 0;
}

static json_t *image_part(const json_t *url)
{
    return json_pack("{s:s, s:{s:O}}", "type", "image_url", "image_url", "url", url);
}

/* One part of an input message's content; NULL: an error. */
static json_t *input_part(const json_t *part, struct grappa_err *err)
{
    if (says(part, "type", "input_text") || says(part, "type", "output_text") || says(part, "type", "text")) {
        if (is_string(part, "text"))
            return json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(part, "text"));
        fail(err, 400, "'Input text' requires 'text'");
    } else if (says(part, "type", "refusal")) {
        if (is_string(part, "refusal"))
            return json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(part, "refusal"));
        fail(err, 400, "'Refusal' requires 'refusal'");
    } else if (says(part, "type", "input_image")) {
        if (is_string(part, "image_url"))
            return image_part(json_object_get(part, "image_url"));
        fail(err, 400, "'image_url' is required");
    } else if (says(part, "type", "input_file")) {
        fail(err, 400, "'input_file' is not supported");
    } else {
        fail(err, 400, "'type' must be one of 'input_text', 'input_image', or 'input_file'");
    }
    return NULL;
}

/* Text, or parts as a chat has them; NULL: an error. */
static json_t *input_content(const json_t *content, struct grappa_err *err)
{
    if (json_is_string(content))
        return json_incref((json_t *)content);
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *part = input_part(json_array_get(content, i), err);
        if (!part) {
            json_decref(out);
            return NULL;
        }
        json_array_append_new(out, part);
    }
    return out;
}

/* The assistant's message that the items before have begun, or a new one. */
static json_t *assistant_message(json_t *messages)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (says(last, "role", "assistant"))
        return last;
    json_t *m = json_pack("{s:s}", "role", "assistant");
    json_array_append_new(messages, m);
    return m;
}

static int add_message(json_t *messages, const json_t *item, struct grappa_err *err)
{
    json_t *content = input_content(json_object_get(item, "content"), err);
    if (!content)
        return -1;
    if (!says(item, "role", "assistant")) {
        const char *role = says(item, "role", "developer") ? "system" : string_of(item, "role");
        json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content));
        return 0;
    }
    json_t *m = assistant_message(messages), *before = json_object_get(m, "content");
    if (json_is_array(before) && json_is_array(content)) {
        json_array_extend(before, content);
        json_decref(content);
    } else {
        json_object_set_new(m, "content", content);
    }
    return 0;
}

static int add_call(json_t *messages, const json_t *item, struct grappa_err *err)
{
    if (!is_string(item, "arguments") || !is_string(item, "call_id") || !is_string(item, "name"))
        return fail(err, 400, "a function_call needs 'arguments', 'call_id' and 'name'");
    json_t *m = assistant_message(messages), *calls = json_object_get(m, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(m, "tool_calls", calls);
    }
    json_array_append_new(calls, json_pack("{s:s, s:O, s:{s:O, s:O}}", "type", "function", "id",
                                           json_object_get(item, "call_id"), "function", "name",
                                           json_object_get(item, "name"), "arguments",
                                           json_object_get(item, "arguments")));
    return 0;
}

static int add_output(json_t *messages, const json_t *item, struct grappa_err *err)
{
    const json_t *output = json_object_get(item, "output");
    if (!is_string(item, "call_id") || (!json_is_string(output) && !json_is_array(output)))
        return fail(err, 400, "a function_call_output needs 'call_id' and 'output'");
    json_t *content = input_content(output, err);
    if (!content)
        return -1;
    json_array_append_new(messages, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
                                              json_object_get(item, "call_id"), "content", content));
    return 0;
}

static int add_reasoning(json_t *messages, const json_t *item, struct grappa_err *err)
{
    const json_t *content = json_object_get(item, "content"), *summary = json_object_get(item, "summary");
    const json_t *first = json_array_get(json_array_size(content) ? content : summary, 0);
    if (!first) /* an empty one says nothing */
        return 0;
    if (!is_string(first, "text"))
        return fail(err, 400, "the content of a reasoning item has no 'text'");
    json_object_set(assistant_message(messages), "reasoning_content", json_object_get(first, "text"));
    return 0;
}

static int add_item(json_t *messages, const json_t *item, struct grappa_err *err)
{
    static const struct {
        const char *type;
        int (*add)(json_t *messages, const json_t *item, struct grappa_err *err);
    } kinds[] = {{"function_call", add_call},
                 {"function_call_output", add_output},
                 {"reasoning", add_reasoning},
                 {"message", add_message}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (says(item, "type", kinds[i].type))
            return kinds[i].add(messages, item, err);
    }
    const json_t *content = json_object_get(item, "content");
    if (is_string(item, "role") && (json_is_string(content) || json_is_array(content)))
        return add_message(messages, item, err);
    return fail(err, 400, "Cannot determine type of 'item'");
}

static int convert_input(const json_t *body, json_t *messages, struct grappa_err *err)
{
    const json_t *input = member(body, "input");
    const char *instructions = NULL;
    if (!input)
        return fail(err, 400, "'input' is required");
    if (member_string(body, "instructions", &instructions, err))
        return -1;
    if (instructions)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    if (json_is_string(input)) {
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input));
        return 0;
    }
    if (!json_is_array(input))
        return fail(err, 400, "'input' must be a string or array of objects");
    for (size_t i = 0; i < json_array_size(input); i++) {
        if (add_item(messages, json_array_get(input, i), err))
            return -1;
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        if (says(m, "role", "assistant") && !json_object_get(m, "content"))
            json_object_set_new(m, "content", json_null());
    }
    return 0;
}

/* Tools other than functions have nothing that corresponds and are left out. */
static int convert_tools(const json_t *body, json_t *out, struct grappa_err *err)
{
    json_t *tools = NULL, *list = json_array();
    if (member_array(body, "tools", &tools, err)) {
        json_decref(list);
        return -1;
    }
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i);
        if (!says(t, "type", "function"))
            continue;
        json_t *function = json_copy((json_t *)t);
        json_object_del(function, "type");
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    json_object_del(out, "tools");
    if (json_array_size(list))
        json_object_set(out, "tools", list);
    json_decref(list);
    return 0;
}

/* "text": {"format": …} is what a chat calls response_format. */
static void convert_format(const json_t *body, json_t *out)
{
    const json_t *format = json_object_get(json_object_get(body, "text"), "format");
    if (says(format, "type", "json_schema"))
        json_object_set_new(out, "response_format",
                            json_pack("{s:s, s:{s:O*}}", "type", "json_schema", "json_schema", "schema",
                                      json_object_get(format, "schema")));
    else if (json_is_object(format))
        json_object_set(out, "response_format", (json_t *)format);
}

static json_t *to_chat(const json_t *body, struct grappa_err *err)
{
    const char *previous = NULL;
    json_t *messages = json_array(), *out = json_copy((json_t *)body);
    if (member_string(body, "previous_response_id", &previous, err) == 0 && previous && *previous)
        fail(err, 400, "'previous_response_id' is not supported: no answers are kept here");
    if (err->exit_status || convert_input(body, messages, err) || convert_tools(body, out, err)) {
        json_decref(messages);
        json_decref(out);
        return NULL;
    }
    json_object_del(out, "input");
    json_object_del(out, "instructions");
    json_object_set_new(out, "messages", messages);
    convert_format(body, out);
    if (member(body, "max_output_tokens"))
        json_object_set(out, "max_tokens", json_object_get(body, "max_output_tokens"));
    const json_t *effort = member(json_object_get(body, "reasoning"), "effort");
    if (effort)
        json_object_set(out, "reasoning_effort", (json_t *)effort);
    json_object_del(out, "top_logprobs");
    return out;
}

/* ---- out: items ---- */

struct state { /* of a stream */
    bool created;
    int n_events;
    int n_items;                      /* items begun */
    int thought_at, text_at, call_at; /* their places among the items, behind 0; 0: not begun */
    char response[64], thought[64], message[64], call[80];
};

static struct state *state_of(struct part *p)
{
    struct state *s = p->state;
    if (!*s->response) {
        random_id(s->response, "resp_");
        random_id(s->thought, "rs_");
        random_id(s->message, "msg_");
    }
    return s;
}

static json_t *reasoning_item(const struct state *s, const json_t *text, const char *status)
{
    json_t *content = json_array();
    if (text)
        json_array_append_new(content, json_pack("{s:s, s:O}", "type", "reasoning_text", "text", text));
    return json_pack("{s:s, s:s, s:[], s:o, s:s, s:s}", "type", "reasoning", "id", s->thought, "summary",
                     "content", content, "encrypted_content", "", "status", status);
}

static json_t *text_part(const json_t *text)
{
    return json_pack("{s:s, s:[], s:[], s:O}", "type", "output_text", "annotations", "logprobs", "text",
                     text);
}

static json_t *message_item(const struct state *s, const json_t *text, const char *status)
{
    json_t *content = json_array();
    if (text)
        json_array_append_new(content, text_part(text));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", s->message, "role", "assistant",
                     "status", status, "content", content);
}

static json_t *call_item(const char *id, const char *name, const char *arguments, const char *status)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:s}", "type", "function_call", "name", name, "arguments",
                          arguments, "status", status);
    char text[160];
    snprintf(text, sizeof text, "fc_%s", id);
    json_object_set_new(j, "id", json_string(text));
    snprintf(text, sizeof text, "%s%s", strncmp(id, "call_", 5) == 0 ? "" : "call_", id);
    json_object_set_new(j, "call_id", json_string(text));
    return j;
}

static bool has_text(const json_t *j)
{
    return json_string_length(j) > 0;
}

static json_t *output_items(struct part *p)
{
    const struct state *s = state_of(p);
    json_t *m = part_message(p), *out = json_array();
    const json_t *calls = json_object_get(m, "tool_calls");
    if (has_text(json_object_get(m, "reasoning_content")))
        json_array_append_new(out, reasoning_item(s, json_object_get(m, "reasoning_content"), "completed"));
    if (has_text(json_object_get(m, "content")))
        json_array_append_new(out, message_item(s, json_object_get(m, "content"), "completed"));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *c = json_array_get(calls, i), *f = json_object_get(c, "function");
        json_array_append_new(
            out, call_item(string_of(c, "id"), string_of(f, "name"), string_of(f, "arguments"), "completed"));
    }
    json_decref(m);
    return out;
}

static json_t *usage_json(const struct part *p)
{
    const struct grappa_timings *t = &p->timings;
    return json_pack("{s:i, s:i, s:i, s:{s:i}, s:{s:i}}", "input_tokens", t->n_prompt, "output_tokens",
                     t->n_predicted, "total_tokens", t->n_prompt + t->n_predicted, "input_tokens_details",
                     "cached_tokens", t->n_cached, "output_tokens_details", "reasoning_tokens", 0);
}

static json_t *response_json(struct part *p, json_t *output)
{
    struct run *r = p->run;
    return json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:o, s:o}", "id", state_of(p)->response, "object",
                     "response", "created_at", (json_int_t)r->created, "completed_at", (json_int_t)time(NULL),
                     "status", "completed", "model", r->model->name, "output", output, "usage",
                     usage_json(p));
}

static json_t *whole(struct part *p)
{
    return response_json(p, output_items(p));
}

/* ---- streamed: the events of one token are collected, so that the last can be added to ---- */

static void add(json_t *list, struct state *s, const char *type, json_t *data)
{
    json_object_set_new(data, "type", json_string(type));
    json_object_set_new(data, "sequence_number", json_integer(s->n_events++));
    json_array_append_new(list, data);
}

/* The same for an item at a place; `content`: of its only part. */
static void add_at(json_t *list, struct state *s, const char *type, int at, bool content, json_t *data)
{
    json_object_set_new(data, "output_index", json_integer(at - 1));
    if (content)
        json_object_set_new(data, "content_index", json_integer(0));
    add(list, s, type, data);
}

static json_t *in_progress(const struct part *p)
{
    const struct run *r = p->run;
    return json_pack("{s:{s:s, s:s, s:I, s:s, s:s, s:[]}}", "response", "id",
                     ((const struct state *)p->state)->response, "object", "response", "created_at",
                     (json_int_t)r->created, "status", "in_progress", "model", r->model->name, "output");
}

static void add_created(json_t *list, struct part *p)
{
    struct state *s = state_of(p);
    if (s->created)
        return;
    s->created = true;
    add(list, s, "response.created", in_progress(p));
    add(list, s, "response.in_progress", in_progress(p));
}

static void add_thought(json_t *list, struct state *s, const struct grappa_delta *d)
{
    if (!s->thought_at) {
        s->thought_at = ++s->n_items;
        add_at(list, s, "response.output_item.added", s->thought_at, false,
               json_pack("{s:o}", "item", reasoning_item(s, NULL, "in_progress")));
    }
    add_at(list, s, "response.reasoning_text.delta", s->thought_at, true,
           json_pack("{s:o, s:s}", "delta", text_json(d->text, d->n_text), "item_id", s->thought));
}

static void add_text(json_t *list, struct state *s, const struct grappa_delta *d)
{
    if (!s->text_at) {
        s->text_at = ++s->n_items;
        add_at(list, s, "response.output_item.added", s->text_at, false,
               json_pack("{s:o}", "item", message_item(s, NULL, "in_progress")));
        add_at(list, s, "response.content_part.added", s->text_at, true,
               json_pack("{s:s, s:{s:s, s:s, s:[]}}", "item_id", s->message, "part", "type", "output_text",
                         "text", "", "annotations"));
    }
    add_at(list, s, "response.output_text.delta", s->text_at, true,
           json_pack("{s:s, s:o, s:[]}", "item_id", s->message, "delta", text_json(d->text, d->n_text),
                     "logprobs"));
}

static void add_call_begin(json_t *list, struct state *s, const struct grappa_delta *d)
{
    s->call_at = ++s->n_items;
    snprintf(s->call, sizeof s->call, "fc_%.64s", d->id ? d->id : "");
    add_at(
        list, s, "response.output_item.added", s->call_at, false,
        json_pack("{s:o}", "item", call_item(d->id ? d->id : "", d->name ? d->name : "", "", "in_progress")));
}

static void add_deltas(struct part *p, json_t *list)
{
    struct state *s = state_of(p);
    for (size_t i = 0; i < p->n_deltas; i++) {
        const struct grappa_delta *d = &p->deltas[i];
        switch (d->type) {
        case GRAPPA_DELTA_REASONING:
            add_thought(list, s, d);
            break;
        case GRAPPA_DELTA_CONTENT:
            add_text(list, s, d);
            break;
        case GRAPPA_DELTA_TOOL:
            add_call_begin(list, s, d);
            break;
        default:
            add_at(list, s, "response.function_call_arguments.delta", s->call_at, false,
                   json_pack("{s:s, s:o}", "item_id", s->call, "delta", text_json(d->text, d->n_text)));
            break;
        }
    }
}

static void put_list(struct buf *out, json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *j = json_array_get(list, i);
        put_event(out, string_of(j, "type"), json_incref(j));
    }
    json_decref(list);
}

static json_t *last_of(json_t *list)
{
    return json_array_get(list, json_array_size(list) - 1);
}

static void token(struct part *p, const struct event *e, struct buf *out)
{
    json_t *list = json_array();
    add_created(list, p);
    add_deltas(p, list);
    if (p->run->s.timings_per_token && json_array_size(list))
        json_object_set_new(last_of(list), "timings", timings_json(&e->timings));
    put_list(out, list);
}

static void progress(struct part *p, const struct event *e, struct buf *out)
{
    struct state *s = state_of(p);
    json_t *list = json_array();
    if (s->created)
        add(list, s, "response.in_progress", in_progress(p));
    add_created(list, p);
    if (p->run->s.timings_per_token)
        json_object_set_new(last_of(list), "timings", timings_json(&e->timings));
    json_object_set_new(last_of(list), "prompt_progress", progress_json(e));
    put_list(out, list);
}

static void add_done_items(struct part *p, json_t *list, const json_t *output)
{
    struct state *s = state_of(p);
    for (size_t i = 0; i < json_array_size(output); i++) {
        json_t *item = json_array_get(output, i);
        int at = (int)i + 1;
        if (says(item, "type", "message")) {
            json_t *content = json_array_get(json_object_get(item, "content"), 0);
            add_at(list, s, "response.output_text.done", at, true,
                   json_pack("{s:s, s:O, s:[]}", "item_id", s->message, "text",
                             json_object_get(content, "text"), "logprobs"));
            add_at(list, s, "response.content_part.done", at, true,
                   json_pack("{s:s, s:O}", "item_id", s->message, "part", content));
        } else if (says(item, "type", "function_call")) {
            add_at(list, s, "response.function_call_arguments.done", at, false,
                   json_pack("{s:O, s:O, s:O}", "item_id", json_object_get(item, "id"), "name",
                             json_object_get(item, "name"), "arguments", json_object_get(item, "arguments")));
        }
        add_at(list, s, "response.output_item.done", at, false, json_pack("{s:O}", "item", item));
    }
}

static void finish(struct part *p, const struct event *e, struct buf *out)
{
    json_t *list = json_array(), *output = output_items(p);
    (void)e;
    add_created(list, p);
    add_deltas(p, list);
    add_done_items(p, list, output);
    add(list, state_of(p), "response.completed", json_pack("{s:o}", "response", response_json(p, output)));
    json_object_set_new(last_of(list), "timings", timings_json(&p->timings));
    put_list(out, list);
}

static const struct dialect RESPONSES = {.name = "responses",
                                         .state_size = sizeof(struct state),
                                         .token = token,
                                         .progress = progress,
                                         .finish = finish,
                                         .failed = stream_failed,
                                         .whole = whole};

/* ---- routes ---- */

static void with_chat(struct exchange *x, json_t *body, void (*fn)(struct exchange *x, json_t *chat))
{
    struct grappa_err err = {0};
    json_t *chat = to_chat(body, &err);
    if (chat)
        fn(x, chat);
    else
        reply_error(x, &err);
    json_decref(chat);
}

static void go(struct exchange *x, json_t *chat)
{
    chat_go(x, chat, &RESPONSES);
}

static void count(struct exchange *x, json_t *chat)
{
    chat_count(x, chat, "response.input_tokens");
}

static void respond(struct exchange *x, json_t *body)
{
    with_chat(x, body, go);
}

static void respond_count(struct exchange *x, json_t *body)
{
    with_chat(x, body, count);
}

void post_responses(struct exchange *x)
{
    with_body(x, respond);
}

void post_responses_count(struct exchange *x)
{
    with_body(x, respond_count);
}
