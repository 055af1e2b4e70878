/* A text to ids: special tokens first, what lies between them by the vocabulary's kind. */
#include "vocab/inside.h"

#include <stdlib.h>

bool token_list_grow(struct token_list *l)
{
    size_t size = l->size ? 2 * l->size : 64;
    token_id *p = size < SIZE_MAX / sizeof *p ? realloc(l->p, size * sizeof *p) : NULL;
    if (!p)
        return false;
    l->p = p;
    l->size = size;
    return true;
}

int no_memory(struct err *err)
{
    return err_set(err, ERR_MEMORY, "out of memory");
}

void work_release(struct work *w)
{
    merger_release(&w->merger);
    cuts_release(&w->cuts);
    buf_release(&w->escaped);
    buf_release(&w->repaired);
    buf_release(&w->matching);
    buf_release(&w->word);
    buf_release(&w->cells);
    buf_release(&w->cut);
}

/* Spaces become U+2581, with one before the text if asked for. */
static struct str escape(struct str text, bool space_before, struct buf *out)
{
    buf_clear(out);
    if (space_before)
        buf_puts(out, SPACE_MARK);
    while (text.n) {
        const char *p = memchr(text.p, ' ', text.n);
        size_t n = p ? (size_t)(p - text.p) : text.n;
        buf_add(out, text.p, n);
        if (p)
            buf_puts(out, SPACE_MARK);
        n += p != NULL;
        text = (struct str){text.p + n, text.n - n};
    }
    return buf_str(out);
}

size_t find_space_mark(struct str text, size_t from)
{
    for (size_t at = from; at + 3 <= text.n; at++) {
        const char *p = memchr(text.p + at, (unsigned char)SPACE_MARK[0], text.n - at - 2);
        if (!p)
            break;
        at = (size_t)(p - text.p);
        if (!memcmp(p, SPACE_MARK, 3))
            return at;
    }
    return text.n;
}

void find_segment_bytes(struct vocab *v)
{
    for (size_t t = 0; t < v->map.n; t++) {
        struct str text = v->map.texts[t];
        for (size_t i = 1; (i = find_space_mark(text, i)) < text.n; i++)
            v->before_space[(unsigned char)text.p[i - 1]] = true;
    }
}

/* A broken character's first byte claims the bytes behind it as its own. */
static bool claimed(struct str text, size_t from, size_t at)
{
    for (size_t back = 1; back <= 3 && at - from >= back; back++) {
        if (utf8_length((unsigned char)text.p[at - back]) > back)
            return true;
    }
    return false;
}

size_t segment_end(const struct vocab *v, struct str text, size_t from)
{
    size_t at = from + 1;
    while ((at = find_space_mark(text, at)) < text.n) {
        if (!v->before_space[(unsigned char)text.p[at - 1]] && !claimed(text, from, at))
            return at;
        at++;
    }
    return text.n;
}

int tokenize_plain(const struct vocab *v, struct str text, bool space_before, struct work *w, struct err *err)
{
    if (v->escape_spaces && (v->kind == VOCAB_SPM || v->kind == VOCAB_BPE)) {
        text = escape(text, space_before, &w->escaped);
        if (w->escaped.failed)
            return no_memory(err);
    }
    return v->how->tokenize(v, text, w, err);
}

/* BOS, EOS or separator, which the kind or the file asks for. */
static int push_role(const struct vocab *v, enum vocab_role role, const char *key, struct token_list *out,
                     struct err *err)
{
    if (v->role[role] < 0)
        return err_set(err, ERR_FORMAT, "tokenizer.ggml.%s: asked for, but there is no such token", key);
    return token_push(out, v->role[role]) ? 0 : no_memory(err);
}

static int check(const struct vocab *v, struct str text, struct err *err)
{
    if (v->kind == VOCAB_NONE)
        return err_set(err, ERR_UNSUPPORTED, "the file has no vocabulary: text cannot be tokenized");
    if (text.n > INT32_MAX / 4)
        return err_set(err, ERR_RANGE, "text of %zu bytes: too long to tokenize", text.n);
    return 0;
}

/* Pushes the tokens before (begin) or behind a text. */
static int put_frame(const struct vocab *v, bool begin, struct token_list *out, struct err *err)
{
    enum vocab_frame frame = v->how->frame;
    if (frame == FRAME_ALWAYS)
        return begin ? push_role(v, ROLE_BOS, "bos_token_id", out, err)
                     : push_role(v, ROLE_SEP, "seperator_token_id", out, err);
    if (frame == FRAME_NEVER || !(begin ? v->add_bos : v->add_eos))
        return 0;
    return begin ? push_role(v, ROLE_BOS, "add_bos_token", out, err)
                 : push_role(v, ROLE_EOS, "add_eos_token", out, err);
}

int vocab_tokenize(const struct vocab *v, struct str text, bool add_special, bool parse_special,
                   struct token_list *out, struct err *err)
{
    struct work w = {.out = out};
    struct fragments fragments = {0};
    int rc = -1;
    if (check(v, text, err) != 0)
        return -1;
    if (partition(v, text, parse_special, &fragments, err) != 0)
        goto out;
    if (add_special && put_frame(v, true, out, err) != 0)
        goto out;
    bool after_special = true;
    for (size_t i = 0; i < fragments.n; i++) {
        const struct fragment *f = &fragments.p[i];
        if (f->token >= 0) {
            if (!token_push(out, f->token)) {
                no_memory(err);
                goto out;
            }
            after_special = true;
            continue;
        }
        struct str part = {text.p + f->at, f->n};
        if (tokenize_plain(v, part, v->kind == VOCAB_SPM && v->add_space_prefix && after_special, &w, err) !=
            0)
            goto out;
        after_special = false;
    }
    if (add_special && put_frame(v, false, out, err) != 0)
        goto out;
    rc = 0;
out:
    free(fragments.p);
    work_release(&w);
    return rc;
}
