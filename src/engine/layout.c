/* How the tokens of a slice lie in the inputs of the graph: rows in the order of their sequences, and what
 * attention takes for sequences, which are not always the engine's. */
#include "engine/context.h"

#include <string.h>

/* Fewer single tokens than there are threads go through attention in another order of sums than more of them
 * or than single tokens beside prompts, unless a sequence of no tokens stands beside them: then a text is the
 * same to the last bit whether others are written at the same time or not. On a CPU that costs nothing up to
 * here; of a long sequence alone it would take up to half of the speed. */
enum { ALIKE_MAX = 512 };

/* Whether each token of a sequence goes through attention as a sequence of its own. Guesses do, on a CPU: it
 * takes several tokens of a sequence for a prompt, which costs more, and sums in another order than for a
 * single one. Keys and values are written before any are read. Types that share scales between the tokens of
 * a block can't be written by several at a time. */
static bool apart(const struct grappa_context *c, int32_t seq)
{
    if (c->guesses[seq] == 0 || !c->m->arch->cache_type)
        return false;
    for (size_t i = 0; i < c->m->n_caches; i++) {
        enum ov_elem type = c->m->caches[i].port.elem;
        if (type != OV_ELEM_F32 && type != OV_ELEM_F16 && type != OV_ELEM_BF16)
            return false;
    }
    return true;
}

struct parts { /* of a slice: what attention takes for sequences */
    int32_t n, rows, blocks[2];
    int32_t more; /* than there are sequences */
};

/* Blocks of a sequence that tokens with so many before them read, up to n_tokens. What a window has no need
 * of is left out even where it is still there: sums then depend on nothing but the position. */
static void put_blocks(struct block_table *t, const struct kv *kv, int32_t s, int32_t window,
                       const struct parts *p, int32_t *blocks, int32_t past, int32_t n_tokens)
{
    int32_t first = kv_first_read(window, kv->block_size, past), gone = first * kv->block_size;
    int32_t n = (n_tokens + kv->block_size - 1) / kv->block_size - first;
    t->past_lens[p->n] = past - gone;
    t->block_indices_begins[p->n] = *blocks;
    memcpy(t->block_indices + *blocks, kv->seqs[s].blocks + first, (size_t)n * sizeof *t->block_indices);
    *blocks += n;
    if (n_tokens - gone > t->max_context_len)
        t->max_context_len = n_tokens - gone;
}

static void begin_part(struct grappa_context *c, struct parts *p, int32_t s, int32_t past, int32_t n_tokens)
{
    struct host *t = &c->host;
    t->subsequence_begins[p->n] = p->rows;
    put_blocks(&t->table[0], &c->kv, s, 0, p, &p->blocks[0], past, n_tokens);
    const struct kv *windows = context_windows(c);
    if (windows)
        put_blocks(&t->table[1], windows, s, c->window, p, &p->blocks[1], past, n_tokens);
    p->n++;
}

/* Behind the last part; `empty`: with one of no tokens. */
static void end_parts(struct grappa_context *c, struct parts *p, bool empty)
{
    struct host *t = &c->host;
    for (int32_t end = p->n + empty; p->n <= end; p->n++) {
        t->subsequence_begins[p->n] = p->rows;
        for (int i = 0; i < 2; i++) {
            t->table[i].past_lens[p->n] = 0;
            t->table[i].block_indices_begins[p->n] = p->blocks[i];
        }
    }
    p->n--;
}

/* The slots of a sequence's states: with guesses a state after each token, to come back to. */
static void begin_states(struct grappa_context *c, struct parts *p, int32_t s, int32_t past, int32_t count)
{
    struct host *t = &c->host;
    int32_t at = t->n_states++, slots = t->state_begins[at];
    int32_t n = states_step(&c->states, s, count, c->guesses[s] > 0, &t->state_indices[slots]);
    t->state_past[at] = past;
    t->state_interval[at] = n > 1 ? 1 : ARCH_STATE_INTERVAL;
    t->state_begins[at + 1] = slots + 1 + n;
    t->state_rows[at + 1] = p->rows + count;
}

/* `count` more tokens of a sequence. */
static void lay_out_sequence(struct grappa_context *c, struct parts *p, int32_t s, int32_t count)
{
    struct host *t = &c->host;
    int32_t past = c->kv.seqs[s].n_tokens;
    kv_extend(&c->kv, s, count);
    if (c->swa.n_seqs)
        kv_extend(&c->swa, s, count);
    if (c->states.n_tables > 0)
        begin_states(c, p, s, past, count);
    bool each = apart(c, s) && p->more + count - 1 <= CONTEXT_GUESSES;
    p->more += each ? count - 1 : 0;
    if (!each)
        begin_part(c, p, s, past, past + count);
    for (int32_t i = 0; i < count; i++) {
        if (each)
            begin_part(c, p, s, past + i, past + i + 1);
        t->pos[p->rows++] = past + i;
    }
}

/* Whether an empty sequence goes beside them: where all are single tokens, some of them of short sequences.
 */
static bool wants_company(const struct grappa_context *c, const struct parts *p)
{
    if (p->rows != p->n || !c->m->arch->cache_type)
        return false;
    for (int32_t i = 0; i < p->rows; i++)
        if (c->host.pos[i] <= ALIKE_MAX)
            return true;
    return false;
}

int32_t context_lay_out(struct grappa_context *c, const struct grappa_batch *b, size_t first, size_t n)
{
    struct host *t = &c->host;
    struct parts p = {0};
    memset(c->seq_tokens, 0, (size_t)c->kv.n_seqs * sizeof *c->seq_tokens);
    for (size_t i = 0; i < n; i++)
        c->seq_tokens[context_seq_of(b, first + i)]++;
    t->table[0].max_context_len = t->table[1].max_context_len = 0;
    t->n_states = 0; /* state_begins[0] and state_rows[0] are 0 for ever */
    for (int32_t s = 0; s < c->kv.n_seqs; s++) {
        int32_t count = c->seq_tokens[s];
        if (count == 0)
            continue;
        c->seq_tokens[s] = p.rows; /* from here on: the next row of this sequence */
        lay_out_sequence(c, &p, s, count);
    }
    end_parts(c, &p, wants_company(c, &p));
    for (size_t i = 0; i < n; i++)
        c->row_of[i] = c->seq_tokens[context_seq_of(b, first + i)]++;
    return p.n;
}
