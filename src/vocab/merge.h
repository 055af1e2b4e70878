/* The heart of both BPE kinds: a chain of symbols in which the best adjacent pair is merged until none is
 * left.
 *
 * The pairs wait in a heap; one whose symbols have changed since is recognised by its length when it comes up
 * and is dropped. Every merge adds at most two pairs, so n symbols take O(n log n). */
#ifndef VOCAB_MERGE_H
#define VOCAB_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbol {
    uint32_t at, n;     /* bytes of the text; n == 0: merged into a symbol before it */
    int32_t prev, next; /* -1 at the ends */
    int32_t id;         /* what the pair rule goes by; -1: belongs to no pair */
};

struct pair {
    uint64_t order; /* smallest first: the rule's order, then the place of the left symbol */
    uint32_t n;     /* bytes of both symbols */
    int32_t id;     /* of the merged symbol */
};

struct heap {
    struct pair *p;
    size_t n, size;
};

/* False when memory is out. */
bool heap_push(struct heap *h, struct pair pair);
struct pair heap_pop(struct heap *h); /* h->n > 0 */
void heap_release(struct heap *h);

struct merger {
    struct symbol *symbols;
    size_t n, size;
    struct heap heap;
};

/* May the two symbols become one, in which order, under which id? */
typedef bool pair_rule(const void *rule, const struct symbol *left, const struct symbol *right,
                       uint32_t *order, int32_t *id);

void merger_release(struct merger *m);
static inline void merger_clear(struct merger *m)
{
    m->n = 0;
}
/* Adds a symbol at the end of the chain. False when memory is out. */
bool merger_add(struct merger *m, uint32_t at, uint32_t n, int32_t id);
bool merger_run(struct merger *m, pair_rule *fits, const void *rule);

#endif
