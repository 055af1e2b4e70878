/* The candidates for the next token: all of the vocabulary at first, fewer after each stage that cuts.
 *
 * They begin dense: candidate i is token i, and its logit is where the model wrote it. Stages that change
 * single tokens (bias, penalties) and the two that look for the largest (greedy, top-k) work on that, so the
 * common chains never touch more of the vocabulary than one vectorised pass. The first stage that needs a
 * list makes it. All memory is allocated once. */
#ifndef SAMPLER_CANDS_H
#define SAMPLER_CANDS_H

#include "sampler/sampler.h"

#include <stdint.h>

struct cands {
    const float *dense; /* NULL once there is a list */
    float *changed;     /* our copy of the logits, when a stage changes dense ones */

    struct sampler_candidate *p; /* the list; inside `list` */
    size_t n;
    bool sorted;                     /* by falling logit */
    struct sampler_candidate *list;  /* n_vocab each, */
    struct sampler_candidate *spare; /* they change places when a result is made beside the old list */

    int32_t *place; /* by token, see cands_index */
    size_t n_vocab;
};

/* False when memory is out. */
bool cands_init(struct cands *c, size_t n_vocab);
void cands_release(struct cands *c);

void cands_begin(struct cands *c, const float *logits);
void cands_list(struct cands *c);           /* makes the list, unless there is one */
void cands_only(struct cands *c, size_t i); /* leaves candidate i, with p = 1 */

/* Leaves the candidates whose bit is set, t % 32 of mask[t / 32]; of those without any chance (-INFINITY)
 * one, and only if there is no other. `mask` has at least one bit set. */
void cands_allow(struct cands *c, const uint32_t *mask);

/* Falling by logit; equal ones stay in their order. */
void cands_sort(struct cands *c);
/* Rising by p. */
void cands_sort_by_p(struct cands *c);
/* Leaves the k best, sorted. 0 < k. */
void cands_keep_top(struct cands *c, size_t k);
/* The k best, sorted, beside the list, which stays as it is; cands_take makes the first n of them the list.
 */
#define CANDS_PEEK_MAX 1024
const struct sampler_candidate *cands_peek_top(struct cands *c, size_t k);
void cands_take(struct cands *c, size_t n);

/* Sets each p to the softmax of the logits, summed in floats as llama.cpp does. */
void cands_softmax(struct cands *c);
/* The first candidate of the largest logit. */
size_t cands_max(const struct cands *c);

/* Access by token: first cands_index, then the logit of a token, NULL if it is no candidate any more. The
 * index holds until the list changes. */
void cands_index(struct cands *c);
float *cands_logit(struct cands *c, token_id t);

#endif
