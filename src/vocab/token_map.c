/* The compact hash map from token texts to ids. */
#include "vocab/token_map.h"

#include <stdlib.h>
#include <sys/random.h>

static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Tokens are short: one or two overlapping reads cover almost all of them. */
static uint64_t hash(uint64_t seed, struct str t)
{
    uint64_t h = seed ^ t.n * 0x9E3779B97F4A7C15u, a = 0, b = 0;
    const char *p = t.p;
    size_t n = t.n;
    for (; n > 16; p += 16, n -= 16) {
        memcpy(&a, p, 8);
        memcpy(&b, p + 8, 8);
        h = fold(a ^ 0xA0761D6478BD642Fu ^ h, b ^ 0xE7037ED1A0B428DBu);
    }
    a = b = 0;
    if (n >= 8) {
        memcpy(&a, p, 8);
        memcpy(&b, p + n - 8, 8);
    } else if (n >= 4) {
        uint32_t x, y;
        memcpy(&x, p, 4);
        memcpy(&y, p + n - 4, 4);
        a = x;
        b = y;
    } else if (n) {
        a = (unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 |
            (uint64_t)(unsigned char)p[n - 1] << 16;
    }
    h = fold(a ^ 0xA0761D6478BD642Fu ^ h, b ^ 0xE7037ED1A0B428DBu);
    return fold(h ^ 0x8EBC6AF09C88C6E3u, 0x589965CC75374CC3u);
}

/* The first 32 bits of the hash are kept in the slot beside id + 1; 0 is a free slot. */
static uint64_t slot_of(uint64_t h, size_t id)
{
    return (h >> 32) << 32 | (uint32_t)(id + 1);
}

void token_map_release(struct token_map *m)
{
    free(m->slots);
    free(m->texts);
    *m = (struct token_map){0};
}

bool token_map_reserve(struct token_map *m, size_t want)
{
    if (want > INT32_MAX - 1)
        return false;
    if (want > m->room) {
        size_t room = want + want / 8 + 16;
        struct str *texts = realloc(m->texts, room * sizeof *texts);
        if (!texts)
            return false;
        m->texts = texts;
        m->room = room;
    }
    size_t size = m->size ? m->size : 64;
    while (size / 2 < want)
        size *= 2;
    if (size == m->size)
        return true;
    uint64_t *slots = calloc(size, sizeof *slots);
    if (!slots)
        return false;
    while (!m->seed) {
        if (getrandom(&m->seed, sizeof m->seed, GRND_NONBLOCK) != (ssize_t)sizeof m->seed)
            m->seed = (uint64_t)(uintptr_t)m | 1;
    }
    for (size_t i = 0; i < m->size; i++) {
        if (!m->slots[i])
            continue;
        size_t at = hash(m->seed, m->texts[(uint32_t)m->slots[i] - 1]) & (size - 1);
        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = m->slots[i];
    }
    free(m->slots);
    m->slots = slots;
    m->size = size;
    m->mask = size - 1;
    return true;
}

/* Position of the slot that holds the text, or of the free slot where it belongs. */
static size_t look(const struct token_map *m, struct str text, uint64_t h)
{
    size_t at = h & m->mask;
    for (; m->slots[at]; at = (at + 1) & m->mask) {
        if (m->slots[at] >> 32 == h >> 32 && str_eq(m->texts[(uint32_t)m->slots[at] - 1], text))
            break;
    }
    return at;
}

int64_t token_map_add(struct token_map *m, struct str text)
{
    if (!token_map_reserve(m, m->n + 1))
        return -2;
    uint64_t h = hash(m->seed, text);
    size_t at = look(m, text, h);
    int64_t old = m->slots[at] ? (int64_t)(uint32_t)m->slots[at] - 1 : -1;
    if (old < 0)
        m->slots[at] = slot_of(h, m->n);
    m->texts[m->n++] = text;
    return old;
}

int32_t token_map_find(const struct token_map *m, struct str text)
{
    if (!m->n)
        return -1;
    return (int32_t)(uint32_t)m->slots[look(m, text, hash(m->seed, text))] - 1;
}

void token_map_find_many(const struct token_map *m, const struct str *texts, size_t n, int32_t *ids)
{
    enum { BLOCK = 32 };
    uint64_t h[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t k = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < k; i++) {
            h[i] = hash(m->seed, texts[at + i]);
            __builtin_prefetch(&m->slots[h[i] & m->mask]);
        }
        for (size_t i = 0; i < k; i++) {
            uint64_t slot = m->slots[h[i] & m->mask];
            if (slot)
                __builtin_prefetch(&m->texts[(uint32_t)slot - 1]);
        }
        for (size_t i = 0; i < k; i++) {
            uint64_t slot = m->slots[h[i] & m->mask];
            if (slot)
                __builtin_prefetch(m->texts[(uint32_t)slot - 1].p);
        }
        for (size_t i = 0; i < k; i++)
            ids[at + i] = (int32_t)(uint32_t)m->slots[look(m, texts[at + i], h[i])] - 1;
    }
}
