/* From prompts to answers: handing over to the engine, taking its events out of the inbox on the connection's
 * thread, and letting the dialect write. */
#include "server/run.h"

#include "server/streams.h"

#include "base/log.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static const struct grappa_err SHUTDOWN = {
    .exit_status = 1, .http_status = 503, .text = "the server is shutting down"};
static const struct grappa_err STOPPED = {
    .exit_status = 1, .http_status = 400, .text = "the request was cancelled"};

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

static void run_end(struct exchange *x, void *user)
{
    struct run *r = user;
    stream_close(r->stream, !x->streaming);
    runs_remove(r);
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
    for (struct event *e; (e = run_take_event(r));)
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
    runs_add(r);
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
    q.context_shift = r->s.p->context_shift && !grappa_model_is_recurrent(r->model->m);
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
    q.on_event = run_on_event;
    q.user = p;
    p->started = true;
    struct server *srv = r->x->srv;
    pthread_mutex_lock(&srv->runs_lock);
    bool ending = srv->ending, stopped = r->stopped;
    pthread_mutex_unlock(&srv->runs_lock);
    if (ending || stopped) {
        *err = ending ? SHUTDOWN : STOPPED;
        return -1;
    }
    /* Not under the lock: a large grammar takes its time, and nobody else's request should wait for it. */
    struct grappa_request *request = grappa_request_new(r->model->e, &q, err);
    pthread_mutex_lock(&srv->runs_lock);
    p->request = request;
    ending = srv->ending || r->stopped;
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
        runs_note_slot(p);
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

static bool was_stopped(const struct run *r)
{
    pthread_mutex_lock(&r->x->srv->runs_lock);
    bool stopped = r->stopped;
    pthread_mutex_unlock(&r->x->srv->runs_lock);
    return stopped;
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
        return &SHUTDOWN;
    case GRAPPA_FINISH_CANCEL:
        return was_stopped(e->part->run) ? &STOPPED : &SHUTDOWN;
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
        struct event *e = run_take_event(r);
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
static bool next_text(struct exchange *x, void *user, struct buf *out)
{
    struct run *r = user;
    while (out->n == 0) {
        struct event *e = run_take_event(r);
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
            x->finish = err == &STOPPED ? "stopped" : "error";
            e->err = *err;
            if (err != &STOPPED)
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

static bool run_next(struct exchange *x, void *user, struct buf *out)
{
    struct run *r = user;
    bool more = next_text(x, user, out);
    stream_add(r->stream, out->p, out->n);
    return more;
}

/* ---- streams that outlive their client ---- */

static void *write_on(void *user)
{
    struct exchange *x = user;
    while (!x->done) {
        buf_clear(&x->out);
        x->done = !x->next(x, x->user, &x->out);
    }
    exchange_finish(x);
    return NULL;
}

static bool take_over(struct exchange *x)
{
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    bool done = pthread_create(&thread, &detached, write_on, x) == 0;
    pthread_attr_destroy(&detached);
    return done;
}

/* Whether the text is to be kept, and written also when the client goes: it says so by a header. */
static void keep_stream(struct run *r)
{
    const char *id = exchange_header(r->x, "X-Conversation-Id");
    r->stream = id ? stream_open(r->x->srv->streams, id, r) : NULL;
    if (!r->stream)
        return;
    r->x->fd = -1; /* nobody watches the connection */
    r->x->orphaned = take_over;
}

/* Waits for the first event, since what fails before it is no stream yet. */
static void reply_stream(struct run *r)
{
    struct exchange *x = r->x;
    struct event *e;
    while (!(e = run_take_event(r))) {
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
        stream_add(r->stream, x->out.p, x->out.n);
    }
    if (e->part->last != e)
        free(e);
}

void run_go(struct run *r)
{
    if (r->s.stream)
        keep_stream(r);
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
