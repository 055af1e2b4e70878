/* An engine's life: its thread, which takes requests from the queue to slots and runs steps as long as there
 * are any. */
#include "engine/schedule.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>

enum { DEFAULT_BATCH = 512, DEFAULT_SLOTS = 4, DEFAULT_QUEUE = 1024, DRAFT_ROOM = GUESS_MAX };
enum { DEFAULT_SWA_CACHE = 4096 };

/* ---- the thread ---- */

static bool any_running(const struct grappa_engine *e)
{
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (e->slots[i].r)
            return true;
    }
    return false;
}

/* False: it shall stop. */
static bool wait_for_work(struct grappa_engine *e)
{
    bool idle = !any_running(e);
    pthread_mutex_lock(&e->lock);
    while (idle && !e->stopping && !e->waiting && !e->commands)
        pthread_cond_wait(&e->work, &e->lock);
    bool go_on = !e->stopping;
    pthread_mutex_unlock(&e->lock);
    return go_on;
}

/* Why a request must end now, whether it runs or waits. */
static enum grappa_finish overdue(struct grappa_request *r, double now)
{
    if (atomic_load(&r->cancel))
        return GRAPPA_FINISH_CANCEL;
    return r->deadline > 0 && now > r->deadline ? GRAPPA_FINISH_DEADLINE : GRAPPA_FINISH_NONE;
}

/* Takes a request that must end out of the queue. */
static struct grappa_request *take_overdue(struct grappa_engine *e, double now, enum grappa_finish *finish)
{
    struct grappa_request *r = NULL;
    pthread_mutex_lock(&e->lock);
    for (struct grappa_request **at = &e->waiting; *at; at = &(*at)->next) {
        *finish = overdue(*at, now);
        if (*finish == GRAPPA_FINISH_NONE)
            continue;
        r = *at;
        *at = r->next;
        e->n_waiting--;
        break;
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

static void end_waiting(struct grappa_engine *e, struct grappa_request *r, enum grappa_finish finish)
{
    e->stats.n_done++;
    e->stats.n_cancelled += finish == GRAPPA_FINISH_CANCEL;
    slots_publish(e);
    request_end(r, -1, finish, NULL, NULL);
}

static void end_overdue(struct grappa_engine *e)
{
    double now = engine_seconds();
    enum grappa_finish finish;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        finish = s->r ? overdue(s->r, now) : GRAPPA_FINISH_NONE;
        if (finish != GRAPPA_FINISH_NONE)
            step_end(e, s, finish, NULL, NULL);
    }
    for (struct grappa_request *r; (r = take_overdue(e, now, &finish));)
        end_waiting(e, r, finish);
}

/* The first of the queue that a slot can be had for. One that has to wait for memory holds up those behind
 * it, or it might wait for ever; one that wants a busy slot doesn't. */
static struct grappa_request *take_next(struct grappa_engine *e, struct slot **slot)
{
    struct grappa_request *r = NULL;
    pthread_mutex_lock(&e->lock);
    for (struct grappa_request **at = &e->waiting; *at; at = &(*at)->next) {
        *slot = slots_choose(e, *at);
        if (!*slot && (*at)->p.slot < 0)
            break;
        if (!*slot)
            continue;
        if (!slots_room_for(e, *at))
            break;
        r = *at;
        *at = r->next;
        e->n_waiting--;
        break;
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

static void admit(struct grappa_engine *e)
{
    struct slot *s;
    for (struct grappa_request *r; (r = take_next(e, &s));) {
        slots_start(e, s, r);
        if (r->n_tokens == 0) /* nothing to go on from */
            step_end(e, s, GRAPPA_FINISH_LENGTH, NULL, NULL);
        else if (s->n_past == s->n_tokens)
            step_resume(e, s);
    }
}

static void end_all(struct grappa_engine *e)
{
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (e->slots[i].r)
            step_end(e, &e->slots[i], GRAPPA_FINISH_SHUTDOWN, NULL, NULL);
    }
    pthread_mutex_lock(&e->lock);
    while (e->waiting) {
        struct grappa_request *r = e->waiting;
        e->waiting = r->next;
        e->n_waiting--;
        pthread_mutex_unlock(&e->lock);
        end_waiting(e, r, GRAPPA_FINISH_SHUTDOWN);
        pthread_mutex_lock(&e->lock);
    }
    for (struct command *c; (c = e->commands);) {
        e->commands = c->next;
        commands_refuse(c);
    }
    pthread_cond_broadcast(&e->answered);
    pthread_mutex_unlock(&e->lock);
}

static double infer_seconds(const struct grappa_engine *e)
{
    return e->ctx->infer_s + (e->speculate.draft.ctx ? e->speculate.draft.ctx->infer_s : 0);
}

static void *work(void *arg)
{
    struct grappa_engine *e = arg;
    while (wait_for_work(e)) {
        double start = engine_seconds(), inside = infer_seconds(e);
        end_overdue(e);
        slots_run_commands(e);
        admit(e);
        step_run(e);
        e->stats.infer_s = infer_seconds(e);
        e->stats.host_s += engine_seconds() - start - (e->stats.infer_s - inside);
        slots_publish(e);
    }
    end_all(e);
    return NULL;
}

/* ---- making one ---- */

static uint32_t pad(uint32_t n)
{
    return n > UINT32_MAX - CONTEXT_PAD ? n : (n + CONTEXT_PAD - 1) / CONTEXT_PAD * CONTEXT_PAD;
}

static void fill_defaults(struct grappa_engine_params *p)
{
    p->n_batch = p->n_batch ? p->n_batch : DEFAULT_BATCH;
    p->n_slots = p->n_slots ? p->n_slots : DEFAULT_SLOTS;
    p->n_queue = p->n_queue ? p->n_queue : DEFAULT_QUEUE;
    p->swa_cache = p->swa_cache ? p->swa_cache : DEFAULT_SWA_CACHE;
    if (p->n_batch < p->n_slots)
        p->n_batch = p->n_slots;
    if (p->kv_split && p->n_ctx)
        p->n_ctx = pad(p->n_ctx / p->n_slots) * p->n_slots;
}

static void choose_slot_size(struct grappa_engine *e)
{
    uint32_t all = grappa_n_ctx(e->ctx), trained = grappa_model_n_ctx_train(e->m);
    e->n_ctx_slot = e->params.kv_split ? all / e->params.n_slots : all;
    if (trained && e->n_ctx_slot > trained && !e->params.past_trained)
        e->n_ctx_slot = trained;
}

static void make_slots(struct grappa_engine *e)
{
    size_t n = e->params.n_slots, blocks = (size_t)e->ctx->kv.n_blocks;
    e->n_slots = (int32_t)n;
    e->slots = xcalloc(n, sizeof *e->slots);
    e->line = xcalloc(n, sizeof *e->line); /* NOLINT(bugprone-sizeof-expression): of pointers */
    e->shown_slots = xcalloc(n, sizeof *e->shown_slots);
    for (size_t i = 0; i < n; i++) {
        e->slots[i].id = (int32_t)i;
        e->slots[i].tokens = xcalloc((size_t)e->n_ctx_slot + DRAFT_ROOM, sizeof(grappa_token));
    }
    e->blocks = xcalloc(blocks, sizeof *e->blocks);
    e->mark = xcalloc(blocks, sizeof *e->mark);
    struct step *t = &e->step;
    t->room = (int32_t)grappa_n_batch(e->ctx);
    t->token = xcalloc((size_t)t->room, sizeof *t->token);
    t->seq = xcalloc((size_t)t->room, sizeof *t->seq);
    t->logits = xcalloc((size_t)t->room, sizeof *t->logits);
    t->parts = xcalloc(n, sizeof *t->parts); /* NOLINT(bugprone-sizeof-expression): of pointers */
}

struct grappa_engine *grappa_engine_new(struct grappa_model *m, const struct grappa_engine_params *params,
                                        struct grappa_err *err)
{
    struct grappa_engine *e = xcalloc(1, sizeof *e);
    e->m = m;
    e->vocab = grappa_model_vocab(m);
    e->params = params ? *params : (struct grappa_engine_params){0};
    fill_defaults(&e->params);
    if (e->params.embeddings != m->arch->embeddings) {
        struct err none = ERR_INIT;
        err_set(&none, ERR_RANGE, "the model was loaded for %s",
                m->arch->embeddings ? "embeddings only" : "text, not for embeddings");
        engine_fail(err, &none);
        free(e);
        return NULL;
    }
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->answered, NULL);
    uint32_t copies = e->params.no_prefix_cache ? 0 : recall_copies(m, e->params.n_slots);
    bool caches = engine_caches(e);
    e->ctx = context_new(m,
                         &(struct grappa_context_params){.n_ctx = e->params.n_ctx,
                                                         .n_batch = e->params.n_batch,
                                                         .n_seq_max = e->params.n_slots + copies,
                                                         .kv_memory = e->params.kv_memory,
                                                         .swa_full = e->params.swa_full},
                         &(struct context_extras){.n_copies = copies,
                                                  .forgets = caches || copies > 0 || e->params.embeddings,
                                                  .n_windows = caches ? e->params.swa_cache : 0},
                         err);
    if (!e->ctx) {
        grappa_engine_free(e);
        return NULL;
    }
    choose_slot_size(e);
    make_slots(e);
    slots_init(e);
    prefix_init(&e->prefix, &e->ctx->kv, &e->ctx->swa);
    prepare_init(&e->prepare, e->n_slots);
    recall_init(&e->recall, e->n_slots, (int32_t)copies);
    if (speculate_init(e, err) < 0) {
        grappa_engine_free(e);
        return NULL;
    }
    slots_publish(e);
    e->running = pthread_create(&e->thread, NULL, work, e) == 0;
    if (!e->running) {
        struct err none = ERR_INIT;
        err_set(&none, ERR_MEMORY, "no thread for the engine");
        engine_fail(err, &none);
        grappa_engine_free(e);
        return NULL;
    }
    log_info("%d slots of %u positions, %d blocks of %d tokens, %d for sliding windows", e->n_slots,
             e->n_ctx_slot, e->ctx->kv.n_blocks, e->ctx->kv.block_size, e->ctx->swa.n_blocks);
    return e;
}

void grappa_engine_free(struct grappa_engine *e)
{
    if (!e)
        return;
    if (e->running) {
        pthread_mutex_lock(&e->lock);
        e->stopping = true;
        pthread_cond_signal(&e->work);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    for (int32_t i = 0; i < e->n_slots; i++)
        free(e->slots[i].tokens);
    void *all[] = {e->slots,      e->line,     e->shown_slots, e->blocks,    e->mark,
                   e->step.token, e->step.seq, e->step.logits, e->step.parts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    prefix_release(&e->prefix);
    recall_release(&e->recall);
    prepare_release(&e->prepare);
    speculate_release(e);
    grappa_context_free(e->ctx);
    pthread_cond_destroy(&e->answered);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

uint32_t grappa_engine_n_slots(const struct grappa_engine *e)
{
    return (uint32_t)e->n_slots;
}

uint32_t grappa_engine_n_ctx_slot(const struct grappa_engine *e)
{
    return e->n_ctx_slot;
}

struct grappa_model *grappa_engine_model(const struct grappa_engine *e)
{
    return e->m;
}

const char *grappa_engine_profile(struct grappa_engine *e)
{
    return grappa_profile(e->ctx);
}
