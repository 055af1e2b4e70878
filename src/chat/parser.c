/* The parser's frame: input to well-formed text, text to marks and what is between them, results to deltas.
 * What a mark begins is tried; where that fails, what was read becomes content. */
#include "chat/parser.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>

/* ---- marks ---- */

static void add_mark(struct mark *marks, size_t *n, size_t max, const char *text, enum mark_action action)
{
    if (text && *n < max)
        marks[(*n)++] = (struct mark){text, strlen(text), action};
}

static void add_marks(struct chat_parser *p)
{
    const struct chat_syntax *s = p->s;
    const struct chat_format_row *r = p->row;
    size_t max = sizeof p->marks / sizeof *p->marks;
    if (s->calls) {
        add_mark(p->marks, &p->n_marks, max, r->section_start, MARK_SECTION);
        add_mark(p->marks, &p->n_marks, max, r->call_start, MARK_CALL);
        add_mark(p->marks, &p->n_marks, max, r->alternative, MARK_ALTERNATIVE);
    }
    if (s->thoughts) {
        add_mark(p->think_marks, &p->n_think_marks, 8, s->format.think_end, MARK_THINK_END);
        if (r->flags & F_CALLS_IN_THINKING) {
            for (size_t i = 0; i < p->n_marks; i++) {
                if (p->marks[i].action != MARK_ALTERNATIVE)
                    p->think_marks[p->n_think_marks++] = p->marks[i];
            }
        }
        if (r->flags & F_THINK_ANYWHERE)
            add_mark(p->marks, &p->n_marks, max, s->format.think_start, MARK_THINK);
    }
    bool drop = s->thoughts || !(r->flags & F_THINK_ANYWHERE);
    for (size_t i = 0; drop && i < ROW_TEXTS; i++)
        add_mark(p->marks, &p->n_marks, max, r->drop[i], MARK_DROP);
}

enum step find_mark(const struct chat_parser *p, const struct mark *marks, size_t n, size_t *at,
                    const struct mark **mark)
{
    for (size_t i = p->pos; i < p->in.n; i++) {
        size_t there = p->in.n - i;
        bool may_come = false;
        *mark = NULL;
        for (size_t m = 0; m < n; m++) {
            if (marks[m].text[0] != p->in.p[i])
                continue;
            if (there >= marks[m].n && memcmp(marks[m].text, p->in.p + i, marks[m].n) == 0) {
                if (!*mark || (*mark)->n < marks[m].n)
                    *mark = &marks[m];
            } else if (there < marks[m].n && memcmp(marks[m].text, p->in.p + i, there) == 0) {
                may_come = true;
            }
        }
        *at = i;
        if (may_come && !p->last)
            return STEP_WAIT;
        if (*mark)
            return STEP_GO;
    }
    *at = p->in.n;
    return p->last ? STEP_FAIL : STEP_WAIT;
}

/* ---- text and reasoning ---- */

static void begin_attempt(struct chat_parser *p, size_t at, enum mark_action action)
{
    p->start = at;
    p->mode = action == MARK_SECTION ? MODE_AFTER : MODE_CALL;
    p->state = action == MARK_ALTERNATIVE ? CALL_NAMED : CALL_BEGIN;
    p->in_section = action == MARK_SECTION;
    p->in_array = p->in_envelope = p->tagged = p->committed = false;
    p->scan = 0;
    clear_call(p);
}

static void begin_lead(struct chat_parser *p)
{
    p->mode = MODE_LEAD;
    p->start = p->pos;
}

static enum step text_step(struct chat_parser *p)
{
    const struct mark *mark;
    size_t at;
    enum step found = find_mark(p, p->marks, p->n_marks, &at, &mark);
    put_content(p, p->in.p + p->pos, at - p->pos);
    p->pos = at;
    if (found != STEP_GO)
        return STEP_WAIT;
    p->pos += mark->n;
    if (mark->action == MARK_THINK)
        p->mode = MODE_THINK;
    else if (mark->action != MARK_DROP)
        begin_attempt(p, at, mark->action);
    p->tagged = p->mode == MODE_CALL && (p->row->flags & F_PYTHON_TAG);
    return STEP_GO;
}

static enum step think_step(struct chat_parser *p)
{
    const struct mark *mark;
    size_t at;
    enum step found = find_mark(p, p->think_marks, p->n_think_marks, &at, &mark);
    put_reasoning(p, p->in.p + p->pos, at - p->pos);
    p->pos = at;
    if (found != STEP_GO)
        return STEP_WAIT;
    p->pos += mark->n;
    if (mark->action != MARK_THINK_END)
        buf_clear(&p->think_space);
    end_reasoning(p);
    if (mark->action == MARK_THINK_END)
        begin_lead(p);
    else
        begin_attempt(p, at, mark->action);
    return STEP_GO;
}

/* The beginning of the output: reasoning may begin, or be over before it began. */
static enum step lead_mark(struct chat_parser *p)
{
    const struct chat_format *f = &p->s->format;
    enum step r = f->think_start ? take_text(p, f->think_start) : STEP_FAIL;
    if (r == STEP_WAIT)
        return r;
    if (r == STEP_GO || p->open) {
        p->open = false; /* a mark that repeats the prompt's is nothing */
        p->thought = true;
        p->mode = MODE_THINK;
        return STEP_GO;
    }
    r = take_text(p, f->think_end);
    if (r == STEP_GO) {
        p->thought = true;
        begin_lead(p);
    }
    return r;
}

/* The beginning of the output or of what follows reasoning: white space that may not count, marks that only
 * count here, and calls that begin without a mark. */
static enum step lead_step(struct chat_parser *p)
{
    if (take_space(p) == STEP_WAIT)
        return STEP_WAIT;
    if (p->s->thoughts && (p->open || !p->thought)) {
        enum step r = lead_mark(p);
        if (r != STEP_FAIL)
            return r;
    }
    char first = p->row->kind == CALLS_PYTHON ? '[' : '{';
    if (p->s->calls && (p->row->flags & F_BARE) && left(p) > 0 && here(p) == first) {
        begin_attempt(p, p->start, MARK_CALL);
        return STEP_GO;
    }
    if (!p->thought || !p->s->format.think_trim)
        p->pos = p->start;
    p->mode = MODE_TEXT;
    return STEP_GO;
}

/* ---- attempts ---- */

static void fail_call(struct chat_parser *p)
{
    size_t from = p->begun ? p->pos : p->start;
    p->in_section = p->in_array = p->begun = false;
    /* At the end of the output the rest is content as it is: a mark inside of a broken call begins nothing.
     */
    p->mode = p->starved ? MODE_PLAIN : MODE_TEXT;
    put_content(p, p->in.p + from, p->pos - from);
}

static enum step step(struct chat_parser *p)
{
    enum step r;
    p->starved = false;
    switch (p->mode) {
    case MODE_LEAD:
        return lead_step(p);
    case MODE_THINK:
        return think_step(p);
    case MODE_TEXT:
        return text_step(p);
    case MODE_HARMONY:
        return harmony_step(p);
    case MODE_PLAIN:
        put_content(p, p->in.p + p->pos, left(p));
        p->pos = p->in.n;
        return STEP_WAIT;
    case MODE_AFTER:
        r = after_step(p);
        break;
    default:
        r = call_step(p);
        break;
    }
    if (r == STEP_FAIL) {
        fail_call(p);
        return STEP_GO;
    }
    return r;
}

/* ---- input ---- */

/* Appends one character, or U+FFFD for a byte that can't be part of one. 0: the input ends inside of it. */
static size_t take_character(struct chat_parser *p, const char *c, size_t there)
{
    size_t n = utf8_len(c, there);
    if (n > 0) {
        buf_add(&p->in, c, n);
        return n;
    }
    unsigned char lead = (unsigned char)c[0];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    bool cut = lead >= 0xC2 && lead < 0xF5 && there < want && !p->last;
    for (size_t i = 1; i < there && i < want; i++)
        cut = cut && ((unsigned char)c[i] & 0xC0) == 0x80;
    if (cut)
        return 0;
    buf_puts(&p->in, "\xEF\xBF\xBD");
    return 1;
}

static void take_input(struct chat_parser *p, const char *text, size_t len)
{
    for (;;) {
        while (p->n_cut > 0) { /* a character that began before */
            char joined[8];
            size_t more = len < 4 ? len : 4;
            memcpy(joined, p->cut, p->n_cut);
            if (more)
                memcpy(joined + p->n_cut, text, more);
            size_t n = take_character(p, joined, p->n_cut + more);
            if (n == 0) {
                memcpy(p->cut, joined, p->n_cut + more);
                p->n_cut += more;
                return;
            }
            size_t old = n < p->n_cut ? n : p->n_cut;
            memmove(p->cut, p->cut + old, p->n_cut - old);
            p->n_cut -= old;
            text += n - old;
            len -= n - old;
        }
        size_t run = 0, n = 0;
        while (run < len && (n = utf8_len(text + run, len - run)) > 0)
            run += n;
        if (run)
            buf_add(&p->in, text, run);
        if (run == len)
            return;
        text += run;
        len -= run;
        n = take_character(p, text, len);
        if (n == 0) {
            memcpy(p->cut, text, len);
            p->n_cut = len;
            return;
        }
        text += n;
        len -= n;
    }
}

/* What is decided goes away once it is the larger part. */
static void forget(struct chat_parser *p)
{
    bool trying =
        p->mode == MODE_CALL || p->mode == MODE_AFTER || p->mode == MODE_HARMONY || p->mode == MODE_LEAD;
    size_t keep = trying ? p->start : p->pos;
    if (keep < 4096 || keep < p->in.n / 2)
        return;
    memmove(p->in.p, p->in.p + keep, p->in.n - keep);
    p->in.n -= keep;
    p->in.p[p->in.n] = '\0';
    p->pos -= keep;
    p->start = 0;
    p->scan = p->scan > keep ? p->scan - keep : 0;
}

/* White space that was held back: content after all, if there is nothing else. */
static void finish(struct chat_parser *p)
{
    if (p->n_calls == 0)
        keep_space(p);
}

static const struct buf *text_of(const struct chat_parser *p, const struct piece *piece)
{
    return piece->type == CHAT_DELTA_CONTENT     ? &p->content
           : piece->type == CHAT_DELTA_REASONING ? &p->reasoning
                                                 : &p->calls[piece->index].args;
}

size_t chat_parser_add(struct chat_parser *p, const char *text, size_t len, bool last,
                       const struct chat_delta **out)
{
    p->n_pieces = 0;
    p->last = p->last || last;
    take_input(p, text, len);
    while (step(p) == STEP_GO)
        ;
    if (p->last)
        finish(p);
    forget(p);
    p->deltas = xrealloc(p->deltas, (p->n_pieces + 1) * sizeof *p->deltas);
    for (size_t i = 0; i < p->n_pieces; i++) {
        const struct piece *q = &p->pieces[i];
        p->deltas[i] = (struct chat_delta){.type = q->type, .index = q->index};
        if (q->type == CHAT_DELTA_TOOL) {
            p->deltas[i].id = p->calls[q->index].id;
            p->deltas[i].name = p->calls[q->index].name;
        } else {
            p->deltas[i].text = text_of(p, q)->p + q->at;
            p->deltas[i].n_text = q->n;
        }
    }
    *out = p->deltas;
    return p->n_pieces;
}

/* ---- life ---- */

struct chat_parser *chat_parser_new(const struct chat_syntax *s, uint64_t seed, struct err *err)
{
    (void)err;
    struct chat_parser *p = xcalloc(1, sizeof *p);
    p->s = s;
    p->row = s->row;
    p->seed = seed;
    buf_reserve(&p->in, 1); /* a place in it is one before anything has come, too */
    add_marks(p);
    p->mode = s->row->kind == CALLS_HARMONY ? MODE_HARMONY : MODE_LEAD;
    if (s->lead && !s->thoughts && p->mode == MODE_LEAD)
        put_content(p, s->lead, strlen(s->lead));
    if (s->recipient_open)
        begin_attempt(p, 0, MARK_CALL);
    p->open = s->thoughts && s->thinking_open;
    p->thought = s->thinking_closed;
    if (p->open && s->continues) {
        p->open = false;
        p->thought = p->think_said = true;
        p->mode = p->mode == MODE_HARMONY ? MODE_HARMONY : MODE_THINK;
        p->state = p->mode == MODE_HARMONY ? HARMONY_THINKING : p->state;
    }
    return p;
}

void chat_parser_free(struct chat_parser *p)
{
    if (!p)
        return;
    struct buf *bufs[] = {&p->in,      &p->name,      &p->id,    &p->args,        &p->key,     &p->scratch,
                          &p->content, &p->reasoning, &p->space, &p->think_space, &p->message, NULL};
    for (struct buf **b = bufs; *b; b++)
        buf_release(*b);
    for (size_t i = 0; i < p->n_calls; i++) {
        free(p->calls[i].id);
        free(p->calls[i].name);
        buf_release(&p->calls[i].args);
    }
    free(p->calls);
    free(p->pieces);
    free(p->deltas);
    free(p);
}
