/* SentencePiece BPE: two adjacent symbols merge when their text together is a token, the highest score first.
 */
#include "vocab/inside.h"

#include <stdio.h>

struct spm_rule {
    const struct vocab *v;
    const char *text;
};

/* Floats to integers that sort the other way round. */
static uint32_t descending(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 is 0 */
    memcpy(&bits, &score, 4);
    return bits & 0x80000000u ? bits : ~bits & 0x7FFFFFFFu;
}

static bool spm_fits(const void *rule, const struct symbol *left, const struct symbol *right, uint32_t *order,
                     int32_t *id)
{
    const struct spm_rule *r = rule;
    size_t n = (size_t)left->n + right->n;
    if (n > r->v->longest)
        return false;
    *id = token_of(r->v, (struct str){r->text + left->at, n});
    if (*id < 0)
        return false;
    *order = descending(vocab_score(r->v, *id));
    return true;
}

/* A symbol that is no token becomes bytes; a vocabulary without bytes has the unknown token. */
static bool put_symbol(const struct vocab *v, struct str text, struct token_list *out)
{
    token_id t = token_of(v, text);
    if (t >= 0)
        return token_push(out, t);
    for (size_t i = 0; i < text.n; i++) {
        t = v->bpe.byte_token[(unsigned char)text.p[i]];
        if (t < 0)
            return v->role[ROLE_UNK] < 0 || token_push(out, v->role[ROLE_UNK]);
        if (!token_push(out, t))
            return false;
    }
    return true;
}

static bool put_segment(const struct vocab *v, struct str text, struct work *w)
{
    struct merger *m = &w->merger;
    struct spm_rule rule = {v, text.p};
    merger_clear(m);
    for (size_t i = 0; i < text.n;) {
        size_t n = utf8_length((unsigned char)text.p[i]);
        if (n > text.n - i)
            n = text.n - i;
        if (!merger_add(m, (uint32_t)i, (uint32_t)n, -1))
            return false;
        i += n;
    }
    if (!merger_run(m, spm_fits, &rule))
        return false;
    for (int32_t i = m->n ? 0 : -1; i >= 0; i = m->symbols[i].next) {
        const struct symbol *s = &m->symbols[i];
        if (!put_symbol(v, (struct str){text.p + s->at, s->n}, w->out))
            return false;
    }
    return true;
}

int spm_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err)
{
    for (size_t at = 0, end; at < text.n; at = end) {
        end = segment_end(v, text, at);
        if (!put_segment(v, (struct str){text.p + at, end - at}, w))
            return no_memory(err);
    }
    return 0;
}

int spm_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    (void)g;
    (void)err;
    /* "<0x0A>" stands for a byte, or the byte alone */
    for (unsigned i = 0; i < 256; i++) {
        char name[8], byte = (char)i;
        snprintf(name, sizeof name, "<0x%02X>", i);
        token_id t = token_of(v, str_of(name));
        v->bpe.byte_token[i] = t >= 0 ? t : token_of(v, (struct str){&byte, 1});
    }
    return 0;
}
