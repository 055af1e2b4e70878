/* How the tokens of a slice lie in the inputs of the graph: rows in the order of their sequences, and what
 * attention takes for sequences, which are not always the engine's. */
#include "engine/context.h"

#include <string.h>

/* A single sequence goes through attention in another order of sums than several, unless a second one, of no
 * tokens, stands beside it: then a text is the same to the last bit whether others are written at the same
 * time or not. On a CPU that costs nothing up to here; of long sequences it would take half of the speed. */
enum { ALIKE_MAX = 512 };

/* Whether each token of a sequence goes through attention as a sequence of its own. Guesses do, on a CPU: it
 * takes several tokens of a sequence for a prompt, which costs more, and sums in another order than for a
 * single one. Keys and values are written before any are read. Types that share scales between the tokens of
 * a block can't be written by several at a time. */
static bool apart(const struct grappa_context *c, int32_t seq)
{
    if (c->guesses[seq] == 0 || c->states.n_tables > 0 || !c->m->arch->cache_type)
        return false;
    for (size_t i = 0; i < c->m->n_caches; i++) {
        enum ov_elem type = c->m->caches[i].port.elem;
        if (type != OV_ELEM_F32 && type != OV_ELEM_F16 && type != OV_ELEM_BF16)
            return false;
    }
    return true;
}

struct parts { /* of a slice: what attention takes for sequences */
    int32_t n, rows, blocks, states;
    int32_t more; /* than there are sequences */
};

static void begin_part(struct host *t, struct parts *p, int32_t past, const int32_t *blocks, int32_t n_blocks)
{
    t->past_lens[p->n] = past;
    t->subsequence_begins[p->n] = p->rows;
    t->block_indices_begins[p->n] = p->blocks;
    memcpy(t->block_indices + p->blocks, blocks, (size_t)n_blocks * sizeof *blocks);
    p->blocks += n_blocks;
    p->n++;
}

/* The slots of a sequence's states: with guesses a state after each token, to come back to. */
static void begin_states(struct grappa_context *c, struct parts *p, int32_t s, int32_t count)
{
    struct host *t = &c->host;
    int32_t n = states_step(&c->states, s, count, c->guesses[s] > 0, &t->state_indices[p->states]);
    t->state_interval[p->n] = n > 1 ? 1 : ARCH_STATE_INTERVAL;
    p->states += 1 + n;
    t->state_begins[p->n + 1] = p->states;
}

/* `count` more tokens of a sequence. */
static void lay_out_sequence(struct grappa_context *c, struct parts *p, int32_t s, int32_t count)
{
    struct host *t = &c->host;
    const struct kv_seq *seq = &c->kv.seqs[s];
    int32_t past = seq->n_tokens, size = c->kv.block_size;
    kv_extend(&c->kv, s, count);
    if (c->states.n_tables > 0)
        begin_states(c, p, s, count);
    bool each = apart(c, s) && p->more + count - 1 <= CONTEXT_GUESSES;
    p->more += each ? count - 1 : 0;
    if (!each)
        begin_part(t, p, past, seq->blocks, seq->n_blocks);
    for (int32_t i = 0; i < count; i++) {
        if (each)
            begin_part(t, p, past + i, seq->blocks, (past + i + size) / size);
        t->pos[p->rows++] = past + i;
    }
    if (seq->n_tokens > t->max_context_len)
        t->max_context_len = seq->n_tokens;
}

int32_t context_lay_out(struct grappa_context *c, const struct grappa_batch *b, size_t first, size_t n)
{
    struct host *t = &c->host;
    struct parts p = {0};
    memset(c->seq_tokens, 0, (size_t)c->kv.n_seqs * sizeof *c->seq_tokens);
    for (size_t i = 0; i < n; i++)
        c->seq_tokens[context_seq_of(b, first + i)]++;
    t->max_context_len = 0;
    for (int32_t s = 0; s < c->kv.n_seqs; s++) {
        int32_t count = c->seq_tokens[s];
        if (count == 0)
            continue;
        c->seq_tokens[s] = p.rows; /* from here on: the next row of this sequence */
        lay_out_sequence(c, &p, s, count);
    }
    t->subsequence_begins[p.n] = p.rows;
    t->block_indices_begins[p.n] = p.blocks;
    if (p.rows == 1 && t->past_lens[0] <= ALIKE_MAX && c->states.n_tables == 0 && c->m->arch->cache_type) {
        p.n++;
        t->past_lens[1] = 0;
        t->subsequence_begins[2] = p.rows;
        t->block_indices_begins[2] = p.blocks;
    }
    for (size_t i = 0; i < n; i++)
        c->row_of[i] = c->seq_tokens[context_seq_of(b, first + i)]++;
    return p.n;
}
