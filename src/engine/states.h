/* States of recurrent layers: one pool of slots for all sequences, a slot holding the states of every layer
 * after some number of tokens. A step reads one slot and writes another, so a slot once written never
 * changes: slots are counted and shared, a copy of a sequence costs nothing, a step that fails leaves the
 * state before it in place, and keeping a state to come back to means only not giving its slot back.
 *
 * Slot 0 is zeros and belongs to nobody: the state of a sequence without tokens. */
#ifndef ENGINE_STATES_H
#define ENGINE_STATES_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* States of a sequence that it can be cut back to, beside the current one; and those within one step. */
enum { STATES_KEPT = 3, STATES_EACH = 64 };

struct state_at {
    int32_t slot;
    int32_t n_tokens; /* after which it is the state */
};

struct states_seq {
    struct state_at now;
    struct state_at before; /* where a batch began, while one runs … */
    int32_t read;           /* … and the slot that its last step has read */
    struct state_at kept[STATES_KEPT];
    int32_t n_kept;       /* in order of their lengths */
    struct state_at back; /* where the last batch began, if it may be taken back; until the next one … */
    int32_t each[STATES_EACH], n_each; /* … and slots of the states within its step … */
    int32_t each_from;                 /* … the first after so many tokens */
};

struct states {
    int32_t n_slots, n_free;
    int32_t n_within, n_spare; /* slots for states within a step: all, and those left */
    int32_t *free_list;
    int32_t *refs; /* by slot */
    struct states_seq *seqs;
    int32_t n_seqs;
    size_t n_tables; /* 0: the model isn't recurrent, and every call below does nothing */
    char **tables;   /* [n_slots, slot_bytes] each, touched only when used */
    size_t *slot_bytes;
};

/* Slots for any course of n_seqs sequences, the last n_copies of which never take part in a step and hold
 * only their current state; n_within more for states within steps. */
int32_t states_slots(int32_t n_seqs, int32_t n_copies, int32_t n_within);
int states_init(struct states *s, int32_t n_seqs, int32_t n_copies, int32_t n_within,
                const size_t *slot_bytes, size_t n_tables, struct err *err);
void states_release(struct states *s);

/* A batch: states_begin, then for each step and sequence states_step, then states_commit or, when a step has
 * failed, states_undo. */
void states_begin(struct states *s);
/* slots[0]: the one that holds the sequence's state; behind it those that shall receive what it is after n
 * more tokens. One, or with `each`, if so many are spare, n: a state after every token. Returns how many. */
int32_t states_step(struct states *s, int32_t seq, int32_t n, bool each, int32_t *slots);
/* By sequence, either may be NULL: `keep`, whether the new state is one to come back to; the oldest gives
 * way. `back`, not 0: until the next batch the sequence can also be cut to where this one began, and to the
 * states within its step. */
void states_commit(struct states *s, const bool *keep, const int32_t *back);
void states_undo(struct states *s);

/* The largest number of tokens up to n that the sequence can be cut back to. */
int32_t states_trim_point(const struct states *s, int32_t seq, int32_t n);
/* Cuts back to n tokens, one of the lengths above. */
void states_trim(struct states *s, int32_t seq, int32_t n);
void states_copy(struct states *s, int32_t src, int32_t dst);
/* For a sequence that is read from a file: a slot for its state after n tokens, to be filled by the caller.
 * Those to come back to first, at most STATES_KEPT, rising; last the current one (`now`). */
int32_t states_put(struct states *s, int32_t seq, int32_t n_tokens, bool now);
/* The sequence forgets what it could be cut back to. */
void states_only_now(struct states *s, int32_t seq);

#endif
