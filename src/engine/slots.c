/* Slots: which one a request gets, what of its prompt is in memory already, room in the pool, and what others
 * may see and do. */
#include "engine/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { SHARE_MIN = 32 }; /* tokens worth waiting for while another slot computes them */

static int32_t common(const grappa_token *a, int32_t na, const grappa_token *b, int32_t nb)
{
    int32_t n = na < nb ? na : nb, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* ---- choosing ---- */

/* The one whose sequence has most in common with the prompt, if that is worth it, or the one that is idle
 * longest. */
struct slot *slots_choose(struct grappa_engine *e, const struct grappa_request *r)
{
    struct slot *best = NULL, *idle = NULL;
    int32_t most = 0;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (s->r || (r->p.slot >= 0 && r->p.slot != i) || slots_claimed(e, i))
            continue;
        int32_t n = common(s->tokens, s->n_past, r->tokens, r->n_tokens);
        if (n > most && n >= r->n_tokens / 10) {
            most = n;
            best = s;
        }
        if (!idle || s->started < idle->started)
            idle = s;
    }
    return best ? best : idle;
}

/* ---- starting: what is in memory already ---- */

void slots_trim(struct grappa_engine *e, struct slot *s, int32_t n)
{
    n = grappa_seq_trim_point(e->ctx, s->id, n);
    grappa_seq_trim(e->ctx, s->id, n, NULL);
    s->n_past = n;
    int32_t full = n / e->ctx->kv.block_size;
    s->n_registered = s->n_registered < full ? s->n_registered : full;
}

/* The slot's sequence becomes the first n tokens of another's. */
static void copy_from(struct grappa_engine *e, struct slot *s, const struct slot *from, int32_t n)
{
    grappa_seq_copy(e->ctx, from->id, s->id, NULL);
    mtp_copied(e, from->id, s->id);
    s->n_registered = from->n_registered;
    slots_trim(e, s, n);
}

/* How much of the slot's tokens another slot's sequence holds, as far as it can be cut to. */
static int32_t held_by(struct grappa_engine *e, const struct slot *s, const struct slot *o, int32_t most)
{
    int32_t n = common(o->tokens, o->n_past, s->tokens, most);
    return grappa_seq_trim_point(e->ctx, o->id, n);
}

static void copy_state(struct grappa_engine *e, struct slot *s, const struct recalled *c)
{
    grappa_seq_copy(e->ctx, c->seq, s->id, NULL);
    mtp_copied(e, c->seq, s->id);
    s->n_past = c->n;
}

static void adopt(struct grappa_engine *e, struct slot *s, int32_t n_blocks)
{
    grappa_seq_trim(e->ctx, s->id, 0, NULL);
    prefix_adopt(&e->prefix, s->id, e->blocks, n_blocks);
    s->n_registered = n_blocks;
    s->n_past = n_blocks * e->ctx->kv.block_size;
}

/* A request for a certain slot gets what that slot holds and nothing else: who asks for one manages slots by
 * himself, saves and restores them, and counts on it. */
static bool shares(const struct grappa_engine *e, const struct grappa_request *r)
{
    return !e->params.no_prefix_cache && r->p.slot < 0;
}

/* How many tokens of a prompt may come out of memory: all of it only if the logits of its end are there too.
 */
static int32_t most_of(struct grappa_engine *e, const struct slot *s)
{
    if (s->n_tokens == 0)
        return 0;
    return recall_logits(e, s->tokens, s->n_tokens) ? s->n_tokens : s->n_tokens - 1;
}

/* A prompt that isn't in memory as a whole: its last rows are computed together, see step_run. */
static void cut_end(struct grappa_engine *e, struct slot *s)
{
    int32_t most = s->n_tokens > STEP_LAST_ROWS ? s->n_tokens - STEP_LAST_ROWS : 0;
    if (s->n_past < s->n_tokens && s->n_past > most && grappa_seq_trim_point(e->ctx, s->id, most) == most)
        slots_trim(e, s, most);
}

/* Begins with what any sequence or the cache holds of the slot's first tokens, of which its own sequence has
 * `held`. */
static void reuse(struct grappa_engine *e, struct slot *s, int32_t held)
{
    struct slot *from = NULL;
    int32_t most = most_of(e, s);
    held = held < most ? held : most;
    int32_t best = grappa_seq_trim_point(e->ctx, s->id, held);
    for (int32_t i = 0; i < e->n_slots && shares(e, s->r); i++) {
        struct slot *o = &e->slots[i];
        int32_t n = o == s ? 0 : held_by(e, s, o, most);
        if (n > best) {
            best = n;
            from = o;
        }
    }
    int32_t blocks = 0, size = e->ctx->kv.block_size;
    if (shares(e, s->r) && e->ctx->states.n_tables == 0)
        blocks = prefix_match(&e->prefix, s->tokens, most, e->blocks, true);
    struct recalled *copy = shares(e, s->r) ? recall_state(e, s->tokens, most) : NULL;
    if (blocks * size > best)
        adopt(e, s, blocks);
    else if (copy && copy->n > best)
        copy_state(e, s, copy);
    else if (from)
        copy_from(e, s, from, best);
    else
        slots_trim(e, s, best);
    cut_end(e, s);
}

/* Another slot that is about to compute more of this one's beginning than is in memory. */
static void find_leader(struct grappa_engine *e, struct slot *s)
{
    int32_t best = s->n_past + SHARE_MIN - 1;
    s->leader = NULL;
    for (int32_t i = 0; i < e->n_slots && shares(e, s->r); i++) {
        struct slot *o = &e->slots[i];
        if (o == s || !o->r || o->writing || o->started > s->started)
            continue;
        int32_t n = common(o->tokens, o->n_tokens, s->tokens, s->n_tokens);
        if (e->ctx->states.n_tables > 0 && n < o->n_tokens) { /* states are kept where a piece will end */
            int32_t stop = o->n_past + recall_piece(e, o);
            n = n >= stop && stop < o->n_tokens ? stop : 0;
        }
        if (n > best) {
            best = n;
            s->leader = o;
            s->leader_started = o->started;
            s->n_follow = n;
        }
    }
}

void slots_register(struct grappa_engine *e, struct slot *s, bool end)
{
    if (engine_caches(e))
        s->n_registered = prefix_add(&e->prefix, s->id, s->tokens, s->n_registered, end);
}

void slots_start(struct grappa_engine *e, struct slot *s, struct grappa_request *r)
{
    int32_t held = common(s->tokens, s->n_past, r->tokens, r->n_tokens);
    s->r = r;
    s->request = r->number;
    s->started = ++e->n_started;
    s->writing = false;
    if (r->n_tokens)
        memcpy(s->tokens, r->tokens, (size_t)r->n_tokens * sizeof *s->tokens);
    s->n_tokens = r->n_tokens;
    s->leader = NULL;
    if (r->p.no_cache_prompt || r->p.embeddings) {
        slots_trim(e, s, 0);
    } else {
        reuse(e, s, held);
        find_leader(e, s);
    }
    /* The last token counts as computed, as clients are used to; its logits were kept. */
    int32_t cached = s->n_past == s->n_tokens && s->n_past > 0 ? s->n_past - 1 : s->n_past;
    if (r->started_at == 0) {
        r->started_at = engine_seconds();
        r->timings.queue_s = r->started_at - r->queued_at;
        r->timings.n_cached = cached;
        if (!s->leader) /* where it begins; one who waits for another says so later */
            output_progress(r, s->id, cached);
    }
    e->stats.cached_tokens += (uint64_t)cached;
}

void slots_follow(struct grappa_engine *e, struct slot *s)
{
    struct slot *o = s->leader;
    bool same = o->r && o->started == s->leader_started;
    if (same && !o->writing && o->n_past < s->n_follow)
        return;
    int32_t before = s->n_past;
    s->leader = NULL;
    reuse(e, s, s->n_past);
    if (!same)
        find_leader(e, s);
    int32_t cached = s->n_past - before - (s->n_past == s->n_tokens);
    s->r->timings.n_cached += cached;
    e->stats.cached_tokens += (uint64_t)cached;
    if (!s->leader)
        output_progress(s->r, s->id, s->r->timings.n_cached);
}

/* ---- room in the pool ---- */

static void mark_blocks(struct grappa_engine *e, const int32_t *blocks, int32_t n, int32_t *marked)
{
    for (int32_t i = 0; i < n; i++) {
        *marked += e->mark[blocks[i]] == 0;
        e->mark[blocks[i]] = 1;
    }
}

bool slots_room_for(struct grappa_engine *e, const struct grappa_request *r)
{
    const struct kv *kv = &e->ctx->kv;
    int32_t marked = 0, running = 0, matched = 0, to_come = 0;
    memset(e->mark, 0, (size_t)kv->n_blocks);
    for (int32_t i = 0; i < e->n_slots; i++) {
        const struct slot *s = &e->slots[i];
        if (!s->r)
            continue;
        running++;
        mark_blocks(e, kv->seqs[i].blocks, kv->seqs[i].n_blocks, &marked);
        int32_t all = (s->n_tokens + kv->block_size) / kv->block_size - kv->seqs[i].n_blocks;
        to_come += all > 0 && !s->leader ? all : 0;
    }
    if (running == 0)
        return true;
    if (shares(e, r) && e->ctx->states.n_tables == 0 && !r->p.no_cache_prompt) {
        matched = prefix_match(&e->prefix, r->tokens, r->n_tokens, e->blocks, false);
        mark_blocks(e, e->blocks, matched, &marked);
    }
    int32_t need = r->n_tokens / kv->block_size + 2 - matched;
    return need + to_come <= kv->n_blocks - marked;
}

/* The sequence of the slot that is idle longest goes; what the cache of beginnings has of it stays there. */
static bool drop_idle(struct grappa_engine *e)
{
    struct slot *oldest = NULL;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (!s->r && s->n_past > 0 && (!oldest || s->started < oldest->started))
            oldest = s;
    }
    if (oldest)
        slots_trim(e, oldest, 0);
    return oldest != NULL;
}

bool slots_make_room(struct grappa_engine *e, int32_t n, bool idle)
{
    while (e->ctx->kv.n_free < n) {
        if (!prefix_evict(&e->prefix) && !recall_evict(e) && !(idle && drop_idle(e)))
            return false;
    }
    return true;
}

/* Sequences have room of their own there, so giving up cached ones is always enough. */
static bool make_room_swa(struct grappa_engine *e, int32_t n)
{
    while (e->ctx->swa.n_free < n) {
        if (!prefix_evict_swa(&e->prefix))
            return false;
    }
    return true;
}

static bool make_room(void *user, int32_t n_blocks, int32_t n_swa)
{
    return slots_make_room(user, n_blocks, false) && make_room_swa(user, n_swa);
}

void slots_init(struct grappa_engine *e)
{
    e->ctx->make_room = make_room;
    e->ctx->make_room_user = e;
}

/* ---- what others see ---- */

static int32_t held_by_slots(struct grappa_engine *e, const struct kv *kv)
{
    int32_t n = 0;
    memset(e->mark, 0, (size_t)kv->n_blocks);
    for (int32_t i = 0; i < e->n_slots && kv->n_seqs > 0; i++) {
        const struct kv_seq *s = &kv->seqs[i];
        mark_blocks(e, s->blocks + s->first, s->n_blocks - s->first, &n);
    }
    return n;
}

static void describe(const struct grappa_engine *e, const struct slot *s, struct grappa_slot *out)
{
    const struct grappa_timings *t = s->r ? &s->r->timings : &s->last;
    *out = (struct grappa_slot){
        .id = s->id,
        .busy = s->r != NULL,
        .speculative = s->r && s->r->p.n_draft > 0,
        .request = s->request,
        .n_ctx = (int32_t)e->n_ctx_slot,
        .n_prompt = t->n_prompt,
        .n_predicted = t->n_predicted,
        .n_remaining = s->r && s->r->p.n_predict >= 0 ? s->r->p.n_predict - t->n_predicted : -1,
        .n_cached = t->n_cached,
        .n_computed = t->n_computed,
        .n_held = s->n_past,
    };
}

void slots_publish(struct grappa_engine *e)
{
    struct grappa_engine_stats *t = &e->stats;
    t->n_running = 0;
    for (int32_t i = 0; i < e->n_slots; i++)
        t->n_running += e->slots[i].r != NULL;
    t->n_blocks = e->ctx->kv.n_blocks;
    t->n_blocks_used = e->ctx->kv.n_blocks - e->ctx->kv.n_free;
    t->n_blocks_cached = t->n_blocks_used - held_by_slots(e, &e->ctx->kv);
    t->n_swa_blocks = e->ctx->swa.n_blocks;
    t->n_swa_blocks_used = e->ctx->swa.n_blocks - e->ctx->swa.n_free;
    t->n_swa_blocks_cached = t->n_swa_blocks_used - held_by_slots(e, &e->ctx->swa);
    pthread_mutex_lock(&e->lock);
    t->n_requests = e->n_requests;
    t->n_waiting = (int32_t)e->n_waiting;
    e->shown = *t;
    for (int32_t i = 0; i < e->n_slots; i++)
        describe(e, &e->slots[i], &e->shown_slots[i]);
    pthread_mutex_unlock(&e->lock);
}

void grappa_engine_stats(struct grappa_engine *e, struct grappa_engine_stats *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->shown;
    out->n_requests = e->n_requests;
    out->n_waiting = (int32_t)e->n_waiting;
    pthread_mutex_unlock(&e->lock);
}

int grappa_engine_slots(struct grappa_engine *e, struct grappa_slot *out, int max)
{
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < max && i < e->n_slots; i++)
        out[i] = e->shown_slots[i];
    pthread_mutex_unlock(&e->lock);
    return e->n_slots;
}

/* ---- commands ---- */

bool slots_claimed(const struct grappa_engine *e, int32_t slot)
{
    for (const struct command *c = e->commands; c; c = c->next) {
        if (c->slot == slot)
            return true;
    }
    return false;
}

static int64_t erase(struct grappa_engine *e, struct slot *s)
{
    int64_t held = s->n_past;
    const struct kv_seq *q = &e->ctx->kv.seqs[s->id];
    int32_t n = q->n_tokens / e->ctx->kv.block_size;
    memcpy(e->blocks, q->blocks, (size_t)n * sizeof *e->blocks);
    slots_trim(e, s, 0);
    recall_forget(e, s->tokens, (int32_t)held);
    prefix_forget(&e->prefix, e->blocks, n);
    return held;
}

/* The slot's own sequence stays where it is until the file is known to be good. */
static int64_t restore(struct grappa_engine *e, struct slot *s, struct command *c)
{
    grappa_token *tokens = malloc(e->n_ctx_slot * sizeof *tokens);
    int64_t n =
        tokens ? grappa_seq_restore(e->ctx, s->id, c->path, tokens, e->n_ctx_slot, &c->bytes, &c->err) : -1;
    if (n >= 0) {
        memcpy(s->tokens, tokens, (size_t)n * sizeof *tokens);
        s->n_tokens = (int32_t)n;
    }
    s->n_past = grappa_seq_len(e->ctx, s->id);
    s->n_registered = n >= 0 ? 0 : s->n_registered;
    slots_register(e, s, true);
    free(tokens);
    return n;
}

static void run_command(struct grappa_engine *e, struct command *c)
{
    struct slot *s = &e->slots[c->slot];
    switch (c->type) {
    case COMMAND_ERASE:
        c->result = erase(e, s);
        return;
    case COMMAND_SAVE:
        c->result = grappa_seq_save(e->ctx, s->id, s->tokens, c->path, &c->bytes, &c->err);
        return;
    case COMMAND_RESTORE:
        c->result = restore(e, s, c);
        return;
    }
}

void slots_run_commands(struct grappa_engine *e)
{
    pthread_mutex_lock(&e->lock);
    for (struct command **at = &e->commands, *c; (c = *at);) {
        if (e->slots[c->slot].r) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        pthread_mutex_unlock(&e->lock);
        run_command(e, c);
        slots_publish(e);
        pthread_mutex_lock(&e->lock);
        c->done = true;
        pthread_cond_broadcast(&e->answered);
        at = &e->commands;
    }
    pthread_mutex_unlock(&e->lock);
}

void commands_refuse(struct command *c)
{
    struct err none = ERR_INIT;
    err_set(&none, ERR_CANCELLED, "the engine is shutting down");
    c->result = engine_fail(&c->err, &none);
    c->done = true;
}

static int64_t ask(struct grappa_engine *e, struct command *c, uint64_t *bytes, struct grappa_err *err)
{
    if (c->slot < 0 || c->slot >= e->n_slots) {
        struct err none = ERR_INIT;
        err_set(&none, ERR_RANGE, "slot %d is out of range: there are %d", c->slot, e->n_slots);
        return engine_fail(err, &none);
    }
    pthread_mutex_lock(&e->lock);
    if (e->stopping) {
        commands_refuse(c);
    } else {
        struct command **at = &e->commands;
        while (*at)
            at = &(*at)->next;
        *at = c;
        pthread_cond_signal(&e->work);
    }
    while (!c->done)
        pthread_cond_wait(&e->answered, &e->lock);
    pthread_mutex_unlock(&e->lock);
    if (bytes)
        *bytes = c->bytes;
    if (err)
        *err = c->err;
    return c->result;
}

int64_t grappa_engine_slot_save(struct grappa_engine *e, int32_t slot, const char *path, uint64_t *bytes,
                                struct grappa_err *err)
{
    return ask(e, &(struct command){.type = COMMAND_SAVE, .slot = slot, .path = path}, bytes, err);
}

int64_t grappa_engine_slot_restore(struct grappa_engine *e, int32_t slot, const char *path, uint64_t *bytes,
                                   struct grappa_err *err)
{
    return ask(e, &(struct command){.type = COMMAND_RESTORE, .slot = slot, .path = path}, bytes, err);
}

int64_t grappa_engine_slot_erase(struct grappa_engine *e, int32_t slot, struct grappa_err *err)
{
    return ask(e, &(struct command){.type = COMMAND_ERASE, .slot = slot}, NULL, err);
}
