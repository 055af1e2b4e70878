/* A chat template and its rendering: what the C side adds to the Rust library is the set of variables that
 * Hugging Face's apply_chat_template would pass, the limits, and the mapping of failures to our error value.
 */
#include "chat/chat.h"

#include "base/mem.h"
#include "grappa_rust.h"

#include <stdint.h>
#include <stdlib.h>

/* Work allowed to a render: enough for long conversations through wordy templates, and about a second at
 * worst. Every byte that comes in buys some more. */
#define FUEL_BASE      2000000u
#define FUEL_PER_BYTE  4u
#define OUTPUT_CEILING ((size_t)256 << 20)

struct chat_template {
    struct grappa_jinja *jinja;
    struct arena strings;
    struct str bos, eos;
};

static struct grappa_jinja_text text_of(struct str s)
{
    return (struct grappa_jinja_text){s.p, s.n};
}

struct chat_template *chat_template_new(struct str source, struct str bos, struct str eos, struct err *err)
{
    char why[sizeof err->text];
    struct grappa_jinja *jinja = grappa_jinja_new(text_of(source), why, sizeof why);
    if (!jinja) {
        err_set(err, ERR_FORMAT, "chat template: %s", why);
        return NULL;
    }
    struct chat_template *t = xcalloc(1, sizeof *t);
    t->jinja = jinja;
    t->bos = (struct str){arena_strndup(&t->strings, bos.p, bos.n), bos.n};
    t->eos = (struct str){arena_strndup(&t->strings, eos.p, eos.n), eos.n};
    return t;
}

void chat_template_free(struct chat_template *t)
{
    if (!t)
        return;
    grappa_jinja_free(t->jinja);
    arena_release(&t->strings);
    free(t);
}

/* Row: what the library reports, our code for it, what to say before the library's text. A template that
 * fails on a conversation does so because of what is in the conversation, so that is the request's fault. */
static const struct {
    enum err_code code;
    const char *prefix;
} outcomes[] = {
    [GRAPPA_JINJA_BAD_INPUT] = {ERR_USAGE, ""},
    [GRAPPA_JINJA_RAISED] = {ERR_USAGE, ""},
    [GRAPPA_JINJA_FAILED] = {ERR_USAGE, "chat template: "},
    [GRAPPA_JINJA_LIMIT] = {ERR_RANGE, ""},
    [GRAPPA_JINJA_WRITE] = {ERR_MEMORY, ""},
    [GRAPPA_JINJA_INTERNAL] = {ERR_FORMAT, "chat template: "},
};

struct sink {
    struct buf *out;
    size_t start;
};

static bool sink_write(void *ctx, const char *p, size_t n)
{
    struct sink *sink = ctx;
    if (sink->out->n - sink->start + n > OUTPUT_CEILING)
        return false;
    buf_add(sink->out, p, n);
    return !sink->out->failed;
}

static struct grappa_jinja_var var(const char *name, enum grappa_jinja_kind kind, struct str text)
{
    return (struct grappa_jinja_var){name, kind, text_of(text)};
}

int chat_template_render(const struct chat_template *t, struct str messages_json, struct str extra_json,
                         bool add_generation_prompt, int64_t now, struct buf *out, struct err *err)
{
    /* Hugging Face passes tools and documents always, so templates may test them for none. */
    struct grappa_jinja_var vars[] = {
        var("bos_token", GRAPPA_JINJA_TEXT, t->bos),
        var("eos_token", GRAPPA_JINJA_TEXT, t->eos),
        var("tools", GRAPPA_JINJA_JSON, str_of("null")),
        var("documents", GRAPPA_JINJA_JSON, str_of("null")),
        var("messages", GRAPPA_JINJA_JSON, messages_json),
        var("add_generation_prompt", GRAPPA_JINJA_JSON, str_of(add_generation_prompt ? "true" : "false")),
        var("template variables", GRAPPA_JINJA_FIELDS, extra_json),
    };
    size_t n = sizeof vars / sizeof vars[0] - (extra_json.n == 0);
    uint64_t fuel = FUEL_BASE + FUEL_PER_BYTE * ((uint64_t)messages_json.n + extra_json.n);
    struct sink sink = {out, out->n};
    char why[sizeof err->text];
    enum grappa_jinja_status status =
        grappa_jinja_render(t->jinja, vars, n, fuel, now, sink_write, &sink, why, sizeof why);
    if (status == GRAPPA_JINJA_OK)
        return 0;
    if (out->n > sink.start) {
        out->n = sink.start;
        out->p[out->n] = '\0';
    }
    return err_set(err, outcomes[status].code, "%s%s", outcomes[status].prefix, why);
}

struct chat_caps chat_template_caps(const struct chat_template *t)
{
    struct grappa_jinja_caps found;
    if (!grappa_jinja_caps(t->jinja, &found))
        return (struct chat_caps){.system_role = true, .string_content = true};
    return (struct chat_caps){
        .tools = found.tools,
        .tool_calls = found.tool_calls,
        .system_role = found.system_role,
        .parallel_tool_calls = found.parallel_tool_calls,
        .preserve_reasoning = found.preserve_reasoning,
        .reasoning_effort = found.reasoning_effort,
        .string_content = found.string_content,
        .typed_content = found.typed_content,
        .object_arguments = found.object_arguments,
    };
}

void chat_caps_json(const struct chat_caps *caps, struct buf *out)
{
    const struct {
        const char *name;
        bool value;
    } rows[] = {
        {"object_arguments", caps->object_arguments},
        {"parallel_tool_calls", caps->parallel_tool_calls},
        {"preserve_reasoning", caps->preserve_reasoning},
        {"reasoning_effort", caps->reasoning_effort},
        {"string_content", caps->string_content},
        {"system_role", caps->system_role},
        {"tool_calls", caps->tool_calls},
        {"tools", caps->tools},
        {"typed_content", caps->typed_content},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        buf_printf(out, "%s\"supports_%s\": %s", i ? ", " : "{", rows[i].name,
                   rows[i].value ? "true" : "false");
    buf_putc(out, '}');
}
