/* The parts of room vocab one by one, and what it does with files that are odd or broken. */
#include "vocab_build.h"
#include "vocab_golden.h"

#include "vocab/token_map.h"
#include "vocab/utf8.h"

#include <pthread.h>

struct loaded {
    struct gguf *g;
    struct vocab *v;
    struct err err;
};

static struct loaded load(struct file *f)
{
    struct loaded l = {0};
    struct str bytes = file_bytes(f);
    l.g = gguf_open_memory(bytes.p, bytes.n, &l.err);
    l.v = l.g ? vocab_new(l.g, &l.err) : NULL;
    return l;
}

static void unload(struct file *f, struct loaded *l)
{
    vocab_free(l->v);
    gguf_close(l->g);
    buf_release(&f->data);
}

/* Fails with this code and a line that has this in it. */
static void refused(struct file *f, enum err_code code, const char *part)
{
    struct loaded l = load(f);
    assert_null(l.v);
    assert_int_equal(l.err.code, code);
    if (!strstr(l.err.text, part))
        fail_msg("'%s' says nothing of '%s'", l.err.text, part);
    unload(f, &l);
}

static void assert_ids(const struct vocab *v, const char *text, bool add, bool parse, const char *expected)
{
    struct token_list ids = ids_of(v, str_of(text), add, parse);
    struct buf line = {0};
    buf_puts(&line, "");
    for (size_t i = 0; i < ids.n; i++)
        buf_printf(&line, i ? " %d" : "%d", ids.p[i]);
    assert_string_equal(line.p, expected);
    free(ids.p);
    buf_release(&line);
}

static void broken_files(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "nonsense");
    refused(&f, ERR_UNSUPPORTED, "'nonsense'");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "llama");
    refused(&f, ERR_FORMAT, "tokenizer.ggml.tokens");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "llama");
    key_digits(&f, "tokenizer.ggml.tokens", "123");
    refused(&f, ERR_FORMAT, "tokenizer.ggml.tokens");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "llama");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", "b", "a", NULL});
    refused(&f, ERR_FORMAT, "2 and 0");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "llama");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", "b", NULL});
    key_digits(&f, "tokenizer.ggml.token_type", "1");
    refused(&f, ERR_FORMAT, "tokenizer.ggml.token_type");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "llama");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", NULL});
    key_strs(&f, "tokenizer.ggml.scores", (const char *[]){"a", NULL});
    refused(&f, ERR_FORMAT, "tokenizer.ggml.scores");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "gpt2");
    key_str(&f, "tokenizer.ggml.pre", "qwen99");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", NULL});
    refused(&f, ERR_UNSUPPORTED, "'qwen99'");
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "gpt2");
    key_str(&f, "tokenizer.ggml.pre", "gpt-2");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", NULL});
    key_digits(&f, "tokenizer.ggml.merges", "1");
    refused(&f, ERR_FORMAT, "tokenizer.ggml.merges");
}

static void no_vocabulary(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "general.architecture", "llama");
    key_u32(&f, "llama.vocab_size", 77);
    struct loaded l = load(&f);
    assert_non_null(l.v);
    assert_int_equal(vocab_n_tokens(l.v), 77);
    assert_int_equal(vocab_text(l.v, 5).n, 0);
    assert_int_equal(vocab_bos(l.v), TOKEN_NONE);
    assert_false(vocab_is_eog(l.v, 5));
    struct token_list ids = {0};
    assert_int_equal(vocab_tokenize(l.v, str_of("a"), true, true, &ids, &l.err), -1);
    assert_int_equal(l.err.code, ERR_UNSUPPORTED);
    struct buf b = {0};
    vocab_piece(l.v, 5, 0, true, &b);
    vocab_detokenize(l.v, (token_id[]){1, 2}, 2, true, true, &b);
    assert_int_equal(b.n, 0);
    unload(&f, &l);
}

/* A vocabulary without bytes: what it doesn't know is the unknown token. Empty texts get a name. */
static void small_spm(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "llama");
    key_strs(&f, "tokenizer.ggml.tokens",
             (const char *[]){"<unk>", "<s>", "</s>", "a", "b", "ab", "\xE2\x96\x81", "<tag>", "", NULL});
    key_digits(&f, "tokenizer.ggml.token_type", "233111141");
    key_bool(&f, "tokenizer.ggml.add_eos_token", true);
    struct loaded l = load(&f);
    assert_non_null(l.v);
    assert_ids(l.v, "ab", true, false, "1 6 5 2");
    assert_ids(l.v, "aba\xC3\xA9", false, false, "6 5 3 0");
    assert_ids(l.v, "", true, true, "1 2");
    assert_ids(l.v, "a<tag>b", false, false, "6 3 7 6 4"); /* user-defined: always; a space after a token */
    assert_ids(l.v, "a</s>", false, true, "6 3 2");
    assert_true(str_is(vocab_text(l.v, 8), "[EMPTY_8]"));
    assert_int_equal(vocab_find(l.v, str_of("<tag>")), 7);
    assert_int_equal(vocab_find(l.v, str_of("none")), TOKEN_NONE);
    assert_int_equal(vocab_attr(l.v, 7), VOCAB_ATTR_USER_DEFINED);
    assert_true(vocab_is_eog(l.v, 2));
    assert_false(vocab_is_eog(l.v, 1));
    assert_int_equal(vocab_text(l.v, -1).n + vocab_text(l.v, 9).n, 0);
    assert_int_equal(vocab_attr(l.v, 1000), 0);
    unload(&f, &l);
}

/* Merges whose parts or result are no tokens still merge; what is left of them becomes bytes that have a
 * token. */
static void merges_beyond_tokens(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "gpt2");
    key_str(&f, "tokenizer.ggml.pre", "gpt-2");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", "b", "c", "abc", "\xC4\xA0", NULL});
    key_strs(&f, "tokenizer.ggml.merges", (const char *[]){"a b", "ab c", "b b", "d d", "a", "", " x", NULL});
    struct loaded l = load(&f);
    assert_non_null(l.v);
    assert_ids(l.v, "abc", false, false, "3");
    assert_ids(l.v, "ab", false, false, "0 1");
    assert_ids(l.v, "bbb", false, false, "1 1 1");
    assert_ids(l.v, "ddaxyz", false, false, "0");
    assert_ids(l.v, " ", false, false, "4");
    assert_int_equal(vocab_find(l.v, str_of("ab")), TOKEN_NONE); /* known to merges alone */
    assert_int_equal(vocab_bos(l.v), TOKEN_NONE);                /* the default, 11, is out of range */
    unload(&f, &l);
}

/* BOS asked for by a file that has none is an error, not a crash. */
static void bos_that_is_none(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "gpt2");
    key_str(&f, "tokenizer.ggml.pre", "gpt-2");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"a", NULL});
    key_bool(&f, "tokenizer.ggml.add_bos_token", true);
    struct loaded l = load(&f);
    assert_non_null(l.v);
    struct token_list ids = {0};
    assert_int_equal(vocab_tokenize(l.v, str_of("a"), true, true, &ids, &l.err), -1);
    assert_int_equal(l.err.code, ERR_FORMAT);
    assert_non_null(strstr(l.err.text, "add_bos_token"));
    free(ids.p);
    unload(&f, &l);
}

/* Ends of generation by text; "<|end|>" isn't one beside "<|return|>" and "<|call|>" (gpt-oss). */
static void ends_of_generation(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "gpt2");
    key_str(&f, "tokenizer.ggml.pre", "gpt-4o");
    key_strs(&f, "tokenizer.ggml.tokens",
             (const char *[]){"a", "<|end|>", "<|return|>", "<|call|>", "<|channel|>", "<|fim_pad|>",
                              "<unused1>", NULL});
    key_digits(&f, "tokenizer.ggml.token_type", "1333333");
    key_u32(&f, "tokenizer.ggml.eos_token_id", 0);
    key_u32(&f, "tokenizer.ggml.padding_token_id", 1000);
    struct loaded l = load(&f);
    assert_non_null(l.v);
    const bool eog[] = {true, false, true, true, false, true, false};
    for (token_id t = 0; t < 7; t++)
        assert_int_equal(vocab_is_eog(l.v, t), eog[t]);
    assert_int_equal(vocab_eot(l.v), 1);
    assert_int_equal(vocab_pad(l.v), TOKEN_NONE);
    assert_int_equal(vocab_attr(l.v, 1), VOCAB_ATTR_USER_DEFINED);
    assert_int_equal(vocab_attr(l.v, 4), VOCAB_ATTR_USER_DEFINED);
    assert_int_equal(vocab_attr(l.v, 6), VOCAB_ATTR_CONTROL | VOCAB_ATTR_UNUSED);
    unload(&f, &l);
}

/* Longest first, whatever comes first in the text; a shorter one takes what the longer ones left. */
static void overlapping_specials(void **state)
{
    (void)state;
    struct file f;
    file_begin(&f);
    key_str(&f, "general.name", "Phi-3-mini"); /* special tokens take the white space behind them */
    key_str(&f, "tokenizer.ggml.model", "llama");
    key_strs(&f, "tokenizer.ggml.tokens",
             (const char *[]){"<unk>", "<s>", "</s>", "xy", "yzz", "zw", "y", "z", "w", "x", "\xE2\x96\x81",
                              NULL});
    key_digits(&f, "tokenizer.ggml.token_type", "23344411111");
    key_bool(&f, "tokenizer.ggml.add_space_prefix", false);
    struct loaded l = load(&f);
    assert_non_null(l.v);
    assert_ids(l.v, "xyzzw", false, false, "9 4 8");
    assert_ids(l.v, "xyzw", false, false, "3 5");
    assert_ids(l.v, "xy  \n x", false, false, "3 9");
    assert_ids(l.v, "<s> x", false, true, "1 10 9"); /* not behind this one */
    unload(&f, &l);
}

static void one_decoded(const char *text, size_t n, unsigned taken, uint32_t cp)
{
    uint32_t got;
    assert_int_equal(utf8_decode((struct str){text, n}, &got), taken);
    assert_int_equal(got, cp);
}

static void decoding(void **state)
{
    (void)state;
    one_decoded("a", 1, 1, 'a');
    one_decoded("\xC3\xA9", 2, 2, 0xE9);
    one_decoded("\xC3\xA9", 1, 1, 0xFFFD);
    one_decoded("\xC0\x80", 2, 2, 0);
    one_decoded("\xED\xA0\x80", 3, 3, 0xD800);
    one_decoded("\xF4\x8F\xBF\xBF", 4, 4, 0x10FFFF);
    one_decoded("\xF4\x90\x80\x80", 4, 1, 0xFFFD);
    one_decoded("\xF8\x88\x80\x80", 4, 1, 0xFFFD);
    one_decoded("\x80", 1, 1, 0xFFFD);
    one_decoded("\xE2(\xA1", 3, 1, 0xFFFD);
    struct buf b = {0};
    struct str good = str_of("gut: \xC3\xA4\xE4\xB8\xAD\xF0\x9F\x98\x80");
    assert_ptr_equal(utf8_repair(good, &b).p, good.p);
    assert_true(str_is(utf8_repair(str_of("a\xFF"
                                          "b\xE2\x82"
                                          "c\xC1\xA1"),
                                   &b),
                       "a\xEF\xBF\xBD"
                       "b\xEF\xBF\xBD\xEF\xBF\xBD"
                       "ca"));
    assert_true(
        str_is(utf8_for_matching(str_of("\xE1\xA0\x8E\xED\xA0\x80"), &b), "\xE2\x80\x8B\xEE\x80\x80"));
    buf_release(&b);
}

static void alphabet(void **state)
{
    (void)state;
    assert_int_equal(byte_to_char('!'), '!');
    assert_int_equal(byte_to_char(' '), 0x120);
    assert_int_equal(byte_to_char('\n'), 0x10A);
    assert_int_equal(byte_to_char(0x7F), 0x121);
    assert_int_equal(byte_to_char(0xA0), 0x142);
    assert_int_equal(byte_to_char(0xAD), 0x143);
    for (int i = 0; i < 256; i++)
        assert_int_equal(char_to_byte(byte_to_char((unsigned char)i)), i);
    assert_int_equal(char_to_byte(' '), -1);
    assert_int_equal(char_to_byte(0x144), -1);
    assert_int_equal(char_to_byte(0xFFFD), -1);
}

/* However the bytes come in, only whole characters go out, and in the end all of them. */
static void stream(void **state)
{
    (void)state;
    static const char text[] =
        "a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80z\xE0\xA0\x80\xED\x9F\xBF\xF4\x8F\xBF\xBF!";
    for (size_t step = 1; step < sizeof text; step++) {
        struct utf8_stream s = {0};
        struct buf out = {0}, scratch = {0};
        for (size_t at = 0; at < sizeof text - 1; at += step) {
            size_t n = sizeof text - 1 - at < step ? sizeof text - 1 - at : step, before = out.n;
            utf8_stream_add(&s, (struct str){text + at, n}, &out);
            struct str new = {out.p + before, out.n - before};
            assert_ptr_equal(utf8_repair(new, &scratch).p, new.p);
        }
        assert_int_equal(s.n, 0);
        assert_string_equal(out.p, text);
        buf_release(&out);
        buf_release(&scratch);
    }
}

static void stream_of_rubbish(void **state)
{
    (void)state;
    static const char *const texts[] = {"\x80\x80\x80\x80", "\xFF",     "\xC0\x80", "\xE0\x80",
                                        "\xED\xA0",         "\xF4\x90", "\xF5"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct utf8_stream s = {0};
        struct buf out = {0};
        utf8_stream_add(&s, str_of(texts[i]), &out);
        assert_string_equal(out.p, texts[i]); /* can't become a character: passed on at once */
        assert_int_equal(s.n, 0);
        buf_release(&out);
    }
    struct utf8_stream s = {0};
    struct buf out = {0};
    utf8_stream_add(&s, str_of("a\xF0\x9F\x98"), &out);
    assert_string_equal(out.p, "a");
    utf8_stream_add(&s, str_of(""), &out);
    assert_int_equal(s.n, 3);
    utf8_stream_add(&s, str_of("b"), &out);
    assert_string_equal(out.p, "a\xF0\x9F\x98"
                               "b");
    utf8_stream_add(&s, str_of("\xC3"), &out);
    utf8_stream_end(&s, &out);
    assert_string_equal(out.p, "a\xF0\x9F\x98"
                               "b\xC3");
    assert_int_equal(s.n, 0);
    buf_release(&out);
}

static void map(void **state)
{
    (void)state;
    enum { N = 5000 };
    static char names[N][24];
    struct token_map m = {0};
    struct str texts[N];
    int32_t ids[N];
    assert_int_equal(token_map_find(&m, str_of("a")), -1);
    for (int i = 0; i < N; i++) {
        int n = snprintf(names[i], sizeof names[i], "%.*s%d", i % 17, "abcdefghijklmnopq", i);
        texts[i] = (struct str){names[i], (size_t)n};
        assert_int_equal(token_map_add(&m, texts[i]), -1);
    }
    assert_int_equal(token_map_add(&m, texts[7]), 7);
    assert_int_equal(m.n, N + 1);
    token_map_find_many(&m, texts, N, ids);
    for (int i = 0; i < N; i++) {
        assert_int_equal(ids[i], i);
        assert_int_equal(token_map_find(&m, texts[i]), i);
    }
    assert_int_equal(token_map_find(&m, str_of("x")), -1);
    token_map_release(&m);
}

static struct loaded open_small(const char *path)
{
    struct loaded l = {0};
    l.g = gguf_open(path, &l.err);
    l.v = l.g ? vocab_new(l.g, &l.err) : NULL;
    if (!l.v)
        fail_msg("%s", l.err.text);
    return l;
}

/* With a square in it, any of these would take minutes. */
static void long_texts(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "pairs.gguf", GOLDEN "stories260K.gguf"};
    static const char *const parts[] = {"A", "us", " ", "\n", "1", "<", "\xFF", "<tool"};
    enum { SIZE = 1000000 };
    char *text = malloc(SIZE);
    for (size_t i = 0; i < 2; i++) {
        struct loaded l = open_small(files[i]);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            size_t n = strlen(parts[k]);
            for (size_t at = 0; at < SIZE; at++)
                text[at] = parts[k][at % n];
            struct token_list ids = ids_of(l.v, (struct str){text, SIZE}, true, true);
            assert_true(ids.n >= SIZE / 16);
            free(ids.p);
        }
        vocab_free(l.v);
        gguf_close(l.g);
    }
    free(text);
}

/* Byte-level and byte-fallback vocabularies give back what went in. */
static void round_trip(void **state)
{
    (void)state;
    static const char text[] = "Zwei \xC3\xA4\xE2\x82\xAC and \xF0\x9F\x98\x80\n\n\tx  y";
    struct loaded l = open_small(GOLDEN "stories260K.gguf");
    struct token_list ids = ids_of(l.v, str_of(text), true, false);
    struct buf b = {0};
    vocab_detokenize(l.v, ids.p, ids.n, false, false, &b);
    assert_string_equal(
        b.p, " Zwei \xC3\xA4\xE2\x82\xAC and \xF0\x9F\x98\x80\n\n\tx  y"); /* BOS keeps the space */
    buf_clear(&b);
    buf_puts(&b, "> ");
    vocab_detokenize(l.v, ids.p + 1, ids.n - 1, false, false, &b);
    assert_string_equal(b.p + 2, text);
    buf_clear(&b);
    vocab_piece(l.v, 1, 0, false, &b);
    assert_int_equal(b.n, 0);
    vocab_piece(l.v, 1, 0, true, &b);
    assert_string_equal(b.p, "<s>");
    vocab_piece(l.v, -1, 0, true, &b);
    vocab_piece(l.v, 512, 0, true, &b);
    assert_int_equal(b.n, 3);
    buf_release(&b);
    free(ids.p);
    vocab_free(l.v);
    gguf_close(l.g);
}

static void *tokenize_often(void *arg)
{
    const struct vocab *v = arg;
    uint32_t h = FNV_START;
    for (int i = 0; i < 200; i++) {
        struct token_list ids = {0};
        vocab_tokenize(v, str_of("It's 1990, <|im_start|>est\xC3\xA9 aest\r\n\xFF<tool>  AEST"), true, true,
                       &ids, NULL);
        h = fnv(h, ids.p, 4 * ids.n);
        free(ids.p);
    }
    return (void *)(uintptr_t)h;
}

static void threads(void **state)
{
    (void)state;
    struct loaded l = open_small(GOLDEN "pairs.gguf");
    pthread_t other;
    void *there;
    assert_int_equal(pthread_create(&other, NULL, tokenize_often, l.v), 0);
    void *here = tokenize_often(l.v);
    pthread_join(other, &there);
    assert_ptr_equal(here, there);
    vocab_free(l.v);
    gguf_close(l.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_files),
        cmocka_unit_test(no_vocabulary),
        cmocka_unit_test(small_spm),
        cmocka_unit_test(merges_beyond_tokens),
        cmocka_unit_test(bos_that_is_none),
        cmocka_unit_test(ends_of_generation),
        cmocka_unit_test(overlapping_specials),
        cmocka_unit_test(decoding),
        cmocka_unit_test(alphabet),
        cmocka_unit_test(stream),
        cmocka_unit_test(stream_of_rubbish),
        cmocka_unit_test(map),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
