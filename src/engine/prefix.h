/* The cache of prompt beginnings: full KV blocks that stay when their sequence has gone, or that others share
 * while it is still there.
 *
 * A tree: a block's key is the block before it and its own tokens, so that finding a block says that all
 * tokens up to its end are the same. The cache is a holder of its blocks like a sequence (see kv.h). A block
 * that nobody else holds may be given up; the least recently used goes first, and never one that another
 * continues. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include "engine/kv.h"

#include <stdbool.h>

struct prefix_node { /* by block */
    int32_t parent;  /* block, PREFIX_ROOT, or PREFIX_NONE: not in the cache */
    int32_t next;    /* with the same hash */
    int32_t n_children;
    int32_t older, newer;
};

enum { PREFIX_ROOT = -1, PREFIX_NONE = -2 };

struct prefix {
    struct kv *kv;
    struct prefix_node *nodes;
    int32_t *tokens;  /* [n_blocks, block_size] */
    int32_t *buckets; /* first block of each, -1: none */
    uint32_t n_buckets;
    int32_t oldest, newest, n;
    uint64_t seed; /* so that a client can't choose tokens that all collide */
};

/* The blocks of kv, which must outlive it. */
void prefix_init(struct prefix *p, struct kv *kv);
void prefix_release(struct prefix *p);

/* The blocks that hold the beginning of these tokens, into blocks[n / block_size]; returns how many. `touch`:
 * they are in use now. */
int32_t prefix_match(struct prefix *p, const int32_t *tokens, int32_t n, int32_t *blocks, bool touch);
/* Takes in the full blocks of a sequence from the done-th on; those before are in the cache. Where the cache
 * has the same block already, the sequence gets that one. Returns the number of full blocks. */
int32_t prefix_add(struct prefix *p, int32_t seq, const int32_t *tokens, int32_t done);
/* Gives up the least recently used block that nobody holds. False: there is none. */
bool prefix_evict(struct prefix *p);
/* Gives up those of these blocks, the beginning of a sequence that is gone, that nobody else holds or
 * continues. */
void prefix_forget(struct prefix *p, const int32_t *blocks, int32_t n);

#endif
