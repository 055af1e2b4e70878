/* A growing byte buffer with a ceiling. Always NUL-terminated behind its `n` bytes, so `p` prints as a string
 * once something was added (p is NULL before). Going over the ceiling or out of memory sets `failed`, keeps
 * what was there, and makes every later call do nothing: check once, at the end. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>

struct buf {
    char *p;
    size_t n, size, ceiling; /* ceiling 0: none was set, BUF_DEFAULT_CEILING counts */
    bool failed;
};

#define BUF_DEFAULT_CEILING ((size_t)1 << 30)

void buf_release(struct buf *b); /* back to an empty buffer with the same ceiling */
void buf_clear(struct buf *b);   /* n = 0, memory kept */
bool buf_reserve(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *z);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The UTF-8 encoding of a code point up to 0x10FFFF. */
void buf_put_utf8(struct buf *b, uint32_t cp);

static inline struct str buf_str(const struct buf *b)
{
    return (struct str){b->p, b->n};
}

#endif
