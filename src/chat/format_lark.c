/* The constraint of a conversation's output, in llguidance's Lark dialect: reasoning first where it comes,
 * then calls whose arguments follow the tools' schemas, or an answer by a schema.
 *
 * A mark that is one control token is written as that token (and, where only text is, as its text too). A
 * lazy constraint begins with the mark that woke it. Rules are numbered by tool and argument, since names may
 * be anything. */
#include "chat/format_lark.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- writing ---- */

/* A string literal: JSON's escapes. */
static void literal(struct buf *out, const char *text, size_t n)
{
    buf_puts(out, " \"");
    json_escape(out, text, n);
    buf_putc(out, '"');
}

void lark_literal(struct lark *l, const char *text)
{
    if (*text)
        literal(l->out, text, strlen(text));
}

static void regex_escape(struct buf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] && strchr("\\^$.|?*+()[]{}/-#&~\"", text[i]))
            buf_putc(out, '\\');
        if (text[i] == '\n')
            buf_puts(out, "\\n");
        else
            buf_putc(out, text[i]);
    }
}

static int64_t lark_token(const struct lark *l, const char *text)
{
    return l->p->control_token ? l->p->control_token(l->p->user, text) : -1;
}

/* The longest of the marks that begins at `text` and is a control token. */
static const char *token_here(const struct lark *l, const char *text, int64_t *id)
{
    const char *best = NULL;
    for (size_t i = 0; i < l->s->n_preserved; i++) {
        const char *mark = l->s->preserved[i];
        size_t n = strlen(mark);
        if (strncmp(text, mark, n) == 0 && (!best || n > strlen(best))) {
            int64_t found = lark_token(l, mark);
            if (found >= 0) {
                best = mark;
                *id = found;
            }
        }
    }
    return best;
}

void lark_mark(struct lark *l, const char *text)
{
    const char *from = text;
    while (*text) {
        int64_t id;
        const char *mark = token_here(l, text, &id);
        if (!mark) {
            text++;
            continue;
        }
        if (text > from)
            literal(l->out, from, (size_t)(text - from));
        buf_printf(l->out, " (<[%lld]> |", (long long)id);
        literal(l->out, mark, strlen(mark));
        buf_putc(l->out, ')');
        text += strlen(mark);
        from = text;
    }
    if (text > from)
        literal(l->out, from, (size_t)(text - from));
}

void lark_json(struct lark *l, const char *schema)
{
    buf_puts(l->out, " %json ");
    buf_puts(l->out, schema);
    buf_putc(l->out, '\n');
}

void lark_until(struct lark *l, const char *name, const char *chars, const char *mark)
{
    int64_t id;
    if (token_here(l, mark, &id) == NULL) {
        buf_printf(l->out, "%s[lazy]: /(?s:%s)", name, chars);
        regex_escape(l->out, mark, strlen(mark));
        buf_puts(l->out, "/\n");
        return;
    }
    buf_printf(l->out, "%s: %s_text", name, name); /* a control token is no text, and so ends it */
    lark_mark(l, mark);
    buf_printf(l->out, "\n%s_text: /(?s:%s)/\n", name, chars);
}

void lark_regex(struct buf *out, const char *text)
{
    regex_escape(out, text, strlen(text));
}

/* ---- reasoning ---- */

/* "think" or nothing: reasoning that is open, or that may come. */
static void reasoning(struct lark *l)
{
    const struct chat_format *f = &l->s->format;
    if (!f->think_end || l->p->thinking_off)
        l->think = l->s->thinking_open;
    else
        l->think = !l->s->thinking_closed;
    if (!l->think || !f->think_end)
        return;
    buf_puts(l->out, l->s->thinking_open ? " think ws" : " ws (think ws)?");
}

static void reasoning_rules(struct lark *l)
{
    const struct chat_format *f = &l->s->format;
    if (!l->think || !f->think_end)
        return;
    if (l->s->thinking_open) {
        lark_until(l, "think", ".*", f->think_end);
        return;
    }
    buf_puts(l->out, "think:");
    lark_mark(l, f->think_start);
    buf_puts(l->out, " thought\n");
    lark_until(l, "thought", ".*", f->think_end);
}

/* ---- calls by kind ---- */

/* {"name": …, "arguments": …} with the names of the row, as free in white space as the parser. */
static void json_call(struct lark *l, size_t i)
{
    const struct chat_format_row *r = l->s->row;
    const struct chat_tool *t = &l->s->tools.tools[i];
    char number[32];
    struct buf quoted = {0};
    buf_putc(&quoted, '"');
    json_escape(&quoted, t->name, strlen(t->name));
    buf_putc(&quoted, '"');
    snprintf(number, sizeof number, " args_%zu", i);
    const char *args = r->args_key ? r->args_key : "arguments", *name = r->name_key ? r->name_key : "name";
    buf_puts(l->out, " \"{\" ws");
    if (r->flags & F_KEY_IS_NAME) {
        lark_literal(l, quoted.p);
        buf_printf(l->out, " ws \":\" ws%s ws \"}\"", number);
        buf_release(&quoted);
        return;
    }
    if (r->flags & F_BARE)
        buf_puts(l->out, " (\"\\\"type\\\"\" ws \":\" ws \"\\\"function\\\"\" ws \",\" ws)?");
    if (r->id_key && !(r->flags & F_ID9))
        buf_printf(l->out, " (\"\\\"%s\\\"\" ws \":\" ws \"\\\"\" /[0-9]{1,4}/ \"\\\"\" ws \",\" ws)?",
                   r->id_key);
    buf_printf(l->out, " \"\\\"%s\\\"\" ws \":\" ws", name);
    lark_literal(l, quoted.p);
    buf_printf(l->out, " ws \",\" ws \"\\\"%s\\\"\" ws \":\" ws%s ws", args, number);
    if (r->id_key && (r->flags & F_ID9))
        buf_printf(l->out, " (\",\" ws \"\\\"%s\\\"\" ws \":\" ws \"\\\"\" /[A-Za-z0-9]{9}/ \"\\\"\" ws)?",
                   r->id_key);
    buf_puts(l->out, " \"}\"");
    buf_release(&quoted);
}

static void named_call(struct lark *l, size_t i)
{
    const struct chat_format_row *r = l->s->row;
    if (r->name_prefix)
        lark_mark(l, r->name_prefix);
    lark_literal(l, l->s->tools.tools[i].name);
    if (r->flags & F_ID_IS_NAME)
        buf_puts(l->out, " \":\" /[0-9]{1,4}/");
    if (r->id_start) {
        buf_puts(l->out, " (");
        lark_mark(l, r->id_start);
        buf_puts(l->out, " /[A-Za-z0-9]{9}/)?");
    }
    lark_mark(l, r->name_end);
    if (r->flags & F_FENCE)
        buf_puts(l->out, " ws \"```json\" ws");
    buf_printf(l->out, " args_%zu", i);
    if (r->flags & F_FENCE)
        buf_puts(l->out, " ws \"```\"");
}

static void harmony_call(struct lark *l, size_t i)
{
    lark_literal(l, " to=functions.");
    lark_literal(l, l->s->tools.tools[i].name);
    buf_printf(l->out, " channel? constrained? message ws args_%zu", i);
}

static void call_body(struct lark *l, size_t i)
{
    switch (l->s->row->kind) {
    case CALLS_JSON:
        json_call(l, i);
        break;
    case CALLS_TAGS:
        lark_tags_call(l, i);
        break;
    case CALLS_PYTHON:
        lark_python_call(l, i);
        break;
    case CALLS_DICT:
        lark_dict_call(l, i);
        break;
    case CALLS_HARMONY:
        harmony_call(l, i);
        break;
    default:
        named_call(l, i);
        break;
    }
}

/* The rules tool_N, and what they need. */
static void tool_rules(struct lark *l)
{
    bool objects =
        l->s->row->kind != CALLS_TAGS && l->s->row->kind != CALLS_PYTHON && l->s->row->kind != CALLS_DICT;
    buf_puts(l->out, "tool:");
    for (size_t i = 0; i < l->s->n_offered; i++)
        buf_printf(l->out, "%s tool_%zu", i ? " |" : "", i);
    buf_putc(l->out, '\n');
    for (size_t i = 0; i < l->s->n_offered; i++) {
        buf_printf(l->out, "tool_%zu:", i);
        call_body(l, i);
        buf_putc(l->out, '\n');
        if (objects) {
            buf_printf(l->out, "args_%zu:", i);
            lark_json(l, l->s->tools.tools[i].parameters);
        }
        lark_argument_rules(l, i);
    }
}

static void repeated(struct lark *l, const char *separator, const char *rule)
{
    buf_printf(l->out, " %s", rule);
    if (l->s->parallel)
        buf_printf(l->out, " (%s %s)*", separator, rule);
}

/* "calls": all of them with the marks around. */
static void calls_rule(struct lark *l, bool lazy)
{
    const struct chat_format_row *r = l->s->row;
    bool array = r->kind == CALLS_PYTHON || (r->flags & F_ARRAY);
    buf_puts(l->out, "calls:");
    if (r->flags & F_ENVELOPE) {
        buf_puts(l->out, " \"{\" ws (\"\\\"tool_call\\\"\" ws \":\" ws tool | \"\\\"tool_calls\\\"\" ws "
                         "\":\" ws \"[\" ws");
        repeated(l, "ws \",\" ws", "tool");
        buf_puts(l->out, " ws \"]\") ws \"}\"\n");
        return;
    }
    if (array) {
        if (r->call_start && !(r->flags & F_BARE))
            lark_mark(l, r->call_start);
        buf_puts(l->out, " ws \"[\" ws");
        repeated(l, "ws \",\" ws", "tool");
        buf_puts(l->out, " ws \"]\" ws");
        if (r->call_end && !(r->flags & F_BARE))
            lark_mark(l, r->call_end);
    } else if (r->flags & F_BARE) {
        repeated(l, "ws \";\" ws", "tool");
    } else if (r->section_start) {
        if (r->flags & F_WRAPPED) {
            buf_puts(l->out, " (");
            lark_mark(l, r->drop[0]);
            lark_mark(l, r->drop[1]);
            buf_puts(l->out, " ws)?");
        }
        bool loose = lazy && r->kind == CALLS_NAME_JSON; /* some models leave the section's marks out */
        buf_puts(l->out, loose ? " (" : "");
        lark_mark(l, r->section_start);
        buf_puts(l->out, loose ? " ws)?" : " ws");
        repeated(l, "ws", "call");
        buf_puts(l->out, loose ? " (ws" : " ws");
        lark_mark(l, r->section_end);
        buf_puts(l->out, loose ? ")?" : "");
    } else {
        if (lazy && r->alternative)
            buf_puts(l->out, " bare_call (ws call)* |");
        repeated(l, "ws", "call");
    }
    if ((r->flags & F_WRAPPED) && r->drop[2]) {
        buf_puts(l->out, " (");
        lark_mark(l, r->drop[2]);
        buf_puts(l->out, ")?");
    }
    buf_putc(l->out, '\n');
    if (array || (r->flags & F_BARE))
        return;
    bool spaced = r->kind == CALLS_JSON || (r->kind == CALLS_TAGS && r->name_prefix);
    buf_puts(l->out, "call:");
    lark_mark(l, r->call_start);
    buf_puts(l->out, spaced ? " ws tool call_end\n" : " tool call_end\n");
    if (lazy && r->alternative)
        buf_puts(l->out, "bare_call: tool call_end\n");
    buf_puts(l->out, "call_end:");
    if (r->call_end) {
        buf_puts(l->out, r->flags & F_ID_IS_NAME ? " (ws" : " ws");
        lark_mark(l, r->call_end);
        buf_puts(l->out, r->flags & F_ID_IS_NAME ? ")?" : "");
    } else {
        buf_puts(l->out, " ws");
    }
    buf_putc(l->out, '\n');
}

/* Rules of headers, with a space behind marks where that is the dialect. */
static void harmony_rules(struct lark *l)
{
    bool plain = (l->s->row->flags & F_RECIPIENTS) != 0;
    buf_puts(l->out, "sp: / {0,2}/\nchannel:");
    lark_mark(l, "<|channel|>");
    buf_puts(l->out,
             " sp (\"commentary\" | \"analysis\")\nconstrained: sp constrain? sp \"json\"\nconstrain:");
    lark_mark(l, "<|constrain|>");
    buf_puts(l->out, "\nmessage:");
    lark_mark(l, "<|message|>");
    buf_puts(l->out, " sp\nthink:");
    lark_mark(l, plain ? " to=self" : "<|channel|>");
    buf_puts(l->out, plain ? " message thought" : " sp \"analysis\" message thought");
    lark_mark(l, "<|start|>");
    buf_puts(l->out, " sp \"assistant\"\n");
    lark_until(l, "thought", ".*", plain ? "<|eom|>" : "<|end|>");
}

static void harmony_calls(struct lark *l)
{
    buf_puts(l->out, "calls: tool");
    if (l->s->parallel) {
        buf_puts(l->out, " (");
        lark_mark(l, "<|end|><|start|>");
        buf_puts(l->out, " sp \"assistant\" channel? tool)*");
    }
    buf_putc(l->out, '\n');
    harmony_rules(l);
}

/* ---- triggers ---- */

static void add_pattern(struct chat_syntax *s, struct buf *pattern)
{
    if (!pattern->failed && pattern->p &&
        s->grammar.n_trigger_patterns < sizeof s->patterns / sizeof *s->patterns)
        s->patterns[s->grammar.n_trigger_patterns++] = pattern->p;
    else
        buf_release(pattern);
}

/* Reasoning that may mention a call must not wake the constraint: the mark counts behind the end of
 * reasoning, or in an output that doesn't begin with reasoning. */
static void patterns_outside_thinking(struct lark *l, const char *mark)
{
    const struct chat_format *f = &l->s->format;
    struct buf behind = {0}, without = {0};
    buf_puts(&behind, "(?s)");
    regex_escape(&behind, f->think_end, strlen(f->think_end));
    buf_puts(&behind, ".*?(");
    regex_escape(&behind, mark, strlen(mark));
    buf_putc(&behind, ')');
    add_pattern(l->s, &behind);
    if (l->s->thinking_open)
        return;
    buf_puts(&without, "(?s)^\\s*(?:(?:");
    for (size_t i = 0; f->think_start[i] > 0; i++) {
        if (i > 0 && (f->think_start[i] & 0x80))
            break;
        regex_escape(&without, f->think_start, i);
        buf_puts(&without, i ? "[^" : "[^\\s");
        regex_escape(&without, f->think_start + i, 1);
        buf_puts(&without, "]|");
    }
    without.n--;
    buf_puts(&without, ").*?)?(");
    regex_escape(&without, mark, strlen(mark));
    buf_putc(&without, ')');
    add_pattern(l->s, &without);
}

/* A call whose first mark was left out: only with the name of a tool, since its beginning may be anything. */
static void bare_pattern(struct lark *l)
{
    struct buf pattern = {0};
    buf_putc(&pattern, '(');
    regex_escape(&pattern, l->s->row->alternative, strlen(l->s->row->alternative));
    for (size_t i = 0; i < l->s->n_offered; i++) {
        buf_puts(&pattern, i ? "|" : "(?:");
        regex_escape(&pattern, l->s->tools.tools[i].name, strlen(l->s->tools.tools[i].name));
    }
    buf_puts(&pattern, ")>)");
    add_pattern(l->s, &pattern);
}

static void triggers(struct lark *l)
{
    struct chat_syntax *s = l->s;
    const struct chat_format_row *r = s->row;
    const char *mark = r->section_start ? r->section_start : r->call_start;
    struct buf pattern = {0};
    if (r->kind == CALLS_HARMONY) {
        buf_puts(&pattern,
                 "(?:^|<\\|start\\|> ?assistant|<\\|channel\\|> ?(?:commentary|analysis))( to=functions\\.)");
        add_pattern(s, &pattern);
    } else if (r->kind == CALLS_RECIPIENT) {
        for (size_t i = 0; i < s->n_offered; i++) {
            buf_puts(&pattern, i ? "|" : s->recipient_open ? "(?:^|>>>)(" : ">>>(");
            regex_escape(&pattern, s->tools.tools[i].name, strlen(s->tools.tools[i].name));
            buf_puts(&pattern, "\\n");
        }
        buf_putc(&pattern, ')');
        add_pattern(s, &pattern);
    } else if (r->flags & F_ENVELOPE) {
        buf_puts(&pattern, "^\\s*(\\{\\s*\"tool_calls?\")");
        add_pattern(s, &pattern);
    } else if (r->flags & F_BARE) {
        buf_puts(&pattern, r->kind == CALLS_PYTHON
                               ? "^\\s*(\\[[A-Za-z0-9_.]+\\()"
                               : "^\\s*(\\{\\s*(?:\"type\"\\s*:\\s*\"function\"\\s*,\\s*)?\"name\")");
        add_pattern(s, &pattern);
    } else if (s->format.think_end && !(r->flags & (F_CALLS_IN_THINKING | F_THINK_ANYWHERE)) &&
               !l->p->thinking_off) {
        patterns_outside_thinking(l, mark);
    } else {
        s->words[s->grammar.n_trigger_words++] = mark;
        if (r->section_start && r->kind == CALLS_NAME_JSON)
            s->words[s->grammar.n_trigger_words++] = r->call_start;
        if (r->alternative)
            bare_pattern(l);
    }
}

/* ---- the whole ---- */

static void white_space(struct lark *l)
{
    buf_puts(l->out, "ws: /[ \\t\\r\\n]{0,8}/\n");
}

bool chat_lark_calls(struct chat_syntax *s, const struct chat_syntax_params *p)
{
    struct lark l = {.s = s, .p = p, .out = &s->source};
    const struct chat_format_row *r = s->row;
    bool lazy = p->tool_choice != CHAT_TOOLS_REQUIRED, harmony = r->kind == CALLS_HARMONY;
    if (r->flags & F_RECIPIENTS)
        return false;
    buf_puts(l.out, "start:");
    if (!lazy && harmony)
        buf_puts(l.out, " think? channel? calls\n");
    else if (!lazy && r->kind != CALLS_RECIPIENT)
        reasoning(&l);
    if (!harmony || lazy)
        buf_puts(l.out, lazy ? " calls\n" : " ws calls\n");
    if (harmony) {
        harmony_calls(&l);
    } else if (r->kind == CALLS_RECIPIENT) {
        buf_puts(l.out, "calls: tool");
        if (s->parallel)
            buf_puts(l.out, " (ws \">>>\" tool)*");
        buf_putc(l.out, '\n');
    } else {
        calls_rule(&l, lazy);
        reasoning_rules(&l);
    }
    tool_rules(&l);
    lark_shared_values(&l);
    white_space(&l);
    if (lazy)
        triggers(&l);
    return true;
}

void chat_lark_schema(struct chat_syntax *s, const struct chat_syntax_params *p)
{
    struct lark l = {.s = s, .p = p, .out = &s->source};
    const struct chat_format_row *r = s->row;
    bool harmony = r->kind == CALLS_HARMONY, wrapped = (r->flags & F_WRAPPED) != 0;
    char *schema = chat_schema_text(p->json_schema);
    buf_puts(l.out, "start:");
    if (harmony) {
        buf_puts(l.out, " think? final answer\nfinal:");
        lark_mark(&l, r->flags & F_RECIPIENTS ? " to=user" : "<|channel|>");
        buf_puts(l.out, r->flags & F_RECIPIENTS ? " message\n" : " sp \"final\" constrained? message\n");
        harmony_rules(&l);
    } else {
        reasoning(&l);
        if (s->recipient_open)
            buf_puts(l.out, " \"all\\n\"");
        if (wrapped)
            lark_mark(&l, r->drop[0]);
        buf_puts(l.out, " answer");
        if (wrapped)
            lark_mark(&l, r->drop[1]);
        buf_putc(l.out, '\n');
        reasoning_rules(&l);
    }
    white_space(&l);
    buf_puts(l.out, "answer:");
    lark_json(&l, schema ? schema : "{\"type\":\"object\"}");
    free(schema);
}
