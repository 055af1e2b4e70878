/* A budget for thinking: between a start and an end, both sequences of tokens, so many tokens; then the end
 * is forced.
 *
 * The states are those of llama.cpp's common/reasoning-budget.cpp (b11434): a character that has begun is
 * finished first, a natural end stops the count, and a new start begins a new budget. */
#ifndef SAMPLER_THINK_H
#define SAMPLER_THINK_H

#include "base/err.h"
#include "vocab/vocab.h"

enum think_state {
    THINK_IDLE,      /* waiting for the start */
    THINK_COUNTING,  /* inside */
    THINK_CHARACTER, /* the budget is used up in the middle of a character */
    THINK_FORCING,   /* writing the end */
    THINK_DONE,
};

/* Where a sequence stands that is looked for in a stream of tokens (D. Knuth, J. Morris, V. Pratt, 1977). */
struct think_match {
    struct token_list seq;
    size_t *fallback; /* by matched length */
    size_t n;         /* matched so far */
};

struct think {
    const struct vocab *v;
    struct think_match start, end;
    int32_t budget; /* -1: no bound; the start and end are still followed */
    int32_t left;
    enum think_state state, first;
    size_t forced; /* tokens of the end already written */
    struct utf8_stream character;
    struct buf piece, text;
};

/* `start` and `end` are texts, special tokens in them are parsed; `open`: the text begins inside. */
int think_init(struct think *t, const struct vocab *v, const char *start, const char *end, int32_t budget,
               bool open, struct err *err);
void think_release(struct think *t);
void think_reset(struct think *t);

/* The token that must come next, or TOKEN_NONE. */
token_id think_forced(const struct think *t);
void think_accept(struct think *t, token_id id);
/* The budget is used up, if one is counted. */
void think_stop(struct think *t);
static inline bool think_inside(const struct think *t)
{
    return t->state != THINK_IDLE && t->state != THINK_DONE;
}

#endif
