/* The budget's states, and the search for its start and end. */
#include "sampler/think.h"

#include <stdlib.h>

static int match_init(struct think_match *m, const struct vocab *v, const char *text, struct err *err)
{
    if (vocab_tokenize(v, str_of(text), false, true, &m->seq, err) != 0)
        return -1;
    m->fallback = calloc(m->seq.n + 1, sizeof *m->fallback);
    if (!m->fallback)
        return err_set(err, ERR_MEMORY, "sampler: no memory for a thinking budget");
    for (size_t i = 1, k = 0; i < m->seq.n; i++) {
        while (k > 0 && m->seq.p[i] != m->seq.p[k])
            k = m->fallback[k];
        k += m->seq.p[i] == m->seq.p[k];
        m->fallback[i + 1] = k;
    }
    return 0;
}

static void match_release(struct think_match *m)
{
    free(m->seq.p);
    free(m->fallback);
}

/* Whether this token completes it; then the search begins anew. */
static bool match_next(struct think_match *m, token_id id)
{
    if (m->seq.n == 0)
        return false;
    while (m->n > 0 && m->seq.p[m->n] != id)
        m->n = m->fallback[m->n];
    m->n += m->seq.p[m->n] == id;
    if (m->n < m->seq.n)
        return false;
    m->n = 0;
    return true;
}

int think_init(struct think *t, const struct vocab *v, const char *start, const char *end, int32_t budget,
               bool open, struct err *err)
{
    *t = (struct think){.v = v, .budget = budget < 0 ? INT32_MAX : budget};
    if (match_init(&t->start, v, start, err) != 0 || match_init(&t->end, v, end, err) != 0)
        return -1;
    if (t->end.seq.n == 0)
        return err_set(err, ERR_USAGE, "a thinking budget needs the text that ends the thoughts");
    t->first = !open ? THINK_IDLE : t->budget > 0 ? THINK_COUNTING : THINK_FORCING;
    think_reset(t);
    return 0;
}

void think_release(struct think *t)
{
    match_release(&t->start);
    match_release(&t->end);
    buf_release(&t->piece);
    buf_release(&t->text);
}

void think_reset(struct think *t)
{
    t->state = t->first;
    t->left = t->budget;
    t->start.n = t->end.n = t->forced = 0;
    t->character = (struct utf8_stream){0};
}

token_id think_forced(const struct think *t)
{
    return t->state == THINK_FORCING ? t->end.seq.p[t->forced] : TOKEN_NONE;
}

static void begin_forcing(struct think *t)
{
    t->state = THINK_FORCING;
    t->forced = 0;
    t->end.n = 0;
}

static void look_for_start(struct think *t, token_id id)
{
    if (!match_next(&t->start, id))
        return;
    t->state = THINK_COUNTING;
    t->left = t->budget;
    t->end.n = 0;
    t->character = (struct utf8_stream){0};
    if (t->left <= 0)
        begin_forcing(t);
}

static bool between_characters(struct think *t, token_id id)
{
    buf_clear(&t->piece);
    buf_clear(&t->text);
    vocab_piece(t->v, id, 0, false, &t->piece);
    utf8_stream_add(&t->character, buf_str(&t->piece), &t->text);
    return t->character.n == 0;
}

static void count(struct think *t, token_id id)
{
    if (match_next(&t->end, id)) {
        t->state = THINK_DONE;
        return;
    }
    bool whole = between_characters(t, id);
    if (t->state == THINK_COUNTING && --t->left > 0)
        return;
    if (whole) {
        begin_forcing(t);
    } else {
        t->state = THINK_CHARACTER;
        t->end.n = 0;
    }
}

void think_accept(struct think *t, token_id id)
{
    switch (t->state) {
    case THINK_IDLE:
    case THINK_DONE:
        look_for_start(t, id);
        break;
    case THINK_COUNTING:
    case THINK_CHARACTER:
        count(t, id);
        break;
    case THINK_FORCING:
        if (++t->forced == t->end.seq.n)
            t->state = THINK_DONE;
        break;
    }
}

void think_stop(struct think *t)
{
    if (t->state != THINK_COUNTING)
        return;
    if (t->character.n == 0) {
        begin_forcing(t);
    } else {
        t->state = THINK_CHARACTER;
        t->end.n = 0;
    }
}
