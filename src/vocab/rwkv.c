/* RWKV's "world" tokenizer: the longest token from the left, over bytes. The file spells bytes as Python
 * would
 * (\n, \x1f). */
#include "vocab/inside.h"

#include <stdlib.h>

static void unescape(struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c != '\\') {
            buf_putc(out, c);
            continue;
        }
        if (++i == text.n)
            break;
        c = text.p[i];
        if (c == 'x') {
            if (text.n - i < 3)
                break;
            unsigned value = 0;
            for (size_t k = 1; k <= 2; k++) {
                unsigned char digit = (unsigned char)text.p[i + k];
                value = value << 4 | (unsigned char)(digit >= 'a' ? digit - 'a' + 10 : digit - '0');
            }
            buf_putc(out, (char)value);
            i += 2;
        } else {
            buf_putc(out, c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c);
        }
    }
}

int rwkv_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    (void)g;
    struct buf bytes = {0};
    size_t n = (size_t)v->n;
    struct str *texts = malloc((n + 1) * sizeof *texts);
    size_t *ends = malloc((n + 1) * sizeof *ends);
    int rc = -1;
    if (!texts || !ends)
        goto out;
    for (size_t i = 0; i < n; i++) {
        unescape(v->map.texts[i], &bytes);
        ends[i] = bytes.n;
    }
    for (size_t i = 0, at = 0; i < n; at = ends[i++])
        texts[i] = (struct str){bytes.p + at, ends[i] - at};
    if (!bytes.failed)
        rc = load_trie(v, &v->tokens, texts, NULL, err);
out:
    free(texts);
    free(ends);
    buf_release(&bytes);
    return rc == 0 ? 0 : no_memory(err); /* an error that is set stays */
}

int rwkv_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    const struct trie *t = &v->tokens;
    for (size_t at = 0; at < text.n;) {
        token_id best = v->role[ROLE_UNK];
        size_t end = at + 1;
        uint32_t node = TRIE_ROOT;
        for (size_t i = at;
             i < text.n && (node = trie_step(t, node, (unsigned char)text.p[i])) != TRIE_NO_NODE; i++) {
            if (t->nodes[node].id >= 0) {
                best = t->nodes[node].id;
                end = i + 1;
            }
        }
        if (best >= 0 && !token_push(w->out, best))
            return no_memory(err);
        at = end;
    }
    return 0;
}

void rwkv_piece(const struct vocab *v, token_id t, struct buf *out)
{
    unescape(v->map.texts[t], out);
}
