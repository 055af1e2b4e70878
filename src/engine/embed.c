/* Embeddings: rows of the output norm as they come, piece by piece, pooled into what was asked for. */
#include "engine/schedule.h"

#include <stdlib.h>
#include <string.h>

bool embed_wants_all(const struct grappa_request *r)
{
    return r->p.embeddings && r->p.pooling != GRAPPA_POOLING_LAST && r->p.pooling != GRAPPA_POOLING_RANK;
}

/* A row of the token at a position. */
static void add_row(struct grappa_request *r, int32_t pos, const float *row)
{
    size_t n = (size_t)r->n_embd;
    float *to = r->embedding;
    switch (r->p.pooling) {
    case GRAPPA_POOLING_NONE:
        memcpy(to + (size_t)pos * n, row, n * sizeof *row);
        break;
    case GRAPPA_POOLING_MEAN:
        for (size_t i = 0; i < n; i++)
            to[i] = (pos == 0 ? 0 : to[i]) + row[i];
        break;
    case GRAPPA_POOLING_CLS:
    case GRAPPA_POOLING_LAST:
        if (pos == (r->p.pooling == GRAPPA_POOLING_CLS ? 0 : r->n_tokens - 1))
            memcpy(to, row, n * sizeof *row);
        break;
    case GRAPPA_POOLING_RANK:
        if (pos == r->n_tokens - 1)
            rank_scores(&r->e->m->rank, row, to);
        break;
    }
}

static bool make_space(struct grappa_engine *e, struct grappa_request *r)
{
    if (r->embedding)
        return true;
    r->n_embd = (int32_t)(r->p.pooling == GRAPPA_POOLING_RANK ? e->m->rank.n_labels : e->m->arch->h.n_embd);
    r->n_rows = r->p.pooling == GRAPPA_POOLING_NONE ? r->n_tokens : 1;
    r->embedding = calloc((size_t)r->n_rows * (size_t)r->n_embd, sizeof *r->embedding);
    return r->embedding != NULL;
}

int embed_rows(struct grappa_engine *e, struct grappa_request *r, int32_t pos, int32_t row, int32_t n,
               struct grappa_err *err)
{
    if (!make_space(e, r)) {
        struct err none = ERR_INIT;
        err_set(&none, ERR_MEMORY, "no memory for embeddings of %d tokens", r->n_tokens);
        return engine_fail(err, &none);
    }
    for (int32_t i = 0; i < n; i++)
        add_row(r, pos + i, grappa_logits(e->ctx, row + i));
    if (pos + n == r->n_tokens && r->p.pooling == GRAPPA_POOLING_MEAN) {
        float scale = 1.0f / (float)r->n_tokens;
        for (int32_t i = 0; i < r->n_embd; i++)
            r->embedding[i] *= scale;
    }
    return 0;
}
