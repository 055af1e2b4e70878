/* Open addressing with linear probing. The hash is seeded per process, so that a file or a client cannot
 * choose keys that all collide. */
#include "base/map.h"
#include "base/mem.h"

#include <stdlib.h>
#include <sys/random.h>

struct map_slot {
    struct str key; /* p == NULL: free */
    uint64_t value;
    uint64_t hash;
};

static uint64_t seed(void)
{
    static uint64_t s;
    uint64_t now = __atomic_load_n(&s, __ATOMIC_RELAXED);
    if (!now) {
        uint64_t fresh = 0;
        if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh)
            fresh = (uint64_t)(uintptr_t)&s * 0x9E3779B97F4A7C15u;
        fresh |= 1;
        uint64_t expected = 0;
        now = __atomic_compare_exchange_n(&s, &expected, fresh, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
                  ? fresh
                  : expected;
    }
    return now;
}

/* Multiply-and-fold over 8 bytes at a time (the mixing step of wyhash). */
static uint64_t hash(struct str k)
{
    uint64_t h = seed() ^ k.n;
    for (size_t i = 0; i < k.n; i += 8) {
        uint64_t w = 0;
        memcpy(&w, k.p + i, k.n - i < 8 ? k.n - i : 8);
        unsigned __int128 m = (unsigned __int128)(h ^ w) * 0xA0761D6478BD642Fu;
        h = (uint64_t)m ^ (uint64_t)(m >> 64) ^ 0xE7037ED1A0B428DBu;
    }
    return h ^ h >> 29;
}

void map_release(struct map *m)
{
    free(m->slots);
    *m = (struct map){0};
}

static struct map_slot *find(const struct map *m, struct str key, uint64_t h)
{
    for (size_t i = h & (m->size - 1);; i = (i + 1) & (m->size - 1)) {
        struct map_slot *s = &m->slots[i];
        if (!s->key.p || (s->hash == h && str_eq(s->key, key)))
            return s;
    }
}

bool map_reserve(struct map *m, size_t want)
{
    size_t size = m->size ? m->size : 16;
    if (want > SIZE_MAX / 4)
        return false;
    while (size / 2 < want)
        size *= 2;
    if (size == m->size)
        return true;
    struct map bigger = {calloc(size, sizeof *bigger.slots), m->n, size};
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < m->size; i++) {
        if (m->slots[i].key.p)
            *find(&bigger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    }
    free(m->slots);
    *m = bigger;
    return true;
}

/* The slot of the key, taken now if it was free. */
static struct map_slot *slot_for(struct map *m, struct str key, bool *added)
{
    if (!key.p)
        key.p = "";
    if (!map_reserve(m, m->n + 1))
        abort();
    uint64_t h = hash(key);
    struct map_slot *s = find(m, key, h);
    *added = !s->key.p;
    if (*added) {
        *s = (struct map_slot){key, 0, h};
        m->n++;
    }
    return s;
}

bool map_add(struct map *m, struct str key, uint64_t value, uint64_t *old)
{
    bool added;
    struct map_slot *s = slot_for(m, key, &added);
    if (added)
        s->value = value;
    else if (old)
        *old = s->value;
    return added;
}

void map_set(struct map *m, struct str key, uint64_t value)
{
    bool added;
    slot_for(m, key, &added)->value = value;
}

bool map_get(const struct map *m, struct str key, uint64_t *value)
{
    if (!m->n)
        return false;
    struct map_slot *s = find(m, key, hash(key));
    if (!s->key.p)
        return false;
    *value = s->value;
    return true;
}
