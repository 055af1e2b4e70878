/* Repetition, frequency and presence penalties: on the tokens of a window, found by token, so that their cost
 * is the window's length and not the vocabulary's. */
#include "sampler/chain.h"

#include <stdlib.h>

int init_penalties(struct sampler *s, struct err *err)
{
    struct penalties *p = &s->penalties;
    if (p->count)
        return 0; /* the stage is in the chain twice */
    if (window_init(&p->window, s->params.repeat_last_n, s->params.n_ctx, err) != 0)
        return -1;
    p->count = calloc(s->cands.n_vocab, sizeof *p->count);
    p->seen = calloc(s->cands.n_vocab, sizeof *p->seen);
    p->seen_at = calloc(s->cands.n_vocab, sizeof *p->seen_at);
    if (!p->count || !p->seen || !p->seen_at)
        return err_set(err, ERR_MEMORY, "sampler: no memory for penalties");
    return 0;
}

void release_penalties(struct penalties *p)
{
    window_release(&p->window);
    free(p->count);
    free(p->seen);
    free(p->seen_at);
}

void reset_penalties(struct penalties *p)
{
    for (size_t i = 0; i < p->n_seen; i++)
        p->count[p->seen[i]] = 0;
    p->n_seen = p->window.n = p->window.next = 0;
}

void accept_penalties(struct penalties *p, token_id t)
{
    if (p->window.size == 0)
        return;
    if (p->count[t]++ == 0) {
        p->seen_at[t] = (int32_t)p->n_seen;
        p->seen[p->n_seen++] = t;
    }
    token_id old = window_push(&p->window, t);
    if (old != TOKEN_NONE && --p->count[old] == 0) {
        token_id last = p->seen[--p->n_seen];
        p->seen[p->seen_at[old]] = last;
        p->seen_at[last] = p->seen_at[old];
    }
}

void apply_penalties(struct sampler *s, struct cands *c)
{
    const struct penalties *p = &s->penalties;
    const struct sampler_params *params = &s->params;
    if (p->n_seen == 0)
        return;
    cands_index(c);
    for (size_t i = 0; i < p->n_seen; i++) {
        float *logit = cands_logit(c, p->seen[i]);
        if (!logit)
            continue;
        /* Dividing alone would make an unlikely token likelier. */
        *logit = *logit <= 0 ? *logit * params->repeat_penalty : *logit / params->repeat_penalty;
        *logit -= (float)p->count[p->seen[i]] * params->frequency_penalty + params->presence_penalty;
    }
    c->sorted = false;
}
