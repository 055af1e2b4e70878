/* Rows for templates that need more: each is found by texts that its source has and lacks, as llama.cpp finds
 * its special handlers. */
#include "chat/adjust.h"

#include "base/mem.h"
#include "chat/messages.h"

#include <stdlib.h>

static bool contains(struct str text, const char *what)
{
    return text.n && memmem(text.p, text.n, what, strlen(what));
}

/* ---- the source ---- */

/* Two templates raise an exception for messages that are no fault of the client: a final answer that quotes
 * the format's own marks, and an assistant's message without text. */
static const struct {
    const char *mark, *check;
} patches[] = {
    {"<|channel|>", "{%- if \"<|channel|>analysis<|message|>\" in message.content or "
                    "\"<|channel|>final<|message|>\" in message.content %}"},
    {"[TOOL_CALLS]", "{%- if (message['content'] is none or message['content'] == '' or "
                     "message['content']|length == 0) and (message['tool_calls'] is not defined or "
                     "message['tool_calls'] is none or message['tool_calls']|length == 0) %}"},
};

void chat_adjust_source(struct str source, struct buf *out)
{
    for (size_t i = 0; i < sizeof patches / sizeof patches[0]; i++) {
        size_t n = strlen(patches[i].check);
        const char *at = source.n && contains(source, patches[i].mark)
                             ? memmem(source.p, source.n, patches[i].check, n)
                             : NULL;
        if (!at)
            continue;
        buf_add(out, source.p, (size_t)(at - source.p));
        buf_puts(out, "{%- if false %}");
        source = (struct str){at + n, source.n - (size_t)(at - source.p) - n};
        i--; /* the same check may stand there twice */
    }
    buf_add(out, source.p, source.n);
}

/* ---- messages ---- */

static bool is_role(const json_t *message, const char *role)
{
    return strcmp(chat_message_role(message), role) == 0;
}

static void trim(json_t *holder, const char *key)
{
    json_t *text = json_object_get(holder, key);
    if (!json_is_string(text))
        return;
    const char *p = json_string_value(text);
    size_t n = json_string_length(text);
    while (n && strchr(" \t\n\v\f\r", p[n - 1]) && p[n - 1])
        n--;
    while (n && *p && strchr(" \t\n\v\f\r", *p)) {
        p++;
        n--;
    }
    json_object_set_new(holder, key, json_stringn(p, n));
}

/* White space at the ends of messages drives this family of models into loops. */
static void trim_all(json_t *messages)
{
    json_t *message, *part;
    size_t i, k;
    json_array_foreach(messages, i, message)
    {
        trim(message, "content");
        trim(message, "reasoning_content");
        json_array_foreach(json_object_get(message, "content"), k, part) trim(part, "text");
    }
}

/* The template takes thinking or content before calls, not both. */
static void thinking_without_content(json_t *messages)
{
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        if (json_object_get(message, "reasoning_content") && chat_message_calls(message))
            json_object_del(message, "content");
    }
}

/* Reasoning is a part of the content, of a type of its own. */
static void thinking_as_part(json_t *messages)
{
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        if (!is_role(message, "system") && !is_role(message, "assistant"))
            continue;
        json_t *content = json_object_get(message, "content"), *parts = json_array();
        json_t *reasoning = json_object_get(message, "reasoning_content");
        if (reasoning)
            json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "thinking", "thinking", reasoning));
        if (json_is_string(content))
            json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
        else if (content)
            json_array_extend(parts, content);
        json_object_set_new(message, "content", parts);
        json_object_del(message, "reasoning_content");
        json_object_del(message, "thinking");
    }
}

/* By id of a call: its place among the message's calls. */
static json_t *call_places(const json_t *calls)
{
    json_t *places = json_object(), *call;
    size_t i;
    json_array_foreach(calls, i, call)
    {
        const char *id = json_string_value(json_object_get(call, "id"));
        if (id && *id)
            json_object_set_new(places, id, json_integer((json_int_t)i));
    }
    return places;
}

struct result {
    json_int_t place;
    size_t at;
    json_t *message;
};

static int by_place(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    return x->place != y->place ? (x->place > y->place) - (x->place < y->place)
                                : (x->at > y->at) - (x->at < y->at);
}

/* Results among the messages [begin, end) go in the order of the calls that they answer. */
static void sort_run(json_t *messages, size_t begin, size_t end, const json_t *places)
{
    struct result *results = xcalloc(end - begin + 1, sizeof *results);
    size_t n = 0;
    for (size_t i = begin; i < end; i++) {
        json_t *message = json_array_get(messages, i);
        const char *id = json_string_value(json_object_get(message, "tool_call_id"));
        if (is_role(message, "tool"))
            results[n++] = (struct result){json_integer_value(json_object_get(places, id ? id : "")), i,
                                           json_incref(message)};
    }
    qsort(results, n, sizeof *results, by_place);
    for (size_t i = begin, k = 0; i < end && k < n; i++) {
        if (is_role(json_array_get(messages, i), "tool"))
            json_array_set_new(messages, i, results[k++].message);
    }
    free(results);
}

/* A run is what becomes one block of the user's: users' messages and results. */
static void sort_results(json_t *messages)
{
    json_t *places = json_object();
    size_t n = json_array_size(messages);
    for (size_t i = 0; i < n;) {
        json_t *message = json_array_get(messages, i), *calls = chat_message_calls(message);
        size_t begin = i++;
        if (calls) {
            json_decref(places);
            places = call_places(calls);
        }
        if (!is_role(message, "user") && !is_role(message, "tool"))
            continue;
        while (i < n &&
               (is_role(json_array_get(messages, i), "user") || is_role(json_array_get(messages, i), "tool")))
            i++;
        sort_run(messages, begin, i, places);
    }
    json_decref(places);
}

static void response_of(json_t *result, json_t *call, json_t *responses)
{
    json_t *content = json_object_get(result, "content"), *response = NULL;
    json_t *name = json_object_get(json_object_get(call, "function"), "name");
    if (json_is_string(content))
        response = json_loadb(json_string_value(content), json_string_length(content),
                              JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!response)
        response = json_incref(content);
    if (!name)
        name = json_object_get(result, "tool_call_id");
    json_t *row = json_pack("{s:o}", "response", response);
    json_object_set_new(row, "name", name ? json_incref(name) : json_string(""));
    json_array_append_new(responses, row);
}

/* Calls, their results and the answer that follows are one message, with the results in a field of their own.
 */
static void results_in_message(json_t *messages)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i), *calls = chat_message_calls(message);
        json_array_append(out, message);
        if (!is_role(message, "assistant") || !calls)
            continue;
        json_t *responses = json_array(), *next;
        while ((next = json_array_get(messages, i + 1)) && is_role(next, "tool")) {
            response_of(next, json_array_get(calls, json_array_size(responses)), responses);
            i++;
        }
        json_object_del(message, "content");
        if (json_array_size(responses))
            json_object_set(message, "tool_responses", responses);
        json_decref(responses);
        json_t *content = json_object_get(next, "content");
        bool has_text = json_string_length(content) || json_array_size(content);
        if (next && is_role(next, "assistant") && !chat_message_calls(next) && has_text) {
            json_object_set(message, "content", content);
            i++;
        }
    }
    json_array_clear(messages);
    json_array_extend(messages, out);
    json_decref(out);
}

/* ---- the prompt ---- */

/* The mark at the end of a whole conversation is not the one that stands inside of it. */
static void return_to_end(bool add_generation_prompt, struct buf *prompt)
{
    static const char mark[] = "<|return|>", end[] = "<|end|>";
    const size_t n = sizeof mark - 1, m = sizeof end - 1;
    if (add_generation_prompt)
        return;
    for (size_t i = prompt->n; i >= n; i--) {
        char *at = prompt->p + i - n;
        if (memcmp(at, mark, n) != 0)
            continue;
        memcpy(at, end, m);
        memmove(at + m, at + n, prompt->n - i + 1);
        prompt->n -= n - m;
        return;
    }
}

/* After calls and content the template opens no turn. */
static void open_turn(bool add_generation_prompt, struct buf *prompt)
{
    static const char end[] = "<turn|>\n";
    const size_t n = sizeof end - 1;
    if (add_generation_prompt && prompt->n >= n && memcmp(prompt->p + prompt->n - n, end, n) == 0)
        buf_puts(prompt, "<|turn>model\n");
}

/* ---- the table ---- */

/* Row: texts that the source has (all of them), a text that it lacks, what changes. All rows that fit are
 * used. */
static const struct {
    const char *has[3], *lacks;
    void (*messages)(json_t *messages);
    void (*prompt)(bool add_generation_prompt, struct buf *prompt);
} rows[] = {
    {{"You have access to the following functions in JSONSchema format"}, NULL, trim_all, NULL},
    {{"[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"}, "[CALL_ID]", thinking_as_part, NULL},
    {{"<|channel|>"}, NULL, thinking_without_content, return_to_end},
    {{"dsml_token", "DSML", "tool_calls"}, "function_calls", sort_results, NULL},
    {{"'<|tool_call>call:'"}, NULL, NULL, open_turn},
    {{"'<|tool_call>call:'"}, "{#- OpenAI Chat Completions:", results_in_message, NULL},
};

static bool fits(size_t row, struct str source)
{
    for (size_t k = 0; k < 3 && rows[row].has[k]; k++) {
        if (!contains(source, rows[row].has[k]))
            return false;
    }
    return !rows[row].lacks || !contains(source, rows[row].lacks);
}

void chat_adjust_messages(struct str source, json_t *messages)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].messages && fits(i, source))
            rows[i].messages(messages);
    }
}

void chat_adjust_prompt(struct str source, bool add_generation_prompt, struct buf *prompt)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].prompt && prompt->n && fits(i, source))
            rows[i].prompt(add_generation_prompt, prompt);
    }
}

bool chat_knows_developer(struct str source)
{
    return contains(source, "<|channel|>");
}
