/* The runs there are: a list of the server's, for those who speak of a request that is not their own: /slots,
 * the end of the server, a client that stops what another one began. */
#include "server/chat.h"
#include "server/run.h"

void run_cancel(struct run *r)
{
    for (size_t i = 0; i < r->n_parts; i++) {
        if (r->parts[i].request)
            grappa_request_cancel(r->parts[i].request);
    }
}

void run_stop(struct run *r)
{
    pthread_mutex_lock(&r->x->srv->runs_lock);
    r->stopped = true;
    run_cancel(r);
    pthread_mutex_unlock(&r->x->srv->runs_lock);
}

void runs_cancel(struct server *s)
{
    pthread_mutex_lock(&s->runs_lock);
    s->ending = true; /* also those that have not begun: run.c asks before each */
    for (struct run *r = s->runs; r; r = r->following)
        run_cancel(r);
    pthread_mutex_unlock(&s->runs_lock);
}

void runs_add(struct run *r)
{
    struct server *s = r->x->srv;
    pthread_mutex_lock(&s->runs_lock);
    r->following = s->runs;
    if (r->following)
        r->following->previous = r;
    s->runs = r;
    pthread_mutex_unlock(&s->runs_lock);
}

void runs_remove(struct run *r)
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

void runs_note_slot(struct part *p)
{
    struct model *m = p->run->model;
    struct server *s = p->run->x->srv;
    if (p->slot < 0 || (uint32_t)p->slot >= m->info.n_slots)
        return;
    json_t *params = settings_json(&p->run->s, true), *old;
    pthread_mutex_lock(&s->runs_lock);
    struct slot_note *n = &m->notes[p->slot];
    old = n->params;
    *n = (struct slot_note){p->request ? grappa_request_number(p->request) : 0, params};
    pthread_mutex_unlock(&s->runs_lock);
    json_decref(old);
}

/* ---- /v1/chat/completions/control ---- */

/* NULL: done; else why not. */
static const char *end_reasoning(struct server *s, const char *id)
{
    const char *why = "no active completion for this id";
    pthread_mutex_lock(&s->runs_lock);
    for (struct run *r = s->runs; r; r = r->following) {
        if (strcmp(r->id, id) != 0)
            continue;
        why = r->s.reasoning_control ? NULL : "reasoning control not enabled for this completion";
        for (size_t i = 0; !why && i < r->n_parts; i++) {
            if (r->parts[i].request)
                grappa_request_end_thoughts(r->parts[i].request);
        }
    }
    pthread_mutex_unlock(&s->runs_lock);
    return why;
}

static void control(struct exchange *x, json_t *body)
{
    struct grappa_err err = {0};
    const char *id = "", *action = "";
    if (member_string(body, "id", &id, &err) || member_string(body, "action", &action, &err)) {
        reply_error(x, &err);
    } else if (!*id) {
        reply_fail(x, 400, "missing completion id");
    } else if (strcmp(action, "reasoning_end") != 0) {
        reply_fail(x, 400, "unknown control action");
    } else {
        const char *why = end_reasoning(x->srv, id);
        json_t *j = json_pack("{s:b}", "success", why == NULL);
        if (why)
            json_object_set_new(j, "message", json_string(why));
        reply_json(x, 200, j);
    }
}

void post_control(struct exchange *x)
{
    with_body(x, control);
}
