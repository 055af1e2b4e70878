/* Loading a vocabulary from the keys of a GGUF file, and what can be asked about it. */
#include "vocab/inside.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

#define NONE TOKEN_NONE

/* In the order of enum vocab_kind. */
static const struct vocab_kind_info kinds[] = {
    {NULL, NULL, NULL, FRAME_NEVER},
    {spm_load, spm_tokenize, plain_piece, FRAME_FILE},
    {bpe_load, bpe_tokenize, plain_piece, FRAME_FILE},
    {wpm_load, wpm_tokenize, plain_piece, FRAME_ALWAYS},
    {ugm_load, ugm_tokenize, plain_piece, FRAME_FILE},
    {rwkv_load, rwkv_tokenize, rwkv_piece, FRAME_NEVER},
    {plamo2_load, plamo2_tokenize, plamo2_piece, FRAME_FILE},
};
static const struct vocab_kind_info hybriddna = {hybriddna_load, hybriddna_tokenize, plain_piece, FRAME_FILE};
static const struct vocab_kind_info whitespace = {whitespace_load, whitespace_tokenize, plain_piece,
                                                  FRAME_FILE};

/* Values of tokenizer.ggml.model with the ids and rules that count until the file says otherwise. */
static const struct vocab_model_info models[] = {
    /* name       kind          bos   eos   unk   sep   pad  +bos   +eos   prefix clean  escape */
    {"none", VOCAB_NONE, NONE, NONE, NONE, NONE, NONE, false, false, false, false, false, NULL},
    {"no_vocab", VOCAB_NONE, NONE, NONE, NONE, NONE, NONE, false, false, false, false, false, NULL},
    /* of test-llama-archs */
    {"test", VOCAB_NONE, NONE, NONE, NONE, NONE, NONE, false, false, false, false, false, NULL},
    {"llama", VOCAB_SPM, 1, 2, 0, NONE, NONE, true, false, true, false, true, NULL},
    {"gpt2", VOCAB_BPE, 11, 11, NONE, NONE, NONE, false, false, false, true, false, NULL},
    {"gemma4", VOCAB_BPE, NONE, NONE, NONE, NONE, NONE, false, false, false, true, false, NULL},
    {"hybriddna", VOCAB_BPE, 11, 11, NONE, NONE, NONE, false, false, false, true, false, &hybriddna},
    {"whitespace", VOCAB_BPE, 11, 11, NONE, NONE, NONE, false, false, false, true, false, &whitespace},
    {"bert", VOCAB_WPM, 101, NONE, 100, 102, 0, true, false, false, true, true, NULL},
    {"t5", VOCAB_UGM, NONE, 1, 2, NONE, 0, false, true, false, false, true, NULL},
    {"rwkv", VOCAB_RWKV, NONE, NONE, NONE, NONE, NONE, false, false, false, false, true, NULL},
    {"plamo2", VOCAB_PLAMO2, 1, 2, 0, NONE, 3, false, false, false, false, true, NULL},
};

static int find_model(struct vocab *v, const struct gguf *g, struct err *err)
{
    struct str name = str_of("none");
    if (gguf_string(g, "tokenizer.ggml.model", &name, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const struct vocab_model_info *m = &models[i];
        if (!str_is(name, m->name))
            continue;
        v->model = m;
        v->kind = m->kind;
        v->how = m->how ? m->how : &kinds[m->kind];
        v->add_bos = m->add_bos;
        v->add_eos = m->add_eos;
        v->add_space_prefix = m->add_space_prefix;
        v->clean_spaces = m->clean_spaces;
        v->escape_spaces = m->escape_spaces;
        v->role[ROLE_BOS] = m->bos;
        v->role[ROLE_EOS] = m->eos;
        v->role[ROLE_UNK] = m->unk;
        v->role[ROLE_SEP] = m->sep;
        v->role[ROLE_PAD] = m->pad;
        return 0;
    }
    return err_set(err, ERR_UNSUPPORTED, "tokenizer.ggml.model: unknown tokenizer '%.*s'", STR_ARG(name));
}

/* A file without texts still says how many tokens its logits are for. */
static int load_nothing(struct vocab *v, const struct gguf *g, struct err *err)
{
    struct str arch = {0};
    char key[128];
    uint32_t n = 0;
    if (gguf_string(g, "general.architecture", &arch, err) < 0)
        return -1;
    snprintf(key, sizeof key, "%.*s.vocab_size", (int)(arch.n < 64 ? arch.n : 64), arch.p ? arch.p : "");
    if (gguf_u32(g, key, &n, err) < 0)
        return -1;
    if (n > INT32_MAX)
        return err_set(err, ERR_FORMAT, "%s: %u is too large", key, n);
    v->n = (int32_t)n;
    return 0;
}

/* NULL and no error when the key is absent. */
static int find_array(const struct gguf *g, const char *key, size_t at_least, const struct gguf_kv **kv,
                      struct err *err)
{
    *kv = gguf_find(g, key);
    if (!*kv)
        return 0;
    if (!(*kv)->is_array)
        return err_set(err, ERR_FORMAT, "%s: not an array", key);
    if ((*kv)->n < at_least)
        return err_set(err, ERR_FORMAT, "%s: %llu elements for %zu tokens", key, (unsigned long long)(*kv)->n,
                       at_least);
    return 0;
}

static int load_texts(struct vocab *v, const struct gguf *g, struct err *err)
{
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *kv;
    if (find_array(g, key, 0, &kv, err) != 0)
        return -1;
    if (!kv || kv->type != GGUF_STRING)
        return err_set(err, ERR_FORMAT, kv ? "%s: not an array of strings" : "%s: missing", key);
    if (kv->n > INT32_MAX / 4)
        return err_set(err, ERR_FORMAT, "%s: %llu tokens are too many", key, (unsigned long long)kv->n);
    if (!token_map_reserve(&v->map, kv->n))
        return no_memory(err);
    for (size_t i = 0; i < kv->n; i++) {
        struct str text = gguf_str_at(kv, i);
        if (!text.n)
            text = str_of(arena_printf(&v->arena, "[EMPTY_%zu]", i));
        int64_t old = token_map_add(&v->map, text);
        if (old == -2)
            return no_memory(err);
        if (old >= 0)
            return err_set(err, ERR_FORMAT, "%s: %zu and %lld are the same text '%.*s'", key, i,
                           (long long)old, STR_ARG(text));
        if (text.n > v->longest)
            v->longest = text.n;
    }
    v->n = (int32_t)kv->n;
    return 0;
}

static int load_scores(struct vocab *v, const struct gguf *g, struct err *err)
{
    const char *key = "tokenizer.ggml.scores";
    const struct gguf_kv *kv;
    if (find_array(g, key, (size_t)v->n, &kv, err) != 0)
        return -1;
    if (!kv)
        return 0;
    if (kv->type != GGUF_F32 && kv->type != GGUF_I32)
        return err_set(err, ERR_FORMAT, "%s: not an array of f32 or i32", key);
    v->scores = malloc((size_t)v->n * sizeof *v->scores + 1);
    if (!v->scores)
        return no_memory(err);
    for (size_t i = 0; i < (size_t)v->n; i++)
        v->scores[i] = (float)gguf_f64_at(kv, i);
    return 0;
}

static int load_attrs(struct vocab *v, const struct gguf *g, struct err *err)
{
    static const uint16_t by_type[] = {0,
                                       VOCAB_ATTR_NORMAL,
                                       VOCAB_ATTR_UNKNOWN,
                                       VOCAB_ATTR_CONTROL,
                                       VOCAB_ATTR_USER_DEFINED,
                                       VOCAB_ATTR_UNUSED,
                                       VOCAB_ATTR_BYTE};
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_kv *kv;
    if (find_array(g, key, (size_t)v->n, &kv, err) != 0)
        return -1;
    if (kv && kv->type != GGUF_I32)
        return err_set(err, ERR_FORMAT, "%s: not an array of i32", key);
    v->attrs = calloc((size_t)v->n + 1, sizeof *v->attrs);
    v->eog = calloc((size_t)v->n / 64 + 1, sizeof *v->eog);
    if (!v->attrs || !v->eog)
        return no_memory(err);
    for (size_t i = 0; i < (size_t)v->n; i++) {
        int64_t type = kv ? gguf_i64_at(kv, i) : 1;
        v->attrs[i] = type >= 0 && type < (int64_t)(sizeof by_type / sizeof *by_type) ? by_type[type] : 0;
    }
    return 0;
}

/* The pre-tokenizer brings rules of its own. A file that names none gets the default. */
static int load_pretok(struct vocab *v, const struct gguf *g, struct err *err)
{
    struct str pre = {0};
    if (gguf_string(g, "tokenizer.ggml.pre", &pre, err) < 0)
        return -1;
    if (!strcmp(v->model->name, "gemma4"))
        pre = str_of("gemma4");
    if (!pre.n) {
        log_warn(
            "tokenizer.ggml.pre: missing, so the text is cut by default rules and the model may write badly");
        pre = str_of("default");
    }
    struct bpe *b = &v->bpe;
    b->pre = pretok_new(pre, err);
    if (!b->pre)
        return -1;
    unsigned flags = pretok_flags(b->pre);
    b->raw = flags & PRE_RAW;
    b->ignore_merges = flags & PRE_IGNORE_MERGES;
    b->line_words = flags & PRE_LINE_WORDS;
    b->metaspace = flags & PRE_METASPACE;
    v->escape_spaces = b->raw && !(flags & PRE_SPACES);
    v->clean_spaces = !(flags & PRE_KEEP_SPACES);
    v->add_bos = flags & PRE_ADD_BOS;
    if (flags & PRE_NO_BOS)
        v->role[ROLE_BOS] = TOKEN_NONE;
    return 0;
}

static int load_roles(struct vocab *v, const struct gguf *g, struct err *err)
{
    static const struct {
        enum vocab_role role;
        const char *key;
    } keys[] = {
#define X(name, key) {ROLE_##name, "tokenizer.ggml." key},
        VOCAB_ROLES(X)
#undef X
        /* older names */
        {ROLE_FIM_PRE, "tokenizer.ggml.prefix_token_id"},
        {ROLE_FIM_SUF, "tokenizer.ggml.suffix_token_id"},
        {ROLE_FIM_MID, "tokenizer.ggml.middle_token_id"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        token_id *role = &v->role[keys[i].role];
        uint32_t id;
        int rc = gguf_u32(g, keys[i].key, &id, err);
        if (rc < 0)
            return -1;
        if (rc > 0 && id < (uint32_t)v->n)
            *role = (token_id)id;
        else if (rc > 0)
            log_warn("%s: there is no token %u", keys[i].key, id);
    }
    if (gguf_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos, err) < 0 ||
        gguf_bool(g, "tokenizer.ggml.add_eos_token", &v->add_eos, err) < 0 ||
        gguf_bool(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, err) < 0)
        return -1;
    if (v->bpe.pre && pretok_flags(v->bpe.pre) & PRE_FORCE_BOS)
        v->add_bos = true;
    return 0;
}

int load_trie(const struct vocab *v, struct trie *t, const struct str *texts,
              bool (*wanted)(const struct vocab *v, token_id t), struct err *err)
{
    /* a text that begins with a token takes a step for each byte of it, so long ones would cost time */
    enum { LONGEST = 4096 };
    size_t n = 0;
    struct str *picked = malloc(((size_t)v->n + 1) * sizeof *picked);
    token_id *ids = malloc(((size_t)v->n + 1) * sizeof *ids);
    bool ok = picked && ids;
    for (token_id i = 0; ok && i < v->n; i++) {
        if (wanted && !wanted(v, i))
            continue;
        picked[n] = texts ? texts[i] : v->map.texts[i];
        ids[n++] = i;
    }
    ok = ok && v->longest <= LONGEST && trie_build(t, picked, ids, n);
    free(picked);
    free(ids);
    if (v->longest > LONGEST)
        return err_set(err, ERR_FORMAT, "tokenizer.ggml.tokens: a token of %zu bytes", v->longest);
    return ok ? 0 : no_memory(err);
}

int load_normalizer(const struct gguf *g, bool *lowercase, bool *strip_accents, struct err *err)
{
    if (gguf_bool(g, "tokenizer.ggml.normalizer.lowercase", lowercase, err) < 0)
        return -1;
    *strip_accents = *lowercase;
    return gguf_bool(g, "tokenizer.ggml.normalizer.strip_accents", strip_accents, err) < 0 ? -1 : 0;
}

/* The token that a line break becomes. llama.cpp asks before it has read the file's own ids, so that defaults
 * count. */
static int find_newline(struct vocab *v, struct err *err)
{
    v->nl = v->role[ROLE_PAD];
    if (v->kind == VOCAB_WPM)
        return 0;
    if (v->kind == VOCAB_SPM) {
        if (v->bpe.byte_token['\n'] >= 0)
            v->nl = v->bpe.byte_token['\n'];
        return 0;
    }
    struct token_list ids = {0};
    struct work w = {.out = &ids};
    int rc = tokenize_plain(v, str_of("\n"), false, &w, err);
    if (rc == 0 && ids.n)
        v->nl = ids.p[0];
    work_release(&w);
    free(ids.p);
    return rc;
}

static int load(struct vocab *v, const struct gguf *g, struct err *err)
{
    if (find_model(v, g, err) != 0)
        return -1;
    if (v->kind == VOCAB_NONE)
        return load_nothing(v, g, err);
    if (v->kind == VOCAB_BPE && load_pretok(v, g, err) != 0)
        return -1;
    if (load_texts(v, g, err) != 0 || load_scores(v, g, err) != 0 || load_attrs(v, g, err) != 0 ||
        v->how->load(v, g, err) != 0)
        return -1;
    if (v->kind == VOCAB_SPM || v->kind == VOCAB_UGM || v->bpe.raw)
        find_segment_bytes(v);
    for (size_t i = 0; i < N_ROLES; i++) {
        if (v->role[i] >= v->n)
            v->role[i] = TOKEN_NONE;
    }
    if (find_newline(v, err) != 0 || load_roles(v, g, err) != 0)
        return -1;
    return special_load(v, g, err);
}

struct vocab *vocab_new(const struct gguf *g, struct err *err)
{
    struct vocab *v = calloc(1, sizeof *v);
    if (!v) {
        no_memory(err);
        return NULL;
    }
    for (size_t i = 0; i < N_ROLES; i++)
        v->role[i] = TOKEN_NONE;
    v->nl = TOKEN_NONE;
    if (load(v, g, err) != 0) {
        vocab_free(v);
        return NULL;
    }
    return v;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    bpe_release(&v->bpe);
    trie_release(&v->tokens);
    trie_release(&v->ugm.user);
    free(v->shown);
    token_map_release(&v->map);
    free(v->scores);
    free(v->attrs);
    free(v->eog);
    free(v->specials);
    free(v->special_at_rank);
    arena_release(&v->arena);
    free(v);
}

int32_t vocab_n_tokens(const struct vocab *v)
{
    return v->n;
}

const char *vocab_model(const struct vocab *v)
{
    return v->model->name;
}

struct str vocab_text(const struct vocab *v, token_id t)
{
    return token_valid(v, t) && v->map.texts ? shown_text(v, t) : (struct str){"", 0};
}

float vocab_score(const struct vocab *v, token_id t)
{
    return token_valid(v, t) && v->scores ? v->scores[t] : 0;
}

uint32_t vocab_attr(const struct vocab *v, token_id t)
{
    return token_valid(v, t) && v->attrs ? v->attrs[t] : 0;
}

bool vocab_is_eog(const struct vocab *v, token_id t)
{
    return token_valid(v, t) && v->eog && v->eog[t / 64] >> (t & 63) & 1;
}

bool vocab_is_control(const struct vocab *v, token_id t)
{
    return vocab_attr(v, t) & VOCAB_ATTR_CONTROL;
}

token_id vocab_bos(const struct vocab *v)
{
    return v->role[ROLE_BOS];
}

token_id vocab_eos(const struct vocab *v)
{
    return v->role[ROLE_EOS];
}

token_id vocab_eot(const struct vocab *v)
{
    return v->role[ROLE_EOT];
}

token_id vocab_nl(const struct vocab *v)
{
    return v->nl;
}

token_id vocab_pad(const struct vocab *v)
{
    return v->role[ROLE_PAD];
}

#define FIM(name, role_name)                                                                                 \
    token_id vocab_fim_##name(const struct vocab *v)                                                         \
    {                                                                                                        \
        return v->role[ROLE_FIM_##role_name];                                                                \
    }
FIM(pre, PRE)
FIM(suf, SUF)
FIM(mid, MID)
FIM(pad, PAD)
FIM(rep, REP)
FIM(sep, SEP)
#undef FIM

bool vocab_add_bos(const struct vocab *v)
{
    return v->add_bos;
}

bool vocab_add_eos(const struct vocab *v)
{
    return v->add_eos;
}

token_id vocab_find(const struct vocab *v, struct str text)
{
    return token_of(v, text);
}
