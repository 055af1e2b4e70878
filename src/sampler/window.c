/* The last tokens of a sequence, in a ring. */
#include "sampler/chain.h"

#include <stdlib.h>

int window_init(struct window *w, int32_t last_n, uint32_t n_ctx, struct err *err)
{
    /* A window longer than the context remembers no more than one of its length. */
    size_t size = last_n < 0 ? n_ctx : (size_t)last_n;
    if (n_ctx > 0 && size > n_ctx)
        size = n_ctx;
    w->token = calloc(size ? size : 1, sizeof *w->token);
    if (!w->token)
        return err_set(err, ERR_MEMORY, "sampler: no memory for a window of %zu tokens", size);
    w->size = size;
    return 0;
}

void window_release(struct window *w)
{
    free(w->token);
}

token_id window_push(struct window *w, token_id t)
{
    if (w->size == 0)
        return t;
    token_id old = TOKEN_NONE;
    if (w->n == w->size)
        old = w->token[w->next];
    else
        w->n++;
    w->token[w->next] = t;
    w->next = w->next + 1 == w->size ? 0 : w->next + 1;
    return old;
}

token_id window_at(const struct window *w, size_t back)
{
    size_t at = w->next + w->size - 1 - back;
    return w->token[at >= w->size ? at - w->size : at];
}
