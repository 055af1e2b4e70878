/* Texts by their bytes: which texts of a set does this text begin with? One step goes one byte deeper.
 *
 * Nodes lie level by level, so that the children of a node are neighbours, and where they end is where those
 * of the node behind it begin: 8 bytes a node and one for its label. */
#ifndef VOCAB_TRIE_H
#define VOCAB_TRIE_H

#include "base/str.h"

#include <stdint.h>

struct trie_node {
    uint32_t first; /* child; the next node's `first` ends them */
    int32_t id;     /* of the text that ends here; -1: none does */
};

struct trie {
    struct trie_node *nodes; /* n and one more; node 0 is the root. NULL: no texts */
    unsigned char *labels;   /* the byte that leads to each node */
    uint32_t n, size;
};

#define TRIE_ROOT    0
#define TRIE_NO_NODE UINT32_MAX

/* texts[i] gets ids[i]; of equal texts the last one counts, empty ones don't. False when memory is out.
 * An all-zero trie is empty. */
bool trie_build(struct trie *t, const struct str *texts, const int32_t *ids, size_t n);
void trie_release(struct trie *t);

static inline uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char c)
{
    uint32_t at = t->nodes[node].first, end = t->nodes[node + 1].first;
    if (end - at <= 4) {
        for (; at < end; at++) {
            if (t->labels[at] == c)
                return at;
        }
        return TRIE_NO_NODE;
    }
    const unsigned char *p = memchr(t->labels + at, c, end - at);
    return p ? (uint32_t)(p - t->labels) : TRIE_NO_NODE;
}

#endif
