/* From prompts to events: the engine calls back on its own thread, where the event is copied and a counter
 * raised; the connection's thread takes the copies and lets the dialect write. */
#include "server/run.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_INBOX = 64 << 20 }; /* bytes that a client may leave unread before its request is ended */

static const struct grappa_err SHUTDOWN = {
    .exit_status = 1, .http_status = 503, .text = "the server is shutting down"};

/* ---- events in ---- */

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

static bool on_event(void *user, const struct grappa_event *e)
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

static struct event *take_event(struct run *r)
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

/* ---- the life of a run ---- */

static void free_part(struct part *p)
{
    grappa_request_free(p->request); /* ends it if need be, and waits */
    grappa_chat_parser_free(p->parser);
    buf_release(&p->text);
    json_decref(p->probs);
    free(p->prompt);
    free(p->tokens);
    free(p->last);
    if (p->state && p->run->dialect->release)
        p->run->dialect->release(p);
    free(p->state);
}

struct run *run_following(const struct run *r)
{
    return r->following;
}

void run_cancel(struct run *r)
{
    for (size_t i = 0; i < r->n_parts; i++) {
        if (r->parts[i].request)
            grappa_request_cancel(r->parts[i].request);
    }
}

const struct part *runs_find(const struct server *s, const struct model *m, uint64_t request)
{
    for (const struct run *r = s->runs; r; r = r->following) {
        for (size_t i = 0; r->model == m && i < r->n_parts; i++) {
            const struct part *p = &r->parts[i];
            if (p->request && grappa_request_number(p->request) == request)
                return p;
        }
    }
    return NULL;
}

/* What /slots still says of a request when it has ended. */
static void note_slot(struct part *p)
{
    struct model *m = p->run->model;
    struct server *s = p->run->x->srv;
    if (p->slot < 0 || (uint32_t)p->slot >= m->info.n_slots)
        return;
    json_t *params = settings_json(&p->run->s, true), *old;
    pthread_mutex_lock(&s->runs_lock);
    struct slot_note *n = &m->notes[p->slot];
    old = n->params;
    *n = (struct slot_note){p->request ? grappa_request_number(p->request) : 0, params, p->has_new_line};
    pthread_mutex_unlock(&s->runs_lock);
    json_decref(old);
}

/* Into the server's list, out of it. Out of it a run gets no more cancels from there. */
static void link_run(struct run *r)
{
    struct server *s = r->x->srv;
    pthread_mutex_lock(&s->runs_lock);
    r->following = s->runs;
    if (r->following)
        r->following->previous = r;
    s->runs = r;
    pthread_mutex_unlock(&s->runs_lock);
}

static void unlink_run(struct run *r)
{
    struct server *s = r->x->srv;
    pthread_mutex_lock(&s->runs_lock);
    if (r->previous)
        r->previous->following = r->following;
    else
        s->runs = r->following;
    if (r->following)
        r->following->previous = r->previous;
    pthread_mutex_unlock(&s->runs_lock);
}

static void run_end(struct exchange *x, void *user)
{
    struct run *r = user;
    unlink_run(r);
    run_cancel(r);
    uint64_t longest = 0;
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct grappa_timings *t = &r->parts[i].timings;
        x->n_prompt += t->n_prompt;
        x->n_cached += t->n_cached;
        x->n_predicted += t->n_predicted;
        x->prompt_s += t->prompt_s;
        x->predict_s += t->predict_s;
        uint64_t n = (uint64_t)t->n_prompt + (uint64_t)t->n_predicted;
        longest = n > longest ? n : longest;
        free_part(&r->parts[i]);
    }
    model_note_length(r->model, longest);
    for (struct event *e; (e = take_event(r));)
        free(e);
    grappa_chat_free(r->chat);
    free(r->parts);
    settings_release(&r->s);
    pthread_mutex_destroy(&r->lock);
    close(r->efd);
    model_release(r->model);
    free(r);
}

struct run *run_new(struct exchange *x, struct model *model, const struct dialect *dialect)
{
    struct run *r = xcalloc(1, sizeof *r);
    r->x = x;
    r->model = model;
    r->dialect = dialect;
    r->tail = &r->head;
    r->created = (int64_t)time(NULL);
    pthread_mutex_init(&r->lock, NULL);
    r->efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    random_id(r->id, "chatcmpl-");
    snprintf(x->model, sizeof x->model, "%s", model->name);
    x->end = run_end;
    x->user = r;
    link_run(r);
    return r;
}

void run_add_prompt(struct run *r, grappa_token *ids, size_t n)
{
    size_t copies = (size_t)(r->s.n_cmpl > 0 ? r->s.n_cmpl : 1), first = r->n_parts;
    pthread_mutex_lock(&r->x->srv->runs_lock); /* others look through the parts */
    r->parts = xrealloc(r->parts, (r->n_parts + copies) * sizeof *r->parts);
    for (size_t i = 0; i < copies; i++) {
        struct part *p = &r->parts[r->n_parts];
        *p = (struct part){.run = r, .index = (int)r->n_parts, .n_prompt = n, .slot = -1, .indent = -1};
        p->text.ceiling = (size_t)256 << 20;
        p->prompt = i == 0 ? ids : xcalloc(n + 1, sizeof *ids);
        if (i && n)
            memcpy(p->prompt, ids, n * sizeof *ids);
        if (r->dialect->state_size)
            p->state = xcalloc(1, r->dialect->state_size);
        r->n_parts++;
    }
    /* The array may have moved: leaders by number. */
    for (size_t i = 0; i < r->n_parts; i++) {
        struct part *p = &r->parts[i];
        p->leader = i > first ? &r->parts[first] : p->leader ? &r->parts[p->leader->index] : NULL;
    }
    pthread_mutex_unlock(&r->x->srv->runs_lock);
}

/* ---- handing over ---- */

static void set_sampler(struct run *r, const struct part *p, struct grappa_sampler_params *s)
{
    *s = r->s.s;
    s->n_ctx = r->model->info.n_ctx;
    if (p->leader && s->seed != UINT32_MAX) /* several answers to one prompt shall differ */
        s->seed += (uint32_t)(p->index - p->leader->index);
}

static int start_part(struct part *p, struct grappa_err *err)
{
    struct run *r = p->run;
    struct grappa_request_params q;
    grappa_request_defaults(&q);
    q.prompt = p->prompt;
    q.n_prompt = p->n_prompt;
    set_sampler(r, p, &q.sampler);
    q.n_predict = r->s.n_predict;
    q.n_keep = r->s.n_keep;
    q.n_discard = r->s.n_discard;
    q.context_shift = r->s.p->context_shift;
    q.stop = r->s.stop.v;
    q.n_stop = r->s.stop.n;
    q.n_probs = r->s.n_probs;
    q.want_logprob = r->s.n_probs > 0;
    q.post_sampling_probs = r->s.post_sampling_probs;
    q.special = r->s.p->special;
    q.no_cache_prompt = !r->s.cache_prompt;
    q.want_progress = r->s.stream;
    q.slot = p->leader ? -1 : r->s.id_slot;
    q.n_draft = r->s.n_draft;
    q.n_draft_min = r->s.n_draft_min;
    q.draft_p_min = r->s.draft_p_min;
    q.lookup = r->s.p->lookup;
    q.embeddings = r->embeddings;
    q.pooling = r->rank ? GRAPPA_POOLING_RANK : r->s.p->pooling;
    q.on_event = on_event;
    q.user = p;
    p->started = true;
    struct server *srv = r->x->srv;
    pthread_mutex_lock(&srv->runs_lock);
    bool ending = srv->ending;
    pthread_mutex_unlock(&srv->runs_lock);
    if (ending)
        return fail(err, SHUTDOWN.http_status, "%s", SHUTDOWN.text);
    /* Not under the lock: a large grammar takes its time, and nobody else's request should wait for it. */
    struct grappa_request *request = grappa_request_new(r->model->e, &q, err);
    pthread_mutex_lock(&srv->runs_lock);
    p->request = request;
    ending = srv->ending;
    pthread_mutex_unlock(&srv->runs_lock);
    if (ending && request) /* runs_cancel may have come before it was there */
        grappa_request_cancel(request);
    return p->request ? 0 : -1;
}

static int reply_too_long(struct run *r, size_t n)
{
    unsigned n_ctx = r->model->info.n_ctx;
    char text[160];
    snprintf(text, sizeof text,
             "request (%zu tokens) exceeds the available context size (%u tokens), try increasing it", n,
             n_ctx);
    json_t *e = error_body(400, text);
    json_object_set_new(e, "type", json_string("exceed_context_size_error"));
    json_object_set_new(e, "n_prompt_tokens", json_integer((json_int_t)n));
    json_object_set_new(e, "n_ctx", json_integer(n_ctx));
    reply_json(r->x, 400, json_pack("{s:o}", "error", e));
    return -1;
}

static int start_all(struct run *r)
{
    struct grappa_err err = {0};
    for (size_t i = 0; i < r->n_parts; i++) {
        if (r->parts[i].n_prompt >= r->model->info.n_ctx)
            return reply_too_long(r, r->parts[i].n_prompt);
    }
    for (size_t i = 0; i < r->n_parts; i++) {
        struct part *p = &r->parts[i];
        if (r->chat && !p->parser)
            p->parser = grappa_chat_parser_new(r->chat, &err);
        if (err.exit_status || (!p->leader && start_part(p, &err))) {
            reply_error(r->x, &err);
            return -1;
        }
    }
    return 0;
}

/* ---- events out ---- */

static void add_tokens(struct part *p, grappa_token t)
{
    if (p->n_tokens == p->tokens_size) {
        p->tokens_size = 2 * p->tokens_size + 64;
        p->tokens = xrealloc(p->tokens, p->tokens_size * sizeof *p->tokens);
    }
    p->tokens[p->n_tokens++] = t;
}

static void take_text(struct part *p, const struct event *e, bool last)
{
    buf_add(&p->text, e->e.text, e->e.n_text);
    if (e->e.n_text && memchr(e->e.text, '\n', e->e.n_text))
        p->has_new_line = true;
    p->n_deltas = 0;
    if (p->parser)
        p->n_deltas = grappa_chat_parser_add(p->parser, e->e.text, e->e.n_text, last, &p->deltas);
}

/* The followers of a part that has begun to write: its prompt is in the cache now. */
static void start_followers(struct part *leader, struct event *e)
{
    struct run *r = leader->run;
    struct grappa_err err = {0};
    for (size_t i = 0; i < r->n_parts; i++) {
        struct part *p = &r->parts[i];
        if (p->leader != leader || p->started || start_part(p, &err) == 0)
            continue;
        p->done = true;
        r->n_done++;
        e->e.finish = GRAPPA_FINISH_ERROR; /* the whole answer fails with it */
        e->err = err;
        e->e.err = &e->err;
    }
}

/* Takes an event in; out: what a stream says to it, or NULL. Returns the event's error, if it has one. */
static const struct grappa_err *digest(struct run *r, struct event *e, struct buf *out)
{
    struct part *p = e->part;
    const struct dialect *d = r->dialect;
    p->timings = e->timings;
    p->slot = e->e.slot;
    switch (e->e.type) {
    case GRAPPA_EVENT_PROGRESS:
        if (out && r->s.return_progress && d->progress)
            d->progress(p, e, out);
        return NULL;
    case GRAPPA_EVENT_TOKEN:
        p->n_written++;
        add_tokens(p, e->e.token);
        take_text(p, e, false);
        if (r->s.n_probs > 0 && !out) {
            if (!p->probs)
                p->probs = json_array();
            json_array_append_new(p->probs, prob_json(p, e));
        }
        if (p->n_written == 1)
            start_followers(p, e);
        if (out)
            d->token(p, e, out);
        return e->e.err;
    default:
        p->done = true;
        r->n_done++;
        note_slot(p);
        if (p->at_limit && e->e.finish == GRAPPA_FINISH_CANCEL)
            e->e.finish = GRAPPA_FINISH_LENGTH;
        if (e->e.finish >= GRAPPA_FINISH_CANCEL)
            return e->e.err;
        take_text(p, e, true);
        start_followers(p, e);
        p->last = e;
        if (out)
            d->finish(p, e, out);
        return NULL;
    }
}

/* What a request that ended without an answer says. */
static const struct grappa_err *failure_of(const struct event *e, const struct grappa_err *err)
{
    static const struct grappa_err unknown = {
        .exit_status = 1, .http_status = 500, .text = "the request failed"};
    if (err || e->e.type != GRAPPA_EVENT_DONE)
        return err;
    switch (e->e.finish) {
    case GRAPPA_FINISH_SHUTDOWN:
    case GRAPPA_FINISH_CANCEL: /* nobody else cancels what somebody still waits for */
        return &SHUTDOWN;
    case GRAPPA_FINISH_ERROR:
        return &unknown;
    default:
        return NULL;
    }
}

static const char *finish_word(const struct run *r)
{
    const struct part *p = r->n_parts ? &r->parts[0] : NULL;
    return p && p->last ? stop_type(p) : "error";
}

static int wait_all(struct run *r)
{
    while (r->n_done < r->n_parts) {
        struct event *e = take_event(r);
        if (!e) {
            if (exchange_wait(r->x, r->efd, -1) == WAITED_GONE) {
                reply_fail(r->x, 499, "the client has gone");
                r->x->finish = "gone";
                return -1;
            }
            continue;
        }
        const struct grappa_err *err = failure_of(e, digest(r, e, NULL));
        if (err)
            reply_error(r->x, err);
        if (e->part->last != e)
            free(e);
        if (err) {
            r->x->finish = "error";
            return -1;
        }
    }
    return 0;
}

static void reply_whole(struct run *r)
{
    if (wait_all(r))
        return;
    const struct dialect *d = r->dialect;
    json_t *all = json_array();
    for (size_t i = 0; i < r->n_parts; i++)
        json_array_append_new(all, d->whole(&r->parts[i]));
    json_t *one = all;
    if (json_array_size(all) == 1) {
        one = json_incref(json_array_get(all, 0));
        json_decref(all);
    } else if (d->join) {
        one = d->join(all);
    }
    r->x->finish = finish_word(r);
    reply_json(r->x, 200, one);
}

/* ---- streams ---- */

static void end_stream(struct run *r, struct buf *out)
{
    r->x->finish = finish_word(r);
    if (r->dialect->done_marker)
        buf_puts(out, "data: [DONE]\n\n");
}

/* More of the stream; false at its end. */
static bool run_next(struct exchange *x, void *user, struct buf *out)
{
    struct run *r = user;
    while (out->n == 0) {
        struct event *e = take_event(r);
        if (!e) {
            int timeout = r->s.ping_s > 0 ? (r->s.ping_s > 86400 ? 86400 : r->s.ping_s) * 1000 : -1;
            enum waited w = exchange_wait(x, r->efd, timeout);
            if (w == WAITED_GONE) {
                x->finish = "gone";
                return false;
            }
            if (w == WAITED_TIMEOUT)
                buf_puts(out, ":\n\n"); /* a comment, so that nobody takes the silence for death */
            continue;
        }
        const struct grappa_err *err = failure_of(e, digest(r, e, out));
        if (err) {
            x->finish = "error";
            e->err = *err;
            r->dialect->failed(e->part, e, out);
        }
        if (e->part->last != e)
            free(e);
        if (err)
            return false;
        if (r->n_done == r->n_parts) {
            end_stream(r, out);
            return false;
        }
    }
    return true;
}

/* Waits for the first event, since what fails before it is no stream yet. */
static void reply_stream(struct run *r)
{
    struct exchange *x = r->x;
    struct event *e;
    while (!(e = take_event(r))) {
        if (exchange_wait(x, r->efd, -1) == WAITED_GONE) {
            reply_fail(x, 499, "the client has gone");
            x->finish = "gone";
            return;
        }
    }
    const struct grappa_err *err = failure_of(e, digest(r, e, &x->out));
    if (err) {
        reply_error(x, err);
        x->finish = "error";
    } else {
        x->status = 200;
        x->type = "text/event-stream";
        x->streaming = true;
        x->next = run_next;
        x->done = r->n_done == r->n_parts;
        if (x->done)
            end_stream(r, &x->out);
    }
    if (e->part->last != e)
        free(e);
}

void run_go(struct run *r)
{
    if (start_all(r))
        return;
    if (r->s.stream)
        reply_stream(r);
    else
        reply_whole(r);
}

int run_start_and_wait(struct run *r)
{
    return start_all(r) ? -1 : wait_all(r);
}
