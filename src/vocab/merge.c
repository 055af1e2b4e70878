/* Symbol chains and their heap of pairs. */
#include "vocab/merge.h"

#include <stdlib.h>

bool heap_push(struct heap *h, struct pair pair)
{
    if (h->n == h->size) {
        size_t size = h->size ? 2 * h->size : 64;
        struct pair *p = realloc(h->p, size * sizeof *p);
        if (!p)
            return false;
        h->p = p;
        h->size = size;
    }
    size_t i = h->n++;
    for (; i && h->p[(i - 1) / 2].order > pair.order; i = (i - 1) / 2)
        h->p[i] = h->p[(i - 1) / 2];
    h->p[i] = pair;
    return true;
}

struct pair heap_pop(struct heap *h)
{
    struct pair top = h->p[0], last = h->p[--h->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->p[child + 1].order < h->p[child].order)
            child++;
        if (h->p[child].order >= last.order)
            break;
        h->p[i] = h->p[child];
    }
    h->p[i] = last;
    return top;
}

void heap_release(struct heap *h)
{
    free(h->p);
    *h = (struct heap){0};
}

void merger_release(struct merger *m)
{
    free(m->symbols);
    heap_release(&m->heap);
    *m = (struct merger){0};
}

bool merger_add(struct merger *m, uint32_t at, uint32_t n, int32_t id)
{
    if (m->n == m->size) {
        size_t size = m->size ? 2 * m->size : 64;
        struct symbol *p = size < INT32_MAX ? realloc(m->symbols, size * sizeof *p) : NULL;
        if (!p)
            return false;
        m->symbols = p;
        m->size = size;
    }
    int32_t i = (int32_t)m->n++;
    m->symbols[i] = (struct symbol){at, n, i - 1, -1, id};
    if (i)
        m->symbols[i - 1].next = i;
    return true;
}

static bool offer(struct merger *m, int32_t left, pair_rule *fits, const void *rule)
{
    const struct symbol *l = &m->symbols[left];
    if (l->next < 0)
        return true;
    const struct symbol *r = &m->symbols[l->next];
    uint32_t order;
    int32_t id;
    if (!fits(rule, l, r, &order, &id))
        return true;
    return heap_push(&m->heap, (struct pair){(uint64_t)order << 32 | (uint32_t)left, l->n + r->n, id});
}

bool merger_run(struct merger *m, pair_rule *fits, const void *rule)
{
    m->heap.n = 0;
    for (size_t i = 0; i + 1 < m->n; i++) {
        if (!offer(m, (int32_t)i, fits, rule))
            return false;
    }
    while (m->heap.n) {
        struct pair pair = heap_pop(&m->heap);
        int32_t left = (int32_t)(uint32_t)pair.order;
        struct symbol *l = &m->symbols[left];
        if (!l->n || l->next < 0)
            continue;
        struct symbol *r = &m->symbols[l->next];
        if (l->n + r->n != pair.n)
            continue; /* symbols only grow, so an equal length means that neither has changed */
        l->n = pair.n;
        l->id = pair.id;
        l->next = r->next;
        r->n = 0;
        if (l->next >= 0)
            m->symbols[l->next].prev = left;
        if ((l->prev >= 0 && !offer(m, l->prev, fits, rule)) || !offer(m, left, fits, rule))
            return false;
    }
    return true;
}
