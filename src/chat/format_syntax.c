/* What a format means for one conversation: which parts the parser looks for, which tokens it needs as text,
 * and the constraint. */
#include "chat/format_row.h"

#include "base/mem.h"

#include <stdlib.h>

static void preserve(struct chat_syntax *s, const char *text)
{
    for (size_t i = 0; i < s->n_preserved; i++) {
        if (text && strcmp(s->preserved[i], text) == 0)
            return;
    }
    if (text && s->n_preserved < sizeof s->preserved / sizeof *s->preserved)
        s->preserved[s->n_preserved++] = text;
}

/* All marks of the row: a vocabulary says which of them are control tokens, for the rest it makes no
 * difference. */
static void collect_preserved(struct chat_syntax *s)
{
    const struct chat_format_row *r = s->row;
    const char *const texts[] = {
        r->section_start, r->section_end,  r->call_start,         r->call_end,
        r->alternative,   r->name_prefix,  r->name_end,           r->id_start,
        r->arg_start,     r->arg_name_end, r->value_start,        r->value_end,
        r->func_end,      r->quote,        s->format.think_start, s->format.think_end};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        preserve(s, texts[i]);
    for (size_t i = 0; i < ROW_TEXTS; i++) {
        preserve(s, r->drop[i]);
        preserve(s, r->preserved[i]);
    }
    for (size_t i = 0; i < sizeof r->stops / sizeof *r->stops && r->stops[i]; i++)
        s->stops[s->n_stops++] = r->stops[i];
}

/* With reasoning left in the content, what the prompt has begun of it belongs there too. */
static void set_lead(struct chat_syntax *s, struct str prompt)
{
    const char *mark = s->format.think_start;
    size_t n = mark ? strlen(mark) : 0;
    if (s->thoughts || !s->thinking_open || n == 0 || prompt.n < n || (s->row->flags & F_NO_LEAD))
        return;
    for (size_t at = prompt.n - n;; at--) {
        if (memcmp(prompt.p + at, mark, n) == 0) {
            s->lead = xcalloc(prompt.n - at + 1, 1);
            memcpy(s->lead, prompt.p + at, prompt.n - at);
            return;
        }
        if (at == 0)
            return;
    }
}

static int set_grammar(struct chat_syntax *s, const struct chat_syntax_params *p, struct err *err)
{
    bool calls = s->calls && p->tool_choice == CHAT_TOOLS_REQUIRED;
    if (p->grammar.n > 0 && s->tools.n > 0 && p->tool_choice != CHAT_TOOLS_NONE)
        return err_set(err, ERR_USAGE, "Cannot specify grammar with tools");
    if (p->grammar.n > 0) {
        buf_add(&s->source, p->grammar.p, p->grammar.n);
        s->grammar.type = CHAT_GRAMMAR_GBNF;
    } else if (p->json_schema.n > 0 && !calls) {
        char *schema = chat_schema_text(p->json_schema);
        if (!schema)
            return err_set(err, ERR_USAGE, "the JSON schema of the answer is no JSON object");
        free(schema);
        chat_lark_schema(s, p);
        s->grammar.type = CHAT_GRAMMAR_LARK;
    } else if (s->calls && chat_lark_calls(s, p)) {
        s->grammar.type = CHAT_GRAMMAR_LARK;
        s->grammar.lazy = !calls;
    }
    if (s->source.failed)
        return err_set(err, ERR_MEMORY, "out of memory");
    s->grammar.source = s->source.p;
    s->grammar.trigger_words = s->words;
    s->grammar.trigger_patterns = s->patterns;
    return 0;
}

/* Only the tool that was named. */
static int keep_named(struct chat_syntax *s, struct str name, struct err *err)
{
    const struct chat_tool *named = chat_tools_find(&s->tools, name);
    if (!named)
        return err_set(err, ERR_USAGE, "tool_choice names '%.*s', which is not among the tools",
                       STR_ARG(name));
    size_t i = (size_t)(named - s->tools.tools);
    struct chat_tool first = s->tools.tools[0];
    s->tools.tools[0] = *named;
    s->tools.tools[i] = first;
    s->n_offered = 1;
    return 0;
}

struct chat_syntax *chat_syntax_new(const struct chat_syntax_params *p, struct err *err)
{
    struct chat_syntax *s = xcalloc(1, sizeof *s);
    s->format = p->format;
    s->row = p->format.row;
    s->eager = p->eager;
    s->parallel = p->parallel_tool_calls;
    if (chat_tools_parse(&s->tools, p->tools, err) != 0)
        goto fail;
    if (p->tool_choice == CHAT_TOOLS_REQUIRED && s->tools.n == 0) {
        err_set(err, ERR_USAGE, "tool_choice is 'required', but there are no tools");
        goto fail;
    }
    s->n_offered = s->tools.n;
    if (p->tool_choice == CHAT_TOOLS_REQUIRED && p->tool_name.n > 0 && keep_named(s, p->tool_name, err) != 0)
        goto fail;
    s->calls = s->tools.n > 0 && p->tool_choice != CHAT_TOOLS_NONE && s->row->kind != CALLS_NONE;
    s->thoughts =
        p->reasoning != CHAT_REASONING_NONE && (s->format.think_end || s->row->kind == CALLS_HARMONY);
    s->legacy = p->reasoning == CHAT_REASONING_DEEPSEEK_LEGACY;
    s->continues = p->continues_reasoning;
    s->thinking_open = p->continues_reasoning || chat_format_thinking_open(&s->format, p->prompt);
    if (s->row->kind == CALLS_RECIPIENT) {
        const char *mark = s->row->call_start;
        size_t n = strlen(mark);
        s->recipient_open = p->prompt.n >= n && memcmp(p->prompt.p + p->prompt.n - n, mark, n) == 0;
    }
    s->thinking_closed = !s->thinking_open && chat_ends_with(p->prompt, s->format.think_end);
    set_lead(s, p->prompt);
    collect_preserved(s);
    if (set_grammar(s, p, err) != 0)
        goto fail;
    return s;
fail:
    chat_syntax_free(s);
    return NULL;
}

void chat_syntax_free(struct chat_syntax *s)
{
    if (!s)
        return;
    chat_tools_release(&s->tools);
    for (size_t i = 0; i < s->grammar.n_trigger_patterns; i++)
        free((void *)s->patterns[i]);
    buf_release(&s->source);
    free(s->lead);
    free(s);
}

const struct chat_format *chat_syntax_format(const struct chat_syntax *s)
{
    return &s->format;
}

const struct chat_grammar *chat_syntax_grammar(const struct chat_syntax *s)
{
    return s->grammar.type == CHAT_GRAMMAR_NONE ? NULL : &s->grammar;
}

size_t chat_syntax_stops(const struct chat_syntax *s, const char *const **out)
{
    *out = s->stops;
    return s->n_stops;
}

size_t chat_syntax_preserved(const struct chat_syntax *s, const char *const **out)
{
    *out = s->preserved;
    return s->n_preserved;
}

bool chat_syntax_thinking_open(const struct chat_syntax *s)
{
    return s->thinking_open;
}
