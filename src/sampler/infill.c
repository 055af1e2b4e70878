/* The stage for filling in the middle: it ends as soon as an end is likely enough beside the texts, and else
 * makes one candidate of those that begin alike, so that a few clear ways to go on remain. */
#include "sampler/chain.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* Candidates are compared pair by pair; nobody means this stage for more than a few. */
#define MOST 2048

int init_infill(struct sampler *s, struct err *err)
{
    (void)err;
    s->infill.ends = xcalloc(MOST + 1, sizeof *s->infill.ends);
    return 0;
}

void release_infill(struct infill *in)
{
    free(in->ends);
    buf_release(&in->pieces);
}

static bool is_eog(const struct sampler *s, const struct cands *c, size_t i)
{
    return vocab_is_eog(s->vocab, c->p[i].id);
}

/* Leaves the ends of generation and what is at least this likely, made to sum up to 1. Returns how many of
 * the latter there are. */
static size_t keep(struct sampler *s, struct cands *c, float least)
{
    size_t n = 0, n_texts = 0;
    float sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        bool end = is_eog(s, c, i);
        if (c->p[i].p < least && !end)
            continue;
        n_texts += !end;
        sum += c->p[i].p;
        c->p[n++] = c->p[i];
    }
    c->n = n;
    if (n_texts) {
        for (size_t i = 0; i < n; i++)
            c->p[i].p /= sum;
    }
    return n_texts;
}

static void read_pieces(struct sampler *s, const struct cands *c)
{
    struct infill *in = &s->infill;
    buf_clear(&in->pieces);
    for (size_t i = 0; i < c->n; i++) {
        vocab_piece(s->vocab, c->p[i].id, 0, false, &in->pieces);
        in->ends[i + 1] = in->pieces.n;
    }
}

static bool begins(const struct infill *in, size_t a, size_t b)
{
    size_t n = in->ends[a + 1] - in->ends[a];
    return n && n <= in->ends[b + 1] - in->ends[b] &&
           !memcmp(in->pieces.p + in->ends[a], in->pieces.p + in->ends[b], n);
}

/* What begins like another goes with the likelier of the two. */
static void combine(struct sampler *s, struct cands *c)
{
    read_pieces(s, c);
    for (size_t a = 0; a < c->n; a++) {
        for (size_t b = 0; b < c->n && c->p[a].logit != -INFINITY; b++) {
            if (a == b || c->p[b].logit == -INFINITY || !begins(&s->infill, a, b))
                continue;
            size_t to = c->p[b].p > c->p[a].p ? b : a, from = to == a ? b : a;
            c->p[to].p += c->p[from].p;
            c->p[from].p = 0;
            c->p[from].logit = -INFINITY;
        }
    }
}

/* The end of the turn, or of everything, is all that is left. */
static void only_end(struct sampler *s, struct cands *c)
{
    token_id end = vocab_eot(s->vocab);
    if (end < 0)
        end = vocab_eos(s->vocab);
    cands_only(c, 0);
    if (end >= 0)
        c->p[0].id = end;
    c->p[0].logit = 1;
}

void apply_infill(struct sampler *s, struct cands *c)
{
    float texts = 0, ends = 0;
    cands_sort(c);
    if (c->n > MOST)
        c->n = MOST;
    cands_softmax(c);
    for (size_t i = 0; i < c->n; i++)
        *(is_eog(s, c, i) ? &ends : &texts) += c->p[i].p;
    if (3 * ends * (float)c->n > texts) {
        keep(s, c, INFINITY);
        return;
    }
    combine(s, c);
    size_t n = keep(s, c, 0.2f);
    if (n == 0)
        only_end(s, c);
    else
        keep(s, c, (float)(1.0 / (double)(n + 1)));
}
