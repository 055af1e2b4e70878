/* Hash map from byte strings to 64-bit values. Keys are not copied: they must outlive the map. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/str.h"

#include <stdint.h>

struct map {
    struct map_slot *slots;
    size_t n, size; /* size: a power of two, or 0 */
};

/* An all-zero map is empty and ready. */
void map_release(struct map *m);
/* False when memory is out. `want` entries fit afterwards without growing. */
bool map_reserve(struct map *m, size_t want);
/* Adds the key unless it is there. Returns true if it was added; on false *value (if not NULL) holds the
 * value already stored. Memory out ends the process unless map_reserve came first. */
bool map_add(struct map *m, struct str key, uint64_t value, uint64_t *old);
/* Adds or replaces. */
void map_set(struct map *m, struct str key, uint64_t value);
bool map_get(const struct map *m, struct str key, uint64_t *value);

#endif
