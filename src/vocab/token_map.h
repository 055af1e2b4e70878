/* Text to id for a whole vocabulary: open addressing with 8 bytes a slot (half of the hash, and the id), so
 * that 262,144 tokens take 4 MB and load in a few milliseconds. The texts are not copied. */
#ifndef VOCAB_TOKEN_MAP_H
#define VOCAB_TOKEN_MAP_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct token_map {
    uint64_t *slots;
    uint64_t mask, seed;
    size_t n, size;
    struct str *texts; /* by id */
    size_t room;       /* of texts */
};

/* An all-zero map is empty. False when memory is out. */
bool token_map_reserve(struct token_map *m, size_t want);
void token_map_release(struct token_map *m);
/* Gives `text` the next id, m->n, even when the same text is there already: then the older id stays findable
 * and is returned. -1 when the text is new, -2 when memory is out. */
int64_t token_map_add(struct token_map *m, struct str text);
/* -1 when it isn't there. */
int32_t token_map_find(const struct token_map *m, struct str text);
/* The same for many texts, whose waits for memory overlap. */
void token_map_find_many(const struct token_map *m, const struct str *texts, size_t n, int32_t *ids);

#endif
