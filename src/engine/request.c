/* A request: what was asked, copied and checked on its owner's thread; its place in the queue; its end. */
#include "engine/schedule.h"

#include "base/mem.h"

#include <stdlib.h>

void grappa_request_defaults(struct grappa_request_params *out)
{
    *out = (struct grappa_request_params){.n_predict = -1, .slot = -1};
    grappa_sampler_defaults(&out->sampler);
}

/* ---- making one ---- */

static int check_prompt(const struct grappa_engine *e, const struct grappa_request_params *p, struct err *err)
{
    if (p->n_prompt > (size_t)e->n_ctx_slot || (p->n_prompt == e->n_ctx_slot && !p->embeddings))
        return err_set(
            err, ERR_RANGE,
            "request (%zu tokens) exceeds the available context size (%u tokens), try increasing it",
            p->n_prompt, e->n_ctx_slot);
    for (size_t i = 0; i < p->n_prompt; i++) {
        if (p->prompt[i] < 0 || (uint32_t)p->prompt[i] >= e->m->arch->h.n_vocab)
            return err_set(err, ERR_RANGE, "token id %d is out of range: the model has %u", p->prompt[i],
                           e->m->arch->h.n_vocab);
    }
    return 0;
}

static int check(const struct grappa_engine *e, const struct grappa_request_params *p, struct err *err)
{
    if (check_prompt(e, p, err) < 0)
        return -1;
    if (p->slot < -1 || p->slot >= e->n_slots)
        return err_set(err, ERR_RANGE, "slot %d is out of range: there are %d", p->slot, e->n_slots);
    if (p->embeddings != e->params.embeddings)
        return err_set(err, ERR_UNSUPPORTED, "this engine gives %s",
                       e->params.embeddings ? "embeddings, not text" : "text, not embeddings");
    if (p->embeddings && p->pooling == GRAPPA_POOLING_RANK && e->m->rank.n_labels == 0)
        return err_set(err, ERR_UNSUPPORTED, "the model has no head for ranking");
    if (p->context_shift && grappa_model_is_recurrent(e->m))
        return err_set(err, ERR_UNSUPPORTED, "a context shift: the model's recurrent layers can't forget");
    return 0;
}

static void copy_stop_texts(struct grappa_request *r, const struct grappa_request_params *p)
{
    r->stop_texts = xcalloc(p->n_stop + 1, sizeof *r->stop_texts);
    for (size_t i = 0; i < p->n_stop; i++)
        r->stop_texts[i] = str_of(xstrdup(p->stop[i]));
    r->stop.texts = r->stop_texts;
    r->stop.n = p->n_stop;
}

/* The sampler is made here, so that a grammar that takes long to read holds up nobody else. */
static int make_writer(struct grappa_request *r, const struct grappa_request_params *p,
                       struct grappa_err *err)
{
    struct grappa_sampler_params sampling = p->sampler;
    if (sampling.n_ctx == 0)
        sampling.n_ctx = r->e->n_ctx_slot;
    r->sampler = grappa_sampler_new(r->e->vocab, &sampling, err);
    if (!r->sampler)
        return -1;
    for (int32_t i = 0; i < r->n_prompt; i++)
        grappa_sampler_accept(r->sampler, r->tokens[i]);
    r->constrained = p->sampler.grammar.type != GRAPPA_GRAMMAR_NONE;
    r->stream = grappa_stream_new(r->e->vocab, p->special);
    copy_stop_texts(r, p);
    r->n_vocab = grappa_vocab_n_tokens(r->e->vocab);
    r->n_probs = p->n_probs < r->n_vocab ? p->n_probs : r->n_vocab;
    if (r->n_probs > 0)
        r->probs = xcalloc((size_t)r->n_probs, sizeof *r->probs);
    return 0;
}

static void release(struct grappa_request *r)
{
    for (size_t i = 0; i < r->stop.n; i++)
        free((char *)r->stop_texts[i].p);
    free(r->stop_texts);
    stop_release(&r->stop);
    grappa_stream_free(r->stream);
    grappa_sampler_free(r->sampler);
    free(r->probs);
    free(r->embedding);
    free(r->tokens);
    pthread_cond_destroy(&r->ended);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

static struct grappa_request *copy_request(struct grappa_engine *e, const struct grappa_request_params *p)
{
    struct grappa_request *r = xcalloc(1, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->ended, NULL);
    r->e = e;
    r->p = *p;
    r->p.prompt = NULL;
    r->p.stop = NULL;
    r->p.sampler = (struct grappa_sampler_params){0};
    r->n_tokens = r->n_prompt = r->timings.n_prompt = (int32_t)p->n_prompt;
    r->tokens = xcalloc(p->n_prompt + 1, sizeof *r->tokens);
    if (p->n_prompt)
        memcpy(r->tokens, p->prompt, p->n_prompt * sizeof *r->tokens);
    r->queued_at = engine_seconds();
    r->deadline = p->timeout_s > 0 ? r->queued_at + p->timeout_s : 0;
    return r;
}

struct grappa_request *grappa_request_new(struct grappa_engine *e, const struct grappa_request_params *params,
                                          struct grappa_err *err)
{
    struct err full = ERR_INIT;
    if (check(e, params, &full) < 0) {
        engine_fail(err, &full);
        return NULL;
    }
    struct grappa_request *r = copy_request(e, params);
    if (!params->embeddings && make_writer(r, params, err) < 0) {
        release(r);
        return NULL;
    }
    pthread_mutex_lock(&e->lock);
    if (e->stopping)
        err_set(&full, ERR_MEMORY, "the engine is shutting down");
    else if (e->n_waiting >= e->params.n_queue)
        err_set(&full, ERR_MEMORY, "%u requests are waiting already", e->n_waiting);
    if (full.code == ERR_NONE) {
        r->number = ++e->n_requests;
        request_queue(e, r);
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    if (full.code != ERR_NONE) {
        engine_fail(err, &full);
        release(r);
        return NULL;
    }
    return r;
}

/* ---- the queue ---- */

void request_queue(struct grappa_engine *e, struct grappa_request *r)
{
    struct grappa_request **at = &e->waiting;
    while (*at && ((*at)->p.priority > r->p.priority ||
                   ((*at)->p.priority == r->p.priority && (*at)->number < r->number)))
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    e->n_waiting++;
}

/* ---- the end ---- */

void request_end(struct grappa_request *r, int32_t slot, enum grappa_finish finish, const char *stop_text,
                 const struct grappa_err *err)
{
    double now = engine_seconds();
    struct str rest = {"", 0};
    if (!stop_text && r->sampler)
        rest = stop_end(&r->stop);
    if (r->started_at == 0)
        r->timings.queue_s = now - r->queued_at;
    else if (r->first_at == 0)
        r->timings.prompt_s = now - r->started_at;
    else
        r->timings.predict_s = now - r->first_at;
    struct grappa_event ev = {.type = GRAPPA_EVENT_DONE,
                              .token = GRAPPA_TOKEN_NONE,
                              .piece = "",
                              .text = rest.p,
                              .n_text = rest.n,
                              .finish = finish,
                              .stop_text = stop_text,
                              .truncated = r->truncated,
                              .err = err,
                              .embedding = r->embedding,
                              .n_rows = r->n_rows,
                              .n_embd = r->n_embd,
                              .slot = slot,
                              .timings = &r->timings};
    if (r->p.on_event)
        r->p.on_event(r->p.user, &ev);
    pthread_mutex_lock(&r->lock);
    r->done = true;
    pthread_cond_broadcast(&r->ended);
    pthread_mutex_unlock(&r->lock);
}

void grappa_request_end_thoughts(struct grappa_request *r)
{
    atomic_store(&r->end_thoughts, true);
}

uint64_t grappa_request_number(const struct grappa_request *r)
{
    return r->number;
}

void grappa_request_cancel(struct grappa_request *r)
{
    atomic_store(&r->cancel, true);
    pthread_mutex_lock(&r->lock);
    if (!r->done) { /* so the engine is still there */
        pthread_mutex_lock(&r->e->lock);
        pthread_cond_signal(&r->e->work);
        pthread_mutex_unlock(&r->e->lock);
    }
    pthread_mutex_unlock(&r->lock);
}

void grappa_request_wait(struct grappa_request *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->done)
        pthread_cond_wait(&r->ended, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void grappa_request_free(struct grappa_request *r)
{
    if (!r)
        return;
    grappa_request_cancel(r);
    grappa_request_wait(r);
    release(r);
}
