/* The way from a request to a prompt. One struct holds what the steps share; each step is a function that
 * fails by filling the error. */
#include "chat/conversation.h"

#include "base/mem.h"
#include "chat/adjust.h"
#include "chat/continue.h"
#include "chat/known.h"
#include "chat/messages.h"

#include <stdlib.h>
#include <time.h>

struct conversation {
    struct buf prompt;
    struct chat_caps caps;
    struct chat_syntax *syntax;
};

struct making {
    const struct conversation_params *p;
    const struct chat_known *known;
    struct chat_format format;
    json_t *messages, *tools, *extra;
    json_t *last;       /* the answer to be continued, taken out of the messages; or NULL */
    bool thinking, ask; /* ask: the prompt asks for an answer */
};

/* ---- variables ---- */

static void add_date(struct making *m, const char *name, const char *format)
{
    char text[64];
    time_t at = m->p->now ? (time_t)m->p->now : time(NULL);
    struct tm tm;
    if (localtime_r(&at, &tm) && strftime(text, sizeof text, format, &tm))
        json_object_set_new(m->extra, name, json_string(text));
}

static void set_boolean(struct making *m, const char *name, bool value)
{
    json_object_set_new(m->extra, name, json_boolean(value));
}

/* One switch for both names that templates have for it, and one of llama-server's for four. */
static void spread_settings(struct making *m)
{
    json_t *preserve = json_object_get(m->extra, "preserve_reasoning"),
           *effort = json_object_get(m->extra, "reasoning_effort");
    if (json_is_boolean(preserve)) {
        bool on = json_is_true(preserve);
        set_boolean(m, "preserve_thinking", on);
        set_boolean(m, "clear_thinking", !on);
        set_boolean(m, "truncate_history_thinking", !on);
        set_boolean(m, "drop_thinking", !on);
    }
    if (json_is_string(effort) && json_string_length(effort))
        json_object_set(m->extra, "reasoning_strength", effort);
}

static int make_variables(struct making *m, struct err *err)
{
    json_t *kwargs = NULL, *enable;
    m->thinking = m->p->enable_thinking > 0 || (m->p->enable_thinking == 0 && m->known->thinks);
    if (m->p->template_kwargs.n) {
        kwargs = chat_json(m->p->template_kwargs, "chat_template_kwargs", err);
        if (kwargs && !json_is_object(kwargs))
            err_set(err, ERR_USAGE, "chat_template_kwargs: an object expected");
    }
    if (!err->code && (enable = json_object_get(kwargs, "enable_thinking"))) {
        if (!json_is_boolean(enable) && !json_is_null(enable))
            err_set(err, ERR_USAGE, "chat_template_kwargs.enable_thinking: a boolean expected");
        if (json_is_boolean(enable))
            m->thinking = json_is_true(enable);
    }
    m->extra = json_object();
    set_boolean(m, "enable_thinking", m->thinking);
    if (m->tools)
        json_object_set(m->extra, "tools", m->tools);
    add_date(m, "datetime", "%b %d %Y");
    add_date(m, "date_string", "%d %b %Y");
    if (!err->code)
        json_object_update(m->extra, kwargs);
    spread_settings(m);
    json_decref(kwargs);
    return err->code ? -1 : 0;
}

/* ---- messages ---- */

static bool is_role(const json_t *message, const char *role)
{
    return message && strcmp(chat_message_role(message), role) == 0;
}

/* Takes the assistant's last message out, to be continued. */
static int take_last(struct making *m, struct err *err)
{
    size_t n = json_array_size(m->messages);
    json_t *last = json_array_get(m->messages, n - 1);
    if (n == 0 || !m->p->continue_final || !is_role(last, "assistant"))
        return 0;
    if (n > 1 && is_role(json_array_get(m->messages, n - 2), "assistant"))
        return err_set(err, ERR_USAGE,
                       "messages: two messages of the assistant's at the end can't be continued");
    if (chat_message_calls(last))
        return err_set(err, ERR_USAGE, "messages: an assistant's message with tool calls can't be continued");
    m->last = json_incref(last);
    m->ask = false;
    json_array_remove(m->messages, n - 1);
    return 0;
}

/* Tools that the template doesn't show have to be told of: in the system message, with the way to call them.
 */
static void instruct(struct making *m)
{
    const char *instruction = chat_format_instruction(&m->format);
    if (!m->tools || m->p->tool_choice == CHAT_TOOLS_NONE || m->known->caps.tools || !instruction)
        return;
    struct buf text = {0};
    json_t *first = json_array_get(m->messages, 0);
    if (!is_role(first, "system")) {
        first = json_pack("{s:s}", "role", "system");
        json_array_insert_new(m->messages, 0, first);
    }
    chat_message_text(first, &text);
    if (text.n)
        buf_puts(&text, "\n\n");
    buf_puts(&text, instruction);
    buf_putc(&text, '\n');
    chat_json_text(m->tools, &text);
    json_object_set_new(first, "content", json_stringn(text.p, text.n));
    buf_release(&text);
}

static int read_request(struct making *m, struct err *err)
{
    m->messages = chat_messages_parse(m->p->messages, err);
    m->tools = err->code ? NULL : chat_tools_check(m->p->tools, err);
    return err->code ? -1 : take_last(m, err);
}

static int choose_template(struct making *m, struct err *err)
{
    bool tool_use = m->tools && m->p->template_tool_use.n;
    bool calls = m->tools && m->p->tool_choice != CHAT_TOOLS_NONE;
    m->known = chat_known_get(tool_use ? m->p->template_tool_use : m->p->template, m->p->bos, m->p->eos, err);
    if (!m->known)
        return -1;
    m->format = chat_format_find(m->known->source, calls, m->known->sample);
    instruct(m);
    bool developer = chat_knows_developer(m->known->source);
    if (chat_messages_fit(m->messages, &m->known->caps, developer, err))
        return -1;
    chat_adjust_messages(m->known->source, m->messages);
    return 0;
}

/* ---- the prompt ---- */

static int render(struct making *m, bool ask, struct buf *out, struct err *err)
{
    struct buf messages = {0}, extra = {0};
    if (ask)
        json_object_del(m->extra, "add_generation_prompt");
    chat_json_text(m->messages, &messages);
    chat_json_text(m->extra, &extra);
    int status =
        messages.failed || extra.failed ? err_set(err, ERR_MEMORY, "the conversation is too long") : 0;
    if (status == 0)
        status = chat_template_render(m->known->template, buf_str(&messages), buf_str(&extra), ask, m->p->now,
                                      out, err);
    buf_release(&messages);
    buf_release(&extra);
    return status;
}

static int open_answer(struct making *m, struct buf *prompt, struct err *err)
{
    struct buf asking = {0}, plain = {0};
    int status = render(m, false, &plain, err) || render(m, true, &asking, err) ? -1 : 0;
    size_t same = 0;
    while (same < asking.n && same < plain.n && asking.p[same] == plain.p[same])
        same++;
    struct chat_opening o = {
        .source = m->known->source,
        .generation_prompt = {asking.n ? asking.p + same : "", asking.n - same},
        .think_start = m->known->think_start,
        .think_end = m->known->think_end,
    };
    if (status == 0)
        chat_continue(&o, m->last, prompt);
    buf_release(&asking);
    buf_release(&plain);
    return status;
}

/* The tokenizer writes what begins and ends every text. */
static void strip(const struct conversation_params *p, struct buf *prompt)
{
    size_t n = p->bos.n;
    if (p->strip_bos && n && prompt->n >= n && memcmp(prompt->p, p->bos.p, n) == 0) {
        memmove(prompt->p, prompt->p + n, prompt->n - n + 1);
        prompt->n -= n;
    }
    n = p->eos.n;
    if (p->strip_eos && n && prompt->n >= n && memcmp(prompt->p + prompt->n - n, p->eos.p, n) == 0)
        prompt->p[prompt->n -= n] = '\0';
}

static int make_prompt(struct making *m, struct buf *prompt, struct err *err)
{
    if (render(m, m->ask, prompt, err))
        return -1;
    strip(m->p, prompt);
    chat_adjust_prompt(m->known->source, m->ask, prompt);
    if (m->last && open_answer(m, prompt, err))
        return -1;
    if (!prompt->p)
        buf_puts(prompt, ""); /* an empty prompt is a prompt */
    return prompt->failed ? err_set(err, ERR_MEMORY, "the conversation is too long") : 0;
}

/* ---- */

/* Reasoning without an answer. */
static bool is_thought(const json_t *message)
{
    json_t *content = json_object_get(message, "content");
    return json_string_length(json_object_get(message, "reasoning_content")) &&
           json_string_length(content) == 0 && json_array_size(content) == 0;
}

static struct chat_syntax *make_syntax(struct making *m, struct str prompt, struct err *err)
{
    struct buf tools = {0};
    if (m->tools)
        chat_json_text(m->tools, &tools);
    struct chat_syntax_params params = {
        .format = m->format,
        .tools = buf_str(&tools),
        .tool_choice = m->p->tool_choice,
        .tool_name = m->p->tool_name,
        .parallel_tool_calls = m->p->parallel_tool_calls,
        .json_schema = m->p->json_schema,
        .grammar = m->p->grammar,
        .reasoning = m->p->reasoning,
        .thinking_off = !m->thinking,
        .prompt = prompt,
        .continues_reasoning = m->last && is_thought(m->last),
        .control_token = m->p->control_token,
        .user = m->p->user,
        .eager = m->p->eager,
    };
    struct chat_syntax *syntax = chat_syntax_new(&params, err);
    buf_release(&tools);
    return syntax;
}

struct conversation *conversation_new(const struct conversation_params *params, struct err *err)
{
    struct making m = {.p = params, .ask = params->add_generation_prompt};
    struct conversation *c = xcalloc(1, sizeof *c);
    if (read_request(&m, err) || choose_template(&m, err) || make_variables(&m, err) ||
        make_prompt(&m, &c->prompt, err) || !(c->syntax = make_syntax(&m, buf_str(&c->prompt), err))) {
        conversation_free(c);
        c = NULL;
    } else {
        c->caps = m.known->caps;
    }
    chat_known_put(m.known);
    json_decref(m.messages);
    json_decref(m.tools);
    json_decref(m.extra);
    json_decref(m.last);
    return c;
}

void conversation_free(struct conversation *c)
{
    if (!c)
        return;
    chat_syntax_free(c->syntax);
    buf_release(&c->prompt);
    free(c);
}

struct str conversation_prompt(const struct conversation *c)
{
    return buf_str(&c->prompt);
}

const struct chat_syntax *conversation_syntax(const struct conversation *c)
{
    return c->syntax;
}

const struct chat_caps *conversation_caps(const struct conversation *c)
{
    return &c->caps;
}

int chat_template_choose(const char *name_or_source, struct str *out, struct err *err)
{
    const char *builtin = chat_template_builtin(name_or_source);
    *out = str_of(builtin ? builtin : name_or_source);
    if (builtin || strstr(name_or_source, "{{") || strstr(name_or_source, "{%"))
        return 0;
    return err_set(err, ERR_USAGE, "\"%.60s\" is no built-in template's name and no Jinja source",
                   name_or_source);
}
