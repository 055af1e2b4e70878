/* Growing byte buffer: doubling, a ceiling, and one sticky failure. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

void buf_release(struct buf *b)
{
    free(b->p);
    *b = (struct buf){.ceiling = b->ceiling};
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    if (b->p)
        b->p[0] = '\0';
}

bool buf_reserve(struct buf *b, size_t more)
{
    if (b->failed)
        return false;
    size_t ceiling = b->ceiling ? b->ceiling : BUF_DEFAULT_CEILING;
    if (ceiling > SIZE_MAX / 4) /* keeps the sums and the doubling below from wrapping */
        ceiling = SIZE_MAX / 4;
    if (more > ceiling || b->n > ceiling - more) {
        b->failed = true;
        return false;
    }
    size_t need = b->n + more + 1;
    if (need <= b->size)
        return true;
    size_t size = b->size ? b->size : 64;
    while (size < need)
        size *= 2;
    char *p = realloc(b->p, size);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->size = size;
    return true;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (!buf_reserve(b, n))
        return;
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = '\0';
}

void buf_puts(struct buf *b, const char *z)
{
    buf_add(b, z, strlen(z));
}

void buf_putc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0 && buf_reserve(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_put_utf8(struct buf *b, uint32_t cp)
{
    char c[4];
    size_t n = 0;
    if (cp < 0x80) {
        c[n++] = (char)cp;
    } else if (cp < 0x800) {
        c[n++] = (char)(0xC0 | cp >> 6);
        c[n++] = (char)(0x80 | (cp & 0x3F));
    } else if (cp < 0x10000) {
        c[n++] = (char)(0xE0 | cp >> 12);
        c[n++] = (char)(0x80 | (cp >> 6 & 0x3F));
        c[n++] = (char)(0x80 | (cp & 0x3F));
    } else {
        c[n++] = (char)(0xF0 | cp >> 18);
        c[n++] = (char)(0x80 | (cp >> 12 & 0x3F));
        c[n++] = (char)(0x80 | (cp >> 6 & 0x3F));
        c[n++] = (char)(0x80 | (cp & 0x3F));
    }
    buf_add(b, c, n);
}
