/* The rules for messages and tools. Checking and one form first, so that everything behind can rely on it;
 * then what one template wants. */
#include "chat/messages.h"

#include "base/mem.h"

#include <stdlib.h>

#define MAX_MESSAGES 100000

/* ---- JSON ---- */

json_t *chat_json(struct str json, const char *what, struct err *err)
{
    const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t e;
    json_t *value = json_loadb(json.n ? json.p : "", json.n, flags, &e);
    if (!value && json_error_code(&e) == json_error_numeric_overflow)
        value = json_loadb(json.p, json.n, flags | JSON_DECODE_INT_AS_REAL, &e);
    if (!value)
        err_set(err, ERR_USAGE, "%s: no valid JSON: %s (line %d)", what, e.text, e.line);
    return value;
}

static int add_text(const char *p, size_t n, void *out)
{
    struct buf *b = out;
    buf_add(b, p, n);
    return b->failed ? -1 : 0;
}

void chat_json_text(const json_t *value, struct buf *out)
{
    json_dump_callback(value, add_text, out, JSON_COMPACT | JSON_ENCODE_ANY);
}

static json_t *text_value(const struct buf *b)
{
    return json_stringn(b->n ? b->p : "", b->n);
}

/* What json_dumps gives, for the names of things in errors: short. */
static const char *kind_of(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
    };
    return value ? names[json_typeof(value)] : "absent";
}

/* ---- reading ---- */

const char *chat_message_role(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

json_t *chat_message_calls(const json_t *message)
{
    return json_object_get(message, "tool_calls");
}

void chat_message_text(const json_t *message, struct buf *out)
{
    json_t *content = json_object_get(message, "content"), *part;
    size_t i, start = out->n;
    if (json_is_string(content))
        buf_add(out, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part)
    {
        json_t *text = json_object_get(part, "text");
        if (out->n > start)
            buf_putc(out, '\n');
        buf_add(out, json_string_value(text), json_string_length(text));
    }
}

/* ---- one form ---- */

static int bad(struct err *err, size_t i, const char *what, const char *want, const json_t *value)
{
    return err_set(err, ERR_USAGE, "messages[%zu].%s: %s expected, it is %s", i, what, want, kind_of(value));
}

/* Parts of content that need more than a language model; as llama-server without a projector says it. */
static const struct {
    const char *type, *kind;
} media[] = {
    {"image_url", "image"},
    {"input_audio", "audio"},
    {"input_video", "video"},
    {"video_url", "video"},
};

static int check_part(const json_t *part, size_t i, struct err *err)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type)
        return bad(err, i, "content[].type", "a string", json_object_get(part, "type"));
    for (size_t k = 0; k < sizeof media / sizeof media[0]; k++) {
        if (strcmp(type, media[k].type) == 0)
            return err_set(err, ERR_USAGE, "messages[%zu]: %s input is not supported by this model", i,
                           media[k].kind);
    }
    if (strcmp(type, "text") != 0)
        return err_set(err, ERR_USAGE, "messages[%zu]: unsupported content[].type \"%s\"", i, type);
    if (!json_is_string(json_object_get(part, "text")))
        return bad(err, i, "content[].text", "a string", json_object_get(part, "text"));
    return 0;
}

static int check_content(json_t *message, size_t i, struct err *err)
{
    json_t *content = json_object_get(message, "content"), *part;
    bool assistant = strcmp(chat_message_role(message), "assistant") == 0;
    size_t k;
    if (!content && !(assistant && chat_message_calls(message)))
        return err_set(err, ERR_USAGE, "messages[%zu]: 'content' is missing%s", i,
                       assistant ? ", and so are 'tool_calls'" : "");
    if (content && !json_is_string(content) && !json_is_array(content) && !json_is_null(content))
        return bad(err, i, "content", "a string or an array", content);
    json_array_foreach(content, k, part)
    {
        if (check_part(part, i, err))
            return -1;
    }
    if (!content || json_is_null(content) || (json_is_array(content) && json_array_size(content) == 0))
        json_object_set_new(message, "content", json_string(""));
    return 0;
}

static int check_call(json_t *call, size_t i, struct err *err)
{
    json_t *function = json_object_get(call, "function"), *type = json_object_get(call, "type"),
           *name = json_object_get(function, "name"), *arguments = json_object_get(function, "arguments");
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return bad(err, i, "tool_calls[].type", "\"function\"", type);
    if (!json_is_object(function))
        return bad(err, i, "tool_calls[].function", "an object", function);
    if (!json_is_string(name))
        return bad(err, i, "tool_calls[].function.name", "a string", name);
    if (!arguments)
        return bad(err, i, "tool_calls[].function.arguments", "an object or its JSON text", arguments);
    if (json_is_string(arguments))
        return 0;
    struct buf text = {0};
    chat_json_text(arguments, &text);
    json_object_set_new(function, "arguments", text_value(&text));
    buf_release(&text);
    return 0;
}

static int check_calls(json_t *message, size_t i, struct err *err)
{
    json_t *calls = chat_message_calls(message), *call;
    size_t k;
    if (calls && !json_is_array(calls) && !json_is_null(calls))
        return bad(err, i, "tool_calls", "an array", calls);
    json_array_foreach(calls, k, call)
    {
        if (check_call(call, i, err))
            return -1;
    }
    if (json_array_size(calls) == 0)
        json_object_del(message, "tool_calls");
    return 0;
}

/* Reasoning goes by three names. `reasoning_content` is the one that templates read, but for those that read
 * `thinking`; it gets both. */
static void alias_reasoning(json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL;
    for (size_t k = 0; k < sizeof names / sizeof names[0] && !reasoning; k++)
        reasoning = json_object_get(message, names[k]);
    if (!reasoning)
        return;
    json_incref(reasoning);
    json_object_set(message, "reasoning_content", reasoning);
    if (!json_object_get(message, "thinking"))
        json_object_set(message, "thinking", reasoning);
    json_decref(reasoning);
}

static int check_texts(const json_t *message, size_t i, struct err *err)
{
    static const char *const names[] = {"reasoning_content", "name", "tool_call_id"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        json_t *value = json_object_get(message, names[k]);
        if (value && !json_is_string(value))
            return bad(err, i, names[k], "a string", value);
    }
    return 0;
}

static int check_message(json_t *message, size_t i, struct err *err)
{
    if (!json_is_object(message))
        return err_set(err, ERR_USAGE, "messages[%zu]: an object expected, it is %s", i, kind_of(message));
    if (!json_is_string(json_object_get(message, "role")))
        return bad(err, i, "role", "a string", json_object_get(message, "role"));
    if (check_content(message, i, err) || check_calls(message, i, err))
        return -1;
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(message, next, key, value)
    {
        if (json_is_null(value))
            json_object_del(message, key);
    }
    alias_reasoning(message);
    return check_texts(message, i, err);
}

json_t *chat_messages_parse(struct str json, struct err *err)
{
    json_t *messages = chat_json(json, "messages", err), *message;
    size_t i;
    if (!messages)
        return NULL;
    if (!json_is_array(messages))
        err_set(err, ERR_USAGE, "messages: an array expected, it is %s", kind_of(messages));
    else if (json_array_size(messages) > MAX_MESSAGES)
        err_set(err, ERR_USAGE, "messages: more than %d", MAX_MESSAGES);
    json_array_foreach(messages, i, message)
    {
        if (err->code || check_message(message, i, err))
            break;
    }
    if (err->code) {
        json_decref(messages);
        return NULL;
    }
    return messages;
}

static int check_tool(json_t *tool, size_t i, struct err *err)
{
    json_t *function = json_object_get(tool, "function"), *name = json_object_get(function, "name");
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!type || strcmp(type, "function") != 0)
        return err_set(err, ERR_USAGE, "tools[%zu].type: \"function\" expected", i);
    if (!json_is_object(function) || !json_is_string(name))
        return err_set(err, ERR_USAGE, "tools[%zu].function: an object with a 'name' expected", i);
    if (!json_is_string(json_object_get(function, "description")))
        json_object_set_new(function, "description", json_string(""));
    json_t *parameters = json_object_get(function, "parameters");
    if (!parameters || json_is_null(parameters))
        json_object_set_new(function, "parameters", json_object());
    return 0;
}

json_t *chat_tools_check(struct str json, struct err *err)
{
    json_t *tools = json.n ? chat_json(json, "tools", err) : NULL, *tool;
    size_t i;
    if (!tools)
        return NULL;
    if (!json_is_array(tools) && !json_is_null(tools))
        err_set(err, ERR_USAGE, "tools: an array expected, it is %s", kind_of(tools));
    json_array_foreach(tools, i, tool)
    {
        if (check_tool(tool, i, err))
            break;
    }
    if (err->code || json_array_size(tools) == 0) {
        json_decref(tools);
        return NULL;
    }
    return tools;
}

/* ---- what one template wants ---- */

static void join_parts(json_t *message)
{
    struct buf text = {0};
    chat_message_text(message, &text);
    json_object_set_new(message, "content", text_value(&text));
    buf_release(&text);
}

static void part_of_text(json_t *message)
{
    json_t *part = json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(message, "content"));
    json_t *parts = json_array();
    json_array_append_new(parts, part);
    json_object_set_new(message, "content", parts);
}

static int parse_arguments(json_t *message, size_t i, struct err *err)
{
    json_t *call;
    size_t k;
    json_array_foreach(chat_message_calls(message), k, call)
    {
        json_t *function = json_object_get(call, "function"), *text = json_object_get(function, "arguments");
        struct str json = {json_string_value(text), json_string_length(text)};
        json_t *arguments = json.n ? chat_json(json, "arguments of a tool call", err) : json_object();
        if (!arguments) {
            err_prefix(err, "messages[%zu]", i);
            return -1;
        }
        json_object_set_new(function, "arguments", arguments);
    }
    return 0;
}

/* A system message at the beginning goes in front of the next one. */
static void merge_system(json_t *messages)
{
    json_t *system = json_array_get(messages, 0), *next = json_array_get(messages, 1);
    if (!system || strcmp(chat_message_role(system), "system") != 0)
        return;
    if (next) {
        struct buf text = {0};
        chat_message_text(system, &text);
        buf_putc(&text, '\n');
        chat_message_text(next, &text);
        json_object_set_new(next, "content", text_value(&text));
        buf_release(&text);
    }
    json_array_remove(messages, 0);
}

int chat_messages_fit(json_t *messages, const struct chat_caps *caps, bool knows_developer, struct err *err)
{
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        if (!knows_developer && strcmp(chat_message_role(message), "developer") == 0)
            json_object_set_new(message, "role", json_string("system"));
    }
    if (!caps->system_role)
        merge_system(messages);
    json_array_foreach(messages, i, message)
    {
        bool is_text = json_is_string(json_object_get(message, "content"));
        if (caps->string_content && !caps->typed_content && !is_text)
            join_parts(message);
        if (!caps->string_content && caps->typed_content && is_text)
            part_of_text(message);
        if (caps->object_arguments && parse_arguments(message, i, err))
            return -1;
    }
    return 0;
}
