/* Guesses of a draft model: a smaller one with the same vocabulary, in a context of its own. Its sequences
 * follow the slots' texts; what they had of wrong guesses is cut off again. All slots that want guesses go
 * through it together. MTP layers of the model itself are one too; what is special about them is in
 * speculate_mtp.c. */
#include "engine/speculate.h"

#include "base/mem.h"
#include "engine/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB_SLACK = 128, PIECE_MAX = 256 }; /* tokens that one vocabulary may have more: padding */
enum { FEW = 4 };                            /* tokens that MTP layers have to catch up with, as a rule */

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

static int check_model(const struct grappa_engine *e, struct grappa_model *m, struct err *err)
{
    if (m == e->m)
        return err_set(err, ERR_USAGE, "a model can't be its own draft model");
    if (grappa_model_is_recurrent(m))
        return err_set(err, ERR_UNSUPPORTED,
                       "a draft model with recurrent layers: they can't take guesses back");
    return same_vocab(e->vocab, grappa_model_vocab(m), err);
}

int draft_init(struct draft *d, const struct grappa_engine *e, struct grappa_err *err)
{
    struct grappa_model *m = e->params.draft ? e->params.draft : e->m->nextn;
    struct err none = ERR_INIT;
    d->mtp = m == e->m->nextn;
    if (!d->mtp && check_model(e, m, &none) < 0)
        return engine_fail(err, &none);
    d->n_logits = grappa_vocab_n_tokens(d->mtp ? e->vocab : grappa_model_vocab(m));
    d->n_texts = e->n_slots + (d->mtp ? e->recall.n_states : 0);
    struct grappa_context_params p = {
        .n_ctx = grappa_n_ctx(e->ctx), .n_batch = e->params.n_batch, .n_seq_max = (uint32_t)d->n_texts};
    d->ctx = grappa_context_new(m, &p, err);
    if (!d->ctx)
        return -1;
    size_t room = grappa_n_batch(d->ctx);
    d->room = (int32_t)room;
    d->texts = xcalloc((size_t)d->n_texts, sizeof *d->texts);
    for (int32_t i = 0; i < d->n_texts; i++)
        d->texts[i].tokens = xcalloc((size_t)e->n_ctx_slot + GUESS_MAX, sizeof(grappa_token));
    d->token = xcalloc(room, sizeof *d->token);
    d->seq = xcalloc(room, sizeof *d->seq);
    d->logits = xcalloc(room, sizeof *d->logits);
    return 0;
}

void draft_release(struct draft *d)
{
    for (int32_t i = 0; d->texts && i < d->n_texts; i++) {
        free(d->texts[i].tokens);
        free(d->texts[i].rows);
    }
    free(d->texts);
    free(d->token);
    free(d->seq);
    free(d->logits);
    grappa_context_free(d->ctx);
    *d = (struct draft){0};
}

/* ---- a batch ---- */

void draft_put(struct draft *d, int32_t seq, grappa_token t, bool wanted, const float *row)
{
    if (d->mtp)
        d->ctx->hidden_in[d->n] = row;
    d->token[d->n] = t;
    d->seq[d->n] = seq;
    d->logits[d->n++] = wanted;
}

/* Sequences that no request runs on give way. */
bool draft_run(struct grappa_engine *e, struct draft *d)
{
    struct grappa_batch b = {.n = (size_t)d->n, .token = d->token, .seq_id = d->seq, .logits = d->logits};
    if (grappa_decode(d->ctx, &b, NULL) == 0)
        return true;
    bool any = false;
    for (int32_t i = 0; i < d->n_texts; i++) {
        if ((i < e->n_slots && e->slots[i].r) || grappa_seq_len(d->ctx, i) == 0)
            continue;
        draft_forget(d, i);
        any = true;
    }
    return any && grappa_decode(d->ctx, &b, NULL) == 0;
}

/* ---- following the texts ---- */

void draft_cut(struct draft *d, int32_t seq, int32_t place)
{
    struct draft_text *x = &d->texts[seq];
    x->base = place < x->base ? place : x->base;
    int32_t n = grappa_seq_trim_point(d->ctx, seq, place - x->base);
    x->held = x->base + n;
    grappa_seq_trim(d->ctx, seq, n, NULL);
}

void draft_forget(struct draft *d, int32_t seq)
{
    struct draft_text *x = &d->texts[seq];
    draft_cut(d, seq, 0);
    x->from = x->row_from = x->n_rows = 0;
}

/* Cuts off what the sequence has that is not the slot's text. */
static void follow(struct draft *d, const struct slot *s)
{
    struct draft_text *x = &d->texts[s->id];
    if (x->started != s->started || x->from > s->n_tokens) /* another text, or one that was cut */
        x->from = 0;
    x->started = s->started;
    int32_t right = x->from;
    while (right < x->held && right < s->n_tokens - 1 && s->tokens[right] == x->tokens[right])
        right++;
    right = right < x->held ? right : x->held;
    draft_cut(d, s->id, right < s->n_tokens ? right : s->n_tokens - 1);
}

/* A batch has failed: what its sequences were to hold isn't there. */
static void lost(struct draft *d, struct slot **line, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        draft_forget(d, line[i]->id);
}

/* What a sequence lacks of its text. False: it isn't enough for guesses this time. */
static bool catch_up(struct draft *d, const struct slot *s)
{
    struct draft_text *x = &d->texts[s->id];
    if (d->mtp && !mtp_ready(d, s))
        return false;
    if (!d->mtp)
        follow(d, s);
    for (; x->held < s->n_tokens && d->n < d->room; x->held++) {
        x->tokens[x->held] = s->tokens[x->held];
        draft_put(d, s->id, s->tokens[x->held], x->held == s->n_tokens - 1, mtp_row_for(d, x, x->held));
    }
    x->from = x->held;
    if (x->held < s->n_tokens)
        return false;
    mtp_rows_used(x);
    return true;
}

static void catch_up_all(struct draft *d, struct slot **line, struct offer *offers, int32_t n)
{
    d->n = 0;
    for (int32_t i = 0; i < n; i++) {
        if (offers[i].n > 0 && !line[i]->r->p.lookup && !catch_up(d, line[i]))
            offers[i].n = 0;
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
    int32_t n_vocab = grappa_vocab_n_tokens(e->vocab), row = -1;
    d->n = 0;
    for (int32_t i = 0; i < n; i++) {
        struct slot *s = line[i];
        struct draft_text *x = &d->texts[s->id];
        if (s->r->p.lookup || offers[i].n <= depth)
            continue;
        grappa_token t = GRAPPA_TOKEN_NONE;
        row++;
        if (fine)
            t = best_of(grappa_logits(d->ctx, row), d->n_logits, s->r->p.draft_p_min);
        if (t == GRAPPA_TOKEN_NONE || t >= n_vocab) {
            offers[i].n = depth < s->r->p.n_draft_min ? 0 : depth;
            continue;
        }
        s->tokens[s->n_tokens + depth] = t;
        if (depth + 1 == offers[i].n)
            continue;
        x->tokens[x->held++] = t;
        draft_put(d, s->id, t, true, d->mtp ? context_hidden(d->ctx, row) : NULL);
    }
}

void draft_guess(struct grappa_engine *e, struct slot **line, struct offer *offers, int32_t n)
{
    struct draft *d = &e->speculate.draft;
    catch_up_all(d, line, offers, n);
    for (int32_t depth = 0; d->n > 0; depth++) {
        double start = engine_seconds();
        bool typical = d->n <= (d->mtp ? FEW : 1) * n, fine = draft_run(e, d);
        take_guesses(e, line, offers, n, depth, fine);
        if (!fine)
            lost(d, line, n);
        else if (typical)
            d->seconds += (engine_seconds() - start - d->seconds) / (d->seconds > 0 ? 8 : 1);
    }
}
