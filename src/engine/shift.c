/* When a context is full: a part of it goes, and what stood behind it moves up. Keys carry their positions,
 * so the tokens that move are computed again, in their new places. */
#include "engine/schedule.h"

#include <string.h>

/* llama-server's rule: n_keep tokens stay, of those behind them half are discarded. */
void shift_slot(struct grappa_engine *e, struct slot *s)
{
    struct grappa_request *r = s->r;
    int32_t held = s->n_tokens - 1, keep = r->p.n_keep < 0 ? r->n_prompt : r->p.n_keep;
    if (grappa_vocab_add_bos(e->vocab))
        keep++;
    if (keep > (int32_t)e->n_ctx_slot - 4)
        keep = (int32_t)e->n_ctx_slot - 4;
    int32_t behind = held - keep, discard = r->p.n_discard > 0 ? r->p.n_discard : behind / 2;
    discard = discard < behind - 1 ? discard : behind - 1;
    memmove(s->tokens + keep, s->tokens + keep + discard,
            (size_t)(s->n_tokens - keep - discard) * sizeof *s->tokens);
    s->n_tokens -= discard;
    slots_trim(e, s, keep);
    s->writing = s->n_tokens - s->n_past == 1; /* else they come in pieces, as a prompt does */
    r->truncated = true;
}
