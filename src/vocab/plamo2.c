/* PLaMo 2: of all ways to cut the text into tokens and single bytes the one with the highest sum of scores,
 * found from the end to the beginning. Scores are whole ten-thousandths, so that sums are exact; where two
 * ways are equal, the longer token comes first. */
#include "vocab/inside.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

/* A character that is spelled in bytes costs this much; what costs twice as much is no token at all. */
#define UNKNOWN_SCORE 10000000
#define NO_SCORE      20000000

/* "<0x1F>", or -1. */
static int byte_of(struct str text)
{
    if (text.n != 6 || !str_starts(text, "<0x") || text.p[5] != '>' || !isxdigit((unsigned char)text.p[3]) ||
        !isxdigit((unsigned char)text.p[4]))
        return -1;
    char digits[3] = {text.p[3], text.p[4], '\0'};
    return (int)strtol(digits, NULL, 16);
}

/* False when it has none that counts. */
static bool score_of(const struct vocab *v, token_id t, int64_t *score)
{
    double s = round((double)vocab_score(v, t) * 1e4);
    if (!(s > -NO_SCORE && s <= INT32_MAX)) /* nor when it isn't a number */
        return false;
    *score = (int64_t)s;
    return true;
}

static bool whole_characters(struct str text)
{
    for (unsigned n; text.n; text = (struct str){text.p + n, text.n - n}) {
        n = utf8_whole(text);
        if (!n)
            return false;
    }
    return true;
}

static bool matched(const struct vocab *v, token_id t)
{
    int64_t score;
    return !(v->attrs[t] & VOCAB_ATTR_BYTE) && score_of(v, t, &score) && whole_characters(v->map.texts[t]);
}

int plamo2_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    (void)g;
    token_id *bytes = v->bpe.byte_token;
    for (int i = 0; i < 256; i++)
        bytes[i] = TOKEN_NONE;
    for (token_id t = 0; t < v->n; t++) {
        int byte = v->attrs[t] & VOCAB_ATTR_BYTE ? byte_of(v->map.texts[t]) : -1;
        if (byte >= 0)
            bytes[byte] = t;
    }
    for (int i = 0; i < 256; i++) {
        if (bytes[i] <= 0)
            return err_set(err, ERR_FORMAT, "tokenizer.ggml.tokens: no token for the byte 0x%02X",
                           (unsigned)i);
    }
    return load_trie(v, &v->tokens, NULL, matched, err);
}

/* The cheapest way from a place in the text to its end. */
struct plamo2_cell {
    int64_t cost;
    token_id token; /* the first one; TOKEN_NONE: a character in bytes */
    uint32_t n;     /* bytes of it */
};

static struct plamo2_cell cheapest(const struct vocab *v, struct str text, size_t at,
                                   const struct plamo2_cell *cells)
{
    const struct trie *t = &v->tokens;
    uint32_t n_char = utf8_whole((struct str){text.p + at, text.n - at}), node = TRIE_ROOT;
    struct plamo2_cell best = {cells[at + n_char].cost + UNKNOWN_SCORE, TOKEN_NONE, n_char};
    for (size_t i = at;
         i < text.n && (node = trie_step(t, node, (unsigned char)text.p[i])) != TRIE_NO_NODE;) {
        token_id id = t->nodes[node].id;
        int64_t score;
        i++;
        if (id < 0 || !score_of(v, id, &score) || cells[i].cost - score > best.cost)
            continue;
        best = (struct plamo2_cell){cells[i].cost - score, id, (uint32_t)(i - at)};
    }
    return best;
}

/* What is no character becomes U+FFFD; a form beyond U+10FFFF stays. */
static struct str repaired(struct str text, struct buf *out)
{
    buf_clear(out);
    for (size_t at = 0; at < text.n;) {
        struct str rest = {text.p + at, text.n - at};
        uint32_t cp;
        unsigned whole = utf8_whole(rest), n = utf8_decode(rest, &cp);
        if (whole == 4 && n == 1)
            buf_add(out, rest.p, whole);
        else
            buf_put_utf8(out, cp);
        at += whole ? whole : 1;
    }
    return buf_str(out);
}

int plamo2_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    text = repaired(text, &w->repaired);
    if (str_starts(text, "\xEF\xBB\xBF")) /* a byte order mark */
        text = (struct str){text.p + 3, text.n - 3};
    buf_clear(&w->cells);
    if (w->repaired.failed || text.n > SIZE_MAX / sizeof(struct plamo2_cell) - 1 ||
        !buf_reserve(&w->cells, (text.n + 1) * sizeof(struct plamo2_cell)))
        return no_memory(err);
    struct plamo2_cell *cells = (struct plamo2_cell *)(void *)w->cells.p;
    cells[text.n].cost = 0;
    for (size_t at = text.n; at-- > 0;) {
        if (((unsigned char)text.p[at] & 0xC0) != 0x80)
            cells[at] = cheapest(v, text, at, cells);
    }
    for (size_t at = 0; at < text.n; at += cells[at].n) {
        if (cells[at].token >= 0 && !token_push(w->out, cells[at].token))
            return no_memory(err);
        for (size_t i = 0; cells[at].token < 0 && i < cells[at].n; i++) {
            if (!token_push(w->out, v->bpe.byte_token[(unsigned char)text.p[at + i]]))
                return no_memory(err);
        }
    }
    return 0;
}

void plamo2_piece(const struct vocab *v, token_id t, struct buf *out)
{
    struct str text = v->map.texts[t];
    int byte = v->attrs[t] & VOCAB_ATTR_BYTE ? byte_of(text) : -1;
    if (byte >= 0)
        buf_putc(out, (char)byte);
    else
        buf_add(out, text.p, text.n);
}
