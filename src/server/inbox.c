/* Events in: the engine calls back on its own thread, where the event is copied and a counter raised; the
 * connection's thread takes the copies. Limits that the engine doesn't know are looked at here, before the
 * copy. */
#include "server/run.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_INBOX = 64 << 20 }; /* bytes that a client may leave unread before its request is ended */

/* A copy in the block at *at, which moves on. */
static void *put(char **at, const void *from, size_t n)
{
    void *to = *at;
    if (n)
        memcpy(to, from, n);
    *at += align_up(n, 16);
    return to;
}

static struct event *copy_event(struct part *p, const struct grappa_event *e)
{
    size_t n_stop = e->stop_text ? strlen(e->stop_text) + 1 : 0;
    size_t n_probs = (size_t)(e->n_probs > 0 ? e->n_probs : 0) * sizeof *e->probs;
    size_t n_rows = e->embedding ? (size_t)e->n_rows * (size_t)e->n_embd * sizeof(float) : 0;
    size_t sizes[] = {e->n_piece, e->n_text, n_stop, n_probs, n_rows},
           all = align_up(sizeof(struct event), 16);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        all += align_up(sizes[i], 16);
    struct event *c = calloc(1, all);
    if (!c)
        return NULL;
    char *at = (char *)c + align_up(sizeof *c, 16);
    c->part = p;
    c->e = *e;
    c->e.piece = put(&at, e->piece, e->n_piece);
    c->e.text = put(&at, e->text, e->n_text);
    c->e.stop_text = n_stop ? put(&at, e->stop_text, n_stop) : NULL;
    c->e.probs = put(&at, e->probs, n_probs);
    c->e.embedding = n_rows ? put(&at, e->embedding, n_rows) : NULL;
    if (e->timings)
        c->timings = *e->timings;
    c->e.timings = &c->timings;
    if (e->err)
        c->err = *e->err;
    c->e.err = e->err ? &c->err : NULL;
    p->run->inbox_bytes += all;
    return c;
}

/* Limits that the engine doesn't know: a time for writing, once a line is complete. */
static bool in_time(struct part *p, const struct grappa_event *e)
{
    int64_t most = p->run->s.t_max_predict_ms;
    if (most <= 0)
        return true;
    double now = clock_s();
    if (p->first_token == 0)
        p->first_token = now;
    p->newline_seen |= e->n_piece && memchr(e->piece, '\n', e->n_piece);
    return !p->newline_seen || 1e3 * (now - p->first_token) <= (double)most;
}

/* And a least indentation, from the second line on: of the line that has less, only its blanks are kept. */
static bool is_indented(struct part *p, struct grappa_event *e)
{
    int32_t least = p->run->s.n_indent;
    for (size_t i = 0; least > 0 && i < e->n_text; i++) {
        char c = e->text[i];
        bool blank = c == ' ' || c == '\t';
        if (p->indent >= 0 && !blank && p->indent < least) {
            e->n_text = i;
            return false;
        }
        if (p->indent >= 0)
            p->indent = blank ? p->indent + 1 : -1;
        if (c == '\n')
            p->indent = 0;
    }
    return true;
}

/* False: it ends here. */
static bool goes_on(struct part *p, struct grappa_event *e)
{
    if (p->at_limit)
        e->n_text = 0;
    else if (e->type == GRAPPA_EVENT_TOKEN)
        p->at_limit = !in_time(p, e) || !is_indented(p, e);
    return !p->at_limit;
}

bool run_on_event(void *user, const struct grappa_event *e)
{
    struct part *p = user;
    struct run *r = p->run;
    uint64_t one = 1;
    struct grappa_event shown = *e;
    bool more = goes_on(p, &shown);
    pthread_mutex_lock(&r->lock);
    struct event *c = copy_event(p, &shown);
    bool room = c && r->inbox_bytes < MAX_INBOX;
    if (c) {
        *r->tail = c;
        r->tail = &c->next;
    }
    /* Under the lock: once the last event is taken out, the run may be gone. */
    if (write(r->efd, &one, sizeof one) < 0)
        room = room && errno == EAGAIN;
    pthread_mutex_unlock(&r->lock);
    return room && more;
}

struct event *run_take_event(struct run *r)
{
    pthread_mutex_lock(&r->lock);
    struct event *e = r->head;
    if (e) {
        r->head = e->next;
        if (!r->head) {
            r->tail = &r->head;
            r->inbox_bytes = 0;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return e;
}
