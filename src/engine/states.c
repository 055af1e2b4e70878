/* The slots: a free list and reference counts. */
#include "engine/states.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A sequence holds its current state, the one before the batch, those kept, and the one being written. */
enum { SLOTS_PER_SEQ = STATES_KEPT + 3, ZEROS = 0 };

int32_t states_slots(int32_t n_seqs, int32_t n_copies, int32_t n_within)
{
    return 1 + (n_seqs - n_copies) * SLOTS_PER_SEQ + n_copies + n_within;
}

int states_init(struct states *s, int32_t n_seqs, int32_t n_copies, int32_t n_within,
                const size_t *slot_bytes, size_t n_tables, struct err *err)
{
    *s = (struct states){.n_slots = states_slots(n_seqs, n_copies, n_within),
                         .n_within = n_within,
                         .n_spare = n_within,
                         .n_seqs = n_seqs,
                         .n_tables = n_tables};
    s->free_list = xcalloc((size_t)s->n_slots, sizeof *s->free_list);
    s->refs = xcalloc((size_t)s->n_slots, sizeof *s->refs);
    s->seqs = xcalloc((size_t)n_seqs, sizeof *s->seqs);
    s->tables = xcalloc(n_tables + 1, sizeof *s->tables);
    s->slot_bytes = xcalloc(n_tables + 1, sizeof *s->slot_bytes);
    for (int32_t slot = s->n_slots - 1; slot > ZEROS; slot--)
        s->free_list[s->n_free++] = slot; /* low numbers first */
    for (size_t t = 0; t < n_tables; t++) {
        size_t size;
        void *p = MAP_FAILED;
        errno = ENOMEM;
        if (mul_size(slot_bytes[t], (size_t)s->n_slots, &size))
            p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            states_release(s);
            return err_set(err, ERR_MEMORY, "no memory for the states of %d sequences: %s", n_seqs,
                           strerror(errno));
        }
        s->tables[t] = p;
        s->slot_bytes[t] = slot_bytes[t];
    }
    return 0;
}

void states_release(struct states *s)
{
    for (size_t t = 0; t < s->n_tables; t++) {
        if (s->tables && s->tables[t])
            munmap(s->tables[t], s->slot_bytes[t] * (size_t)s->n_slots);
    }
    free(s->tables);
    free(s->slot_bytes);
    free(s->seqs);
    free(s->refs);
    free(s->free_list);
    *s = (struct states){0};
}

static void hold(struct states *s, int32_t slot)
{
    if (slot != ZEROS)
        s->refs[slot]++;
}

static void give(struct states *s, int32_t slot)
{
    if (slot != ZEROS && --s->refs[slot] == 0)
        s->free_list[s->n_free++] = slot;
}

static void forget_each(struct states *s, struct states_seq *q)
{
    for (; q->n_each > 0; s->n_spare++)
        give(s, q->each[--q->n_each]);
}

static void forget_back(struct states *s, struct states_seq *q)
{
    forget_each(s, q);
    give(s, q->back.slot);
    q->back = (struct state_at){ZEROS, 0};
}

/* ---- a batch ---- */

void states_begin(struct states *s)
{
    for (int32_t i = 0; s->n_tables && i < s->n_seqs; i++) {
        struct states_seq *q = &s->seqs[i];
        forget_back(s, q);
        q->before = q->now;
        hold(s, q->before.slot);
    }
}

static int32_t take(struct states *s)
{
    int32_t slot = s->free_list[--s->n_free]; /* there is one: see SLOTS_PER_SEQ */
    s->refs[slot] = 1;
    return slot;
}

int32_t states_step(struct states *s, int32_t seq, int32_t n, bool each, int32_t *slots)
{
    slots[0] = slots[1] = ZEROS;
    if (s->n_tables == 0)
        return 1;
    struct states_seq *q = &s->seqs[seq];
    give(s, q->read); /* the step that read it is over */
    q->read = slots[0] = q->now.slot;
    forget_each(s, q);
    each = each && n - 1 <= s->n_spare && n - 1 <= STATES_EACH;
    q->each_from = q->now.n_tokens + 1;
    for (; each && q->n_each < n - 1; s->n_spare--) {
        slots[1 + q->n_each] = take(s);
        q->each[q->n_each] = slots[1 + q->n_each];
        q->n_each++;
    }
    int32_t to = take(s);
    slots[each ? n : 1] = to;
    q->now = (struct state_at){to, q->now.n_tokens + n};
    return each ? n : 1;
}

static void keep_now(struct states *s, struct states_seq *q)
{
    if (q->now.n_tokens == 0 || (q->n_kept > 0 && q->kept[q->n_kept - 1].n_tokens == q->now.n_tokens))
        return;
    if (q->n_kept == STATES_KEPT) {
        give(s, q->kept[0].slot);
        memmove(q->kept, q->kept + 1, (STATES_KEPT - 1) * sizeof *q->kept);
        q->n_kept--;
    }
    q->kept[q->n_kept++] = q->now;
    hold(s, q->now.slot);
}

static void end_batch(struct states *s, struct states_seq *q, int32_t slot)
{
    give(s, q->read);
    q->read = ZEROS;
    give(s, slot);
}

void states_commit(struct states *s, const bool *keep, const int32_t *back)
{
    for (int32_t i = 0; s->n_tables && i < s->n_seqs; i++) {
        struct states_seq *q = &s->seqs[i];
        if (back && back[i]) { /* taken over, not given back */
            q->back = q->before;
            hold(s, q->back.slot);
        } else {
            forget_each(s, q);
        }
        end_batch(s, q, q->before.slot);
        if (keep && keep[i])
            keep_now(s, q);
    }
}

void states_undo(struct states *s)
{
    for (int32_t i = 0; s->n_tables && i < s->n_seqs; i++) {
        struct states_seq *q = &s->seqs[i];
        forget_each(s, q);
        end_batch(s, q, q->now.slot);
        q->now = q->before;
    }
}

/* ---- going back ---- */

int32_t states_trim_point(const struct states *s, int32_t seq, int32_t n)
{
    const struct states_seq *q = &s->seqs[seq];
    int32_t best = 0;
    if (s->n_tables == 0)
        return n;
    for (int32_t i = 0; i < q->n_kept && q->kept[i].n_tokens <= n; i++)
        best = q->kept[i].n_tokens;
    if (q->back.n_tokens <= n && q->back.n_tokens > best)
        best = q->back.n_tokens;
    if (q->n_each > 0 && q->each_from <= n)
        best = n - q->each_from < q->n_each ? n : q->each_from + q->n_each - 1;
    return q->now.n_tokens <= n ? q->now.n_tokens : best;
}

void states_trim(struct states *s, int32_t seq, int32_t n)
{
    struct states_seq *q = &s->seqs[seq];
    if (s->n_tables == 0 || n >= q->now.n_tokens)
        return;
    while (q->n_kept > 0 && q->kept[q->n_kept - 1].n_tokens > n)
        give(s, q->kept[--q->n_kept].slot);
    give(s, q->now.slot);
    q->now = q->n_kept > 0 && n > 0 ? q->kept[q->n_kept - 1] : (struct state_at){ZEROS, 0};
    if (q->back.n_tokens == n && n > 0)
        q->now = q->back;
    if (q->n_each > 0 && n >= q->each_from)
        q->now = (struct state_at){q->each[n - q->each_from], n};
    hold(s, q->now.slot);
    forget_back(s, q);
}

void states_copy(struct states *s, int32_t src, int32_t dst)
{
    if (s->n_tables == 0 || src == dst)
        return;
    states_trim(s, dst, 0);
    struct states_seq *to = &s->seqs[dst];
    *to = s->seqs[src];
    to->back = (struct state_at){ZEROS, 0};
    to->n_each = 0;
    hold(s, to->now.slot);
    for (int32_t i = 0; i < to->n_kept; i++)
        hold(s, to->kept[i].slot);
}

void states_only_now(struct states *s, int32_t seq)
{
    struct states_seq *q = &s->seqs[seq];
    while (s->n_tables > 0 && q->n_kept > 0)
        give(s, q->kept[--q->n_kept].slot);
}

int32_t states_put(struct states *s, int32_t seq, int32_t n_tokens, bool now)
{
    struct states_seq *q = &s->seqs[seq];
    if (s->n_tables == 0)
        return ZEROS;
    int32_t slot = take(s);
    struct state_at at = {slot, n_tokens};
    if (now)
        q->now = at;
    else
        q->kept[q->n_kept++] = at;
    return slot;
}
