/* The tokenizers that match whole tokens: WordPiece, Unigram, RWKV, PLaMo 2; and the two that cut the text
 * before byte-pair encoding. Their ids are compared with llama.cpp's in test_vocab_golden.c; here is what
 * files can have wrong, texts of a megabyte, and what must come back. */
#include "vocab_build.h"
#include "vocab_golden.h"

#include "vocab/trie.h"
#include "vocab/utf8.h"

static struct vocab *load(struct file *f, struct gguf **g, struct err *err)
{
    struct str bytes = file_bytes(f);
    *g = gguf_open_memory(bytes.p, bytes.n, err);
    return *g ? vocab_new(*g, err) : NULL;
}

static void unload(struct file *f, struct gguf *g, struct vocab *v)
{
    vocab_free(v);
    gguf_close(g);
    buf_release(&f->data);
}

static void refused(struct file *f, const char *part)
{
    struct err err = ERR_INIT;
    struct gguf *g;
    struct vocab *v = load(f, &g, &err);
    assert_null(v);
    assert_int_equal(err.code, ERR_FORMAT);
    if (!strstr(err.text, part))
        fail_msg("'%s' says nothing of '%s'", err.text, part);
    unload(f, g, v);
}

/* Loads, but this text makes it say what is wrong. */
static void refuses_text(struct file *f, const char *text, bool add_special, const char *part)
{
    struct err err = ERR_INIT;
    struct gguf *g;
    struct vocab *v = load(f, &g, &err);
    struct token_list ids = {0};
    if (!v)
        fail_msg("%s", err.text);
    assert_int_equal(vocab_tokenize(v, str_of(text), add_special, true, &ids, &err), -1);
    assert_int_equal(err.code, ERR_FORMAT);
    if (!strstr(err.text, part))
        fail_msg("'%s' says nothing of '%s'", err.text, part);
    free(ids.p);
    unload(f, g, v);
}

static void unigram_file(struct file *f)
{
    file_begin(f);
    key_str(f, "tokenizer.ggml.model", "t5");
    key_strs(f, "tokenizer.ggml.tokens",
             (const char *[]){"<pad>", "</s>", "<unk>", "a", "b", "ab", "\xE2\x96\x81", NULL});
    key_digits(f, "tokenizer.ggml.token_type", "3321111");
}

/* A character map: its size, its units, its replacements. */
static void charsmap(struct file *f, uint32_t size, const uint32_t *units, size_t n_units, const char *texts,
                     size_t n_texts)
{
    struct buf b = {0};
    add_u32(&b, size);
    for (size_t i = 0; i < n_units; i++)
        add_u32(&b, units[i]);
    buf_add(&b, texts, n_texts);
    unigram_file(f);
    key_bytes(f, "tokenizer.ggml.precompiled_charsmap", b.p, b.n);
    buf_release(&b);
}

static void broken_charsmaps(void **state)
{
    (void)state;
    struct file f;
    static const uint32_t to_nowhere[] = {0x10000u << 10};
    unigram_file(&f);
    key_str(&f, "tokenizer.ggml.precompiled_charsmap", "text");
    refused(&f, "precompiled_charsmap");
    unigram_file(&f);
    key_bytes(&f, "tokenizer.ggml.precompiled_charsmap", "\1\0", 2);
    refused(&f, "precompiled_charsmap: 2 bytes");
    charsmap(&f, 4000000000u, NULL, 0, "abcd", 5);
    refused(&f, "4000000000 bytes");
    charsmap(&f, 4, to_nowhere, 1, "", 0); /* no room for a replacement */
    refused(&f, "precompiled_charsmap");
    charsmap(&f, 4, to_nowhere, 1, "x", 2);
    refused(&f, "precompiled_charsmap: broken"); /* what a line break becomes is asked at once */

    /* 'a' leads to a leaf, and the leaf's text has no end, or lies outside */
    uint32_t units[256];
    for (size_t i = 0; i < 256; i++)
        units[i] = 0xFF;
    units[0] = 1u << 10; /* children at 1 ^ c; of 'a' at 0x60 */
    units[0x60] = 'a' | 0x100 | 0x10u << 10;
    units[0x70] = 1u << 31 | 1;
    charsmap(&f, sizeof units, units, 256, "\0bb", 3);
    refuses_text(&f, "a", false, "precompiled_charsmap: broken");
    units[0x70] = 1u << 31 | 77;
    charsmap(&f, sizeof units, units, 256, "\0b", 3);
    refuses_text(&f, "a", false, "precompiled_charsmap: broken");
    units[0x60] = 'a' | 0x100 | 0x7FFFu << 10; /* a leaf outside of the table */
    charsmap(&f, sizeof units, units, 256, "\0b", 3);
    refuses_text(&f, "a", false, "precompiled_charsmap: broken");
}

/* The same map in order: 'a' becomes 'b'; and one whose key never ends. */
static void small_charsmap(void **state)
{
    (void)state;
    struct file f;
    struct err err = ERR_INIT;
    struct gguf *g;
    uint32_t units[256];
    for (size_t i = 0; i < 256; i++)
        units[i] = 0xFF;
    units[0] = 1u << 10;
    units[0x60] = 'a' | 0x100 | 0x10u << 10;
    units[0x70] = 1u << 31 | 1;
    charsmap(&f, sizeof units, units, 256, "\0b", 3);
    struct vocab *v = load(&f, &g, &err);
    assert_non_null(v);
    struct token_list ids = ids_of(v, str_of("a b"), false, false);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.p[0], 4);
    assert_int_equal(ids.p[1], 6);
    assert_int_equal(ids.p[2], 4);
    free(ids.p);
    unload(&f, g, v);

    units[0x60] = 'a' | 0x61u << 10; /* its children are the root's: a, aa, aaa, … */
    charsmap(&f, sizeof units, units, 256, "\0b", 3);
    v = load(&f, &g, &err);
    assert_non_null(v);
    char *text = malloc(200000);
    memset(text, 'a', 200000);
    ids = ids_of(v, (struct str){text, 200000}, false, false);
    assert_int_equal(ids.n, 200000);
    free(ids.p);
    free(text);
    unload(&f, g, v);
}

static void broken_files(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "bert");
    key_strs(&f, "tokenizer.ggml.tokens",
             (const char *[]){"[PAD]", "[CLS]",
                              "\xE2\x96\x81"
                              "a",
                              NULL});
    key_u32(&f, "tokenizer.ggml.bos_token_id", 1);
    refuses_text(&f, "a", true, "seperator_token_id");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "plamo2");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", "<0x00>", "<0x01>", NULL});
    key_digits(&f, "tokenizer.ggml.token_type", "166");
    refused(&f, "byte 0x02");
    char *text = calloc(1, 5001);
    memset(text, 'a', 5000);
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "rwkv");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"b", text, NULL});
    refused(&f, "5000 bytes");
    free(text);
}

/* Types that nobody knows make tokens without a part to play; a vocabulary without a token for unknown text
 * leaves it out. */
static void odd_files(void **state)
{
    (void)state;
    static const char *const models[] = {"bert", "t5", "rwkv"};
    for (size_t i = 0; i < 3; i++) {
        struct file f;
        struct err err = ERR_INIT;
        struct gguf *g;
        file_begin(&f);
        key_str(&f, "tokenizer.ggml.model", models[i]);
        key_strs(&f, "tokenizer.ggml.tokens",
                 (const char *[]){"\xE2\x96\x81"
                                  "a",
                                  "a", NULL});
        key_digits(&f, "tokenizer.ggml.token_type", "19");
        struct vocab *v = load(&f, &g, &err);
        assert_non_null(v);
        assert_int_equal(vocab_attr(v, 1), 0);
        assert_int_equal(vocab_bos(v), TOKEN_NONE);
        struct token_list ids = ids_of(v,
                                       str_of("\xE2\x96\x81"
                                              "a zz \xFF"
                                              "\xE2\x96\x81"
                                              "a"),
                                       false, true);
        for (size_t k = 0; k < ids.n; k++)
            assert_in_range(ids.p[k], 0, 1);
        free(ids.p);
        unload(&f, g, v);
    }
}

static void tries(void **state)
{
    (void)state;
    enum { N = 3000 };
    static char names[N][24];
    struct str texts[N];
    int32_t ids[N];
    struct trie t;
    assert_true(trie_build(&t, NULL, NULL, 0));
    assert_int_equal(trie_step(&t, TRIE_ROOT, 'a'), TRIE_NO_NODE);
    trie_release(&t);
    for (int i = 0; i < N; i++) {
        int n = snprintf(names[i], sizeof names[i], "%.*s%d", i % 17, "abcdefghijklmnopq", i * 7);
        texts[i] = (struct str){names[i], (size_t)n};
        ids[i] = i;
    }
    texts[5] = str_of("");
    texts[9] = texts[8]; /* the last one counts */
    assert_true(trie_build(&t, texts, ids, N));
    for (int i = 0; i < N; i++) {
        uint32_t node = TRIE_ROOT;
        for (size_t k = 0; k < texts[i].n; k++)
            node = trie_step(&t, node, (unsigned char)texts[i].p[k]);
        assert_int_equal(t.nodes[node].id, i == 5 ? -1 : i == 8 ? 9 : i);
    }
    trie_release(&t);
}

static struct vocab *open_small(const char *name, struct gguf **g)
{
    char path[256];
    struct err err = ERR_INIT;
    snprintf(path, sizeof path, GOLDEN "%s.gguf", name);
    *g = gguf_open(path, &err);
    struct vocab *v = *g ? vocab_new(*g, &err) : NULL;
    if (!v)
        fail_msg("%s", err.text);
    return v;
}

/* With a square in it, any of these would take minutes. */
static void long_texts(void **state)
{
    (void)state;
    static const char *const files[] = {"rwkv",      "plamo2",    "unigram",   "unigram-merged",
                                        "wordpiece", "hybriddna", "whitespace"};
    static const char *const parts[] = {"A",     "us",           " ",     "\n",   "a", "\xFF",
                                        "<tool", "\xE2\x96\x81", "<dna>", "\\x0a"};
    enum { SIZE = 1000000 };
    char *text = malloc(SIZE);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct gguf *g;
        struct vocab *v = open_small(files[i], &g);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            size_t n = strlen(parts[k]);
            for (size_t at = 0; at < SIZE; at++)
                text[at] = parts[k][at % n];
            struct token_list ids = ids_of(v, (struct str){text, SIZE}, true, true);
            free(ids.p);
        }
        vocab_free(v);
        gguf_close(g);
    }
    free(text);
}

/* Every text comes back: RWKV's to the byte, PLaMo 2's as far as it is text. */
static void round_trips(void **state)
{
    (void)state;
    static const char *const files[] = {"rwkv", "plamo2"};
    for (size_t i = 0; i < 2; i++) {
        struct gguf *g;
        struct vocab *v = open_small(files[i], &g);
        struct str texts_file = read_file(GOLDEN "texts.txt"), texts = texts_file;
        while (texts.n) {
            struct buf text = {0}, back = {0}, scratch = {0};
            unescape(next_line(&texts), &text);
            buf_puts(&text, "");
            struct token_list ids = ids_of(v, buf_str(&text), false, false);
            vocab_detokenize(v, ids.p, ids.n, false, true, &back);
            buf_puts(&back, "");
            struct str want = i ? utf8_repair(buf_str(&text), &scratch) : buf_str(&text);
            if (i && str_starts(want, "\xEF\xBB\xBF")) /* a byte order mark at the beginning goes */
                want = (struct str){want.p + 3, want.n - 3};
            assert_true(str_eq(buf_str(&back), want));
            free(ids.p);
            buf_release(&text);
            buf_release(&back);
            buf_release(&scratch);
        }
        free((void *)texts_file.p);
        vocab_free(v);
        gguf_close(g);
    }
}

/* DNA tokens have a mark in the file that nobody sees. */
static void dna(void **state)
{
    (void)state;
    struct gguf *g;
    struct vocab *v = open_small("hybriddna", &g);
    struct token_list ids = ids_of(v, str_of("<dna>gattacCCCCCCzz</dna>"), false, false);
    struct buf text = {0};
    vocab_detokenize(v, ids.p, ids.n, false, true, &text);
    assert_string_equal(text.p, "<dna>GATTACCCCCCC<oov></dna>");
    assert_true(str_is(vocab_text(v, ids.p[1]), "GATTAC"));
    buf_release(&text);
    free(ids.p);
    vocab_free(v);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_charsmaps),
        cmocka_unit_test(small_charsmap),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(odd_files),
        cmocka_unit_test(tries),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(dna),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
