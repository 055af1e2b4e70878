/* The cache of prompt beginnings: full KV blocks that stay when their sequence has gone, or that others share
 * while it is still there.
 *
 * A tree: a block's key is the block before it and its own tokens, so that finding a block says that all
 * tokens up to its end are the same. The cache is a holder of its blocks like a sequence (see kv.h). A block
 * that nobody else holds may be given up; the least recently used goes first, and never one that another
 * continues.
 *
 * Where sliding windows have a pool of their own, a block of the tree has one of that pool as well, as long
 * as it lasts: a beginning can be used if those that its next token reads are there. They are fewer, so it
 * counts which are worth keeping: those before the ends of prompts and answers, and those before a place
 * where prompts went different ways. The others go first. */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include "engine/kv.h"

#include <stdbool.h>

struct prefix_node { /* by block */
    int32_t parent;  /* block, PREFIX_ROOT, or PREFIX_NONE: not in the cache */
    int32_t next;    /* with the same hash */
    int32_t n_children;
    int32_t older, newer;
    int32_t depth;
    int32_t swa;   /* its block of the windows, -1: none */
    bool kept;     /* which is worth keeping … */
    uint64_t used; /* … and was last used then */
};

enum { PREFIX_ROOT = -1, PREFIX_NONE = -2 };

struct prefix {
    struct kv *kv, *swa;
    int32_t *swa_node; /* by block of the windows: whose it is, -1: nobody's */
    uint64_t clock;
    struct prefix_node *nodes;
    int32_t *tokens;  /* [n_blocks, block_size] */
    int32_t *buckets; /* first block of each, -1: none */
    uint32_t n_buckets;
    int32_t oldest, newest, n;
    uint64_t seed; /* so that a client can't choose tokens that all collide */
};

/* The blocks of kv, and of the windows (no sequences: there is no such pool), which must outlive it. */
void prefix_init(struct prefix *p, struct kv *kv, struct kv *swa);
void prefix_release(struct prefix *p);

/* The blocks that hold the longest beginning of these tokens that can be used, into blocks[n / block_size];
 * returns how many. `touch`: they are in use now. */
int32_t prefix_match(struct prefix *p, const int32_t *tokens, int32_t n, int32_t *blocks, bool touch);
/* An empty sequence begins with them. */
void prefix_adopt(struct prefix *p, int32_t seq, const int32_t *blocks, int32_t n);
/* Takes in the full blocks of a sequence from the done-th on; those before are in the cache. Where the cache
 * has the same block already, the sequence gets that one. `end`: a prompt or an answer ends here. Returns the
 * number of full blocks. */
int32_t prefix_add(struct prefix *p, int32_t seq, const int32_t *tokens, int32_t done, bool end);
/* Gives up the least recently used block that nobody holds. False: there is none. */
bool prefix_evict(struct prefix *p);
/* The same for a block of the windows. */
bool prefix_evict_swa(struct prefix *p);
/* Gives up those of these blocks, the beginning of a sequence that is gone, that nobody else holds or
 * continues. */
void prefix_forget(struct prefix *p, const int32_t *blocks, int32_t n);

#endif
