/* Calls that give the name first: then a JSON object, marked pieces of text, Python's key=value, or a dict.
 */
#include "chat/parser.h"

enum {
    N_ID = 10,
    N_FENCE,
    N_OPEN,
    N_VALUE,
    N_END,
    T_SKIP,
    T_NEXT,
    T_KEY,
    T_TYPED,
    T_VALUE_START,
    T_VALUE,
    T_CDATA,
    T_CDATA_END
};
enum { P_KEY = PYTHON_ARGS + 1, P_BEFORE, P_VALUE, P_NEXT };

static enum step go(struct chat_parser *p, int state)
{
    p->state = state;
    return STEP_GO;
}

static struct str trim(struct str s, const char *chars)
{
    while (s.n > 0 && s.p[0] && strchr(chars, s.p[0]))
        s = (struct str){s.p + 1, s.n - 1};
    while (s.n > 0 && s.p[s.n - 1] && strchr(chars, s.p[s.n - 1]))
        s.n--;
    return s;
}

static void set(struct buf *b, struct str s)
{
    buf_clear(b);
    buf_add(b, s.p, s.n);
}

static enum step until(struct chat_parser *p, const char *text, size_t max, struct str *out)
{
    const char *const texts[3] = {text};
    int which;
    return take_until(p, texts, max, out, &which);
}

/* Optional text: GO also when it isn't there. */
static enum step maybe(struct chat_parser *p, const char *text)
{
    return take_text(p, text) == STEP_WAIT ? STEP_WAIT : STEP_GO;
}

static enum step begin_name(struct chat_parser *p)
{
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    enum step r = p->row->name_prefix ? take_text(p, p->row->name_prefix) : STEP_GO;
    return r == STEP_GO ? go(p, CALL_NAMED) : r;
}

/* ---- a JSON object ---- */

static enum step open_object(struct chat_parser *p)
{
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    if (left(p) == 0 || here(p) != '{')
        return STEP_FAIL;
    begin_value_of(p, p->row->kind == CALLS_DICT ? VALUE_DICT : VALUE_JSON);
    return go(p, N_VALUE);
}

static enum step take_object(struct chat_parser *p)
{
    enum step r = take_value(p, &p->args);
    share_arguments(p);
    if (r != STEP_GO)
        return r;
    if (p->row->flags & F_FENCE)
        return go(p, N_END);
    return end_call(p) ? STEP_GO : STEP_FAIL;
}

static enum step take_name(struct chat_parser *p)
{
    const char *const ends[3] = {p->row->name_end, p->row->id_start};
    struct str name;
    int which;
    enum step r = take_until(p, ends, MAX_NAME, &name, &which);
    if (r != STEP_GO)
        return r;
    name = trim(name, " \t\r\n");
    if (p->row->flags & F_ID_IS_NAME) {
        set(&p->id, str_of(p->row->name_prefix));
        buf_add(&p->id, name.p, name.n);
        size_t n = name.n;
        while (n > 0 && name.p[n - 1] != ':')
            n--;
        name.n = n > 0 ? n - 1 : name.n;
    }
    set(&p->name, name);
    if (!name_known(p))
        return STEP_FAIL;
    return go(p, which == 1 ? N_ID : N_FENCE);
}

enum step name_json_step(struct chat_parser *p)
{
    struct str id;
    enum step r;
    switch (p->state) {
    case CALL_BEGIN:
        return begin_name(p);
    case CALL_NAMED:
        return take_name(p);
    case N_ID:
        r = until(p, p->row->name_end, MAX_NAME, &id);
        if (r == STEP_GO)
            set(&p->id, trim(id, " "));
        return r == STEP_GO ? go(p, N_FENCE) : r;
    case N_FENCE:
        if (take_space(p) == STEP_WAIT)
            return STEP_WAIT;
        if ((p->row->flags & F_FENCE) && maybe(p, "```json") == STEP_WAIT)
            return STEP_WAIT;
        return go(p, N_OPEN);
    case N_OPEN:
        return open_object(p);
    case N_VALUE:
        return take_object(p);
    default: /* N_END */
        if (take_space(p) == STEP_WAIT || maybe(p, "```") == STEP_WAIT)
            return STEP_WAIT;
        return end_call(p) ? STEP_GO : STEP_FAIL;
    }
}

/* ---- call:name{key:value} ---- */

enum step dict_step(struct chat_parser *p)
{
    struct str name;
    enum step r;
    switch (p->state) {
    case CALL_BEGIN:
        return begin_name(p);
    case CALL_NAMED:
        r = until(p, "{", MAX_NAME, &name);
        if (r != STEP_GO)
            return r;
        set(&p->name, name);
        p->pos--;
        return name_known(p) ? go(p, N_OPEN) : STEP_FAIL;
    case N_OPEN:
        return open_object(p);
    default:
        return take_object(p);
    }
}

/* ---- >>>name ---- */

enum step recipient_step(struct chat_parser *p)
{
    struct str name;
    enum step r;
    switch (p->state) {
    case CALL_BEGIN:
        r = until(p, p->row->name_end, MAX_NAME, &name);
        if (r != STEP_GO)
            return r;
        if (str_is(name, "all")) {
            p->mode = MODE_TEXT;
            return STEP_GO;
        }
        set(&p->name, name);
        return p->s->calls && name_known(p) ? go(p, N_OPEN) : STEP_FAIL;
    case N_OPEN:
        return open_object(p);
    default:
        return take_object(p);
    }
}

/* ---- pieces of text between tags ---- */

static unsigned type_of_kind(char kind)
{
    switch (kind) {
    case '{':
        return TYPE_OBJECT;
    case '[':
        return TYPE_ARRAY;
    case '0':
        return TYPE_NUMBER;
    case 't':
        return TYPE_BOOLEAN;
    case 'n':
        return TYPE_NULL;
    default:
        return 0;
    }
}

static void put_key(struct chat_parser *p)
{
    buf_puts(&p->args, p->n_args++ ? ",\"" : "{\"");
    json_escape(&p->args, p->key.p, p->key.n);
    buf_puts(&p->args, "\":");
}

/* A value's text is what the schema says: a string as it is, or JSON (or Python's words for it). Where both
 * may be, JSON of a type that is allowed wins. What should be JSON and isn't stays a string: nothing is lost.
 */
static void put_argument(struct chat_parser *p, struct str text)
{
    unsigned types = chat_tool_types(p->tool, buf_str(&p->key));
    if (p->row->flags & F_TYPED)
        types = p->typed_string ? TYPE_STRING : TYPE_ANY & ~(unsigned)TYPE_STRING;
    bool may_be_string = (types & TYPE_STRING) != 0, json = false;
    put_key(p);
    if (types != TYPE_STRING && value_whole(text, may_be_string ? VALUE_JSON : VALUE_PYTHON, &p->scratch))
        json = !may_be_string || (type_of_kind(value_kind(buf_str(&p->scratch))) & types);
    if (json) {
        buf_add(&p->args, p->scratch.p, p->scratch.n);
    } else {
        buf_putc(&p->args, '"');
        json_escape(&p->args, text.p, text.n);
        buf_putc(&p->args, '"');
    }
    share_arguments(p);
}

static enum step tag_name(struct chat_parser *p)
{
    struct str name;
    if (p->row->name_end) {
        enum step r = until(p, p->row->name_end, MAX_NAME, &name);
        if (r != STEP_GO)
            return r;
    } else {
        size_t at = p->scan > p->pos ? p->scan : p->pos;
        while (at < p->in.n && !strchr(" \t\r\n<", p->in.p[at]))
            at++;
        p->scan = at;
        if (at - p->pos > MAX_NAME)
            return STEP_FAIL;
        if (at == p->in.n && !p->last)
            return STEP_WAIT;
        name = (struct str){p->in.p + p->pos, at - p->pos};
        p->pos = at;
    }
    set(&p->name, trim(name, " \t\r\n\"'"));
    return name_known(p) ? go(p, p->row->name_skip ? T_SKIP : T_NEXT) : STEP_FAIL;
}

static enum step end_tags(struct chat_parser *p)
{
    buf_puts(&p->args, p->n_args ? "}" : "{}");
    return end_call(p) ? STEP_GO : STEP_FAIL;
}

static enum step tag_next(struct chat_parser *p)
{
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    enum step r = take_text(p, p->row->arg_start);
    if (r == STEP_GO)
        return go(p, T_KEY);
    enum step end = take_text(p, p->row->func_end ? p->row->func_end : p->row->call_end);
    if (end == STEP_GO)
        return end_tags(p);
    return r == STEP_WAIT ? r : end;
}

static enum step tag_key(struct chat_parser *p)
{
    struct str key;
    enum step r = until(p, p->row->arg_name_end, MAX_NAME, &key);
    if (r != STEP_GO)
        return r;
    set(&p->key, trim(key, " \t\r\n\"'"));
    return go(p, p->row->flags & F_TYPED ? T_TYPED : p->row->value_start ? T_VALUE_START : T_VALUE);
}

static enum step tag_value(struct chat_parser *p)
{
    const char *end = p->row->value_end;
    char line_end[64] = "\n";
    struct str text;
    if (left(p) == 0)
        return p->last ? STEP_FAIL : STEP_WAIT;
    if (p->row->flags & F_CDATA && p->scan == 0) {
        enum step r = take_text(p, "<![CDATA[");
        if (r != STEP_FAIL)
            return r == STEP_GO ? go(p, T_CDATA) : r;
    }
    bool lines = (p->row->flags & F_LINES) && here(p) == '\n' && strlen(end) < sizeof line_end - 1;
    if (lines)
        memcpy(line_end + 1, end, strlen(end) + 1);
    enum step r = until(p, lines ? line_end : end, SIZE_MAX, &text);
    if (r != STEP_GO)
        return r;
    if (lines && text.n > 0)
        text = (struct str){text.p + 1, text.n - 1};
    put_argument(p, text);
    return go(p, T_NEXT);
}

enum step tags_step(struct chat_parser *p)
{
    struct str text;
    enum step r;
    switch (p->state) {
    case CALL_BEGIN:
        return begin_name(p);
    case CALL_NAMED:
        return tag_name(p);
    case T_SKIP:
        r = until(p, p->row->name_skip, MAX_NAME, &text);
        return r == STEP_GO ? go(p, T_NEXT) : r;
    case T_NEXT:
        return tag_next(p);
    case T_KEY:
        return tag_key(p);
    case T_TYPED:
        r = until(p, p->row->type_end, 32, &text);
        if (r == STEP_GO)
            p->typed_string = str_is(text, "true") || str_is(text, "string");
        return r == STEP_GO ? go(p, T_VALUE) : r;
    case T_VALUE_START:
        if (take_space(p) == STEP_WAIT)
            return STEP_WAIT;
        r = take_text(p, p->row->value_start);
        return r == STEP_GO ? go(p, T_VALUE) : r;
    case T_VALUE:
        return tag_value(p);
    case T_CDATA:
        r = until(p, "]]>", SIZE_MAX, &text);
        if (r == STEP_GO)
            put_argument(p, text);
        return r == STEP_GO ? go(p, T_CDATA_END) : r;
    default: /* T_CDATA_END */
        r = take_text(p, p->row->value_end);
        return r == STEP_GO ? go(p, T_NEXT) : r;
    }
}

/* ---- [name(key=value)] ---- */

static enum step python_name(struct chat_parser *p)
{
    struct str name;
    enum step r = until(p, "(", MAX_NAME, &name);
    if (r != STEP_GO)
        return r;
    set(&p->name, trim(name, " \t\r\n"));
    return name_known(p) ? go(p, PYTHON_ARGS) : STEP_FAIL;
}

static enum step end_python(struct chat_parser *p)
{
    p->pos++;
    return end_tags(p);
}

static enum step python_key(struct chat_parser *p)
{
    struct str key;
    enum step r = until(p, "=", MAX_NAME, &key);
    if (r != STEP_GO)
        return r;
    key = trim(key, " \t\r\n\"'");
    for (size_t i = 0; i < key.n; i++) {
        if (strchr("()[]{},", key.p[i]))
            return STEP_FAIL;
    }
    set(&p->key, key);
    return key.n ? go(p, P_BEFORE) : STEP_FAIL;
}

static enum step python_value(struct chat_parser *p)
{
    enum step r = take_value(p, &p->scratch);
    if (r != STEP_GO)
        return r;
    put_key(p);
    buf_add(&p->args, p->scratch.p, p->scratch.n);
    share_arguments(p);
    return go(p, P_NEXT);
}

enum step python_step(struct chat_parser *p)
{
    char c;
    enum step r;
    switch (p->state) {
    case CALL_BEGIN:
        r = take_char(p, "[", &c);
        if (r == STEP_GO)
            p->in_array = true;
        return r == STEP_GO ? go(p, CALL_NAMED) : r;
    case CALL_NAMED:
        return python_name(p);
    case PYTHON_ARGS:
        if (take_space(p) == STEP_WAIT)
            return STEP_WAIT;
        return left(p) > 0 && here(p) == ')' ? end_python(p) : go(p, P_KEY);
    case P_KEY:
        return python_key(p);
    case P_BEFORE:
        if (take_space(p) == STEP_WAIT)
            return STEP_WAIT;
        begin_value_of(p, VALUE_PYTHON);
        buf_clear(&p->scratch);
        return go(p, P_VALUE);
    case P_VALUE:
        return python_value(p);
    default: /* P_NEXT */
        r = take_char(p, ",)", &c);
        if (r != STEP_GO)
            return r;
        return c == ',' ? go(p, PYTHON_ARGS) : end_tags(p);
    }
}
