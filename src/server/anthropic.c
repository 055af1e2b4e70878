/* Anthropic's messages: translated to a chat, answered as content blocks. */
#include "server/chat.h"

#include <stdlib.h>

/* ---- in ---- */

static const char *string_of(const json_t *o, const char *name)
{
    const json_t *j = json_object_get(o, name);
    return json_is_string(j) ? json_string_value(j) : "";
}

static bool says(const json_t *o, const char *name, const char *value)
{
    return strcmp(string_of(o, name), value) == 0;
}

static void add_text(struct buf *b, const json_t *text)
{
    if (json_is_string(text))
        buf_add(b, json_string_value(text), json_string_length(text));
}

/* Claude Code puts a line with a stamp that changes with every request before its system prompt; with the
 * stamp made the same, prompts begin alike and the cache serves them. */
static void blank_stamp(struct buf *b)
{
    static const char header[] = "x-anthropic-billing-header:", stamp[] = "cch=";
    if (b->n < sizeof header || strncmp(b->p, header, sizeof header - 1) != 0)
        return;
    size_t line = strcspn(b->p, "\n");
    char *at = memmem(b->p, line, stamp, sizeof stamp - 1);
    for (at = at ? at + sizeof stamp - 1 : NULL; at && at < b->p + line && *at && *at != ';'; at++)
        *at = '0';
}

static int convert_system(const json_t *body, json_t *messages, struct grappa_err *err)
{
    const json_t *system = member(body, "system");
    struct buf text = {0};
    if (!system)
        return 0;
    if (!json_is_string(system) && !json_is_array(system))
        return fail(err, 400, "Field 'system': type must be string or array, but is %s",
                    json_type_name(system));
    add_text(&text, system);
    for (size_t i = 0; i < json_array_size(system); i++) {
        const json_t *block = json_array_get(system, i);
        if (says(block, "type", "text"))
            add_text(&text, json_object_get(block, "text"));
    }
    blank_stamp(&text);
    json_array_append_new(messages,
                          json_pack("{s:s, s:o}", "role", "system", "content", text_json(text.p, text.n)));
    buf_release(&text);
    return 0;
}

static json_t *image_part(const json_t *block)
{
    const json_t *source = json_object_get(block, "source");
    const char *type = string_of(source, "media_type");
    struct buf url = {0};
    if (says(source, "type", "url"))
        add_text(&url, json_object_get(source, "url"));
    else
        buf_printf(&url, "data:%s;base64,", *type ? type : "image/jpeg");
    if (!says(source, "type", "url"))
        add_text(&url, json_object_get(source, "data"));
    json_t *j = json_pack("{s:s, s:{s:o}}", "type", "image_url", "image_url", "url", text_json(url.p, url.n));
    buf_release(&url);
    return j;
}

/* What a tool gave back: one text, or parts if there is a picture among it. */
static json_t *result_content(const json_t *content)
{
    struct buf text = {0};
    bool pictures = false;
    json_t *parts = json_array();
    add_text(&text, content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *c = json_array_get(content, i);
        if (says(c, "type", "text")) {
            add_text(&text, json_object_get(c, "text"));
            json_array_append_new(parts,
                                  json_pack("{s:s, s:s}", "type", "text", "text", string_of(c, "text")));
        } else if (says(c, "type", "image")) {
            pictures = true;
            json_array_append_new(parts, image_part(c));
        }
    }
    json_t *out = pictures ? json_incref(parts) : text_json(text.p, text.n);
    json_decref(parts);
    buf_release(&text);
    return out;
}

static json_t *call_of(const json_t *block)
{
    json_t *input = json_object_get(block, "input");
    char *arguments = input ? json_dumps(input, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_t *j =
        json_pack("{s:s, s:s, s:{s:s, s:s}}", "type", "function", "id", string_of(block, "id"), "function",
                  "name", string_of(block, "name"), "arguments", arguments ? arguments : "{}");
    free(arguments);
    return j;
}

/* What the blocks of a message come to. */
struct blocks {
    json_t *content, *calls, *results;
    struct buf reasoning;
};

static void sort_blocks(struct blocks *b, const json_t *content)
{
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *block = json_array_get(content, i);
        if (says(block, "type", "text"))
            json_array_append(b->content, block);
        else if (says(block, "type", "thinking"))
            add_text(&b->reasoning, json_object_get(block, "thinking"));
        else if (says(block, "type", "image"))
            json_array_append_new(b->content, image_part(block));
        else if (says(block, "type", "tool_use"))
            json_array_append_new(b->calls, call_of(block));
        else if (says(block, "type", "tool_result"))
            json_array_append_new(b->results, json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id",
                                                        string_of(block, "tool_use_id"), "content",
                                                        result_content(json_object_get(block, "content"))));
    }
}

static void convert_message(const json_t *m, json_t *messages)
{
    const json_t *content = json_object_get(m, "content");
    if (!json_is_array(content)) {
        if (content || !says(m, "role", "assistant"))
            json_array_append(messages, (json_t *)m);
        return;
    }
    struct blocks b = {json_array(), json_array(), json_array(), {0}};
    sort_blocks(&b, content);
    /* Results stand right behind their calls, also when the user has more to say: templates insist on it. */
    bool results_first = says(json_array_get(content, 0), "type", "tool_result");
    if (results_first)
        json_array_extend(messages, b.results);
    if (json_array_size(b.content) || json_array_size(b.calls) || b.reasoning.n) {
        json_t *out = json_pack("{s:s}", "role", string_of(m, "role"));
        if (json_array_size(b.content))
            json_object_set(out, "content", b.content);
        else
            json_object_set_new(out, "content", json_string(""));
        if (json_array_size(b.calls))
            json_object_set(out, "tool_calls", b.calls);
        if (b.reasoning.n)
            json_object_set_new(out, "reasoning_content", text_json(b.reasoning.p, b.reasoning.n));
        json_array_append_new(messages, out);
    }
    if (!results_first)
        json_array_extend(messages, b.results);
    json_decref(b.content);
    json_decref(b.calls);
    json_decref(b.results);
    buf_release(&b.reasoning);
}

static int convert_tools(const json_t *body, json_t *out, struct grappa_err *err)
{
    json_t *tools = NULL, *choice = NULL;
    if (member_array(body, "tools", &tools, err) || member_object(body, "tool_choice", &choice, err))
        return -1;
    if (tools) {
        json_t *list = json_array();
        for (size_t i = 0; i < json_array_size(tools); i++) {
            const json_t *t = json_array_get(tools, i);
            json_t *schema = json_object_get(t, "input_schema");
            json_array_append_new(list, json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function",
                                                  "name", string_of(t, "name"), "description",
                                                  string_of(t, "description"), "parameters",
                                                  schema ? json_incref(schema) : json_object()));
        }
        json_object_set_new(out, "tools", list);
    }
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        json_object_set_new(out, "parallel_tool_calls", json_false());
    if (says(choice, "type", "tool"))
        json_object_set_new(
            out, "tool_choice",
            json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", string_of(choice, "name")));
    else if (says(choice, "type", "any"))
        json_object_set_new(out, "tool_choice", json_string("required"));
    else if (says(choice, "type", "none"))
        json_object_set_new(out, "tool_choice", json_string("none"));
    return 0;
}

static json_t *to_chat(const json_t *body, struct grappa_err *err)
{
    static const char *const same[] = {"model", "temperature", "top_p",
                                       "top_k", "stream",      "chat_template_kwargs",
                                       "seed",  "id_slot",     "cache_prompt"};
    json_t *messages = json_array(), *out = json_object(), *in = NULL;
    json_object_set_new(out, "messages", messages);
    if (!json_object_get(body, "messages"))
        fail(err, 400, "'messages' is required");
    if (err->exit_status || convert_system(body, messages, err) || member_array(body, "messages", &in, err) ||
        convert_tools(body, out, err)) {
        json_decref(out);
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(in); i++)
        convert_message(json_array_get(in, i), messages);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (member(body, same[i]))
            json_object_set(out, same[i], json_object_get(body, same[i]));
    }
    if (member(body, "stop_sequences"))
        json_object_set(out, "stop", json_object_get(body, "stop_sequences"));
    json_t *most = member(body, "max_tokens");
    json_object_set_new(out, "max_tokens", most ? json_incref(most) : json_integer(4096));
    const json_t *thinking = json_object_get(body, "thinking");
    if (says(thinking, "type", "enabled")) {
        json_t *budget = member(thinking, "budget_tokens");
        json_object_set_new(out, "thinking_budget_tokens",
                            budget ? json_incref(budget) : json_integer(10000));
    }
    return out;
}

/* ---- out ---- */

enum block_type { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL };

struct state { /* of a stream: one block is open at a time */
    bool begun;
    enum block_type open;
    int index; /* of the open block, or the next one's */
};

static const char *stop_reason(const struct part *p)
{
    if (!stopped(p))
        return "max_tokens";
    if (p->parser && grappa_chat_parser_n_calls(p->parser) > 0)
        return "tool_use";
    return "end_turn"; /* also for a stop text, as with llama-server; stop_sequence says which it was */
}

static json_t *stop_sequence(const struct part *p)
{
    return *stop_word(p) ? text_json(stop_word(p), strlen(stop_word(p))) : json_null();
}

static json_t *usage_json(const struct part *p, int n_predicted)
{
    const struct grappa_timings *t = &p->timings;
    return json_pack("{s:i, s:i, s:i}", "cache_read_input_tokens", t->n_cached, "input_tokens",
                     t->n_prompt - t->n_cached, "output_tokens", n_predicted);
}

static json_t *tool_block(const json_t *call)
{
    const json_t *f = json_object_get(call, "function");
    json_t *input = json_loads(string_of(f, "arguments"), 0, NULL);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", string_of(call, "id"), "name",
                     string_of(f, "name"), "input", input ? input : json_object());
}

static json_t *whole(struct part *p)
{
    struct run *r = p->run;
    json_t *m = part_message(p), *content = json_array();
    const json_t *calls = json_object_get(m, "tool_calls");
    json_t *thought = json_object_get(m, "reasoning_content"), *text = json_object_get(m, "content");
    if (json_string_length(thought))
        json_array_append_new(
            content, json_pack("{s:s, s:O, s:s}", "type", "thinking", "thinking", thought, "signature", ""));
    if (json_string_length(text))
        json_array_append_new(content, json_pack("{s:s, s:O}", "type", "text", "text", text));
    for (size_t i = 0; i < json_array_size(calls); i++)
        json_array_append_new(content, tool_block(json_array_get(calls, i)));
    json_decref(m);
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:o, s:o}", "id", r->id, "type", "message", "role",
                     "assistant", "content", content, "model", r->model->name, "stop_reason", stop_reason(p),
                     "stop_sequence", stop_sequence(p), "usage", usage_json(p, p->timings.n_predicted));
}

/* ---- streamed ---- */

static void begin(struct part *p, struct buf *out)
{
    struct state *s = p->state;
    struct run *r = p->run;
    if (s->begun)
        return;
    s->begun = true;
    put_event(out, "message_start",
              json_pack("{s:s, s:{s:s, s:s, s:s, s:[], s:s, s:n, s:n, s:o}}", "type", "message_start",
                        "message", "id", r->id, "type", "message", "role", "assistant", "content", "model",
                        r->model->name, "stop_reason", "stop_sequence", "usage", usage_json(p, 0)));
}

static void put_delta(const struct state *s, json_t *delta, struct buf *out)
{
    put_event(out, "content_block_delta",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_delta", "index", s->index, "delta", delta));
}

static void close_block(struct state *s, struct buf *out)
{
    if (s->open == BLOCK_NONE)
        return;
    if (s->open == BLOCK_THINKING) /* clients expect one, though nothing is signed here */
        put_delta(s, json_pack("{s:s, s:s}", "type", "signature_delta", "signature", ""), out);
    put_event(out, "content_block_stop",
              json_pack("{s:s, s:i}", "type", "content_block_stop", "index", s->index));
    s->open = BLOCK_NONE;
    s->index++;
}

static void open_block(struct state *s, enum block_type type, json_t *block, struct buf *out)
{
    if (s->open == type && type != BLOCK_TOOL) {
        json_decref(block);
        return;
    }
    close_block(s, out);
    s->open = type;
    put_event(out, "content_block_start",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", s->index, "content_block",
                        block));
}

static void put_deltas(struct part *p, struct buf *out)
{
    struct state *s = p->state;
    for (size_t i = 0; i < p->n_deltas; i++) {
        const struct grappa_delta *d = &p->deltas[i];
        switch (d->type) {
        case GRAPPA_DELTA_REASONING:
            open_block(s, BLOCK_THINKING, json_pack("{s:s, s:s}", "type", "thinking", "thinking", ""), out);
            put_delta(
                s,
                json_pack("{s:s, s:o}", "type", "thinking_delta", "thinking", text_json(d->text, d->n_text)),
                out);
            break;
        case GRAPPA_DELTA_CONTENT:
            open_block(s, BLOCK_TEXT, json_pack("{s:s, s:s}", "type", "text", "text", ""), out);
            put_delta(s, json_pack("{s:s, s:o}", "type", "text_delta", "text", text_json(d->text, d->n_text)),
                      out);
            break;
        case GRAPPA_DELTA_TOOL:
            open_block(s, BLOCK_TOOL,
                       json_pack("{s:s, s:s, s:s, s:{}}", "type", "tool_use", "id", d->id ? d->id : "",
                                 "name", d->name ? d->name : "", "input"),
                       out);
            break;
        default:
            put_delta(s,
                      json_pack("{s:s, s:o}", "type", "input_json_delta", "partial_json",
                                text_json(d->text, d->n_text)),
                      out);
            break;
        }
    }
}

static void token(struct part *p, const struct event *e, struct buf *out)
{
    (void)e;
    begin(p, out);
    put_deltas(p, out);
}

static void finish(struct part *p, const struct event *e, struct buf *out)
{
    (void)e;
    begin(p, out);
    put_deltas(p, out);
    close_block(p->state, out);
    put_event(out, "message_delta",
              json_pack("{s:s, s:{s:s, s:o}, s:{s:i}}", "type", "message_delta", "delta", "stop_reason",
                        stop_reason(p), "stop_sequence", stop_sequence(p), "usage", "output_tokens",
                        p->timings.n_predicted));
    put_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void failed(struct part *p, const struct event *e, struct buf *out)
{
    (void)p;
    put_event(out, "error",
              json_pack("{s:s, s:o}", "type", "error", "error", error_body(e->err.http_status, e->err.text)));
}

static const struct dialect MESSAGES = {.name = "messages",
                                        .state_size = sizeof(struct state),
                                        .token = token,
                                        .finish = finish,
                                        .failed = failed,
                                        .whole = whole};

/* ---- routes ---- */

static void answer(struct exchange *x, json_t *body)
{
    struct grappa_err err = {0};
    json_t *chat = to_chat(body, &err);
    if (chat)
        chat_go(x, chat, &MESSAGES);
    else
        reply_error(x, &err);
    json_decref(chat);
}

static void count(struct exchange *x, json_t *body)
{
    struct grappa_err err = {0};
    json_t *chat = to_chat(body, &err);
    if (chat)
        chat_count(x, chat, NULL);
    else
        reply_error(x, &err);
    json_decref(chat);
}

void post_messages(struct exchange *x)
{
    with_body(x, answer);
}

void post_messages_count(struct exchange *x)
{
    with_body(x, count);
}
