/* Sizes computed with overflow checks, and an arena: memory given back all at once. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True and *out set when it fits; false on overflow. */
static inline bool mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* malloc/realloc that end the process with one line when memory is out. For small things whose size does not
 * come from a file or a client; everything else uses malloc and fails with ERR_MEMORY. */
void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);

struct arena {
    struct arena_block *last;
};

/* An all-zero arena is ready for use. */
void arena_release(struct arena *a);
/* Zeroed, aligned to 16; lives until arena_release. */
void *arena_alloc(struct arena *a, size_t n);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
