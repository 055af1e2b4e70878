/* The tree of cached blocks: a hash table over (block before, tokens), and a list by last use. */
#include "engine/prefix.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void prefix_init(struct prefix *p, struct kv *kv, struct kv *swa)
{
    *p = (struct prefix){.kv = kv, .swa = swa, .oldest = -1, .newest = -1, .n_buckets = 64};
    size_t n = (size_t)kv->n_blocks;
    while (p->n_buckets < n)
        p->n_buckets *= 2;
    p->nodes = xcalloc(n, sizeof *p->nodes);
    p->tokens = xcalloc(n * (size_t)kv->block_size, sizeof *p->tokens);
    p->buckets = xcalloc(p->n_buckets, sizeof *p->buckets);
    p->swa_node = xcalloc((size_t)swa->n_blocks + 1, sizeof *p->swa_node);
    for (int32_t i = 0; i < swa->n_blocks; i++)
        p->swa_node[i] = -1;
    for (size_t i = 0; i < n; i++)
        p->nodes[i].parent = PREFIX_NONE;
    for (uint32_t i = 0; i < p->n_buckets; i++)
        p->buckets[i] = -1;
    if (getrandom(&p->seed, sizeof p->seed, GRND_NONBLOCK) != (ssize_t)sizeof p->seed)
        p->seed = (uint64_t)(uintptr_t)p * 0x9E3779B97F4A7C15u;
}

void prefix_release(struct prefix *p)
{
    free(p->nodes);
    free(p->tokens);
    free(p->buckets);
    free(p->swa_node);
    *p = (struct prefix){0};
}

static int32_t *tokens_of(const struct prefix *p, int32_t block)
{
    return p->tokens + (size_t)block * (size_t)p->kv->block_size;
}

/* ---- the hash table ---- */

static uint64_t mix(uint64_t h, uint64_t w)
{
    unsigned __int128 m = (unsigned __int128)(h ^ w) * 0xA0761D6478BD642Fu;
    return (uint64_t)m ^ (uint64_t)(m >> 64) ^ 0xE7037ED1A0B428DBu;
}

static int32_t *bucket(const struct prefix *p, int32_t parent, const int32_t *tokens)
{
    uint64_t h = mix(p->seed, (uint64_t)(int64_t)parent);
    for (int32_t i = 0; i < p->kv->block_size; i++)
        h = mix(h, (uint32_t)tokens[i]);
    return &p->buckets[(h ^ h >> 31) & (p->n_buckets - 1)];
}

static int32_t find(const struct prefix *p, int32_t parent, const int32_t *tokens)
{
    size_t bytes = (size_t)p->kv->block_size * sizeof *tokens;
    int32_t b = *bucket(p, parent, tokens);
    while (b >= 0 && (p->nodes[b].parent != parent || memcmp(tokens_of(p, b), tokens, bytes) != 0))
        b = p->nodes[b].next;
    return b;
}

/* ---- the list by last use ---- */

static void unlink_node(struct prefix *p, int32_t b)
{
    struct prefix_node *n = &p->nodes[b];
    *(n->older >= 0 ? &p->nodes[n->older].newer : &p->oldest) = n->newer;
    *(n->newer >= 0 ? &p->nodes[n->newer].older : &p->newest) = n->older;
}

static void link_newest(struct prefix *p, int32_t b)
{
    p->nodes[b].older = p->newest;
    p->nodes[b].newer = -1;
    *(p->newest >= 0 ? &p->nodes[p->newest].newer : &p->oldest) = b;
    p->newest = b;
}

/* A chain is in use: its end is used before its beginning, so that a parent is never older than a child. */
static void touch_chain(struct prefix *p, const int32_t *blocks, int32_t n)
{
    p->clock++;
    for (int32_t i = n - 1; i >= 0; i--) {
        unlink_node(p, blocks[i]);
        link_newest(p, blocks[i]);
        p->nodes[blocks[i]].used = p->clock;
    }
}

/* ---- blocks of the windows ---- */

static int32_t first_read(const struct prefix *p, int32_t n)
{
    return kv_first_read(p->swa->window, p->kv->block_size, n * p->kv->block_size);
}

/* The most of these n blocks whose window is there. */
static int32_t usable(const struct prefix *p, const int32_t *blocks, int32_t n)
{
    int32_t there = n; /* from here on, up to n */
    if (p->swa->n_seqs == 0)
        return n;
    while (n > 0) {
        while (there > first_read(p, n) && p->nodes[blocks[there - 1]].swa >= 0)
            there--;
        if (there <= first_read(p, n))
            return n;
        n = there - 1; /* the block before is missing: no end that reads it */
        there = n;
    }
    return 0;
}

/* The window before the end of n blocks of a chain is worth keeping. */
static void keep_window(struct prefix *p, const int32_t *blocks, int32_t n)
{
    for (int32_t i = first_read(p, n); p->swa->n_seqs && i < n; i++)
        p->nodes[blocks[i]].kept = p->nodes[blocks[i]].swa >= 0;
}

/* The i-th block of a sequence and the one of the tree are of the same tokens: one gets the other's. */
static void share_swa(struct prefix *p, int32_t seq, int32_t i)
{
    if (p->swa->n_seqs == 0 || i < p->swa->seqs[seq].first)
        return;
    int32_t node = p->kv->seqs[seq].blocks[i], b = p->swa->seqs[seq].blocks[i];
    struct prefix_node *n = &p->nodes[node];
    if (n->swa >= 0) {
        kv_replace(p->swa, seq, i, n->swa);
        return;
    }
    n->swa = b;
    p->swa_node[b] = node;
    kv_hold(p->swa, b);
}

static void drop_swa(struct prefix *p, int32_t node)
{
    struct prefix_node *n = &p->nodes[node];
    if (n->swa < 0)
        return;
    p->swa_node[n->swa] = -1;
    kv_give(p->swa, n->swa);
    n->swa = -1;
    n->kept = false;
}

/* Goes before another: not worth keeping, not used for longer, or further from the beginning. */
static bool goes_before(const struct prefix_node *a, const struct prefix_node *b)
{
    if (a->kept != b->kept)
        return b->kept;
    return a->used != b->used ? a->used < b->used : a->depth > b->depth;
}

bool prefix_evict_swa(struct prefix *p)
{
    int32_t best = -1;
    for (int32_t i = 0; i < p->swa->n_blocks; i++) {
        int32_t node = p->swa_node[i];
        if (node >= 0 && p->swa->refs[i] == 1 && (best < 0 || goes_before(&p->nodes[node], &p->nodes[best])))
            best = node;
    }
    if (best >= 0)
        drop_swa(p, best);
    return best >= 0;
}

/* ---- in and out ---- */

int32_t prefix_match(struct prefix *p, const int32_t *tokens, int32_t n, int32_t *blocks, bool touch)
{
    int32_t size = p->kv->block_size, found = 0, parent = PREFIX_ROOT;
    for (; (found + 1) * size <= n; found++) {
        int32_t b = find(p, parent, tokens + (size_t)found * (size_t)size);
        if (b < 0)
            break;
        blocks[found] = parent = b;
    }
    found = usable(p, blocks, found);
    if (touch) {
        touch_chain(p, blocks, found);
        keep_window(p, blocks, found);
    }
    return found;
}

void prefix_adopt(struct prefix *p, int32_t seq, const int32_t *blocks, int32_t n)
{
    kv_adopt(p->kv, seq, blocks, 0, n);
    if (p->swa->n_seqs == 0)
        return;
    struct kv_seq *s = &p->swa->seqs[seq];
    int32_t size = p->kv->block_size, first = n;
    int32_t least = kv_first_read(p->swa->window, size, n * size - p->swa->slack);
    while (first > least && p->nodes[blocks[first - 1]].swa >= 0)
        first--;
    for (int32_t i = first; i < n; i++)
        s->blocks[i] = p->nodes[blocks[i]].swa;
    kv_adopt(p->swa, seq, s->blocks, first, n);
}

static void insert(struct prefix *p, int32_t b, int32_t parent, const int32_t *tokens)
{
    int32_t *head = bucket(p, parent, tokens);
    p->nodes[b] = (struct prefix_node){
        .parent = parent, .next = *head, .swa = -1, .depth = parent >= 0 ? p->nodes[parent].depth + 1 : 0};
    *head = b;
    memcpy(tokens_of(p, b), tokens, (size_t)p->kv->block_size * sizeof *tokens);
    link_newest(p, b);
    if (parent >= 0)
        p->nodes[parent].n_children++;
    kv_hold(p->kv, b);
    p->n++;
}

int32_t prefix_add(struct prefix *p, int32_t seq, const int32_t *tokens, int32_t done, bool end)
{
    const struct kv_seq *s = &p->kv->seqs[seq];
    int32_t size = p->kv->block_size, full = s->n_tokens / size;
    for (int32_t i = done; i < full; i++) {
        int32_t parent = i ? s->blocks[i - 1] : PREFIX_ROOT;
        const int32_t *t = tokens + (size_t)i * (size_t)size;
        int32_t same = find(p, parent, t);
        if (same >= 0 && same != s->blocks[i])
            kv_replace(p->kv, seq, i, same);
        else if (same < 0)
            insert(p, s->blocks[i], parent, t);
        share_swa(p, seq, i);
        if (same < 0 && parent >= 0 && p->nodes[parent].n_children > 1) /* another went on from here */
            keep_window(p, s->blocks, i);
    }
    if (done < full)
        touch_chain(p, s->blocks, full);
    if (end)
        keep_window(p, s->blocks, full);
    return full;
}

static void drop(struct prefix *p, int32_t b)
{
    struct prefix_node *n = &p->nodes[b];
    int32_t *at = bucket(p, n->parent, tokens_of(p, b));
    while (*at != b)
        at = &p->nodes[*at].next;
    *at = n->next;
    drop_swa(p, b);
    unlink_node(p, b);
    if (n->parent >= 0)
        p->nodes[n->parent].n_children--;
    n->parent = PREFIX_NONE;
    p->n--;
    kv_give(p->kv, b);
}

static bool droppable(const struct prefix *p, int32_t b)
{
    return p->nodes[b].parent != PREFIX_NONE && p->nodes[b].n_children == 0 && p->kv->refs[b] == 1;
}

bool prefix_evict(struct prefix *p)
{
    int32_t b = p->oldest;
    while (b >= 0 && !droppable(p, b))
        b = p->nodes[b].newer;
    if (b < 0)
        return false;
    drop(p, b);
    return true;
}

void prefix_forget(struct prefix *p, const int32_t *blocks, int32_t n)
{
    while (n > 0 && droppable(p, blocks[n - 1]))
        drop(p, blocks[--n]);
}
