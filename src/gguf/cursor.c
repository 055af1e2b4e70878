/* The reads of a cursor that are more than one comparison. */
#include "gguf/cursor.h"

uint32_t cursor_u32(struct cursor *c)
{
    uint32_t v = 0;
    const uint8_t *p = cursor_take(c, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

uint64_t cursor_u64(struct cursor *c)
{
    uint64_t v = 0;
    const uint8_t *p = cursor_take(c, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

struct str cursor_str(struct cursor *c)
{
    uint64_t n = cursor_u64(c);
    const uint8_t *p = cursor_take(c, n);
    return p ? (struct str){(const char *)p, n} : (struct str){"", 0};
}

void cursor_strs(struct cursor *c, size_t n, struct str *out)
{
    for (size_t i = 0; i < n && !c->failed; i++)
        out[i] = cursor_str(c);
}
