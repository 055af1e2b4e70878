/* WordPiece ("bert"): the text is brought into BERT's plain form and cut into words, and each word, with a
 * U+2581 before it, is covered by the longest tokens from the left. A word that can't be is unknown as a
 * whole.
 *
 * The plain form: small letters without accents (where the file wants that), no control characters, and every
 * sign and Chinese character a word of its own. */
#include "vocab/chars.h"
#include "vocab/inside.h"

/* Hugging Face's list, in which one block begins 256 characters late. */
static bool is_chinese(uint32_t cp)
{
    static const struct {
        uint32_t first, last;
    } blocks[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                  {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    for (size_t i = 0; cp >= blocks[0].first && i < sizeof blocks / sizeof *blocks; i++) {
        if (cp >= blocks[i].first && cp <= blocks[i].last)
            return true;
    }
    return false;
}

static enum wpm_class classify(uint32_t cp, bool strip_accents)
{
    enum char_kind kind = char_kind(cp);
    if (kind == CHAR_SPACE)
        return WPM_BETWEEN;
    if (cp == 0 || cp == 0xFFFD || kind == CHAR_CONTROL || (kind == CHAR_MARK && strip_accents))
        return WPM_NOTHING;
    if (kind == CHAR_PUNCTUATION || (kind == CHAR_SYMBOL && cp < 0x7F) || is_chinese(cp))
        return WPM_ALONE;
    return WPM_INSIDE;
}

static enum wpm_class next_char(const struct wpm *b, struct str text, size_t *at, uint32_t *cp)
{
    unsigned char c = (unsigned char)text.p[*at];
    if (c < 0x80) {
        *cp = b->ascii_lower[c];
        (*at)++;
        return (enum wpm_class)b->ascii_class[c];
    }
    *at += utf8_decode((struct str){text.p + *at, text.n - *at}, cp);
    if (b->strip_accents)
        *cp = char_base(*cp);
    enum wpm_class class = classify(*cp, b->strip_accents);
    if (b->lowercase)
        *cp = char_lower(*cp);
    return class;
}

static bool put_word(const struct vocab *v, struct str word, struct token_list *out)
{
    const struct trie *t = &v->tokens;
    size_t n_before = out->n;
    for (size_t at = 0; at < word.n;) {
        token_id best = TOKEN_NONE;
        size_t end = at;
        uint32_t node = TRIE_ROOT;
        for (size_t i = at;
             i < word.n && (node = trie_step(t, node, (unsigned char)word.p[i])) != TRIE_NO_NODE; i++) {
            if (t->nodes[node].id >= 0) {
                best = t->nodes[node].id;
                end = i + 1;
            }
        }
        if (best < 0) {
            out->n = n_before;
            return v->role[ROLE_UNK] < 0 || token_push(out, v->role[ROLE_UNK]);
        }
        if (!token_push(out, best))
            return false;
        at = end;
    }
    return true;
}

int wpm_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    struct buf *word = &w->word;
    const size_t empty = sizeof SPACE_MARK - 1;
    bool ok = true;
    buf_clear(word);
    buf_puts(word, SPACE_MARK);
    for (size_t at = 0; at < text.n && ok;) {
        uint32_t cp;
        enum wpm_class class = next_char(&v->wpm, text, &at, &cp);
        if (class == WPM_NOTHING)
            continue;
        if (class != WPM_INSIDE && word->n > empty) {
            ok = put_word(v, buf_str(word), w->out);
            word->n = empty;
        }
        if (class == WPM_BETWEEN)
            continue;
        buf_put_utf8(word, cp);
        if (class == WPM_ALONE) {
            ok = ok && put_word(v, buf_str(word), w->out);
            word->n = empty;
        }
    }
    if (ok && word->n > empty)
        ok = put_word(v, buf_str(word), w->out);
    return ok && !word->failed ? 0 : no_memory(err);
}

int wpm_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    struct wpm *b = &v->wpm;
    b->lowercase = true;
    if (load_normalizer(g, &b->lowercase, &b->strip_accents, err) != 0)
        return -1;
    for (unsigned c = 0; c < 128; c++) {
        b->ascii_class[c] = (unsigned char)classify(c, b->strip_accents);
        b->ascii_lower[c] = (unsigned char)(b->lowercase ? char_lower(c) : c);
    }
    return load_trie(v, &v->tokens, NULL, NULL, err);
}
