/* Any text over small vocabularies, one for each pre-tokenizer and for each other tokenizer, chosen by the
 * first byte. What must hold: where every byte has a token, the pieces together are the text again (repaired,
 * but for RWKV's), and special tokens are found as a plain search finds them. */
#include "../unit/vocab_build.h"

#include "vocab/inside.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const pres[] = {
#define PRETOK_NAME(name, set, flags) name,
#include "vocab/pretok.def"
};
#define N_PRES (sizeof pres / sizeof *pres)

static const char *const specials[] = {"<a>",  "<a",     "a>", "<ab>",  "  ",
                                       "\n\n", "\n\n\n", "ab", "<unk>", "</s>"};
#define N_SPECIALS (sizeof specials / sizeof *specials)
static const char special_types[] = "4444444423";

/* Every result is a token: text that merges into something else gets lost, in llama.cpp as well. */
static const char *const merges[] = {"t h", "th e", "Ġ th", "1 2", "Ã ©", "Ġ Ġ", "e r",
                                     "Ċ Ċ", "ä ¸",  "l l",  "' s", "x y", NULL};
static const char *const merged[] = {"th", "the", "Ġth", "12", "Ã©", "ĠĠ",
                                     "er", "ĊĊ",  "ä¸",  "ll", "'s", "xy"};
#define N_MERGED (sizeof merged / sizeof *merged)

static void bytes_vocab(struct file *f, const char *pre)
{
    static char text[256][3];
    const char *tokens[256 + N_SPECIALS + N_MERGED + 1] = {0};
    char types[256 + N_SPECIALS + N_MERGED + 1] = "";
    for (int i = 0; i < 256; i++) {
        struct buf b = {0};
        buf_put_utf8(&b, byte_to_char((unsigned char)i));
        memcpy(text[i], b.p, b.n + 1);
        buf_release(&b);
        tokens[i] = text[i];
        types[i] = '1';
    }
    memcpy(tokens + 256, specials, sizeof specials);
    memcpy(types + 256, special_types, sizeof special_types);
    for (size_t i = 0; i < N_MERGED; i++) {
        tokens[256 + N_SPECIALS + i] = merged[i];
        types[256 + N_SPECIALS + i] = '1';
    }
    key_str(f, "tokenizer.ggml.model", "gpt2");
    key_str(f, "tokenizer.ggml.pre", pre);
    key_strs(f, "tokenizer.ggml.tokens", tokens);
    key_digits(f, "tokenizer.ggml.token_type", types);
    key_strs(f, "tokenizer.ggml.merges", merges);
    key_u32(f, "tokenizer.ggml.bos_token_id", 265);
}

static void spm_vocab(struct file *f)
{
    static char text[256][8];
    const char *tokens[256 + N_SPECIALS + 8] = {0};
    char types[256 + N_SPECIALS + 8] = "";
    for (int i = 0; i < 256; i++) {
        snprintf(text[i], sizeof text[i], "<0x%02X>", i);
        tokens[i] = text[i];
        types[i] = '6';
    }
    memcpy(tokens + 256, specials, sizeof specials);
    memcpy(types + 256, special_types, sizeof special_types);
    static const char *const words[] = {"\xE2\x96\x81",   "\xE2\x96\x81t", "th",
                                        "\xE2\x96\x81th", "\xC3\xA9",      "\xC3\xA9\xC3\xA9"};
    memcpy(tokens + 256 + N_SPECIALS, words, sizeof words);
    memset(types + 256 + N_SPECIALS, '1', sizeof words / sizeof *words);
    key_str(f, "general.name", "phi-3"); /* special tokens take white space away */
    key_str(f, "tokenizer.ggml.model", "llama");
    key_strs(f, "tokenizer.ggml.tokens", tokens);
    key_digits(f, "tokenizer.ggml.token_type", types);
    key_bool(f, "tokenizer.ggml.add_space_prefix", false);
}

/* The other tokenizers: bytes as each spells them, special tokens, some words. */
static const char *const others[] = {"rwkv", "plamo2", "bert", "t5"};
enum { RWKV = N_PRES + 1, PLAMO2, BERT, T5, N_VOCABS };

static void charsmap(struct file *f)
{
    struct buf b = {0};
    uint32_t units[256];
    for (size_t i = 0; i < 256; i++)
        units[i] = 0xFF;
    units[0] = 1u << 10; /* children of the root lie at 1 ^ c */
    units[1 ^ '\n'] = '\n' | 0x100 | (0x80u ^ 1 ^ '\n') << 10;
    units[0x80] = 1u << 31; /* "\n" becomes " " */
    units[1 ^ 'x'] = 'x' | (0x90u ^ 1 ^ 'x') << 10;
    units[0x90 ^ 'y'] = 'y' | 0x100 | (0xA0u ^ 0x90 ^ 'y') << 10;
    units[0xA0] = 1u << 31 | 2; /* "xy" becomes "the  a" */
    add_u32(&b, sizeof units);
    buf_add(&b, units, sizeof units);
    buf_add(&b, " \0the  a", 9);
    key_bytes(f, "tokenizer.ggml.precompiled_charsmap", b.p, b.n);
    buf_release(&b);
}

static void other_vocab(struct file *f, const char *model)
{
    static char text[256][8];
    static const char *const words[] = {"\xE2\x96\x81",
                                        "\xE2\x96\x81t",
                                        "th",
                                        "\xE2\x96\x81th",
                                        "\xC3\xA9",
                                        "\xC3\xA9\xC3\xA9",
                                        "the",
                                        "the  the",
                                        "a",
                                        "t"};
    enum { N_WORDS = sizeof words / sizeof *words };
    const char *tokens[256 + N_SPECIALS + N_WORDS + 1] = {0};
    char types[256 + N_SPECIALS + N_WORDS + 1] = "", *spelling = "[%02X]";
    if (!strcmp(model, "rwkv"))
        spelling = "\\x%02x";
    if (!strcmp(model, "plamo2"))
        spelling = "<0x%02X>";
    memcpy(tokens, specials, sizeof specials);
    memcpy(types, special_types, sizeof special_types);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(text[i], sizeof text[i], spelling, i);
        tokens[N_SPECIALS + i] = text[i];
        types[N_SPECIALS + i] = strcmp(model, "plamo2") ? '1' : '6';
    }
    memcpy(tokens + 256 + N_SPECIALS, words, sizeof words);
    memset(types + 256 + N_SPECIALS, '1', N_WORDS);
    key_str(f, "tokenizer.ggml.model", model);
    key_strs(f, "tokenizer.ggml.tokens", tokens);
    key_digits(f, "tokenizer.ggml.token_type", types);
    key_bool(f, "tokenizer.ggml.remove_extra_whitespaces", true);
    if (!strcmp(model, "t5"))
        charsmap(f);
}

/* Kept for the life of the process. */
static const struct vocab *vocab_number(size_t i)
{
    static struct vocab *all[N_VOCABS];
    static struct file files[N_VOCABS];
    static struct gguf *open[N_VOCABS];
    if (!all[i]) {
        struct err err = ERR_INIT;
        file_begin(&files[i]);
        if (i < N_PRES)
            bytes_vocab(&files[i], pres[i]);
        else if (i == N_PRES)
            spm_vocab(&files[i]);
        else
            other_vocab(&files[i], others[i - N_PRES - 1]);
        struct str bytes = file_bytes(&files[i]);
        open[i] = gguf_open_memory(bytes.p, bytes.n, &err);
        all[i] = open[i] ? vocab_new(open[i], &err) : NULL;
        if (!all[i]) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
    }
    return all[i];
}

/* Token by token, each in what is left: the owner of every byte, -1 for none, or the token's rank. */
static void plain_search(const struct vocab *v, struct str text, bool control, int *owner)
{
    for (size_t i = 0; i < text.n; i++)
        owner[i] = -1;
    for (size_t rank = 0; rank < v->n_specials; rank++) {
        const struct special *s = &v->specials[v->special_at_rank[rank]];
        unsigned attr = v->attrs[s->id];
        if (!control && attr & (VOCAB_ATTR_CONTROL | VOCAB_ATTR_UNKNOWN))
            continue;
        for (size_t at = 0; at + s->text.n <= text.n; at++) {
            size_t n = 0, end = at + s->text.n;
            while (n < s->text.n && owner[at + n] < 0 && text.p[at + n] == s->text.p[n])
                n++;
            if (n < s->text.n)
                continue;
            while (attr & VOCAB_ATTR_RSTRIP && end < text.n && owner[end] < 0 &&
                   isspace((unsigned char)text.p[end]))
                end++;
            for (size_t i = at; i < end; i++)
                owner[i] = (int)rank;
            at = end - 1;
        }
    }
}

static void check_partition(const struct vocab *v, struct str text, bool control)
{
    struct fragments f = {0};
    int *owner = malloc((text.n + 1) * sizeof *owner);
    if (!owner || partition(v, text, control, &f, NULL) != 0)
        abort();
    plain_search(v, text, control, owner);
    size_t plain = 0, found = 0;
    for (size_t i = 0; i < text.n; i++)
        plain += owner[i] < 0;
    for (size_t i = 0; i < f.n; i++) {
        if (f.p[i].token >= 0)
            continue;
        found += f.p[i].n;
        for (size_t k = 0; k < f.p[i].n; k++) {
            if (owner[f.p[i].at + k] >= 0)
                abort();
        }
    }
    if (plain != found)
        abort();
    free(owner);
    free(f.p);
}

/* The pieces of the ids, one after the other. */
static struct buf pieces(const struct vocab *v, struct str text, bool parse)
{
    struct token_list ids = {0};
    struct buf out = {0};
    struct err err = ERR_INIT;
    if (vocab_tokenize(v, text, false, parse, &ids, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    buf_puts(&out, "");
    for (size_t i = 0; i < ids.n; i++)
        vocab_piece(v, ids.p[i], 0, true, &out);
    struct buf clean = {0};
    vocab_detokenize(v, ids.p, ids.n, true, parse, &clean);
    buf_release(&clean);
    free(ids.p);
    return out;
}

/* What the pieces must be; NULL text: nothing is promised. The special tokens are plain ASCII in the
 * vocabularies here, so that repairing the whole is repairing the parts. */
static struct str promised(const struct vocab *v, size_t number, struct str text, struct buf *scratch)
{
    if (number == RWKV)
        return text;
    if ((number < N_PRES && !v->bpe.raw) || (number == PLAMO2 && !memmem(text.p, text.n, "\xEF\xBB\xBF", 3)))
        return utf8_repair(text, scratch);
    return (struct str){NULL, 0};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t number = data[0] % N_VOCABS;
    const struct vocab *v = vocab_number(number);
    struct str text = {(const char *)data + 2, size - 2};
    for (size_t i = 0; i + 3 < text.n && number == PLAMO2; i++) {
        if ((unsigned char)text.p[i] >= 0xF4) /* may be spelled in bytes that stay */
            return 0;
    }
    bool parse = data[1] & 1;
    check_partition(v, text, parse);
    struct buf got = pieces(v, text, parse), scratch = {0};
    struct str want = promised(v, number, text, &scratch);
    if (want.p && !str_eq(want, buf_str(&got)))
        abort();
    buf_release(&got);
    buf_release(&scratch);
    return 0;
}
