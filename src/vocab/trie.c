/* Building a trie level by level: the texts of a node are sorted by their next byte, and every run becomes a
 * child. Eight bytes of a text are looked at once, so that the texts themselves are seldom touched. */
#include "vocab/trie.h"

#include <stdlib.h>

struct entry {
    uint64_t bytes; /* the next ones, the first on top */
    uint32_t text;
    uint32_t n; /* of the text */
};

/* Entries [lo, hi) share the path to a node. */
struct range {
    uint32_t lo, hi;
};

struct builder {
    struct trie *t;
    const struct str *texts;
    const int32_t *ids;
    struct entry *entries, *sorted;
    struct range *ranges; /* of each node */
    uint32_t size;
};

static uint64_t bytes_at(struct str text, size_t depth)
{
    uint64_t bytes = 0;
    for (size_t i = depth; i < depth + 8; i++)
        bytes = bytes << 8 | (i < text.n ? (unsigned char)text.p[i] : 0);
    return bytes;
}

static bool grow(struct builder *b)
{
    struct trie *t = b->t;
    uint32_t size = b->size ? 2 * b->size : 1024;
    struct trie_node *nodes = realloc(t->nodes, ((size_t)size + 1) * sizeof *nodes);
    if (!nodes)
        return false;
    t->nodes = nodes;
    unsigned char *labels = realloc(t->labels, size);
    if (!labels)
        return false;
    t->labels = labels;
    struct range *ranges = realloc(b->ranges, size * sizeof *ranges);
    if (!ranges)
        return false;
    b->ranges = ranges;
    b->size = size;
    return true;
}

static bool add_node(struct builder *b, unsigned char label, struct range range)
{
    struct trie *t = b->t;
    if ((!b->ranges || t->n == b->size) && (b->size > INT32_MAX / 2 || !grow(b)))
        return false;
    t->nodes[t->n] = (struct trie_node){0, -1};
    t->labels[t->n] = label;
    b->ranges[t->n++] = range;
    return true;
}

/* Stable, by the byte on top. */
static void sort(struct builder *b, struct range r)
{
    struct entry *e = b->entries;
    if (r.hi - r.lo < 24) {
        for (uint32_t i = r.lo + 1; i < r.hi; i++) {
            struct entry x = e[i];
            uint32_t k = i;
            for (; k > r.lo && e[k - 1].bytes >> 56 > x.bytes >> 56; k--)
                e[k] = e[k - 1];
            e[k] = x;
        }
        return;
    }
    uint32_t at[257] = {0};
    for (uint32_t i = r.lo; i < r.hi; i++)
        at[(e[i].bytes >> 56) + 1]++;
    for (int c = 0; c < 256; c++)
        at[c + 1] += at[c];
    for (uint32_t i = r.lo; i < r.hi; i++)
        b->sorted[at[e[i].bytes >> 56]++] = e[i];
    memcpy(e + r.lo, b->sorted, (r.hi - r.lo) * sizeof *e);
}

/* Texts that end at the node go away, the others move to the front with their next byte on top. */
static struct range advance(struct builder *b, uint32_t node, uint32_t depth)
{
    struct range r = b->ranges[node];
    uint32_t kept = r.lo;
    for (uint32_t i = r.lo; i < r.hi; i++) {
        struct entry e = b->entries[i];
        if (e.n == depth) {
            if (depth)
                b->t->nodes[node].id = b->ids[e.text];
            continue;
        }
        e.bytes = depth % 8 ? e.bytes << 8 : bytes_at(b->texts[e.text], depth);
        b->entries[kept++] = e;
    }
    return (struct range){r.lo, kept};
}

static bool add_children(struct builder *b, uint32_t node, uint32_t depth)
{
    struct range r = advance(b, node, depth);
    b->t->nodes[node].first = b->t->n;
    sort(b, r);
    for (uint32_t lo = r.lo, hi; lo < r.hi; lo = hi) {
        uint64_t label = b->entries[lo].bytes >> 56;
        for (hi = lo + 1; hi < r.hi && b->entries[hi].bytes >> 56 == label; hi++)
            ;
        if (!add_node(b, (unsigned char)label, (struct range){lo, hi}))
            return false;
    }
    return true;
}

static bool add_levels(struct builder *b, uint32_t n_texts)
{
    struct trie *t = b->t;
    if (!add_node(b, 0, (struct range){0, n_texts}))
        return false;
    for (uint32_t begin = 0, depth = 0; begin < t->n; depth++) {
        uint32_t end = t->n;
        for (; begin < end; begin++) {
            if (!add_children(b, begin, depth))
                return false;
        }
    }
    t->nodes[t->n].first = t->n;
    return true;
}

bool trie_build(struct trie *t, const struct str *texts, const int32_t *ids, size_t n)
{
    struct builder b = {.t = t, .texts = texts, .ids = ids};
    bool ok = false;
    *t = (struct trie){0};
    if (n > INT32_MAX)
        return false;
    b.entries = calloc(n + 1, sizeof *b.entries);
    b.sorted = calloc(n + 1, sizeof *b.sorted);
    if (!b.entries || !b.sorted)
        goto out;
    for (size_t i = 0; i < n; i++) {
        if (texts[i].n > INT32_MAX)
            goto out;
        b.entries[i] = (struct entry){0, (uint32_t)i, (uint32_t)texts[i].n};
    }
    ok = add_levels(&b, (uint32_t)n);
out:
    free(b.entries);
    free(b.sorted);
    free(b.ranges);
    if (!ok)
        trie_release(t);
    return ok;
}

void trie_release(struct trie *t)
{
    free(t->nodes);
    free(t->labels);
    *t = (struct trie){0};
}
