/* The index behind prompt lookup: for every place of the text a link to the place before it whose last
 * LOOKUP_MIN tokens have the same hash. */
#include "engine/speculate.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { HEAD_BITS = 14, TRIES = 64 }; /* places that are compared */

void lookup_release(struct lookup *l)
{
    free(l->head);
    free(l->prev);
    *l = (struct lookup){0};
}

void lookup_reset(struct lookup *l, int32_t room)
{
    if (!l->head)
        l->head = xcalloc((size_t)1 << HEAD_BITS, sizeof *l->head);
    if (room > l->room) {
        l->prev = xrealloc(l->prev, (size_t)room * sizeof *l->prev);
        l->room = room;
    }
    memset(l->head, -1, sizeof *l->head << HEAD_BITS);
    l->n = 0;
}

/* Of the tokens that end at `end`. */
static uint32_t hash_at(const grappa_token *tokens, int32_t end)
{
    uint64_t h = 0;
    for (int32_t i = end - LOOKUP_MIN + 1; i <= end; i++)
        h = (h ^ (uint32_t)tokens[i]) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> (64 - HEAD_BITS));
}

/* Takes in the places before the text's last token, which has nothing behind it yet. */
static void index_text(struct lookup *l, const grappa_token *tokens, int32_t n)
{
    for (; l->n < n - 1; l->n++) {
        if (l->n < LOOKUP_MIN - 1)
            continue;
        int32_t *head = &l->head[hash_at(tokens, l->n)];
        l->prev[l->n] = *head;
        *head = l->n;
    }
}

static int32_t match_length(const grappa_token *tokens, int32_t a, int32_t b)
{
    int32_t n = 0;
    while (n < LOOKUP_MOST && n <= a && tokens[a - n] == tokens[b - n])
        n++;
    return n;
}

int32_t lookup_find(struct lookup *l, const grappa_token *tokens, int32_t n, int32_t *match)
{
    int32_t best = 0, tries = TRIES;
    *match = LOOKUP_MIN - 1;
    if (n < l->n)
        lookup_reset(l, l->room);
    if (n > l->room || n < LOOKUP_MIN)
        return 0;
    index_text(l, tokens, n);
    for (int32_t at = l->head[hash_at(tokens, n - 1)]; at >= 0 && tries > 0; at = l->prev[at], tries--) {
        int32_t length = at < n - 1 ? match_length(tokens, at, n - 1) : 0;
        if (length <= *match)
            continue;
        *match = length;
        best = at + 1;
        if (length == LOOKUP_MOST)
            break;
    }
    return best;
}
