/* What is remembered of prompts beside their blocks (see prefix.h).
 *
 * Recurrent models: states can't be cut back, so copies of sequences are kept where a piece of a prompt
 * ended. A copy is a sequence of the context like any other, behind those of the slots; it costs the states,
 * and shares its blocks.
 *
 * All models: the logits of a prompt's last token, so that the same prompt, when all of it is in memory, need
 * not be computed at its end either, and writes what it wrote the first time, to the last bit. */
#ifndef ENGINE_RECALL_H
#define ENGINE_RECALL_H

#include <grappa.h>

#include <stdbool.h>

struct grappa_engine;
struct slot;

struct recalled { /* of either kind */
    grappa_token *tokens;
    int32_t n; /* 0: free */
    uint64_t used;
    int32_t seq;   /* states: the copy */
    float *logits; /* logits: [n_vocab] */
};

enum { RECALL_LOGITS = 16 };

struct recall {
    struct recalled *states;
    int32_t n_states;
    struct recalled logits[RECALL_LOGITS];
    uint64_t clock;
};

/* How many copies of states there is memory for. */
uint32_t recall_copies(const struct grappa_model *m, uint32_t n_slots);
/* Copies are the sequences from n_slots on. */
void recall_init(struct recall *r, int32_t n_slots, int32_t n_copies);
void recall_release(struct recall *r);

/* A prompt goes in pieces that end where a copy is worth having: how many more tokens the slot may take. */
int32_t recall_piece(const struct grappa_engine *e, const struct slot *s);
/* A piece has ended. */
void recall_piece_done(struct grappa_engine *e, const struct slot *s);
/* The longest copy that holds a beginning of these tokens, or NULL. */
struct recalled *recall_state(struct grappa_engine *e, const grappa_token *tokens, int32_t most);
/* Gives up the least recently used copy. False: there is none. */
bool recall_evict(struct grappa_engine *e);
/* Gives up the copies of beginnings of a sequence. */
void recall_forget(struct grappa_engine *e, const grappa_token *tokens, int32_t n);

void recall_end(struct grappa_engine *e, const struct slot *s, const float *logits);
const float *recall_logits(struct grappa_engine *e, const grappa_token *tokens, int32_t n);

#endif
