/* Calls as JSON, and what comes after a call: the marks and separators that lead to another one. */
#include "chat/parser.h"

enum { /* states of an object; a key and its value in turns */
       J_KEY = 10,
       J_KEY_TEXT,
       J_COLON,
       J_BEFORE,
       J_NAME,
       J_ARGS,
       J_ID,
       J_SKIP,
       J_NEXT,
       J_CLOSE,
       J_CODE
};

static enum step go(struct chat_parser *p, int state)
{
    p->state = state;
    return STEP_GO;
}

static enum step value_of(struct chat_parser *p, int state)
{
    begin_value_of(p, VALUE_JSON);
    buf_clear(&p->scratch);
    return go(p, state);
}

/* Text of a JSON string in b, in its place. */
static bool unquote(struct chat_parser *p, struct buf *from, struct buf *to)
{
    (void)p;
    if (from->n == 0 || from->p[0] != '"')
        return false;
    buf_clear(to);
    json_unescape(to, buf_str(from));
    return true;
}

/* ---- <|python_tag|> ---- */

static enum step begin_code(struct chat_parser *p)
{
    static const char *const names[] = {"python", "ipython", "code_interpreter"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        buf_clear(&p->name);
        buf_puts(&p->name, names[i]);
        if (name_known(p))
            return go(p, J_CODE);
    }
    return STEP_FAIL;
}

/* After the tag: JSON, name.call(…), or code. */
static enum step tagged_begin(struct chat_parser *p)
{
    static const char *const open[3] = {"("};
    struct str name;
    int which;
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    if (left(p) > 0 && here(p) == '{')
        return STEP_FAIL; /* as without the tag */
    size_t from = p->pos;
    enum step r = take_until(p, open, 128, &name, &which);
    if (r == STEP_WAIT)
        return r;
    if (r == STEP_GO) {
        static const char suffix[] = ".call";
        size_t n = sizeof suffix - 1;
        if (name.n > n && memcmp(name.p + name.n - n, suffix, n) == 0)
            name.n -= n;
        buf_add(&p->name, name.p, name.n);
        if (name_known(p))
            return go(p, PYTHON_ARGS);
    }
    p->pos = from;
    return begin_code(p);
}

static enum step take_code(struct chat_parser *p)
{
    if (!p->last)
        return STEP_WAIT;
    buf_puts(&p->args, "{\"code\":\"");
    json_escape(&p->args, p->in.p + p->pos, left(p));
    buf_puts(&p->args, "\"}");
    p->pos = p->in.n;
    return end_call(p) ? STEP_GO : STEP_FAIL;
}

/* ---- an object ---- */

static enum step json_begin(struct chat_parser *p)
{
    char c;
    if (p->tagged) {
        enum step r = tagged_begin(p);
        p->tagged = r == STEP_WAIT;
        if (r != STEP_FAIL || left(p) == 0 || here(p) != '{')
            return r;
    }
    enum step r = take_char(p, p->in_array ? "{" : "[{", &c);
    if (r != STEP_GO)
        return r;
    p->in_array = p->in_array || c == '[';
    return go(p, c == '[' ? CALL_BEGIN : J_KEY);
}

static bool key_is(const struct chat_parser *p, const char *name)
{
    return name && str_is(buf_str(&p->key), name);
}

static enum step json_key(struct chat_parser *p)
{
    char c;
    enum step r = take_char(p, "\"}", &c);
    if (r != STEP_GO)
        return r;
    if (c == '}')
        return go(p, J_CLOSE);
    p->pos--;
    return value_of(p, J_KEY_TEXT);
}

static enum step json_key_text(struct chat_parser *p)
{
    enum step r = take_short_value(p, &p->scratch);
    if (r != STEP_GO)
        return r;
    unquote(p, &p->scratch, &p->key);
    return go(p, J_COLON);
}

static enum step open_inner(struct chat_parser *p, bool envelope, char c)
{
    p->pos++;
    p->in_envelope = p->in_envelope || envelope;
    p->nested = p->nested || !envelope;
    p->in_array = p->in_array || c == '[';
    return go(p, c == '[' ? CALL_BEGIN : J_KEY);
}

/* What a key's value is for. */
static enum step json_before(struct chat_parser *p)
{
    static const char *const ignored[] = {"type", "index", "id", "tool_call_id"};
    const struct chat_format_row *r = p->row;
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    if (left(p) == 0)
        return STEP_FAIL;
    char c = here(p);
    if (r->flags & F_KEY_IS_NAME) {
        buf_clear(&p->name);
        buf_add(&p->name, p->key.p, p->key.n);
        return !p->tool && name_known(p) && c == '{' ? value_of(p, J_ARGS) : STEP_FAIL;
    }
    bool envelope = (r->flags & F_ENVELOPE) && !p->in_envelope && !p->tool;
    if (envelope && ((key_is(p, "tool_call") && c == '{') || (key_is(p, "tool_calls") && c == '[')))
        return open_inner(p, true, c);
    if (key_is(p, "function") && c == '{' && !p->nested)
        return open_inner(p, false, c);
    if (!p->tool && (key_is(p, r->name_key ? r->name_key : "name") || key_is(p, "function")))
        return c == '"' ? value_of(p, J_NAME) : STEP_FAIL;
    if (!p->has_args && (key_is(p, r->args_key) || key_is(p, "arguments") || key_is(p, "parameters")))
        return c == '{' || c == '"' ? value_of(p, J_ARGS) : STEP_FAIL;
    if (key_is(p, r->id_key))
        return value_of(p, J_ID);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        if (key_is(p, ignored[i]))
            return value_of(p, J_SKIP);
    }
    return STEP_FAIL;
}

static enum step json_name(struct chat_parser *p)
{
    enum step r = take_short_value(p, &p->scratch);
    if (r != STEP_GO)
        return r;
    if (!unquote(p, &p->scratch, &p->name) || !name_known(p))
        return STEP_FAIL;
    return go(p, J_NEXT);
}

static enum step json_args(struct chat_parser *p)
{
    enum step r = take_value(p, &p->args);
    bool object = p->args.n > 0 && p->args.p[0] == '{';
    if (object)
        share_arguments(p);
    if (r != STEP_GO)
        return r;
    p->has_args = true;
    if (!object) { /* an object in a string */
        if (!unquote(p, &p->args, &p->scratch) || !value_whole(buf_str(&p->scratch), VALUE_JSON, &p->args) ||
            value_kind(buf_str(&p->args)) != '{')
            return STEP_FAIL;
    }
    return go(p, J_NEXT);
}

static enum step json_id(struct chat_parser *p)
{
    enum step r = take_short_value(p, &p->scratch);
    if (r == STEP_GO && !unquote(p, &p->scratch, &p->id) && value_kind(buf_str(&p->scratch)) == '0')
        buf_add(&p->id, p->scratch.p, p->scratch.n);
    return r == STEP_GO ? go(p, J_NEXT) : r;
}

static enum step json_skip(struct chat_parser *p)
{
    enum step r = take_value(p, &p->scratch);
    return r == STEP_GO ? go(p, J_NEXT) : r;
}

static enum step json_next(struct chat_parser *p)
{
    char c;
    enum step r = take_char(p, ",}", &c);
    return r == STEP_GO ? go(p, c == ',' ? J_KEY : J_CLOSE) : r;
}

static enum step json_close(struct chat_parser *p)
{
    if (p->nested) {
        p->nested = false;
        return go(p, J_NEXT);
    }
    return p->tool && end_call(p) ? STEP_GO : STEP_FAIL;
}

enum step json_step(struct chat_parser *p)
{
    char c;
    enum step r;
    switch (p->state) {
    case CALL_BEGIN:
        return json_begin(p);
    case J_KEY:
        return json_key(p);
    case J_KEY_TEXT:
        return json_key_text(p);
    case J_COLON:
        r = take_char(p, ":", &c);
        return r == STEP_GO ? go(p, J_BEFORE) : r;
    case J_BEFORE:
        return json_before(p);
    case J_NAME:
        return json_name(p);
    case J_ARGS:
        return json_args(p);
    case J_ID:
        return json_id(p);
    case J_SKIP:
        return json_skip(p);
    case J_NEXT:
        return json_next(p);
    case J_CLOSE:
        return json_close(p);
    case J_CODE:
        return take_code(p);
    default:
        return python_step(p);
    }
}

/* ---- after a call, or after the mark of a section ---- */

static enum step next_call(struct chat_parser *p, size_t at, int state)
{
    if (p->committed)
        p->start = at;
    p->committed = false;
    p->mode = MODE_CALL;
    p->scan = 0;
    clear_call(p);
    return go(p, state);
}

static enum step after_array(struct chat_parser *p)
{
    char c;
    size_t at = p->pos;
    enum step r = take_char(p, ",]", &c);
    if (r == STEP_GO && c == ',')
        return next_call(p, at, p->row->kind == CALLS_PYTHON ? CALL_NAMED : CALL_BEGIN);
    if (r != STEP_WAIT)
        p->in_array = false;
    return r == STEP_WAIT ? r : STEP_GO;
}

/* One of the texts that may follow: GO and which. */
static enum step after_mark(struct chat_parser *p, int *which)
{
    const struct chat_format_row *r = p->row;
    const char *texts[] = {p->committed ? r->call_end : NULL,
                           r->section_end,
                           r->section_start,
                           r->call_start,
                           r->alternative,
                           p->in_envelope ? "}" : NULL,
                           r->flags & F_BARE ? ";" : NULL};
    bool wait = false;
    for (int i = 0; i < (int)(sizeof texts / sizeof *texts); i++) {
        enum step s = texts[i] ? take_text(p, texts[i]) : STEP_FAIL;
        *which = i;
        if (s == STEP_GO)
            return s;
        wait = wait || s == STEP_WAIT;
    }
    return wait ? STEP_WAIT : STEP_FAIL;
}

enum step after_step(struct chat_parser *p)
{
    int which;
    if (p->in_array)
        return after_array(p);
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    size_t at = p->pos;
    enum step r = left(p) ? after_mark(p, &which) : STEP_FAIL;
    if (r == STEP_WAIT)
        return r;
    if (r == STEP_GO) {
        if (which == 3 || which == 4)
            return next_call(p, at, which == 3 ? CALL_BEGIN : CALL_NAMED);
        p->in_envelope = p->in_envelope && which != 5;
        p->closed = p->closed || which == 0;
        if (p->committed)
            p->start = p->pos;
        p->in_section = which == 2 || (p->in_section && which != 1);
        return STEP_GO;
    }
    if (!p->committed)
        return STEP_FAIL;
    if (left(p) > 0 && here(p) == '{' && p->row->kind == CALLS_JSON && !p->closed)
        return next_call(p, at, CALL_BEGIN); /* objects one after the other */
    if (left(p) == 0)
        return STEP_WAIT;
    p->in_section = p->in_envelope = false;
    p->mode = MODE_TEXT;
    if (p->row->kind == CALLS_HARMONY) {
        p->mode = MODE_HARMONY;
        p->state = HARMONY_AFTER;
        p->start = p->pos;
    }
    return STEP_GO;
}

enum step call_step(struct chat_parser *p)
{
    switch (p->row->kind) {
    case CALLS_JSON:
        return json_step(p);
    case CALLS_NAME_JSON:
        return name_json_step(p);
    case CALLS_TAGS:
        return tags_step(p);
    case CALLS_PYTHON:
        return python_step(p);
    case CALLS_DICT:
        return dict_step(p);
    case CALLS_RECIPIENT:
        return recipient_step(p);
    default:
        return p->row->arg_start ? tags_step(p) : STEP_FAIL;
    }
}
