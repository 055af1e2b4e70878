/* A vocabulary for the sampler's tests: texts of tokens, and a list of what texts are tokenised to. It stands
 * in for room vocab: the linker takes these functions before it looks into that library. */
#ifndef TEST_SAMPLER_VOCAB_H
#define TEST_SAMPLER_VOCAB_H

#include "vocab/vocab.h"

#include <stdlib.h>
#include <string.h>

#define VOCAB_TEXTS 1024
#define VOCAB_TAILS 64

struct vocab {
    int32_t n;
    token_id eog;
    struct buf text[VOCAB_TEXTS];  /* of the first tokens */
    struct buf piece[VOCAB_TEXTS]; /* where it differs */
    bool has_piece[VOCAB_TEXTS];
    bool control[VOCAB_TEXTS];
    struct {
        struct buf text;
        token_id ids[16];
        size_t n;
    } tails[VOCAB_TAILS];
    size_t n_tails;
};

int32_t vocab_n_tokens(const struct vocab *v)
{
    return v->n;
}

bool vocab_is_eog(const struct vocab *v, token_id t)
{
    return t == v->eog;
}

token_id vocab_eot(const struct vocab *v)
{
    (void)v;
    return TOKEN_NONE;
}

token_id vocab_eos(const struct vocab *v)
{
    return v->eog;
}

uint32_t vocab_attr(const struct vocab *v, token_id t)
{
    return t < VOCAB_TEXTS && v->control[t] ? VOCAB_ATTR_CONTROL : VOCAB_ATTR_NORMAL;
}

void vocab_piece(const struct vocab *v, token_id t, int lstrip, bool special, struct buf *out)
{
    (void)lstrip;
    if (t < VOCAB_TEXTS && v->has_piece[t])
        buf_add(out, v->piece[t].p, v->piece[t].n);
    else if (t < VOCAB_TEXTS && (special || !v->control[t]))
        buf_add(out, v->text[t].p, v->text[t].n);
}

void vocab_detokenize(const struct vocab *v, const token_id *ids, size_t n, bool remove_special,
                      bool unparse_special, struct buf *out)
{
    if (n == 1 && ids[0] < VOCAB_TEXTS && !remove_special && unparse_special)
        buf_add(out, v->text[ids[0]].p, v->text[ids[0]].n);
}

int vocab_tokenize(const struct vocab *v, struct str text, bool add_special, bool parse_special,
                   struct token_list *out, struct err *err)
{
    (void)parse_special;
    for (size_t i = 0; i < v->n_tails && !add_special; i++) {
        if (!str_eq(text, buf_str(&v->tails[i].text)))
            continue;
        out->p = realloc(out->p, (out->n + v->tails[i].n) * sizeof *out->p);
        out->size = out->n + v->tails[i].n;
        memcpy(out->p + out->n, v->tails[i].ids, v->tails[i].n * sizeof *out->p);
        out->n += v->tails[i].n;
        return 0;
    }
    return err_set(err, ERR_RANGE, "the test's vocabulary lacks a text");
}

static inline void vocab_stub_release(struct vocab *v)
{
    for (size_t i = 0; i < VOCAB_TEXTS; i++)
        buf_release(&v->text[i]);
    for (size_t i = 0; i < VOCAB_TEXTS; i++)
        buf_release(&v->piece[i]);
    for (size_t i = 0; i < VOCAB_TAILS; i++)
        buf_release(&v->tails[i].text);
}

#endif
