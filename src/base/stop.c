/* Stop texts: search in what is held, then keep the longest ending that could still become one. */
#include "base/stop.h"

#include <stdint.h>
#include <string.h>

void stop_release(struct stop *s)
{
    buf_release(&s->held);
    buf_release(&s->ready);
}

void stop_reset(struct stop *s)
{
    buf_clear(&s->held);
    buf_clear(&s->ready);
}

/* Where the stop text starts that is complete first, or held.n. That is the one that ends first, and of those
 * that end together the longest, so it does not matter in what pieces the text came. */
static size_t find_first(struct stop *s)
{
    size_t first = s->held.n, first_end = SIZE_MAX;
    for (size_t i = 0; i < s->n; i++) {
        struct str t = s->texts[i];
        const char *at = t.n && s->held.n ? memmem(s->held.p, s->held.n, t.p, t.n) : NULL;
        if (!at)
            continue;
        size_t start = (size_t)(at - s->held.p), end = start + t.n;
        if (end < first_end || (end == first_end && start < first)) {
            first = start;
            first_end = end;
            s->hit = i;
        }
    }
    return first;
}

/* Length of the longest ending of what is held that begins a stop text. */
static size_t unsure_ending(const struct stop *s)
{
    size_t longest = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct str t = s->texts[i];
        size_t n = t.n ? t.n - 1 : 0;
        if (n > s->held.n)
            n = s->held.n;
        for (; n > longest; n--) {
            if (memcmp(s->held.p + s->held.n - n, t.p, n) == 0)
                longest = n;
        }
    }
    return longest;
}

static struct str let_out(struct stop *s, size_t n)
{
    buf_clear(&s->ready);
    if (n == 0)
        return (struct str){"", 0};
    buf_add(&s->ready, s->held.p, n);
    memmove(s->held.p, s->held.p + n, s->held.n - n);
    s->held.n -= n;
    s->held.p[s->held.n] = '\0';
    return buf_str(&s->ready);
}

bool stop_add(struct stop *s, struct str text, struct str *out)
{
    buf_add(&s->held, text.p, text.n);
    size_t at = find_first(s);
    if (at < s->held.n) {
        *out = let_out(s, at);
        buf_clear(&s->held);
        return true;
    }
    *out = let_out(s, s->held.n - unsure_ending(s));
    return false;
}

struct str stop_end(struct stop *s)
{
    return let_out(s, s->held.n);
}
