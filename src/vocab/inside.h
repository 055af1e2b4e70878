/* What the files of this room share. */
#ifndef VOCAB_INSIDE_H
#define VOCAB_INSIDE_H

#include "base/mem.h"
#include "vocab/merge.h"
#include "vocab/pretok.h"
#include "vocab/token_map.h"
#include "vocab/trie.h"
#include "vocab/utf8.h"
#include "vocab/vocab.h"

enum vocab_kind { VOCAB_NONE, VOCAB_SPM, VOCAB_BPE, VOCAB_WPM, VOCAB_UGM, VOCAB_RWKV, VOCAB_PLAMO2 };

/* Tokens with a part to play; ids are TOKEN_NONE when there is none. Row: name, key of the file. */
#define VOCAB_ROLES(X)                                                                                       \
    X(BOS, "bos_token_id")                                                                                   \
    X(EOS, "eos_token_id")                                                                                   \
    X(EOT, "eot_token_id")                                                                                   \
    X(EOM, "eom_token_id")                                                                                   \
    X(UNK, "unknown_token_id")                                                                               \
    X(SEP, "seperator_token_id") /* spelled so */                                                            \
    X(PAD, "padding_token_id")                                                                               \
    X(FIM_PRE, "fim_pre_token_id")                                                                           \
    X(FIM_SUF, "fim_suf_token_id")                                                                           \
    X(FIM_MID, "fim_mid_token_id")                                                                           \
    X(FIM_PAD, "fim_pad_token_id")                                                                           \
    X(FIM_REP, "fim_rep_token_id")                                                                           \
    X(FIM_SEP, "fim_sep_token_id")

enum vocab_role {
#define X(name, key) ROLE_##name,
    VOCAB_ROLES(X)
#undef X
        N_ROLES
};

/* Merges by the pair of ids they join. An id is a token's, or from n_tokens on that of a text that only
 * merges know. */
struct merge_slot {
    uint64_t pair;
    uint32_t rank;
    int32_t id_1; /* id + 1; 0: free slot */
};

struct bpe {
    struct pretok *pre;
    bool raw, ignore_merges, line_words, metaspace;
    int32_t byte_id[256];     /* of the symbol a byte begins as; raw: of an ASCII character */
    token_id byte_token[256]; /* what stands for a byte of a text that is no token */
    struct merge_slot *merges;
    uint64_t mask;
};

/* What a character is to WordPiece. */
enum wpm_class { WPM_INSIDE, WPM_ALONE, WPM_BETWEEN, WPM_NOTHING };

struct wpm {
    bool lowercase, strip_accents;
    unsigned char ascii_class[128], ascii_lower[128];
};

struct ugm {
    struct trie user;     /* user-defined tokens, which normalisation leaves alone */
    const uint8_t *units; /* the double array of the character map, 4 bytes each; NULL: no map */
    size_t n_units;
    struct str replacements;
    float unknown_score;
    bool merge_spaces;
};

/* A token that is looked for in the text before anything else. */
struct special {
    struct str text;
    token_id id;
    uint32_t rank; /* longest first */
};

struct vocab {
    enum vocab_kind kind;
    const struct vocab_model_info *model;
    const struct vocab_kind_info *how;
    int32_t n;
    size_t longest;       /* bytes of a token */
    struct token_map map; /* ids below n are tokens */
    float *scores;        /* NULL: all 0 */
    uint16_t *attrs;
    uint64_t *eog; /* a bit for each token */
    token_id role[N_ROLES], nl;
    bool add_space_prefix, add_bos, add_eos, clean_spaces, escape_spaces;
    bool before_space[256];    /* bytes that some text has before a U+2581: see segment_end */
    struct special *specials;  /* sorted by text */
    uint32_t *special_at_rank; /* index into specials */
    size_t n_specials;
    uint32_t special_first[257]; /* specials by their first byte */
    struct bpe bpe;
    struct trie tokens; /* of the kinds that match whole tokens */
    struct wpm wpm;
    struct ugm ugm;
    struct str *shown;  /* NULL: every token is shown as it is matched */
    struct arena arena; /* texts that are not in the file */
};

struct work;

/* What comes before and behind a text with special tokens. */
enum vocab_frame {
    FRAME_FILE,   /* BOS and EOS, if the file wants them */
    FRAME_ALWAYS, /* BOS and the separator */
    FRAME_NEVER,
};

/* How a value of tokenizer.ggml.model works. */
struct vocab_kind_info {
    int (*load)(struct vocab *v, const struct gguf *g, struct err *err); /* after texts, scores, attributes */
    /* Ids of a piece of text without special tokens. */
    int (*tokenize)(const struct vocab *v, struct str text, struct work *w, struct err *err);
    void (*piece)(const struct vocab *v, token_id t, struct buf *out);
    enum vocab_frame frame;
};

struct vocab_model_info {
    const char *name;
    enum vocab_kind kind;
    int32_t bos, eos, unk, sep, pad;
    bool add_bos, add_eos, add_space_prefix, clean_spaces, escape_spaces;
    const struct vocab_kind_info *how; /* NULL: the kind's */
};

static inline bool token_valid(const struct vocab *v, token_id t)
{
    return t >= 0 && t < v->n;
}

/* The text that people see. */
static inline struct str shown_text(const struct vocab *v, token_id t)
{
    return v->shown ? v->shown[t] : v->map.texts[t];
}

/* Of a token, not of a text that only merges know. */
static inline token_id token_of(const struct vocab *v, struct str text)
{
    int32_t id = token_map_find(&v->map, text);
    return id < v->n ? id : TOKEN_NONE;
}

/* False when memory is out. */
bool token_list_grow(struct token_list *l);
static inline bool token_push(struct token_list *l, token_id t)
{
    if (l->n == l->size && !token_list_grow(l))
        return false;
    l->p[l->n++] = t;
    return true;
}

/* special.c: roles and attributes that go by a token's text, and the table for partition.c. */
int special_load(struct vocab *v, const struct gguf *g, struct err *err);

/* partition.c: the special tokens of a text and what lies between them. */
struct fragment {
    size_t at, n; /* text, when token == TOKEN_NONE */
    token_id token;
};
struct fragments {
    struct fragment *p;
    size_t n, size;
};
int partition(const struct vocab *v, struct str text, bool parse_special, struct fragments *out,
              struct err *err);

/* Scratch space of one call of vocab_tokenize. */
struct work {
    struct merger merger;
    struct cuts cuts;
    struct buf escaped, repaired, matching, word, cells, cut;
    struct token_list *out;
};

#define KIND(kind)                                                                                           \
    int kind##_load(struct vocab *v, const struct gguf *g, struct err *err);                                 \
    int kind##_tokenize(const struct vocab *v, struct str text, struct work *w, struct err *err);
KIND(spm)
KIND(bpe)
KIND(wpm)
KIND(ugm)
KIND(rwkv)
KIND(plamo2)
KIND(hybriddna)
KIND(whitespace)
#undef KIND
void bpe_release(struct bpe *b);
void plain_piece(const struct vocab *v, token_id t, struct buf *out); /* piece.c */
void rwkv_piece(const struct vocab *v, token_id t, struct buf *out);
void plamo2_piece(const struct vocab *v, token_id t, struct buf *out);

/* The tokens that `wanted` wants (NULL: all), under texts[id] (NULL: those of the file). */
int load_trie(const struct vocab *v, struct trie *t, const struct str *texts,
              bool (*wanted)(const struct vocab *v, token_id t), struct err *err);
/* tokenizer.ggml.normalizer.*; `lowercase` comes in with its default. */
int load_normalizer(const struct gguf *g, bool *lowercase, bool *strip_accents, struct err *err);

/* End of the part of text[from, …) that cannot merge with what follows: it ends before a U+2581 that no token
 * has behind that byte. Small parts keep the heap of merges in the cache. */
size_t segment_end(const struct vocab *v, struct str text, size_t from);
/* Fills before_space, when all texts are known. */
void find_segment_bytes(struct vocab *v);

/* Ids of a piece of text without special tokens. */
int tokenize_plain(const struct vocab *v, struct str text, bool space_before, struct work *w,
                   struct err *err);
void work_release(struct work *w);

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */
/* Where the next one is at or behind `from`; text.n when there is none. */
size_t find_space_mark(struct str text, size_t from);

int no_memory(struct err *err);

#endif
