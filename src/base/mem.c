/* Arena of chained blocks, and the allocators that do not return NULL. */
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *need(void *p)
{
    if (!p) {
        fputs("grappa: out of memory\n", stderr);
        abort();
    }
    return p;
}

void *xmalloc(size_t n)
{
    return need(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
    return need(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
    return need(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s)
{
    size_t n = strlen(s) + 1;
    return memcpy(xmalloc(n), s, n);
}

struct arena_block {
    struct arena_block *before;
    size_t used, size;
    _Alignas(16) unsigned char bytes[];
};

void arena_release(struct arena *a)
{
    for (struct arena_block *b = a->last; b;) {
        struct arena_block *before = b->before;
        free(b);
        b = before;
    }
    a->last = NULL;
}

void *arena_alloc(struct arena *a, size_t n)
{
    n = align_up(n ? n : 1, 16);
    struct arena_block *b = a->last;
    if (!b || b->size - b->used < n) {
        size_t size = n > 65536 ? n : 65536;
        b = xmalloc(sizeof *b + size);
        b->before = a->last;
        b->used = 0;
        b->size = size;
        a->last = b;
    }
    void *p = b->bytes + b->used;
    b->used += n;
    return memset(p, 0, n);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *p = arena_alloc(a, n + 1);
    if (n)
        memcpy(p, s, n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}
