/* Layers of the model itself that guess ("MTP", multi-token prediction): a draft model of one block that
 * reads, with each token, the hidden row that the trunk had for the token before it. So its sequence is put
 * together from two sides: the text, and the rows of the engine's steps.
 *
 * Rows of prompts go in at once, step by step, out of the trunk's output. Rows of texts that are being
 * written wait until guesses are wanted, so that most steps cost one pass of the layer, or until there are
 * many. Rows that were never computed, of a beginning that came out of memory, leave a gap, which is closed
 * up: what stands before it is then nearer than it should be. That may make guesses worse, nothing else. A
 * first guess reads the trunk's row, the next the layer's own. As llama.cpp's draft-mtp does; the first token
 * has no row before it. */
#include "engine/speculate.h"

#include "base/mem.h"
#include "engine/schedule.h"

#include <stdlib.h>
#include <string.h>

static bool follows(const struct grappa_request *r)
{
    return r->p.n_draft > 0 && !r->p.lookup && !r->p.embeddings;
}

static size_t width_of(const struct draft *d)
{
    return d->ctx->m->arch->h.n_embd;
}

const float *mtp_row_for(const struct draft *d, const struct draft_text *x, int32_t place)
{
    int32_t at = place - 1 - x->row_from;
    return !d->mtp || at < 0 ? NULL : x->rows + (size_t)at * width_of(d);
}

void mtp_rows_used(struct draft_text *x)
{
    x->row_from = x->held - 1;
    x->n_rows = 0;
}

/* A row waits for the token behind its place. */
static void add_row(struct draft *d, struct draft_text *x, const float *row)
{
    size_t width = width_of(d);
    if (!x->rows)
        x->rows = xcalloc(MTP_ROWS * width, sizeof *x->rows);
    memcpy(x->rows + (size_t)x->n_rows++ * width, row, width * sizeof *row);
}

/* ---- the place in the text ---- */

/* How much of what the sequence holds is the slot's text. */
static int32_t right_until(const struct draft_text *x, const struct slot *s)
{
    int32_t place = x->base;
    while (place < x->from && place < s->n_tokens && x->tokens[place] == s->tokens[place])
        place++;
    return place > x->base ? place : 0;
}

/* Whether the row of a place is the next that the text lacks. */
static bool continues(const struct draft_text *x, int32_t place)
{
    return (x->held == 0 || x->held > x->row_from) && x->held <= place + 1 && place >= x->row_from &&
           place <= x->row_from + x->n_rows;
}

/* Makes the sequence ready for the row of the slot's next place. */
static void arrive(struct draft *d, const struct slot *s)
{
    struct draft_text *x = &d->texts[s->id];
    int32_t place = s->n_past, right = x->from;
    if (x->started != s->started || place + 1 < x->from) { /* another text, or one that was cut */
        right = right_until(x, s);
        x->n_rows = right - x->row_from < x->n_rows ? right - x->row_from : x->n_rows;
        x->n_rows = x->n_rows > 0 ? x->n_rows : 0;
    }
    x->started = s->started;
    draft_cut(d, s->id, right); /* guesses were put in without the trunk's rows */
    if (continues(x, place)) {
        x->n_rows = place - x->row_from;
    } else {
        if (x->held > place + 1)
            draft_cut(d, s->id, place + 1);
        if (place > 0) { /* a gap */
            x->base += place + 1 - x->held;
            memcpy(x->tokens + x->held, s->tokens + x->held,
                   (size_t)(place + 1 - x->held) * sizeof *x->tokens);
            x->held = place + 1;
        }
        x->row_from = place;
        x->n_rows = 0;
    }
    x->from = x->held;
}

bool mtp_ready(struct draft *d, const struct slot *s)
{
    struct draft_text *x = &d->texts[s->id];
    if (x->started != s->started || x->from > s->n_tokens || !continues(x, s->n_tokens - 1))
        return false;
    draft_cut(d, s->id, x->from);
    return x->row_from + x->n_rows == s->n_tokens - 1;
}

/* ---- a step of the trunk ---- */

/* Whatever of the batch fails, fails for all: they begin again. */
static void run(struct grappa_engine *e, struct draft *d, bool *failed)
{
    *failed = (d->n > 0 && !draft_run(e, d)) || *failed;
    d->n = 0;
}

/* Tokens up to a place; rows from the slot's next place on are the step's, the first of them its token `at`.
 */
static void put_until(struct grappa_engine *e, const struct slot *s, int32_t end, int32_t at, bool *failed)
{
    struct draft *d = &e->speculate.draft;
    struct draft_text *x = &d->texts[s->id];
    for (; x->held < end; x->held++) {
        int32_t before = x->held - 1 - s->n_past;
        const float *row = before >= 0 ? context_hidden(e->ctx, at + before) : mtp_row_for(d, x, x->held);
        x->tokens[x->held] = s->tokens[x->held];
        draft_put(d, s->id, s->tokens[x->held], false, row);
        if (d->n == d->room)
            run(e, d, failed);
    }
    x->from = x->held;
}

void mtp_follow(struct grappa_engine *e)
{
    struct draft *d = &e->speculate.draft;
    const struct step *t = &e->step;
    bool failed = false;
    if (!d->mtp)
        return;
    d->n = 0;
    for (int32_t i = 0, at = 0; i < t->n_parts; at += t->parts[i++]->n_in) {
        const struct slot *s = t->parts[i];
        if (!follows(s->r))
            continue;
        arrive(d, s);
        if (!s->writing)
            put_until(e, s, s->n_past + s->n_in, at, &failed);
        else if (d->texts[s->id].n_rows + s->n_in > MTP_ROWS)
            put_until(e, s, s->n_tokens, at, &failed);
    }
    run(e, d, &failed);
    for (int32_t i = 0, at = 0; i < t->n_parts; at += t->parts[i++]->n_in) {
        struct slot *s = t->parts[i];
        struct draft_text *x = &d->texts[s->id];
        if (!follows(s->r))
            continue;
        if (failed) {
            draft_forget(d, s->id);
            continue;
        }
        int32_t first =
            x->held > s->n_past ? x->held - 1 - s->n_past : 0; /* of the step's rows, to be kept */
        if (x->held > s->n_past)
            mtp_rows_used(x);
        for (int32_t k = first; k < s->n_in; k++)
            add_row(d, x, context_hidden(e->ctx, at + k));
    }
}

/* ---- copies ---- */

void mtp_copied(struct grappa_engine *e, int32_t src, int32_t dst)
{
    struct draft *d = &e->speculate.draft;
    if (!d->mtp || src == dst)
        return;
    struct draft_text *from = &d->texts[src], *to = &d->texts[dst];
    grappa_seq_copy(d->ctx, src, dst, NULL);
    memcpy(to->tokens, from->tokens, (size_t)from->held * sizeof *to->tokens);
    to->started = 0;
    to->base = from->base;
    to->held = from->held;
    draft_cut(d, dst, from->from);
    to->from = to->held;
    to->row_from = from->row_from;
    to->n_rows = 0;
    int32_t waiting = from->from - 1 - from->row_from; /* the row that its next token wants */
    if (waiting >= 0 && waiting < from->n_rows) {
        to->row_from = from->from - 1;
        add_row(d, to, from->rows + (size_t)waiting * width_of(d));
    }
}
