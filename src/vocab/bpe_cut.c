/* Two tokenizers that cut the text before byte-pair encoding: "hybriddna", in which DNA between tags is six
 * letters a token, and "whitespace", in which white space only separates. */
#include "vocab/chars.h"
#include "vocab/inside.h"

#include <stdlib.h>

/* ---- hybriddna ---- */

#define DNA_OPEN  "<dna>"
#define DNA_CLOSE "</dna>"
#define DNA_OTHER "<oov>"
#define KMER      6
/* Behind the text of a DNA token, which another token may have as well; nobody is to see it (U+E000). */
#define KMER_MARK "\xEE\x80\x80"

int hybriddna_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    const size_t mark = sizeof KMER_MARK - 1;
    token_id other = token_of(v, str_of(DNA_OTHER));
    if (bpe_load(v, g, err) != 0)
        return -1;
    if (other < 0)
        return 0;
    v->shown = malloc((size_t)v->n * sizeof *v->shown);
    if (!v->shown)
        return no_memory(err);
    for (token_id t = 0; t < v->n; t++) {
        struct str text = v->map.texts[t];
        if (t > other && text.n > mark && !memcmp(text.p + text.n - mark, KMER_MARK, mark))
            text.n -= mark;
        v->shown[t] = text;
    }
    return 0;
}

/* What is left over at the end is filled up with A. */
static bool put_kmers(const struct vocab *v, struct str dna, token_id other, struct token_list *out)
{
    char text[KMER + sizeof KMER_MARK] = "AAAAAA" KMER_MARK;
    for (size_t at = 0; at < dna.n; at += KMER) {
        memset(text, 'A', KMER);
        for (size_t i = 0; i < KMER && at + i < dna.n; i++) {
            char c = dna.p[at + i];
            text[i] = (char)(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
        }
        token_id t = token_of(v, (struct str){text, sizeof text - 1});
        if (!token_push(out, t >= 0 ? t : other))
            return false;
    }
    return true;
}

static size_t find_tag(struct str text, size_t from, const char *tag)
{
    const char *p = memmem(text.p + from, text.n - from, tag, strlen(tag));
    return p ? (size_t)(p - text.p) : text.n;
}

int hybriddna_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    token_id open = token_of(v, str_of(DNA_OPEN)), close = token_of(v, str_of(DNA_CLOSE));
    token_id other = token_of(v, str_of(DNA_OTHER));
    if (open < 0 || close < 0 || other < 0)
        return bpe_tokenize(v, text, w, err);
    for (size_t at = 0; at < text.n;) {
        size_t begin = find_tag(text, at, DNA_OPEN);
        if (begin > at && bpe_tokenize(v, (struct str){text.p + at, begin - at}, w, err) != 0)
            return -1;
        if (begin == text.n)
            break;
        begin += sizeof DNA_OPEN - 1;
        size_t end = find_tag(text, begin, DNA_CLOSE);
        if (!token_push(w->out, open) ||
            !put_kmers(v, (struct str){text.p + begin, end - begin}, other, w->out) ||
            (end < text.n && !token_push(w->out, close)))
            return no_memory(err);
        at = end < text.n ? end + sizeof DNA_CLOSE - 1 : end;
    }
    return 0;
}

/* ---- whitespace ---- */

int whitespace_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    bool accents;
    v->wpm.lowercase = !v->bpe.pre || !(pretok_flags(v->bpe.pre) & PRE_KEEP_CASE);
    if (load_normalizer(g, &v->wpm.lowercase, &accents, err) != 0)
        return -1;
    return bpe_load(v, g, err);
}

int whitespace_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    struct buf *word = &w->cut;
    buf_clear(word);
    for (size_t at = 0; at <= text.n;) {
        uint32_t cp = ' ';
        at += at < text.n ? utf8_decode((struct str){text.p + at, text.n - at}, &cp) : 1;
        if (char_kind(cp) != CHAR_SPACE) {
            buf_put_utf8(word, v->wpm.lowercase ? char_lower(cp) : cp);
            continue;
        }
        if (word->failed)
            return no_memory(err);
        if (word->n && bpe_tokenize(v, buf_str(word), w, err) != 0)
            return -1;
        buf_clear(word);
    }
    return 0;
}
