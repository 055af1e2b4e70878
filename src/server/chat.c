/* From a conversation to a run: llama-server's checks, the template, constraints, stops. */
#include "server/chat.h"

#include "server/server.h"

#include <stdlib.h>

/* ---- checks ---- */

/* Parts of a message that is a list. What is no text is a failure of the server's, as with llama-server. */
static int check_parts(const json_t *parts, struct grappa_err *err)
{
    static const struct {
        const char *type, *what;
    } media[] = {
        {"image_url", "image"}, {"input_audio", "audio"}, {"input_video", "video"}, {"video_url", "video"}};
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *type = json_object_get(part, "type");
        const char *name = json_is_string(type) ? json_string_value(type) : "";
        for (size_t k = 0; k < sizeof media / sizeof *media; k++) {
            if (strcmp(name, media[k].type) == 0)
                return fail(
                    err, 500,
                    "%s input is not supported - hint: if this is unexpected, you may need to provide the "
                    "mmproj",
                    media[k].what);
        }
        if (strcmp(name, "text") != 0 && strcmp(name, "refusal") != 0)
            return fail(err, 400, "unsupported content[].type");
        if (!json_is_string(json_object_get(part, "text")) && strcmp(name, "text") == 0)
            return fail(err, 400, "Field 'text' of a content part: type must be string, but is %s",
                        json_type_name(json_object_get(part, "text")));
    }
    return 0;
}

static int check_message(const json_t *m, struct grappa_err *err)
{
    if (!json_is_object(m))
        return fail(err, 400, "Expected a message to be an object, but got %s", json_type_name(m));
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    if (!json_is_string(role))
        return fail(err, 400, "Field 'role': type must be string, but is %s", json_type_name(role));
    bool assistant = strcmp(json_string_value(role), "assistant") == 0;
    if (!content && !assistant)
        return fail(err, 400, "All non-assistant messages must contain 'content'");
    if (!content && !json_object_get(m, "tool_calls"))
        return fail(err, 400, "Assistant message must contain either 'content' or 'tool_calls'!");
    if (!content || json_is_string(content) || json_is_null(content))
        return 0;
    if (!json_is_array(content))
        return fail(err, 400, "Expected 'content' to be a string or an array");
    return check_parts(content, err);
}

static bool is_assistant(const json_t *messages, size_t back)
{
    size_t n = json_array_size(messages);
    const json_t *role = n >= back ? json_object_get(json_array_get(messages, n - back), "role") : NULL;
    return json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0;
}

static int check_messages(const json_t *body, struct grappa_err *err)
{
    const json_t *messages = json_object_get(body, "messages");
    if (!messages)
        return fail(err, 400, "'messages' is required");
    if (!json_is_array(messages))
        return fail(err, 400, "Expected 'messages' to be an array");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        if (check_message(json_array_get(messages, i), err))
            return -1;
    }
    return 0;
}

/* ---- parts of the parameters; texts in the arena ---- */

struct reading {
    struct exchange *x;
    const struct model *m;
    json_t *body;
    struct arena *mem;
    struct grappa_chat_params *p;
    struct grappa_err *err;
};

static const char *dump(struct arena *mem, const json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
    char *kept = text ? arena_strndup(mem, text, strlen(text)) : NULL;
    free(text);
    return kept;
}

static int read_answer_format(struct reading *r)
{
    json_t *format = NULL, *wrapper = NULL;
    const json_t *schema = member(r->body, "json_schema");
    const char *type = "";
    if (member_string(r->body, "grammar", &r->p->grammar, r->err) ||
        member_object(r->body, "response_format", &format, r->err) ||
        member_string(format, "type", &type, r->err))
        return -1;
    if (r->p->grammar && !*r->p->grammar)
        r->p->grammar = NULL;
    if (schema && r->p->grammar)
        return fail(r->err, 400, "Cannot use both json_schema and grammar");
    if (strcmp(type, "json_object") == 0) {
        const json_t *own = member(format, "schema");
        schema = own ? own : schema ? schema : json_object_get(format, "none");
        r->p->json_schema = schema ? NULL : "{\"type\":\"object\"}";
    } else if (strcmp(type, "json_schema") == 0) {
        if (member_object(format, "json_schema", &wrapper, r->err))
            return -1;
        schema = member(wrapper, "schema");
        r->p->json_schema = schema ? NULL : "{\"type\":\"object\"}";
    } else if (*type && strcmp(type, "text") != 0) {
        return fail(r->err, 400,
                    "response_format type must be one of \"text\" or \"json_object\", but got: %.64s", type);
    }
    if (schema && !json_is_object(schema) && !json_is_boolean(schema))
        return fail(r->err, 400, "Field 'json_schema': type must be object, but is %s",
                    json_type_name(schema));
    if (json_is_object(schema) && json_object_size(schema) == 0)
        r->p->json_schema = "{\"type\":\"object\"}"; /* no rule at all stands for any object */
    else if (schema)
        r->p->json_schema = dump(r->mem, schema);
    return 0;
}

static int read_tools(struct reading *r)
{
    json_t *tools = NULL;
    const json_t *choice = member(r->body, "tool_choice");
    const char *word = json_is_string(choice) ? json_string_value(choice) : "auto";
    if (member_array(r->body, "tools", &tools, r->err) ||
        member_bool(r->body, "parallel_tool_calls", &r->p->parallel_tool_calls, r->err))
        return -1;
    bool has_tools = json_array_size(tools) > 0;
    if (json_is_object(choice)) { /* this tool and no other */
        const json_t *function = json_object_get(choice, "function");
        const json_t *name = json_object_get(function ? function : choice, "name");
        if (!json_is_string(name))
            return fail(r->err, 400, "Field 'tool_choice': it names no function");
        r->p->tool_name = json_string_value(name);
        word = "required";
    } else if (choice && !json_is_string(choice)) {
        return fail(r->err, 400, "Field 'tool_choice': type must be string, but is %s",
                    json_type_name(choice));
    }
    if (strcmp(word, "auto") != 0 && strcmp(word, "none") != 0 && strcmp(word, "required") != 0)
        return fail(r->err, 400, "Invalid tool_choice: %.64s", word);
    if (!r->x->srv->p->jinja && (has_tools || strcmp(word, "auto") != 0))
        return fail(r->err, 500, "%s param requires --jinja flag", has_tools ? "tools" : "tool_choice");
    r->p->tool_choice = word;
    if (!has_tools)
        return 0;
    if (strcmp(word, "none") != 0 && r->p->grammar)
        return fail(r->err, 400, "Cannot use custom grammar constraints with tools.");
    r->p->tools = dump(r->mem, tools);
    return r->p->tools ? 0 : fail(r->err, 400, "Field 'tools' can't be written");
}

/* The server's own variables with the request's over them; enable_thinking and reasoning_effort stand apart.
 */
static int read_kwargs(struct reading *r)
{
    const struct server_params *p = r->x->srv->p;
    json_t *own = NULL, *all = p->template_kwargs ? json_loads(p->template_kwargs, 0, NULL) : NULL;
    const char *effort = NULL;
    int status = -1;
    all = json_is_object(all) ? all : json_object();
    if (member_object(r->body, "chat_template_kwargs", &own, r->err) ||
        member_string(r->body, "reasoning_effort", &effort, r->err))
        goto cleanup;
    json_object_update(all, own);
    const json_t *thinking = member(all, "enable_thinking");
    r->p->enable_thinking = p->enable_thinking;
    if (thinking && !json_is_boolean(thinking)) {
        fail(r->err, 400, "invalid type for \"enable_thinking\" (expected boolean, got %s)",
             json_type_name(thinking));
        goto cleanup;
    }
    if (thinking)
        r->p->enable_thinking = json_is_true(thinking) ? 1 : -1;
    if (effort && strcmp(effort, "none") == 0) {
        r->p->enable_thinking = -1;
        json_object_del(all, "reasoning_effort");
    } else if (effort && *effort) {
        json_object_set_new(all, "reasoning_effort", json_string(effort));
    }
    if (json_object_size(all))
        r->p->template_kwargs = dump(r->mem, all);
    status = 0;
cleanup:
    json_decref(all);
    return status;
}

/* The beginning of an answer is one text; its parts stand apart by an empty line, as with llama-server. */
static void join_parts(json_t *message)
{
    const json_t *parts = json_object_get(message, "content");
    struct buf text = {0};
    if (!json_is_array(parts))
        return;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");
        if (text.n)
            buf_puts(&text, "\n\n");
        buf_add(&text, json_string_value(part), json_string_length(part));
    }
    json_object_set_new(message, "content", text_json(text.p, text.n));
    buf_release(&text);
}

static int read_continuation(struct reading *r)
{
    const json_t *messages = json_object_get(r->body, "messages"),
                 *asked = member(r->body, "continue_final_message");
    bool add = true, explicit = json_is_true(asked) || json_is_string(asked);
    if (member_bool(r->body, "add_generation_prompt", &add, r->err))
        return -1;
    bool last_is_assistant = is_assistant(messages, 1);
    bool goes_on = explicit || (r->x->srv->p->prefill_assistant && last_is_assistant);
    if (!explicit && goes_on) {
        if (is_assistant(messages, 2))
            return fail(r->err, 400, "Cannot have 2 or more assistant messages at the end of the list.");
        add = false;
    }
    if (goes_on && add)
        return fail(r->err, 400, "Cannot set both add_generation_prompt and continue_final_message to true.");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    if (goes_on && last_is_assistant && json_array_size(json_object_get(last, "tool_calls")))
        return fail(r->err, 400, "Cannot continue an assistant message that contains tool calls.");
    if (goes_on && last_is_assistant)
        join_parts(json_array_get(messages, json_array_size(messages) - 1));
    r->p->add_generation_prompt = add;
    r->p->continue_final = goes_on ? 0 : -1;
    return 0;
}

static int read_reasoning_format(struct reading *r)
{
    const char *name = NULL;
    r->p->reasoning_format = r->x->srv->p->reasoning_format;
    if (member_string(r->body, "reasoning_format", &name, r->err))
        return -1;
    int format = name ? reasoning_format_named(name) : (int)r->p->reasoning_format;
    if (format < 0)
        return fail(r->err, 400, "Field 'reasoning_format': unknown format %.64s", name);
    r->p->reasoning_format = (enum grappa_reasoning_format)format;
    return 0;
}

struct grappa_chat *chat_open(struct exchange *x, const struct model *m, json_t *body, struct grappa_err *err)
{
    struct arena mem = {0};
    struct grappa_chat_params p = {.chat_template = x->srv->p->chat_template, .tool_choice = "auto"};
    struct reading r = {x, m, body, &mem, &p, err};
    struct grappa_chat *c = NULL;
    p.parallel_tool_calls =
        json_is_true(json_object_get(m->info.template_caps, "supports_parallel_tool_calls"));
    if (check_messages(body, err) == 0 && read_answer_format(&r) == 0 && read_tools(&r) == 0 &&
        read_kwargs(&r) == 0 && read_continuation(&r) == 0 && read_reasoning_format(&r) == 0) {
        p.messages = dump(&mem, json_object_get(body, "messages"));
        c = grappa_chat_new(m->v, &p, err);
    }
    arena_release(&mem);
    return c;
}

/* ---- runs ---- */

/* The body as the table of fields takes it: what the conversation has dealt with is out of the way. */
static int read_chat_settings(struct exchange *x, struct run *r, const json_t *body, struct grappa_err *err)
{
    json_t *fields = json_copy((json_t *)body), *tools = json_object_get(body, "tools");
    bool logprobs = false, stream = false;
    int32_t top = 20;
    int status = -1;
    if (member_bool(body, "logprobs", &logprobs, err) || member_bool(body, "stream", &stream, err) ||
        member_i32(body, "top_logprobs", &top, err))
        goto cleanup;
    if (!logprobs && member(body, "top_logprobs")) {
        fail(err, 400, "top_logprobs requires logprobs to be set to true");
        goto cleanup;
    }
    if (logprobs && stream && json_array_size(tools)) {
        fail(err, 400, "logprobs is not supported with tools + stream");
        goto cleanup;
    }
    static const char *const dealt_with[] = {"logprobs",     "grammar",          "json_schema",
                                             "grammar_lazy", "grammar_triggers", "preserved_tokens"};
    for (size_t i = 0; i < sizeof dealt_with / sizeof *dealt_with; i++)
        json_object_del(fields, dealt_with[i]);
    if (logprobs)
        json_object_set_new(fields, "n_probs", json_integer(top));
    status = settings_init(&r->s, x->srv->p, r->model, fields, err);
cleanup:
    json_decref(fields);
    return status;
}

static int read_budget(struct run *r, const json_t *body, struct grappa_err *err)
{
    struct grappa_sampler_params *s = &r->s.s;
    int32_t budget = -1;
    if (member_i32(body, "thinking_budget_tokens", &budget, err) ||
        member_i32(body, "reasoning_budget_tokens", &budget, err))
        return -1;
    s->think_budget = budget >= 0 ? budget : r->s.p->think_budget;
    s->think_start = grappa_chat_think_start(r->chat);
    s->think_end = grappa_chat_think_end(r->chat);
    s->think_open = grappa_chat_thinking_open(r->chat);
    s->think_control = r->s.reasoning_control;
    return 0;
}

static int prepare(struct exchange *x, struct run *r, json_t *body, struct grappa_err *err)
{
    if (read_chat_settings(x, r, body, err))
        return -1;
    r->chat = chat_open(x, r->model, body, err);
    if (!r->chat || read_budget(r, body, err))
        return -1;
    const struct grappa_grammar_params *g = grappa_chat_grammar(r->chat);
    if (g) {
        r->s.s.grammar = *g;
        if (grappa_grammar_check(r->model->v, g, err))
            return -1;
    }
    const char *const *stops = NULL;
    size_t n = grappa_chat_stops(r->chat, &stops);
    for (size_t i = 0; i < n; i++)
        settings_add_stop(&r->s, stops[i]);
    r->s.chat_format = grappa_chat_format(r->chat);
    const char *prompt = grappa_chat_prompt(r->chat, &n);
    size_t n_ids;
    grappa_token *ids = grappa_tokenize_new(r->model->v, prompt, n, true, true, &n_ids, err);
    if (!ids)
        return -1;
    /* A template that writes the BOS token itself shall not make it two. */
    grappa_token bos = grappa_vocab_bos(r->model->v);
    if (n_ids > 1 && grappa_vocab_add_bos(r->model->v) && ids[0] == bos && ids[1] == bos) {
        n_ids--;
        memmove(ids, ids + 1, n_ids * sizeof *ids);
    }
    run_add_prompt(r, ids, n_ids);
    return 0;
}

void chat_go(struct exchange *x, json_t *body, const struct dialect *d)
{
    struct grappa_err err = {0};
    if (x->srv->p->embeddings) {
        reply_fail(x, 501, "This server does not support chats. Start it without `--embeddings`");
        return;
    }
    struct model *m = acquire_for(x, body, &err);
    if (!m) {
        reply_error(x, &err);
        return;
    }
    struct run *r = run_new(x, m, d);
    if (prepare(x, r, body, &err))
        reply_error(x, &err);
    else
        run_go(r);
}

void chat_count(struct exchange *x, json_t *body, const char *object)
{
    struct grappa_err err = {0};
    struct model *m = acquire_for(x, body, &err);
    struct grappa_chat *c = m ? chat_open(x, m, body, &err) : NULL;
    size_t n, n_ids = 0;
    const char *prompt = c ? grappa_chat_prompt(c, &n) : NULL;
    grappa_token *ids = c ? grappa_tokenize_new(m->v, prompt, n, true, true, &n_ids, &err) : NULL;
    if (ids) {
        json_t *j = json_pack("{s:I}", "input_tokens", (json_int_t)n_ids);
        if (object)
            json_object_set_new(j, "object", json_string(object));
        reply_json(x, 200, j);
    } else {
        reply_error(x, &err);
    }
    free(ids);
    grappa_chat_free(c);
    model_release(m);
}

void with_body(struct exchange *x, void (*fn)(struct exchange *x, json_t *body))
{
    struct grappa_err err = {0};
    json_t *body = read_body(x, false, &err);
    if (body)
        fn(x, body);
    else
        reply_error(x, &err);
    json_decref(body);
}

static void apply_template(struct exchange *x, json_t *body)
{
    struct grappa_err err = {0};
    struct model *m = acquire_for(x, body, &err);
    struct grappa_chat *c = m ? chat_open(x, m, body, &err) : NULL;
    size_t n = 0;
    const char *prompt = c ? grappa_chat_prompt(c, &n) : NULL;
    if (c)
        reply_json(x, 200, json_pack("{s:o}", "prompt", text_json(prompt, n)));
    else
        reply_error(x, &err);
    grappa_chat_free(c);
    model_release(m);
}

void post_apply_template(struct exchange *x)
{
    with_body(x, apply_template);
}
