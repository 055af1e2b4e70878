/* Copies of states and rows of logits: two small tables, searched one by one. */
#include "engine/recall.h"

#include "base/mem.h"
#include "engine/schedule.h"

#include <stdlib.h>
#include <string.h>

enum {
    COPIES_MAX = 64,
    COPIES_MEMORY = 16,          /* a part of so many of what is free */
    COPY_MIN = 64,               /* tokens that are worth a copy */
    LAST_PIECE = STEP_LAST_ROWS, /* tokens of a prompt behind its last copy: what a next turn may change */
};

uint32_t recall_copies(const struct grappa_model *m, uint32_t n_slots)
{
    uint64_t bytes = context_state_bytes(m);
    if (bytes == 0)
        return 0;
    uint64_t n = engine_memory_available() / COPIES_MEMORY / bytes;
    n = n > n_slots ? n : n_slots;
    return n < COPIES_MAX ? (uint32_t)n : COPIES_MAX;
}

void recall_init(struct recall *r, int32_t n_slots, int32_t n_copies)
{
    *r = (struct recall){.n_states = n_copies};
    r->states = xcalloc((size_t)n_copies + 1, sizeof *r->states);
    for (int32_t i = 0; i < n_copies; i++)
        r->states[i].seq = n_slots + i;
}

void recall_release(struct recall *r)
{
    for (int32_t i = 0; i < r->n_states; i++)
        free(r->states[i].tokens);
    for (int i = 0; i < RECALL_LOGITS; i++) {
        free(r->logits[i].tokens);
        free(r->logits[i].logits);
    }
    free(r->states);
    *r = (struct recall){0};
}

static bool begins(const struct recalled *c, const grappa_token *tokens, int32_t n)
{
    return c->n > 0 && c->n <= n && memcmp(c->tokens, tokens, (size_t)c->n * sizeof *tokens) == 0;
}

static struct recalled *find(struct recalled *all, int32_t n_all, const grappa_token *tokens, int32_t n)
{
    for (int32_t i = 0; i < n_all; i++) {
        if (all[i].n == n && begins(&all[i], tokens, n))
            return &all[i];
    }
    return NULL;
}

/* A free one, or the one that was used least recently. */
static struct recalled *oldest(struct recalled *all, int32_t n_all)
{
    struct recalled *best = NULL;
    for (int32_t i = 0; i < n_all; i++) {
        if (!best || all[i].used < best->used)
            best = &all[i];
    }
    return best;
}

static void set_tokens(struct recalled *c, const grappa_token *tokens, int32_t n)
{
    free(c->tokens);
    c->tokens = xcalloc((size_t)n, sizeof *c->tokens);
    memcpy(c->tokens, tokens, (size_t)n * sizeof *c->tokens);
    c->n = n;
}

/* ---- states ---- */

static int32_t last_stop(const struct slot *s)
{
    int32_t stop = s->n_tokens - LAST_PIECE;
    return stop >= COPY_MIN ? stop : s->n_tokens;
}

int32_t recall_piece(const struct grappa_engine *e, const struct slot *s)
{
    int32_t stop = last_stop(s), lasting = s->r->p.n_lasting;
    if (lasting > s->n_past && lasting < s->n_tokens)
        return lasting - s->n_past;
    if (e->recall.n_states == 0 || s->n_past >= stop)
        return s->n_tokens - s->n_past;
    return stop - s->n_past;
}

void recall_piece_done(struct grappa_engine *e, const struct slot *s)
{
    struct recall *r = &e->recall;
    if (r->n_states == 0 || s->n_past < COPY_MIN || s->n_past > last_stop(s))
        return;
    struct recalled *c = find(r->states, r->n_states, s->tokens, s->n_past);
    if (!c) {
        c = oldest(r->states, r->n_states);
        grappa_seq_copy(e->ctx, s->id, c->seq, NULL);
        mtp_copied(e, s->id, c->seq);
        states_only_now(&e->ctx->states, c->seq);
        set_tokens(c, s->tokens, s->n_past);
    }
    c->used = ++r->clock;
}

struct recalled *recall_state(struct grappa_engine *e, const grappa_token *tokens, int32_t most)
{
    struct recall *r = &e->recall;
    struct recalled *best = NULL;
    for (int32_t i = 0; i < r->n_states; i++) {
        struct recalled *c = &r->states[i];
        if ((!best || c->n > best->n) && begins(c, tokens, most))
            best = c;
    }
    if (best)
        best->used = ++r->clock;
    return best;
}

static void drop(struct grappa_engine *e, struct recalled *c)
{
    grappa_seq_trim(e->ctx, c->seq, 0, NULL);
    c->n = 0;
    c->used = 0;
}

bool recall_evict(struct grappa_engine *e)
{
    struct recalled *c = NULL;
    for (int32_t i = 0; i < e->recall.n_states; i++) {
        struct recalled *o = &e->recall.states[i];
        if (o->n > 0 && (!c || o->used < c->used))
            c = o;
    }
    if (c)
        drop(e, c);
    return c != NULL;
}

void recall_forget(struct grappa_engine *e, const grappa_token *tokens, int32_t n)
{
    for (int32_t i = 0; i < e->recall.n_states; i++) {
        if (begins(&e->recall.states[i], tokens, n))
            drop(e, &e->recall.states[i]);
    }
}

/* ---- logits ---- */

void recall_end(struct grappa_engine *e, const struct slot *s, const float *logits)
{
    size_t bytes = (size_t)e->m->arch->h.n_vocab * sizeof *logits;
    struct recalled *c = find(e->recall.logits, RECALL_LOGITS, s->tokens, s->n_tokens);
    if (!c) {
        c = oldest(e->recall.logits, RECALL_LOGITS);
        c->logits = c->logits ? c->logits : malloc(bytes);
        if (!c->logits)
            return;
        set_tokens(c, s->tokens, s->n_tokens);
        memcpy(c->logits, logits, bytes);
    }
    c->used = ++e->recall.clock;
}

const float *recall_logits(struct grappa_engine *e, const grappa_token *tokens, int32_t n)
{
    struct recalled *c = find(e->recall.logits, RECALL_LOGITS, tokens, n);
    if (!c)
        return NULL;
    c->used = ++e->recall.clock;
    return c->logits;
}
