/* Kept streams: one lock over all, since what happens under it is short. */
#include "server/streams.h"

#include "server/chat.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_STREAMS = 32, MAX_BYTES = 4 << 20, MAX_ID = 512, KEPT_S = 300, LOOK_MS = 200 };

struct stream {
    struct streams *all;
    struct stream *next;
    char *id;
    struct run *run;            /* NULL: it has ended */
    struct buf text;            /* the last of it */
    uint64_t n_lost;            /* bytes that stood before */
    int64_t started, completed; /* seconds since 1970; completed 0: not yet */
    double end;                 /* clock_s */
    int users;                  /* the list, the run, and those who read; the last one frees it */
};

struct streams {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct stream *first; /* the latest */
};

struct streams *streams_new(void)
{
    struct streams *all = xcalloc(1, sizeof *all);
    pthread_condattr_t clock;
    pthread_mutex_init(&all->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&all->more, &clock);
    pthread_condattr_destroy(&clock);
    return all;
}

/* ---- with the lock held ---- */

static void drop(struct stream *s)
{
    if (--s->users > 0)
        return;
    buf_release(&s->text);
    free(s->id);
    free(s);
}

static struct stream **find(struct streams *all, const char *id)
{
    struct stream **at = &all->first;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

static void take_out(struct stream **at)
{
    struct stream *s = *at;
    *at = s->next;
    drop(s);
}

/* What is over for long; and if there are too many, the oldest that is over. False: there is no room. */
static bool make_room(struct streams *all, size_t most)
{
    double now = clock_s();
    size_t n = 0;
    struct stream **oldest = NULL;
    for (struct stream **at = &all->first; *at;) {
        if ((*at)->completed && now - (*at)->end > KEPT_S) {
            take_out(at);
            continue;
        }
        if ((*at)->completed)
            oldest = at;
        n++;
        at = &(*at)->next;
    }
    if (n < most)
        return true;
    if (oldest)
        take_out(oldest);
    return oldest != NULL;
}

static void stop(struct stream **at)
{
    struct stream *s = *at;
    if (s->run)
        run_stop(s->run);
    take_out(at);
}

void streams_free(struct streams *all)
{
    if (!all)
        return;
    while (all->first)
        take_out(&all->first);
    pthread_cond_destroy(&all->more);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

/* ---- writing ---- */

struct stream *stream_open(struct streams *all, const char *id, struct run *r)
{
    struct stream *s = NULL;
    if (!*id || strlen(id) > MAX_ID)
        return NULL;
    pthread_mutex_lock(&all->lock);
    struct stream **before = find(all, id);
    if (*before)
        stop(before);
    if (make_room(all, MAX_STREAMS)) {
        s = xcalloc(1, sizeof *s);
        *s = (struct stream){
            .all = all, .next = all->first, .run = r, .started = (int64_t)time(NULL), .users = 2};
        s->text.ceiling = 3 * (size_t)MAX_BYTES;
        s->id = strdup(id);
        all->first = s;
    }
    pthread_mutex_unlock(&all->lock);
    return s;
}

void stream_add(struct stream *s, const char *p, size_t n)
{
    if (!s || n == 0)
        return;
    pthread_mutex_lock(&s->all->lock);
    if (n > MAX_BYTES) {
        s->n_lost += n - MAX_BYTES;
        p += n - MAX_BYTES;
        n = MAX_BYTES;
    }
    if (s->text.n + n > 2 * (size_t)MAX_BYTES) { /* moved once in a while only */
        size_t lost = s->text.n + n - MAX_BYTES;
        lost = lost < s->text.n ? lost : s->text.n;
        memmove(s->text.p, s->text.p + lost, s->text.n - lost);
        s->text.n -= lost;
        s->n_lost += lost;
    }
    buf_add(&s->text, p, n);
    pthread_cond_broadcast(&s->all->more);
    pthread_mutex_unlock(&s->all->lock);
}

void stream_close(struct stream *s, bool failed)
{
    if (!s)
        return;
    struct streams *all = s->all;
    pthread_mutex_lock(&all->lock);
    s->run = NULL;
    s->completed = (int64_t)time(NULL);
    s->end = clock_s();
    struct stream **at = &all->first;
    while (failed && *at && *at != s)
        at = &(*at)->next;
    if (failed && *at)
        take_out(at);
    drop(s);
    pthread_cond_broadcast(&all->more);
    pthread_mutex_unlock(&all->lock);
}

/* ---- reading ---- */

struct reader {
    struct stream *s;
    uint64_t at;
};

static bool read_next(struct exchange *x, void *user, struct buf *out)
{
    struct reader *r = user;
    struct stream *s = r->s;
    struct streams *all = s->all;
    bool more = true;
    pthread_mutex_lock(&all->lock);
    while (more && out->n == 0) {
        uint64_t end = s->n_lost + s->text.n;
        if (r->at < s->n_lost) /* it reads slower than the text is written */
            break;
        if (r->at < end)
            buf_add(out, s->text.p + (r->at - s->n_lost), (size_t)(end - r->at));
        else if (s->completed)
            break;
        else {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            t.tv_nsec += LOOK_MS * 1000000L;
            t.tv_sec += t.tv_nsec / 1000000000L;
            t.tv_nsec %= 1000000000L;
            pthread_cond_timedwait(&all->more, &all->lock, &t);
            more = exchange_wait(x, -1, 0) != WAITED_GONE;
        }
    }
    r->at += out->n;
    pthread_mutex_unlock(&all->lock);
    return out->n > 0;
}

static void read_end(struct exchange *x, void *user)
{
    struct reader *r = user;
    struct streams *all = r->s->all;
    (void)x;
    pthread_mutex_lock(&all->lock);
    drop(r->s);
    pthread_mutex_unlock(&all->lock);
    free(r);
}

static void reply_stream(struct exchange *x, const char *id, uint64_t from)
{
    struct streams *all = x->srv->streams;
    pthread_mutex_lock(&all->lock);
    make_room(all, MAX_STREAMS + 1);
    struct stream *s = *find(all, id);
    bool lost = s && from < s->n_lost;
    if (s && !lost)
        s->users++;
    pthread_mutex_unlock(&all->lock);
    if (!s) {
        reply_fail(x, 404, "Stream not found or expired");
    } else if (lost) {
        reply_fail(x, 400, "Stream offset lost, please restart");
    } else {
        struct reader *r = xcalloc(1, sizeof *r);
        *r = (struct reader){s, from};
        x->status = 200;
        x->type = "text/event-stream";
        x->streaming = true;
        x->next = read_next;
        x->end = read_end;
        x->user = r;
    }
}

static const char *asked_id(struct exchange *x)
{
    const char *id = exchange_query(x, "conv_id");
    if (id && *id)
        return id;
    reply_fail(x, 400, "Missing conversation id in path");
    return NULL;
}

void get_stream(struct exchange *x)
{
    const char *id = asked_id(x), *from = exchange_query(x, "from");
    char *end = NULL;
    errno = 0;
    unsigned long long at = from && *from ? strtoull(from, &end, 10) : 0;
    if (!id)
        return;
    if (errno || (end && (end == from || *end || *from == '-')))
        reply_fail(x, 400, "Invalid 'from' offset");
    else
        reply_stream(x, id, at);
}

void delete_stream(struct exchange *x)
{
    const char *id = asked_id(x);
    struct streams *all = x->srv->streams;
    if (!id)
        return;
    pthread_mutex_lock(&all->lock);
    struct stream **at = find(all, id);
    if (*at)
        stop(at);
    pthread_cond_broadcast(&all->more);
    pthread_mutex_unlock(&all->lock);
    reply_text(x, 204, NULL, "", 0);
}

/* Of a conversation, or of one of its models: "id", "id::model". */
static bool is_of(const struct stream *s, const char *id)
{
    size_t n = strlen(id);
    return n && strncmp(s->id, id, n) == 0 && (!s->id[n] || strncmp(s->id + n, "::", 2) == 0);
}

static void lookup(struct exchange *x, json_t *body)
{
    struct streams *all = x->srv->streams;
    const json_t *ids = json_object_get(body, "conversation_ids");
    json_t *found = json_array();
    pthread_mutex_lock(&all->lock);
    make_room(all, MAX_STREAMS + 1);
    size_t n = json_array_size(ids) < 4096 ? json_array_size(ids) : 4096;
    for (const struct stream *s = all->first; s; s = s->next) { /* once each, however often its id is there */
        size_t i = 0;
        for (; i < n; i++) {
            const char *id = json_string_value(json_array_get(ids, i));
            if (id && is_of(s, id))
                break;
        }
        if (i < n)
            json_array_append_new(
                found,
                json_pack("{s:o, s:b, s:I, s:I, s:I}", "conversation_id", text_json(s->id, strlen(s->id)),
                          "is_done", s->completed != 0, "total_bytes", (json_int_t)(s->n_lost + s->text.n),
                          "started_at", (json_int_t)s->started, "completed_at", (json_int_t)s->completed));
    }
    pthread_mutex_unlock(&all->lock);
    reply_json(x, 200, found);
}

void post_streams_lookup(struct exchange *x)
{
    with_body(x, lookup);
}
