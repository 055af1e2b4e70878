/* Taking from the input, and putting into the message. */
#include "chat/parser.h"

#include "base/mem.h"

#include <stdlib.h>

/* ---- reading ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* More input is needed: at the end of all of it, that is a failure. */
static enum step starve(struct chat_parser *p)
{
    p->starved = p->last;
    return p->last ? STEP_FAIL : STEP_WAIT;
}

enum step take_space(struct chat_parser *p)
{
    while (left(p) > 0 && is_space(here(p)))
        p->pos++;
    return left(p) == 0 && !p->last ? STEP_WAIT : STEP_GO;
}

enum step take_text(struct chat_parser *p, const char *text)
{
    size_t n = strlen(text), there = left(p) < n ? left(p) : n;
    if (there > 0 && memcmp(p->in.p + p->pos, text, there) != 0)
        return STEP_FAIL;
    if (there < n)
        return starve(p);
    p->pos += n;
    return STEP_GO;
}

enum step take_char(struct chat_parser *p, const char *one_of, char *c)
{
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    if (left(p) == 0)
        return starve(p);
    if (here(p) == '\0' || !strchr(one_of, here(p)))
        return STEP_FAIL;
    *c = here(p);
    p->pos++;
    return STEP_GO;
}

/* Which of the texts stands at `at`; -1 none, -2 one may if more comes. */
static int text_at(const struct chat_parser *p, const char *const texts[3], size_t at)
{
    int which = -1;
    for (int t = 0; t < 3; t++) {
        if (!texts[t] || texts[t][0] != p->in.p[at])
            continue;
        size_t n = strlen(texts[t]), there = p->in.n - at;
        if (there >= n && memcmp(texts[t], p->in.p + at, n) == 0)
            return t;
        if (there < n && memcmp(texts[t], p->in.p + at, there) == 0)
            which = -2;
    }
    return which;
}

enum step take_until(struct chat_parser *p, const char *const texts[3], size_t max, struct str *out,
                     int *which)
{
    size_t at = p->scan > p->pos ? p->scan : p->pos;
    for (; at < p->in.n; at++) {
        if (at - p->pos > max)
            return STEP_FAIL;
        int t = text_at(p, texts, at);
        if (t >= 0) {
            *out = (struct str){p->in.p + p->pos, at - p->pos};
            *which = t;
            p->pos = at + strlen(texts[t]);
            p->scan = 0;
            return STEP_GO;
        }
        if (t == -2 && !p->last)
            break;
    }
    p->scan = at;
    return starve(p);
}

void begin_value_of(struct chat_parser *p, enum value_dialect dialect)
{
    memset(&p->value, 0, offsetof(struct value, array));
    p->value.dialect = dialect;
    p->value.quote = p->row->quote;
}

static enum step take_value_up_to(struct chat_parser *p, size_t max, struct buf *out)
{
    while (left(p) > 0) {
        enum value_result r = value_feed(&p->value, here(p), out);
        if (r == VALUE_BAD || out->n > max)
            return STEP_FAIL;
        p->pos += r != VALUE_BEFORE;
        if (r != VALUE_MORE)
            return STEP_GO;
    }
    return starve(p);
}

enum step take_value(struct chat_parser *p, struct buf *out)
{
    return take_value_up_to(p, SIZE_MAX, out);
}

enum step take_short_value(struct chat_parser *p, struct buf *out)
{
    return take_value_up_to(p, MAX_NAME, out);
}

/* ---- deltas ---- */

static void put_piece(struct chat_parser *p, enum chat_delta_type type, int index, size_t at, size_t n)
{
    struct piece *last = p->n_pieces ? &p->pieces[p->n_pieces - 1] : NULL;
    if (last && last->type == type && last->index == index && type != CHAT_DELTA_TOOL) {
        last->n += n;
        return;
    }
    if (!p->pieces || p->n_pieces == p->size_pieces) {
        p->size_pieces = p->size_pieces * 2 + 8;
        p->pieces = xrealloc(p->pieces, p->size_pieces * sizeof *p->pieces);
    }
    p->pieces[p->n_pieces++] = (struct piece){type, index, at, n};
}

static void add_to(struct chat_parser *p, struct buf *b, enum chat_delta_type type, int index,
                   const char *text, size_t n)
{
    if (n == 0)
        return;
    size_t at = b->n;
    buf_add(b, text, n);
    put_piece(p, type, index, at, n);
}

/* ---- content and reasoning ---- */

void keep_space(struct chat_parser *p)
{
    add_to(p, &p->content, CHAT_DELTA_CONTENT, 0, p->space.p, p->space.n);
    buf_clear(&p->space);
}

/* White space waits: at the beginning until something follows, and before a call where it is none of the
 * content. */
void put_content(struct chat_parser *p, const char *text, size_t n)
{
    bool hold = !p->said || (p->row->flags & F_TRIM);
    size_t end = n;
    while (hold && end > 0 && is_space(text[end - 1]))
        end--;
    if (end > 0) {
        keep_space(p);
        add_to(p, &p->content, CHAT_DELTA_CONTENT, 0, text, end);
        p->said = true;
    }
    if (!hold || end == n)
        return;
    if (p->row->flags & F_TRIM || end == 0)
        buf_add(&p->space, text + end, n - end);
    else
        add_to(p, &p->content, CHAT_DELTA_CONTENT, 0, text + end, n - end);
}

static void add_reasoning(struct chat_parser *p, const char *text, size_t n)
{
    if (p->s->legacy && n > 0)
        put_content(p, text, n);
    add_to(p, &p->reasoning, CHAT_DELTA_REASONING, 0, text, n);
}

static void keep_think_space(struct chat_parser *p)
{
    add_reasoning(p, p->think_space.p, p->think_space.n);
    buf_clear(&p->think_space);
}

void put_reasoning(struct chat_parser *p, const char *text, size_t n)
{
    while (n > 0 && !p->think_said && p->row->kind != CALLS_HARMONY && is_space(*text)) {
        text++;
        n--;
    }
    size_t end = n;
    while (end > 0 && (p->row->flags & F_TRIM) && is_space(text[end - 1]))
        end--;
    if (end > 0) {
        if (p->s->legacy && !p->think_said)
            put_content(p, p->s->format.think_start, strlen(p->s->format.think_start));
        keep_think_space(p);
        p->think_said = true;
        add_reasoning(p, text, end);
    }
    buf_add(&p->think_space, text + end, n - end);
}

void end_reasoning(struct chat_parser *p)
{
    keep_think_space(p);
    if (p->s->legacy && p->think_said)
        put_content(p, p->s->format.think_end, strlen(p->s->format.think_end));
    p->think_said = false;
}

/* ---- calls ---- */

void clear_call(struct chat_parser *p)
{
    struct buf *bufs[] = {&p->name, &p->id, &p->args, &p->key, &p->scratch, NULL};
    for (struct buf **b = bufs; *b; b++)
        buf_clear(*b);
    p->has_args = p->begun = p->nested = p->typed_string = false;
    p->n_args = 0;
    p->tool = NULL;
}

bool name_known(struct chat_parser *p)
{
    p->tool = chat_tools_find(&p->s->tools, buf_str(&p->name));
    return p->tool != NULL;
}

/* splitmix64 */
static uint64_t random_next(struct chat_parser *p)
{
    uint64_t z = p->seed += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static char *new_id(struct chat_parser *p)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = p->row->flags & F_ID9 ? 9 : 32;
    char *id = xcalloc(n + 1, 1);
    for (size_t i = 0; i < n; i++)
        id[i] = letters[random_next(p) % (sizeof letters - 1)];
    return id;
}

static bool begin_call(struct chat_parser *p)
{
    if (p->n_calls == MAX_CALLS)
        return false;
    buf_clear(&p->space);
    if ((p->n_calls & (p->n_calls - 1)) == 0)
        p->calls = xrealloc(p->calls, (p->n_calls ? p->n_calls * 2 : 1) * sizeof *p->calls);
    struct call *c = &p->calls[p->n_calls];
    *c = (struct call){.name = xstrdup(p->tool->name)};
    c->id = p->id.n ? xstrdup(p->id.p) : new_id(p);
    put_piece(p, CHAT_DELTA_TOOL, (int)p->n_calls++, 0, 0);
    p->begun = true;
    return true;
}

/* What is new of the arguments. */
static void share_rest(struct chat_parser *p)
{
    struct call *c = &p->calls[p->n_calls - 1];
    if (p->args.n > c->args.n)
        add_to(p, &c->args, CHAT_DELTA_ARGUMENTS, (int)p->n_calls - 1, p->args.p + c->args.n,
               p->args.n - c->args.n);
}

void share_arguments(struct chat_parser *p)
{
    bool id_may_come = p->row->id_key && p->id.n == 0;
    if (!p->s->eager || !p->tool || p->args.n == 0 || id_may_come)
        return;
    if (p->begun || begin_call(p))
        share_rest(p);
}

bool end_call(struct chat_parser *p)
{
    if (p->args.n == 0)
        buf_puts(&p->args, "{}");
    if (p->args.failed || (!p->begun && !begin_call(p)))
        return false;
    share_rest(p);
    p->mode = MODE_AFTER;
    p->start = p->pos;
    p->scan = 0;
    p->committed = true;
    p->closed = false;
    clear_call(p);
    return true;
}

/* ---- the message ---- */

int chat_parser_n_calls(const struct chat_parser *p)
{
    return (int)p->n_calls;
}

static void put_string(struct buf *out, const char *key, struct str s)
{
    buf_printf(out, "\"%s\":\"", key);
    json_escape(out, s.p, s.n);
    buf_putc(out, '"');
}

const char *chat_parser_message(struct chat_parser *p, size_t *len)
{
    struct buf *m = &p->message;
    buf_clear(m);
    buf_puts(m, "{\"role\":\"assistant\",");
    if (p->content.n == 0 && p->n_calls > 0)
        buf_puts(m, "\"content\":null");
    else
        put_string(m, "content", buf_str(&p->content));
    if (p->reasoning.n > 0) {
        buf_putc(m, ',');
        put_string(m, "reasoning_content", buf_str(&p->reasoning));
    }
    for (size_t i = 0; i < p->n_calls; i++) {
        buf_puts(m, i ? "},{" : ",\"tool_calls\":[{");
        buf_puts(m, "\"type\":\"function\",\"function\":{");
        put_string(m, "name", str_of(p->calls[i].name));
        buf_putc(m, ',');
        put_string(m, "arguments", buf_str(&p->calls[i].args));
        buf_puts(m, "},");
        put_string(m, "id", str_of(p->calls[i].id));
    }
    buf_puts(m, p->n_calls ? "}]}" : "}");
    *len = m->n;
    return m->failed ? NULL : m->p;
}
