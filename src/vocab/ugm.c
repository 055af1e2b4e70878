/* Unigram ("t5"): the text is normalised by the file's character map, and of all ways to cut it into tokens
 * the one with the highest sum of scores is taken (Viterbi).
 *
 * The character map is SentencePiece's: a double array of units in Darts' form (label in bits 0-7 and 31,
 * leaf in bit 8, offset in bits 10-30, shifted by 8 when bit 9 is set), then texts that end with a 0. The
 * longest key that the text begins with is replaced by the text its leaf points to. */
#include "vocab/inside.h"

#include <float.h>
#include <math.h>

#define CHARSMAP "tokenizer.ggml.precompiled_charsmap"

/* Keys are a few characters; a broken map could have one that never ends. */
#define MAX_CHARSMAP_KEY 256

static const char replacement[] = "\xEF\xBF\xBD";

static int load_charsmap(struct ugm *u, const struct gguf *g, struct err *err)
{
    const struct gguf_kv *kv = gguf_find(g, CHARSMAP);
    uint32_t size;
    if (!kv)
        return 0;
    if (!kv->is_array || (kv->type != GGUF_I8 && kv->type != GGUF_U8))
        return err_set(err, ERR_FORMAT, CHARSMAP ": not an array of bytes");
    if (kv->n < sizeof size)
        return err_set(err, ERR_FORMAT, CHARSMAP ": %llu bytes are too few", (unsigned long long)kv->n);
    memcpy(&size, kv->data, sizeof size);
    if (size >= kv->n - sizeof size)
        return err_set(err, ERR_FORMAT, CHARSMAP ": a table of %u bytes in %llu bytes", size,
                       (unsigned long long)kv->n);
    u->units = kv->data + sizeof size;
    u->n_units = size / 4;
    u->replacements = (struct str){(const char *)u->units + size, kv->n - sizeof size - size};
    return 0;
}

static bool unit_at(const struct ugm *u, size_t i, uint32_t *unit)
{
    if (i >= u->n_units)
        return false;
    memcpy(unit, u->units + 4 * i, 4);
    return true;
}

static uint32_t unit_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* What the beginning of `text` becomes, if a key of the map begins it. Returns the key's length, 0 for none,
 * -1 when the map is broken. */
static int map_prefix(const struct ugm *u, struct str text, struct str *to)
{
    uint32_t unit, node, value = 0;
    int longest = 0;
    if (!u->n_units)
        return 0;
    unit_at(u, 0, &unit);
    node = unit_offset(unit);
    for (int i = 0; i < MAX_CHARSMAP_KEY && (size_t)i < text.n && text.p[i]; i++) {
        unsigned char c = (unsigned char)text.p[i];
        node ^= c;
        if (!unit_at(u, node, &unit))
            return -1;
        if ((unit & (1u << 31 | 0xFF)) != c)
            break;
        node ^= unit_offset(unit);
        if (unit >> 8 & 1) {
            if (!unit_at(u, node, &value))
                return -1;
            longest = i + 1;
        }
    }
    if (!longest)
        return 0;
    size_t at = value & ~(1u << 31);
    const char *end =
        at < u->replacements.n ? memchr(u->replacements.p + at, 0, u->replacements.n - at) : NULL;
    if (!end)
        return -1;
    *to = (struct str){u->replacements.p + at, (size_t)(end - u->replacements.p) - at};
    return longest;
}

/* The same with what comes before the map, user-defined tokens, and what comes behind, characters as they
 * are. (Any beginning of a user-defined token stays as it is, as in llama.cpp.) */
static int next_part(const struct ugm *u, struct str text, struct str *to)
{
    size_t n = 0;
    for (uint32_t node = TRIE_ROOT; n < text.n && u->user.n > 1; n++) {
        node = trie_step(&u->user, node, (unsigned char)text.p[n]);
        if (node == TRIE_NO_NODE)
            break;
    }
    if (n) {
        *to = (struct str){text.p, n};
        return (int)n;
    }
    int key = map_prefix(u, text, to);
    if (key)
        return key;
    unsigned whole = utf8_whole(text);
    *to = whole ? (struct str){text.p, whole} : (struct str){replacement, 3};
    return whole ? (int)whole : 1;
}

/* Spaces become U+2581; runs of them one, and none at the end, if the file wants that. */
static int normalize(const struct vocab *v, struct str text, struct buf *out, struct err *err)
{
    const struct ugm *u = &v->ugm;
    bool in_word = false, begun = !v->add_space_prefix;
    buf_clear(out);
    for (size_t at = 0; at < text.n;) {
        struct str part;
        int n = next_part(u, (struct str){text.p + at, text.n - at}, &part);
        if (n < 0)
            return err_set(err, ERR_FORMAT, CHARSMAP ": broken: an entry points outside of the table");
        at += (size_t)n;
        for (size_t i = 0; i < part.n; i++) {
            if (part.p[i] == ' ') {
                in_word = false;
                if (!u->merge_spaces)
                    buf_puts(out, SPACE_MARK);
                continue;
            }
            if (!in_word && (u->merge_spaces || !begun))
                buf_puts(out, SPACE_MARK);
            begun = begun || !in_word;
            in_word = true;
            buf_putc(out, part.p[i]);
        }
    }
    return out->failed ? no_memory(err) : 0;
}

/* The best way to a place in the text. */
struct ugm_cell {
    double score;
    token_id token; /* the last one; UNKNOWN: none */
    uint32_t from;
};
#define UNKNOWN (-2)

static void offer(struct ugm_cell *cell, double score, token_id token, size_t from)
{
    if (score > cell->score)
        *cell = (struct ugm_cell){score, token, (uint32_t)from};
}

/* All tokens that begin at `at`. */
static void extend(const struct vocab *v, struct str text, size_t at, struct ugm_cell *cells)
{
    const struct trie *t = &v->tokens;
    size_t n_char = utf8_length((unsigned char)text.p[at]);
    bool known = false;
    uint32_t node = TRIE_ROOT;
    if (n_char > text.n - at)
        n_char = text.n - at;
    for (size_t i = at;
         i < text.n && (node = trie_step(t, node, (unsigned char)text.p[i])) != TRIE_NO_NODE;) {
        token_id id = t->nodes[node].id;
        i++;
        if (id < 0)
            continue;
        known = known || i - at == n_char;
        double score = v->attrs[id] & VOCAB_ATTR_USER_DEFINED ? 0 : vocab_score(v, id);
        offer(&cells[i], cells[at].score + score, id, at);
    }
    if (!known)
        offer(&cells[at + n_char], cells[at].score + v->ugm.unknown_score, UNKNOWN, at);
}

/* Ids from the last to the first, then turned round. Unknown characters in a row are one unknown token. */
static bool put_best(const struct vocab *v, const struct ugm_cell *cells, size_t n, bool *unknown,
                     struct token_list *out)
{
    token_id unk = v->role[ROLE_UNK];
    size_t begin = out->n;
    bool after = false;
    for (size_t at = n; at; at = cells[at].from) {
        token_id id = cells[at].token == UNKNOWN ? unk : cells[at].token;
        bool is_unknown = id == unk;
        if (!(after && is_unknown) && id >= 0 && !token_push(out, id))
            return false;
        after = is_unknown;
    }
    /* `after` is of the first one now, *unknown of the segment before */
    if (after && *unknown && unk >= 0)
        out->n--;
    *unknown = cells[n].token == UNKNOWN || cells[n].token == unk;
    for (size_t i = begin, k = out->n; i + 1 < k; i++) {
        token_id t = out->p[i];
        out->p[i] = out->p[--k];
        out->p[k] = t;
    }
    return true;
}

int ugm_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    double score = 0; /* carried on, so that sums are rounded as for the text as a whole */
    bool unknown = false;
    if (normalize(v, text, &w->repaired, err) != 0)
        return -1;
    text = buf_str(&w->repaired);
    for (size_t at = 0, end; at < text.n; at = end) {
        end = segment_end(v, text, at);
        struct str part = {text.p + at, end - at};
        buf_clear(&w->cells);
        if (part.n > SIZE_MAX / sizeof(struct ugm_cell) - 1 ||
            !buf_reserve(&w->cells, (part.n + 1) * sizeof(struct ugm_cell)))
            return no_memory(err);
        struct ugm_cell *cells = (struct ugm_cell *)(void *)w->cells.p;
        cells[0] = (struct ugm_cell){score, UNKNOWN, 0};
        for (size_t i = 1; i <= part.n; i++)
            cells[i] = (struct ugm_cell){-DBL_MAX, UNKNOWN, 0};
        for (size_t i = 0; i < part.n; i += utf8_length((unsigned char)part.p[i]))
            extend(v, part, i, cells);
        if (!put_best(v, cells, part.n, &unknown, w->out))
            return no_memory(err);
        score = cells[part.n].score;
    }
    return 0;
}

static bool matched(const struct vocab *v, token_id t)
{
    return v->attrs[t] & (VOCAB_ATTR_NORMAL | VOCAB_ATTR_USER_DEFINED | VOCAB_ATTR_UNUSED);
}

static bool user_defined(const struct vocab *v, token_id t)
{
    return v->attrs[t] & VOCAB_ATTR_USER_DEFINED;
}

int ugm_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    struct ugm *u = &v->ugm;
    float lowest = FLT_MAX;
    if (gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &u->merge_spaces, err) < 0 ||
        gguf_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, err) < 0 ||
        load_charsmap(u, g, err) != 0)
        return -1;
    for (token_id t = 0; t < v->n; t++) {
        if (v->attrs[t] & VOCAB_ATTR_NORMAL)
            lowest = fminf(lowest, vocab_score(v, t));
    }
    u->unknown_score = lowest - 10.0f;
    if (load_trie(v, &v->tokens, NULL, matched, err) != 0)
        return -1;
    return load_trie(v, &u->user, NULL, user_defined, err);
}
