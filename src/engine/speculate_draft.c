/* Guesses of a draft model: a smaller one with the same vocabulary, in a context of its own. Its sequences
 * follow the slots' texts; what they had of wrong guesses is cut off again. All slots that want guesses go
 * through it together. */
#include "engine/speculate.h"

#include "base/mem.h"
#include "engine/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_SLACK = 128, PIECE_MAX = 256 }; /* tokens that one vocabulary may have more: padding */

/* ---- making one ---- */

static int same_vocab(const struct grappa_vocab *a, const struct grappa_vocab *b, struct err *err)
{
    int32_t na = grappa_vocab_n_tokens(a), nb = grappa_vocab_n_tokens(b), n = na < nb ? na : nb;
    char x[PIECE_MAX], y[PIECE_MAX];
    if (abs(na - nb) > VOCAB_SLACK)
        return err_set(err, ERR_UNSUPPORTED,
                       "the draft model has %d tokens, the model %d: it can't guess for it", nb, na);
    for (grappa_token t = 0; t < n; t++) {
        size_t lx = grappa_token_piece(a, t, true, x, sizeof x),
               ly = grappa_token_piece(b, t, true, y, sizeof y);
        if (lx != ly || memcmp(x, y, lx < sizeof x ? lx : sizeof x) != 0)
            return err_set(err, ERR_UNSUPPORTED,
                           "token %d of the draft model isn't the model's: it can't guess for it", t);
    }
    return 0;
}

int draft_init(struct draft *d, const struct grappa_engine *e, struct grappa_err *err)
{
    struct grappa_model *m = e->params.draft;
    struct err none = ERR_INIT;
    if (m == e->m)
        err_set(&none, ERR_USAGE, "a model can't be its own draft model");
    else if (grappa_model_is_recurrent(m))
        err_set(&none, ERR_UNSUPPORTED, "a draft model with recurrent layers: they can't take guesses back");
    if (none.code || same_vocab(e->vocab, grappa_model_vocab(m), &none) < 0)
        return engine_fail(err, &none);
    struct grappa_context_params p = {
        .n_ctx = grappa_n_ctx(e->ctx), .n_batch = e->params.n_batch, .n_seq_max = e->params.n_slots};
    d->ctx = grappa_context_new(m, &p, err);
    if (!d->ctx)
        return -1;
    size_t n = (size_t)e->n_slots, room = grappa_n_batch(d->ctx);
    d->room = (int32_t)room;
    d->texts = xcalloc(n, sizeof *d->texts);
    d->token = xcalloc(room, sizeof *d->token);
    d->seq = xcalloc(room, sizeof *d->seq);
    d->logits = xcalloc(room, sizeof *d->logits);
    return 0;
}

void draft_release(struct draft *d)
{
    free(d->texts);
    free(d->token);
    free(d->seq);
    free(d->logits);
    grappa_context_free(d->ctx);
    *d = (struct draft){0};
}

/* ---- a batch ---- */

static void put(struct draft *d, int32_t seq, grappa_token t, bool wanted)
{
    d->token[d->n] = t;
    d->seq[d->n] = seq;
    d->logits[d->n++] = wanted;
}

/* Sequences that no request runs on give way. False: it failed all the same. */
static bool run(struct grappa_engine *e, struct draft *d)
{
    struct grappa_batch b = {.n = (size_t)d->n, .token = d->token, .seq_id = d->seq, .logits = d->logits};
    if (grappa_decode(d->ctx, &b, NULL) == 0)
        return true;
    bool any = false;
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (e->slots[i].r || d->texts[i].held == 0)
            continue;
        grappa_seq_trim(d->ctx, i, 0, NULL);
        d->texts[i].held = 0;
        any = true;
    }
    return any && grappa_decode(d->ctx, &b, NULL) == 0;
}

/* ---- following the texts ---- */

/* Cuts off what the sequence has that is not the slot's text. */
static void follow(struct draft *d, const struct slot *s)
{
    struct draft_text *x = &d->texts[s->id];
    if (x->started != s->started || x->from > s->n_tokens)
        *x = (struct draft_text){.started = s->started};
    int32_t right = x->from;
    while (right < x->held && right < s->n_tokens - 1 && s->tokens[right] == x->guess[right - x->from])
        right++;
    x->held = right < x->held ? right : x->held;
    x->held = x->held < s->n_tokens ? x->held : s->n_tokens - 1;
    x->held = grappa_seq_trim_point(d->ctx, s->id, x->held);
    grappa_seq_trim(d->ctx, s->id, x->held, NULL);
}

/* A batch has failed: what its sequences were to hold isn't there. */
static void lost(struct draft *d, struct slot **line, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        struct draft_text *x = &d->texts[line[i]->id];
        grappa_seq_trim(d->ctx, line[i]->id, 0, NULL);
        x->held = x->from = 0;
    }
}

/* What the sequences lack of the texts; those it isn't enough for have no guesses this time. */
static void catch_up(struct grappa_engine *e, struct slot **line, struct offer *offers, int32_t n)
{
    struct draft *d = &e->speculate.draft;
    d->n = 0;
    for (int32_t i = 0; i < n; i++) {
        struct slot *s = line[i];
        struct draft_text *x = &d->texts[s->id];
        if (offers[i].n == 0 || s->r->p.lookup)
            continue;
        follow(d, s);
        while (x->held < s->n_tokens && d->n < d->room) {
            put(d, s->id, s->tokens[x->held], x->held == s->n_tokens - 1);
            x->held++;
        }
        if (x->held < s->n_tokens)
            offers[i].n = 0;
        x->from = x->held;
    }
}

/* The most probable token, or NONE if it isn't probable enough to be guessed. */
static grappa_token best_of(const float *logits, int32_t n, float p_min)
{
    grappa_token best = 0;
    double sum = 0;
    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int32_t i = 0; i < n && p_min > 0; i++)
        sum += (double)expf(logits[i] - logits[best]);
    return p_min > 0 && 1 / sum < (double)p_min ? GRAPPA_TOKEN_NONE : best;
}

/* The depth-th guess of every slot that wants so many, from the batch that has run (`fine`: as it should),
 * and the next batch. */
static void take_guesses(struct grappa_engine *e, struct slot **line, struct offer *offers, int32_t n,
                         int32_t depth, bool fine)
{
    struct draft *d = &e->speculate.draft;
    int32_t n_vocab = grappa_vocab_n_tokens(e->vocab), row = 0;
    int32_t n_logits = grappa_vocab_n_tokens(grappa_model_vocab(e->params.draft));
    d->n = 0;
    for (int32_t i = 0; i < n; i++) {
        struct slot *s = line[i];
        struct draft_text *x = &d->texts[s->id];
        if (s->r->p.lookup || offers[i].n <= depth)
            continue;
        grappa_token t = GRAPPA_TOKEN_NONE;
        if (fine)
            t = best_of(grappa_logits(d->ctx, row++), n_logits, s->r->p.draft_p_min);
        if (t == GRAPPA_TOKEN_NONE || t >= n_vocab) {
            offers[i].n = depth < s->r->p.n_draft_min ? 0 : depth;
            continue;
        }
        s->tokens[s->n_tokens + depth] = x->guess[depth] = t;
        if (depth + 1 == offers[i].n)
            continue;
        put(d, s->id, t, true);
        x->held++;
    }
}

void draft_guess(struct grappa_engine *e, struct slot **line, struct offer *offers, int32_t n)
{
    struct draft *d = &e->speculate.draft;
    catch_up(e, line, offers, n);
    for (int32_t depth = 0; d->n > 0; depth++) {
        double start = engine_seconds();
        bool one_each = d->n <= n, fine = run(e, d);
        take_guesses(e, line, offers, n, depth, fine);
        if (!fine)
            lost(d, line, n);
        else if (one_each)
            d->seconds += (engine_seconds() - start - d->seconds) / (d->seconds > 0 ? 8 : 1);
    }
}
