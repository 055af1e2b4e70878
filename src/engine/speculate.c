/* Who guesses for which slot, how many guesses are taken, and what is learnt from how they went. */
#include "engine/speculate.h"

#include "base/mem.h"
#include "engine/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { KIND_DRAFT = GUESS_KINDS - 1, PAUSE_MIN = 8, PAUSE_MAX = 256, DRAFT_BELIEF = 3 };

/* How often guesses of a kind are right, before any were made; one that was right or wrong counts so much. */
static const float right_before[GUESS_KINDS] = {0.4f, 0.6f, 0.8f, 0.9f, 0.7f};
static const float rate = 1.0f / 16;
/* Where there is no memory for recurrent layers' states within a step, a wrong guess costs all of it: what
 * was right is computed again. */
static const float sure = 0.75f;

static int32_t kind_of(int32_t match)
{
    return match < 5 ? 0 : match < 9 ? 1 : match < 17 ? 2 : 3;
}

int speculate_init(struct grappa_engine *e, struct grappa_err *err)
{
    struct speculate *p = &e->speculate;
    p->offers = xcalloc((size_t)e->n_slots, sizeof *p->offers);
    p->lookups = xcalloc((size_t)e->n_slots, sizeof *p->lookups);
    p->guessed = xcalloc((size_t)e->n_slots, sizeof *p->guessed);
    p->draft_right = right_before[KIND_DRAFT];
    return e->params.draft || e->m->nextn ? draft_init(&p->draft, e, err) : 0;
}

void speculate_release(struct grappa_engine *e)
{
    struct speculate *p = &e->speculate;
    for (int32_t i = 0; p->lookups && i < e->n_slots; i++)
        lookup_release(&p->lookups[i]);
    free(p->lookups);
    free(p->guessed);
    free(p->offers);
    draft_release(&p->draft);
}

/* ---- learning ---- */

static void move(float *right, bool hit, float by)
{
    *right += by * ((hit ? 1.0f : 0.0f) - *right);
}

/* What a draft model is worth is soon known: the first guesses count more. */
static float draft_rate(struct speculate *p)
{
    float first = 1.0f / (float)(DRAFT_BELIEF + p->n_draft_right);
    return first > rate ? first : rate;
}

static void learn(struct speculate *p, struct guessed *g, const struct slot *s)
{
    for (int32_t i = 0; i < g->n && g->at + i < s->n_tokens; i++) {
        bool hit = s->tokens[g->at + i] == g->token[i], draft = g->kind == KIND_DRAFT;
        float by = draft ? draft_rate(p) : rate;
        move(&g->right[g->kind], hit, by);
        if (draft) {
            move(&p->draft_right, hit, by);
            p->n_draft_right += p->n_draft_right < 1 / rate;
        }
        if (!hit)
            break;
    }
    g->n = 0;
}

static void remember(struct guessed *g, const struct slot *s, int32_t kind, int32_t n)
{
    g->kind = kind;
    g->at = s->n_tokens;
    g->n = n;
    memcpy(g->token, s->tokens + s->n_tokens, (size_t)n * sizeof *g->token);
}

/* ---- guessing ---- */

/* Whether states can only be taken back as a whole step. */
static bool states_cost(const struct grappa_engine *e)
{
    return e->ctx->states.n_tables > 0 && e->ctx->states.n_within == 0;
}

/* How many guesses a slot may have at most. */
static int32_t most_for(const struct grappa_engine *e, const struct slot *s)
{
    const struct grappa_request *r = s->r;
    int32_t n = r->p.n_draft < GUESS_MAX - 1 ? r->p.n_draft : GUESS_MAX - 1;
    int32_t room = (int32_t)e->n_ctx_slot - s->n_tokens;
    int32_t left = r->p.n_predict < 0 ? n : r->p.n_predict - r->timings.n_predicted - 1;
    n = n < room ? n : room;
    n = n < left ? n : left;
    if (e->ctx->states.n_within > 0)
        n = n < e->ctx->states.n_within ? n : e->ctx->states.n_within;
    /* Where states can only be taken back as a whole step, after wrong guesses comes a step without. */
    return n > 0 && s->n_tokens - s->n_past == 1 ? n : 0;
}

static void begin_request(struct grappa_engine *e, struct slot *s, struct guessed *g)
{
    *g = (struct guessed){.started = s->started};
    memcpy(g->right, right_before, sizeof right_before);
    g->right[KIND_DRAFT] = e->speculate.draft_right;
    if (s->r->p.lookup)
        lookup_reset(&e->speculate.lookups[s->id], (int32_t)e->n_ctx_slot + 1);
}

/* From the text itself: puts all guesses there are behind it. */
static void offer_lookup(struct grappa_engine *e, struct slot *s, struct guessed *g, struct offer *o)
{
    int32_t match, from = lookup_find(&e->speculate.lookups[s->id], s->tokens, s->n_tokens, &match);
    if (from == 0)
        return;
    for (int32_t i = 0; i < o->most; i++) /* may run into what it has put there: the text goes round */
        s->tokens[s->n_tokens + i] = s->tokens[from + i];
    o->right = g->right[kind_of(match)];
    o->n = o->most;
    remember(g, s, kind_of(match), 1); /* to see whether it is right, also when it isn't tried */
}

static void offer_draft(struct guessed *g, struct offer *o)
{
    o->right = g->right[KIND_DRAFT];
    o->n = o->most;
    if (g->pause > 0) {
        g->pause--;
        o->n = o->most = 0;
    }
}

/* What the slot could have; n and most are 0 if nothing. */
static void make_offer(struct grappa_engine *e, struct slot *s, struct offer *o)
{
    struct guessed *g = &e->speculate.guessed[s->id];
    *o = (struct offer){0};
    s->n_draft = 0;
    if (s->r->p.n_draft <= 0)
        return;
    if (g->started != s->started)
        begin_request(e, s, g);
    learn(&e->speculate, g, s);
    o->most = most_for(e, s);
    if (o->most > 0 && s->r->p.lookup)
        offer_lookup(e, s, g, o);
    else if (o->most > 0 && e->speculate.draft.ctx)
        offer_draft(g, o);
    if (states_cost(e) && o->right < sure)
        o->n = 0;
    o->most = o->n;
}

/* A draft model that doesn't pay is asked again after a while, each time a longer one: for as many guesses as
 * it takes to see what one costs. */
static void pause_draft(struct guessed *g, struct offer *o, bool worth, int32_t n)
{
    if (worth) {
        g->paused = 0;
        return;
    }
    g->paused = g->paused ? (g->paused < PAUSE_MAX ? 2 * g->paused : PAUSE_MAX) : PAUSE_MIN;
    g->pause = g->paused;
    o->n = o->most < n ? o->most : n;
}

/* The slots that write into e->line, with what they could have. Returns how many. */
static int32_t gather(struct grappa_engine *e, int32_t *rows, bool *lookups, bool *drafts)
{
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (!s->r || !s->writing || s->leader)
            continue;
        struct offer *o = &e->speculate.offers[n];
        make_offer(e, s, o);
        *lookups |= o->most > 0 && s->r->p.lookup;
        *drafts |= o->most > 0 && !s->r->p.lookup;
        *rows += s->n_tokens - s->n_past;
        e->line[n++] = s;
    }
    return n;
}

void speculate_guess(struct grappa_engine *e)
{
    struct speculate *p = &e->speculate;
    bool lookups = false, drafts = false;
    int32_t rows = 0, n = gather(e, &rows, &lookups, &drafts);
    if (!lookups && !drafts)
        return;
    double each = drafts && p->cost.n[1] > 0 ? p->draft.seconds / p->cost.seconds[1] : 0;
    cost_choose(&p->cost, p->offers, n, rows, each);
    for (int32_t i = 0; i < n && drafts; i++) {
        struct offer *o = &p->offers[i];
        if (o->most > 0 && !e->line[i]->r->p.lookup)
            pause_draft(&p->guessed[e->line[i]->id], o, o->n > 0, p->draft.mtp ? 1 : 2);
    }
    if (drafts)
        draft_guess(e, e->line, p->offers, n);
    for (int32_t i = 0; i < n; i++) {
        struct slot *s = e->line[i];
        struct guessed *g = &p->guessed[s->id];
        s->n_draft = p->offers[i].n;
        if (s->n_draft > 0)
            remember(g, s, s->r->p.lookup ? g->kind : KIND_DRAFT, s->n_draft);
    }
}

void speculate_timed(struct grappa_engine *e, double seconds)
{
    for (int32_t i = 0; i < e->step.n_parts; i++) {
        if (!e->step.parts[i]->writing)
            return;
    }
    cost_add(&e->speculate.cost, e->step.n, seconds);
}
