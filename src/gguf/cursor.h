/* A cursor over bytes that nobody vouches for. Every read is checked against the end; the first one that does
 * not fit sets `failed`, and from then on every read gives zeros. So a caller reads a whole record and checks
 * once, as long as it looks at `failed` before it believes a value. */
#ifndef GGUF_CURSOR_H
#define GGUF_CURSOR_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(size_t) == 8, "file sizes and lengths are held in a size_t");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they lie in the file");

struct cursor {
    const uint8_t *begin, *p, *end;
    bool failed;
};

static inline struct cursor cursor_over(const void *p, size_t n)
{
    return (struct cursor){p, p, (const uint8_t *)p + n, false};
}

/* Bytes before and behind the cursor. */
static inline size_t cursor_at(const struct cursor *c)
{
    return (size_t)(c->p - c->begin);
}
static inline size_t cursor_left(const struct cursor *c)
{
    return (size_t)(c->end - c->p);
}

/* The next n bytes, NULL when there are fewer. */
static inline const uint8_t *cursor_take(struct cursor *c, uint64_t n)
{
    if (c->failed || n > cursor_left(c)) {
        c->failed = true;
        return NULL;
    }
    const uint8_t *p = c->p;
    c->p += n;
    return p;
}

uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
/* A u64 length and that many bytes. */
struct str cursor_str(struct cursor *c);
/* n strings one after the other into out[n]. */
void cursor_strs(struct cursor *c, size_t n, struct str *out);

/* Can `count` records of at least `each` bytes still come? The question to ask before counting on a count. */
static inline bool cursor_may_hold(const struct cursor *c, uint64_t count, size_t each)
{
    return count <= cursor_left(c) / each;
}

#endif
