/* Tokens that files don't mark: ends of turns and of generation known by their text, and the odd cases of
 * single models, as in llama.cpp. And the list of tokens that are looked for in texts. */
#include "vocab/inside.h"

#include <ctype.h>
#include <stdlib.h>

/* Texts that give a role when no key of the file does; the first one that is a token counts. (llama.cpp takes
 * the one that its hash map lists first. Which one it is has no bearing on where generations end.) */
static const struct {
    enum vocab_role role;
    const char *text;
} by_text[] = {
    {ROLE_EOT, "<|eot_id|>"},
    {ROLE_EOT, "<|im_end|>"},
    {ROLE_EOT, "<|end|>"},
    {ROLE_EOT, "<end_of_turn>"},
    {ROLE_EOT, "<|endoftext|>"},
    {ROLE_EOT, "<|end_of_text|>"},
    {ROLE_EOT, "<EOT>"},
    {ROLE_EOT, "_<EOT>"},
    {ROLE_EOT, "[EOT]"},
    {ROLE_EOT, "<｜end▁of▁sentence｜>"},
    {ROLE_EOT, "<end_of_utterance>"},
    {ROLE_EOM, "<|eom_id|>"},
    {ROLE_FIM_PRE, "<|fim_prefix|>"},
    {ROLE_FIM_PRE, "<fim-prefix>"},
    {ROLE_FIM_PRE, "<fim_prefix>"},
    {ROLE_FIM_PRE, "<｜fim▁begin｜>"},
    {ROLE_FIM_PRE, "<PRE>"},
    {ROLE_FIM_PRE, "▁<PRE>"},
    {ROLE_FIM_PRE, "<|code_prefix|>"},
    {ROLE_FIM_PRE, "<|prefix|>"},
    {ROLE_FIM_SUF, "<|fim_suffix|>"},
    {ROLE_FIM_SUF, "<fim-suffix>"},
    {ROLE_FIM_SUF, "<fim_suffix>"},
    {ROLE_FIM_SUF, "<｜fim▁hole｜>"},
    {ROLE_FIM_SUF, "<SUF>"},
    {ROLE_FIM_SUF, "▁<SUF>"},
    {ROLE_FIM_SUF, "<|code_suffix|>"},
    {ROLE_FIM_SUF, "<|suffix|>"},
    {ROLE_FIM_MID, "<|fim_middle|>"},
    {ROLE_FIM_MID, "<fim-middle>"},
    {ROLE_FIM_MID, "<fim_middle>"},
    {ROLE_FIM_MID, "<｜fim▁end｜>"},
    {ROLE_FIM_MID, "<MID>"},
    {ROLE_FIM_MID, "▁<MID>"},
    {ROLE_FIM_MID, "<|code_middle|>"},
    {ROLE_FIM_MID, "<|middle|>"},
    {ROLE_FIM_PAD, "<|fim_pad|>"},
    {ROLE_FIM_PAD, "<fim-pad>"},
    {ROLE_FIM_PAD, "<fim_pad>"},
    {ROLE_FIM_PAD, "<PAD>"},
    {ROLE_FIM_PAD, "[PAD]"},
    {ROLE_FIM_REP, "<|fim_repo|>"},
    {ROLE_FIM_REP, "<|repo_name|>"},
    {ROLE_FIM_REP, "<fim-repo>"},
    {ROLE_FIM_REP, "<REPO>"},
    {ROLE_FIM_REP, "<reponame>"},
    {ROLE_FIM_SEP, "<|file_sep|>"},
};

/* Tokens that end a generation whatever the file says. */
static const char *const eog_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

/* Channel markers that are always part of the text. */
static const char *const shown_texts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void set_eog(struct vocab *v, token_id t, bool on)
{
    if (!token_valid(v, t))
        return;
    uint64_t bit = (uint64_t)1 << (t & 63);
    v->eog[t / 64] = on ? v->eog[t / 64] | bit : v->eog[t / 64] & ~bit;
}

static token_id find(const struct vocab *v, const char *text)
{
    return token_of(v, str_of(text));
}

/* The token of a text if it ends generations. */
static token_id find_eog(const struct vocab *v, const char *text)
{
    token_id t = find(v, text);
    return vocab_is_eog(v, t) ? t : TOKEN_NONE;
}

static void roles_by_text(struct vocab *v)
{
    for (size_t i = 0; i < COUNT(by_text); i++) {
        token_id t = v->role[by_text[i].role] < 0 ? find(v, by_text[i].text) : TOKEN_NONE;
        if (t >= 0) {
            v->role[by_text[i].role] = t;
            v->attrs[t] |= VOCAB_ATTR_CONTROL;
        }
    }
}

static void mark_unused(struct vocab *v)
{
    for (token_id t = 0; t < v->n; t++) {
        struct str text = v->map.texts[t];
        if (v->attrs[t] & VOCAB_ATTR_CONTROL && memmem(text.p, strnlen(text.p, text.n), "unused", 6))
            v->attrs[t] |= VOCAB_ATTR_UNUSED;
    }
}

/* Harmony and Solar have "<|end|>" inside of a message; Gemma 4 and PLaMo have a plain "</s>". */
static void not_eog_after_all(struct vocab *v)
{
    bool ret = find_eog(v, "<|return|>") >= 0, flush = find_eog(v, "<|flush|>") >= 0;
    bool call = find_eog(v, "<|call|>") >= 0 || find_eog(v, "<|calls|>") >= 0;
    token_id end = find_eog(v, "<|end|>"), s = find_eog(v, "</s>");
    if (call && (ret || flush) && end >= 0) {
        set_eog(v, end, false);
        v->attrs[end] = VOCAB_ATTR_USER_DEFINED;
    }
    if (s >= 0 && (find_eog(v, "<|tool_response>") >= 0 || find_eog(v, "<|plamo:eos|>") >= 0)) {
        set_eog(v, s, false);
        v->attrs[s] = VOCAB_ATTR_NORMAL;
    }
}

static void find_eogs(struct vocab *v)
{
    static const enum vocab_role before[] = {ROLE_FIM_PAD, ROLE_FIM_REP, ROLE_FIM_SEP};
    static const enum vocab_role after[] = {ROLE_EOS, ROLE_EOT, ROLE_EOM};
    for (size_t i = 0; i < COUNT(before); i++)
        set_eog(v, v->role[before[i]], true);
    for (size_t i = 0; i < COUNT(eog_texts); i++) {
        token_id t = find(v, eog_texts[i]);
        if (t >= 0) {
            set_eog(v, t, true);
            v->attrs[t] |= VOCAB_ATTR_CONTROL;
        }
    }
    for (size_t i = 0; i < COUNT(shown_texts); i++) {
        token_id t = find(v, shown_texts[i]);
        if (t >= 0)
            v->attrs[t] = VOCAB_ATTR_USER_DEFINED;
    }
    for (size_t i = 0; i < COUNT(after); i++)
        set_eog(v, v->role[after[i]], true);
    not_eog_after_all(v);
}

/* Longest first, then by id. */
static int by_length(const void *a, const void *b)
{
    const struct special *x = a, *y = b;
    if (x->text.n != y->text.n)
        return x->text.n > y->text.n ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int by_bytes(const void *a, const void *b)
{
    const struct special *x = a, *y = b;
    size_t n = x->text.n < y->text.n ? x->text.n : y->text.n;
    int c = memcmp(x->text.p, y->text.p, n);
    return c ? c : x->text.n < y->text.n ? -1 : x->text.n > y->text.n;
}

static int list_specials(struct vocab *v, struct err *err)
{
    const unsigned wanted = VOCAB_ATTR_CONTROL | VOCAB_ATTR_USER_DEFINED | VOCAB_ATTR_UNKNOWN;
    size_t n = 0, k = 0;
    for (token_id t = 0; t < v->n; t++)
        n += (v->attrs[t] & wanted) != 0;
    v->specials = calloc(n + 1, sizeof *v->specials);
    v->special_at_rank = calloc(n + 1, sizeof *v->special_at_rank);
    if (!v->specials || !v->special_at_rank)
        return no_memory(err);
    for (token_id t = 0; t < v->n; t++) {
        if (v->attrs[t] & wanted)
            v->specials[k++] = (struct special){shown_text(v, t), t, 0};
    }
    v->n_specials = n;
    qsort(v->specials, n, sizeof *v->specials, by_length);
    for (size_t i = 0; i < n; i++)
        v->specials[i].rank = (uint32_t)i;
    qsort(v->specials, n, sizeof *v->specials, by_bytes);
    for (size_t i = 0; i < n; i++) {
        v->special_at_rank[v->specials[i].rank] = (uint32_t)i;
        v->special_first[(unsigned char)v->specials[i].text.p[0] + 1]++;
    }
    for (size_t i = 0; i < 256; i++)
        v->special_first[i + 1] += v->special_first[i];
    return 0;
}

static bool contains(struct str text, const char *const *any, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text.n && memmem(text.p, text.n, any[i], strlen(any[i])))
            return true;
    }
    return false;
}

static void set_attr(struct vocab *v, const char *text, unsigned attr, bool on)
{
    token_id t = find(v, text);
    if (t >= 0)
        v->attrs[t] = (uint16_t)(on ? v->attrs[t] | attr : v->attrs[t] & ~attr);
}

/* The file format has no place for "takes the spaces beside it away": that goes by the model's name. */
static int attrs_by_name(struct vocab *v, const struct gguf *g, struct err *err)
{
    static const char *const mask_pre[] = {"jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"};
    static const char *const mask_arch[] = {"nomic-bert-moe", "jina-bert-v3"};
    static const char *const phi3[] = {"phi-3", "phi3"}, *const modern_bert[] = {"modern-bert"};
    static const char *const phi3_not[] = {"<unk>", "<s>", "<|endoftext|>"};
    struct str name = {0}, pre = {0}, arch = {0};
    if (gguf_string(g, "general.name", &name, err) < 0 ||
        gguf_string(g, "tokenizer.ggml.pre", &pre, err) < 0 ||
        gguf_string(g, "general.architecture", &arch, err) < 0)
        return -1;
    char *lower = arena_strndup(&v->arena, name.p ? name.p : "", name.n);
    for (size_t i = 0; i < name.n; i++)
        lower[i] = (char)tolower((unsigned char)lower[i]);
    name.p = lower;
    if (contains(pre, mask_pre, COUNT(mask_pre)) || contains(arch, mask_arch, COUNT(mask_arch))) {
        set_attr(v, "<mask>", VOCAB_ATTR_LSTRIP, true);
    } else if (contains(name, phi3, COUNT(phi3))) {
        for (size_t i = 0; i < v->n_specials; i++)
            v->attrs[v->specials[i].id] |= VOCAB_ATTR_RSTRIP;
        set_attr(v, "</s>", VOCAB_ATTR_RSTRIP, true);
        for (size_t i = 0; i < COUNT(phi3_not); i++)
            set_attr(v, phi3_not[i], VOCAB_ATTR_RSTRIP, false);
    } else if (contains(name, modern_bert, COUNT(modern_bert))) {
        set_attr(v, "[MASK]", VOCAB_ATTR_LSTRIP, true);
    }
    return 0;
}

int special_load(struct vocab *v, const struct gguf *g, struct err *err)
{
    roles_by_text(v);
    mark_unused(v);
    find_eogs(v);
    if (list_specials(v, err) != 0)
        return -1;
    return attrs_by_name(v, g, err);
}
