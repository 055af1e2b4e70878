/* Which tokens may be chosen at all: by the grammar, and by the thinking budget when it writes the end of
 * thoughts. The two know of each other as in llama.cpp's common/sampling.cpp: a lazy grammar sees no
 * thoughts, but the end of them. */
#include "sampler/chain.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

int init_constraints(struct sampler *s, const struct sampler_params *p, struct err *err)
{
    s->sampled = TOKEN_NONE;
    if (p->grammar.type != GRAMMAR_NONE) {
        s->grammar = grammar_new(p->grammar_vocab, &p->grammar, err);
        s->grammar_lazy = p->grammar.lazy;
        if (!s->grammar)
            return -1;
    }
    if (!p->think_start || !p->think_end || (p->think_budget < 0 && !p->grammar.lazy && !p->think_control))
        return 0;
    s->think = xcalloc(1, sizeof *s->think);
    return think_init(s->think, s->vocab, p->think_start, p->think_end, p->think_budget, p->think_open, err);
}

void release_constraints(struct sampler *s)
{
    grammar_free(s->grammar);
    if (s->think)
        think_release(s->think);
    free(s->think);
}

void reset_constraints(struct sampler *s)
{
    s->sampled = TOKEN_NONE;
    if (s->grammar)
        grammar_reset(s->grammar);
    if (s->think)
        think_reset(s->think);
}

static const uint32_t *mask_of(const struct sampler *s)
{
    return s->grammar ? grammar_mask(s->grammar) : NULL;
}

static bool any(const uint32_t *mask, size_t n_vocab)
{
    for (size_t i = 0; i < (n_vocab + 31) / 32; i++) {
        if (mask[i])
            return true;
    }
    return false;
}

void apply_constraints(struct sampler *s, struct cands *c)
{
    token_id forced = s->think ? think_forced(s->think) : TOKEN_NONE;
    if (forced != TOKEN_NONE) {
        cands_only(c, (size_t)forced);
        return;
    }
    const uint32_t *mask = mask_of(s);
    if (mask && any(mask, c->n_vocab)) /* empty where no token ends a text: see sampler_finished */
        cands_allow(c, mask);
}

void accept_constraints(struct sampler *s, token_id t)
{
    bool thinking = false;
    if (s->think) {
        thinking = think_inside(s->think);
        think_accept(s->think, t);
    }
    if (!s->grammar)
        return;
    if (!s->grammar_lazy || !thinking) {
        grammar_accept(s->grammar, t);
    } else if (!think_inside(s->think)) { /* the end of the thoughts may be a trigger */
        const struct token_list *end = &s->think->end.seq;
        for (size_t i = 0; i < end->n; i++)
            grammar_accept(s->grammar, end->p[i]);
    }
}

void sampler_prepare(struct sampler *s)
{
    if (!s->think || think_forced(s->think) == TOKEN_NONE)
        mask_of(s);
}

bool sampler_finished(const struct sampler *s)
{
    return s->grammar && grammar_finished(s->grammar);
}

void sampler_end_thoughts(struct sampler *s)
{
    if (s->think)
        think_stop(s->think);
}
