/* A compiled pre-tokenizer: cuts a text into the words that byte-pair merges stay within. */
#ifndef VOCAB_PRETOK_H
#define VOCAB_PRETOK_H

#include "base/err.h"
#include "base/str.h"

#include <stdint.h>

enum {
    PRE_IGNORE_MERGES = 1, /* a word that is a token is taken whole */
    PRE_ADD_BOS = 2,       /* unless the file says otherwise */
    PRE_KEEP_SPACES = 4,   /* no clean-up of spaces in detokenized text */
    PRE_NO_BOS = 8,        /* no default BOS id */
    PRE_RAW = 16,          /* merges over characters with U+2581 for spaces, not over the byte alphabet */
    PRE_LINE_WORDS = 32,   /* a word of newlines that is a token is taken whole */
    PRE_METASPACE = 64,    /* words begin at every U+2581, and a line begins with one */
    PRE_FORCE_BOS = 128,   /* BOS whatever the file says */
    PRE_SPACES = 256,      /* with PRE_RAW: spaces stay spaces */
    PRE_KEEP_CASE = 512,   /* tokenizer "whitespace" makes no small letters, unless the file says otherwise */
};

struct pretok;

/* `name`: a value of tokenizer.ggml.pre. */
struct pretok *pretok_new(struct str name, struct err *err);
void pretok_free(struct pretok *p);
unsigned pretok_flags(const struct pretok *p);

/* The ends of the pieces of a text, the last one at its end. */
struct cuts {
    uint32_t *end;
    size_t n, size;
};
void cuts_release(struct cuts *c);

/* Fills `cuts` for `text`, which went through utf8_for_matching. -1 with an error. */
int pretok_split(const struct pretok *p, struct str text, struct cuts *cuts, struct err *err);

#endif
