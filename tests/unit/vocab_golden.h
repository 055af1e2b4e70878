/* Reads tests/golden/vocab/ and compares a vocabulary with it. */
#ifndef TESTS_VOCAB_GOLDEN_H
#define TESTS_VOCAB_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "vocab/vocab.h"

#define GOLDEN SOURCE_DIR "/tests/golden/vocab/"

/* A whole file, freed by the caller; an empty slice with p == NULL when it isn't there. */
static inline struct str read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return (struct str){NULL, 0};
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *p = malloc((size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, (size_t)n, f), n);
    p[n] = '\0';
    fclose(f);
    return (struct str){p, (size_t)n};
}

/* Takes the next line off `text`, without its newline. */
static inline struct str next_line(struct str *text)
{
    const char *end = memchr(text->p, '\n', text->n);
    struct str line = {text->p, end ? (size_t)(end - text->p) : text->n};
    size_t taken = line.n + (end != NULL);
    *text = (struct str){text->p + taken, text->n - taken};
    return line;
}

/* Undoes \n, \r, \t, \\ and \xNN. */
static inline void unescape(struct str line, struct buf *out)
{
    for (size_t i = 0; i < line.n; i++) {
        if (line.p[i] != '\\') {
            buf_putc(out, line.p[i]);
            continue;
        }
        char c = line.p[++i];
        if (c == 'x') {
            char hex[3] = {line.p[i + 1], line.p[i + 2], '\0'};
            c = (char)strtol(hex, NULL, 16);
            i += 2;
        } else {
            c = (char)(c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c);
        }
        buf_putc(out, c);
    }
}

#define FNV_START 0x811C9DC5u

static inline uint32_t fnv(uint32_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x01000193u;
    return h;
}

static inline struct token_list ids_of(const struct vocab *v, struct str text, bool add, bool parse)
{
    struct token_list ids = {0};
    struct err err = ERR_INIT;
    if (vocab_tokenize(v, text, add, parse, &ids, &err) != 0)
        fail_msg("%s", err.text);
    return ids;
}

static inline uint32_t hash_tokens(const struct vocab *v, bool pieces)
{
    uint32_t h = FNV_START;
    for (token_id t = 0; t < vocab_n_tokens(v); t++) {
        uint32_t attr = vocab_attr(v, t);
        if (!pieces)
            h = fnv(h, &attr, 4);
        for (int k = 0; pieces && k < 2; k++) {
            struct buf b = {0};
            vocab_piece(v, t, k, k == 0, &b);
            uint32_t n = (uint32_t)b.n;
            h = fnv(fnv(h, &n, 4), b.p, b.n);
            buf_release(&b);
        }
    }
    return h;
}

/* The three lines before those of the texts. */
static inline void compare_facts(const struct vocab *v, const char *name, struct str *expected)
{
    struct buf line = {0};
    buf_printf(&line, "facts %d %d %d %d %d %d", vocab_bos(v), vocab_eos(v), vocab_nl(v), vocab_pad(v),
               vocab_add_bos(v), vocab_add_eos(v));
    struct str want = next_line(expected);
    if (!str_eq(buf_str(&line), want))
        fail_msg("%s: '%s', not '%.*s'", name, line.p, STR_ARG(want));
    buf_clear(&line);
    buf_puts(&line, "eog ");
    for (token_id t = 0, n = 0; t < vocab_n_tokens(v); t++) {
        if (vocab_is_eog(v, t))
            buf_printf(&line, n++ ? " %d" : "%d", t);
    }
    want = next_line(expected);
    if (!str_eq(buf_str(&line), want))
        fail_msg("%s: '%s', not '%.*s'", name, line.p, STR_ARG(want));
    buf_clear(&line);
    buf_printf(&line, "tokens %d attrs %08x pieces %08x", vocab_n_tokens(v), hash_tokens(v, false),
               hash_tokens(v, true));
    want = next_line(expected);
    if (!str_eq(buf_str(&line), want))
        fail_msg("%s: '%s', not '%.*s'", name, line.p, STR_ARG(want));
    buf_release(&line);
}

static inline void compare_text(const struct vocab *v, const char *name, struct str text, int number,
                                struct str want)
{
    struct token_list with = ids_of(v, text, true, true), without = ids_of(v, text, false, false);
    struct buf back = {0}, line = {0};
    vocab_detokenize(v, with.p, with.n, true, false, &back);
    buf_printf(&line, "%zu %08x %zu %08x %08x", with.n, fnv(FNV_START, with.p, 4 * with.n), without.n,
               fnv(FNV_START, without.p, 4 * without.n), fnv(FNV_START, back.p, back.n));
    if (!str_eq(buf_str(&line), want))
        fail_msg("%s, text %d: '%s', not '%.*s'", name, number, line.p, STR_ARG(want));
    free(with.p);
    free(without.p);
    buf_release(&back);
    buf_release(&line);
}

/* Compares the vocabulary in the file `path` with golden NAME.txt. */
static inline void compare_golden(const char *path, const char *name)
{
    char golden[512];
    snprintf(golden, sizeof golden, GOLDEN "%s.txt", name);
    struct str expected_file = read_file(golden), texts_file = read_file(GOLDEN "texts.txt");
    struct str expected = expected_file, texts = texts_file;
    assert_non_null(expected.p);
    assert_non_null(texts.p);
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open(path, &err);
    struct vocab *v = g ? vocab_new(g, &err) : NULL;
    if (!v)
        fail_msg("%s", err.text);
    compare_facts(v, name, &expected);
    int n = 0;
    for (struct buf text = {0}; texts.n; n++, buf_release(&text)) {
        unescape(next_line(&texts), &text);
        compare_text(v, name, buf_str(&text), n + 1, next_line(&expected));
    }
    assert_int_equal(n, 320);
    vocab_free(v);
    gguf_close(g);
    free((void *)expected_file.p);
    free((void *)texts_file.p);
}

#endif
