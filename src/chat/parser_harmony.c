/* gpt-oss and its kin: the output is a run of messages, each <|start|>role, a header with a channel and
 * perhaps a recipient,
 * <|message|>, and a body up to <|end|> or <|call|>. Channel and recipient tell what the body is. The prompt
 * has the first <|start|>assistant already. With F_RECIPIENTS there are no channels, only recipients: self,
 * user, or a tool. */
#include "chat/parser.h"

enum {
    H_HEADER,
    H_THINKING = HARMONY_THINKING,
    H_AFTER = HARMONY_AFTER,
    H_BODY_START,
    H_CONTENT,
    H_SKIPPED,
    H_RAW,
    H_ARGUMENTS_START,
    H_ARGUMENTS,
    H_CALLS
};

static const struct mark ends[] = {{"<|end|>", 7, MARK_DROP},     {"<|call|>", 8, MARK_DROP},
                                   {"<|return|>", 10, MARK_DROP}, {"<|start|>", 9, MARK_SECTION},
                                   {"<|eom|>", 7, MARK_DROP},     {"<|eot|>", 7, MARK_DROP}};

static enum step go(struct chat_parser *p, int state)
{
    p->state = state;
    return STEP_GO;
}

static const char *last_of(struct str s, const char *text)
{
    const char *found = NULL;
    size_t n = strlen(text);
    for (size_t i = 0; i + n <= s.n; i++) {
        if (memcmp(s.p + i, text, n) == 0)
            found = s.p + i + n;
    }
    return found;
}

/* The word at `from` (NULL: none). */
static struct str word_at(struct str header, const char *from)
{
    const char *end = header.p + header.n;
    struct str w = {from, 0};
    while (w.p && w.p < end && *w.p == ' ')
        w.p++;
    while (w.p && w.p + w.n < end && w.p[w.n] != ' ' && w.p[w.n] != '<')
        w.n++;
    return w;
}

/* What the body of this header is. */
static int body_of(struct chat_parser *p, struct str header)
{
    static const char functions[] = "functions.";
    size_t n = sizeof functions - 1;
    struct str channel = word_at(header, last_of(header, "<|channel|>"));
    struct str to = word_at(header, last_of(header, " to="));
    clear_call(p);
    if (p->row->flags & F_RECIPIENTS)
        return str_is(to, "self")   ? p->s->thoughts ? H_THINKING : H_RAW
               : str_is(to, "user") ? H_CONTENT
                                    : H_CALLS;
    if (to.n > n && str_starts(to, functions) && p->s->calls) {
        buf_add(&p->name, to.p + n, to.n - n);
        return name_known(p) ? H_ARGUMENTS_START : H_CONTENT;
    }
    if (to.n > 0 && !str_is(to, "assistant") && !str_is(to, "user"))
        return H_SKIPPED; /* to a tool that nobody offered */
    if (str_is(channel, "analysis"))
        return p->s->thoughts ? H_THINKING : H_RAW;
    return H_CONTENT;
}

static enum step plain(struct chat_parser *p)
{
    p->pos = p->start;
    p->scan = 0;
    p->mode = MODE_PLAIN;
    return STEP_GO;
}

/* A header begins with a mark or a recipient; anything else is an answer without one. */
static enum step header_begins(struct chat_parser *p)
{
    if (take_space(p) == STEP_WAIT || take_text(p, "assistant") == STEP_WAIT || take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    return left(p) > 0 && here(p) == '<' ? STEP_GO : take_text(p, "to=");
}

static enum step header_step(struct chat_parser *p)
{
    static const char *const message[3] = {"<|message|>"};
    struct str header;
    int which;
    if (p->scan == 0) {
        enum step r = header_begins(p);
        p->pos = p->start;
        if (r != STEP_GO)
            return r == STEP_WAIT && left(p) <= MAX_NAME ? r : plain(p);
    }
    enum step r = take_until(p, message, MAX_NAME, &header, &which);
    if (r == STEP_WAIT)
        return r;
    if (r == STEP_FAIL)
        return plain(p);
    p->after = body_of(p, header);
    if (p->after == H_RAW)
        put_content(p, p->in.p + p->start, p->pos - p->start);
    return go(p, H_BODY_START);
}

static enum step body_start(struct chat_parser *p)
{
    if (p->row->flags & F_SPACES) {
        if (left(p) == 0 && !p->last)
            return STEP_WAIT;
        p->pos += left(p) > 0 && here(p) == ' ';
    }
    if (p->after == H_CALLS)
        p->mode = MODE_TEXT; /* the marks of calls count from here on */
    return go(p, p->after);
}

static void put_body(struct chat_parser *p, const char *text, size_t n)
{
    if (p->state == H_THINKING)
        put_reasoning(p, text, n);
    else if (p->state != H_SKIPPED)
        put_content(p, text, n);
}

static enum step body_step(struct chat_parser *p)
{
    const struct mark *mark;
    size_t at;
    enum step r = find_mark(p, ends, sizeof ends / sizeof *ends, &at, &mark);
    put_body(p, p->in.p + p->pos, at - p->pos);
    p->pos = p->start = at;
    if (r != STEP_GO)
        return STEP_WAIT;
    if (p->state == H_RAW)
        put_content(p, mark->text, mark->n);
    if (p->state == H_THINKING)
        end_reasoning(p);
    p->pos += mark->n;
    p->start = p->pos;
    return go(p, mark->action == MARK_SECTION ? H_HEADER : H_AFTER);
}

static enum step arguments_step(struct chat_parser *p)
{
    enum step r = STEP_GO;
    if (p->state == H_ARGUMENTS_START) {
        if (take_space(p) == STEP_WAIT)
            return STEP_WAIT;
        begin_value_of(p, VALUE_JSON);
        r = left(p) > 0 && here(p) == '{' ? go(p, H_ARGUMENTS) : STEP_FAIL;
    } else {
        r = take_value(p, &p->args);
        share_arguments(p);
        if (r == STEP_GO && !end_call(p))
            r = STEP_FAIL;
        else if (r == STEP_GO)
            p->state = H_AFTER;
        p->mode = MODE_HARMONY;
    }
    if (r != STEP_FAIL)
        return r;
    size_t from = p->begun ? p->pos : p->start;
    p->begun = false;
    put_content(p, p->in.p + from, p->pos - from);
    p->start = p->pos;
    return go(p, H_CONTENT);
}

/* Between messages: marks and white space are nothing; anything else begins a header, or is an answer. */
static enum step after_message(struct chat_parser *p)
{
    bool wait = false;
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    p->start = p->pos;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        enum step r = take_text(p, ends[i].text);
        wait = wait || r == STEP_WAIT;
        if (r == STEP_GO) {
            p->start = p->pos;
            return go(p, ends[i].action == MARK_SECTION ? H_HEADER : H_AFTER);
        }
    }
    if (wait || left(p) == 0)
        return STEP_WAIT;
    return go(p, H_HEADER);
}

enum step harmony_step(struct chat_parser *p)
{
    switch (p->state) {
    case H_HEADER:
        return header_step(p);
    case H_BODY_START:
        return body_start(p);
    case H_ARGUMENTS_START:
    case H_ARGUMENTS:
        return arguments_step(p);
    case H_AFTER:
        return after_message(p);
    default:
        return body_step(p);
    }
}
