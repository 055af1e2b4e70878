/* A slice of bytes, not terminated, not owned. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

/* For printf: printf("%.*s", STR_ARG(s)). */
#define STR_ARG(s) (int)((s).n > 4096 ? 4096 : (s).n), (s).p

static inline struct str str_of(const char *z)
{
    return (struct str){z, strlen(z)};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_is(struct str a, const char *z)
{
    return str_eq(a, str_of(z));
}

static inline bool str_starts(struct str a, const char *z)
{
    size_t n = strlen(z);
    return a.n >= n && memcmp(a.p, z, n) == 0;
}

#endif
