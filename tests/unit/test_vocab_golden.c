/* The small vocabularies that are in the tree, and every pre-tokenizer, against llama.cpp. */
#include "vocab_golden.h"

static void small(void **state)
{
    char path[256];
    snprintf(path, sizeof path, GOLDEN "%s.gguf", (const char *)*state);
    compare_golden(path, *state);
}

/* The file with another value of tokenizer.ggml.pre; it has no tensors, so that nothing hangs on offsets. */
static void with_pre(struct str file, struct str pre, struct buf *out)
{
    static const char key[] = "tokenizer.ggml.pre\x08\0\0"; /* and a last 0 */
    const char *value = memmem(file.p, file.n, key, sizeof key);
    assert_non_null(value);
    value += sizeof key;
    uint64_t old, n = pre.n;
    memcpy(&old, value, 8);
    buf_add(out, file.p, (size_t)(value - file.p));
    buf_add(out, &n, 8);
    buf_add(out, pre.p, pre.n);
    value += 8 + old;
    buf_add(out, value, file.n - (size_t)(value - file.p));
}

static void compare_pre(struct str file, struct str pre, struct str hashes)
{
    struct buf data = {0}, line = {0};
    struct err err = ERR_INIT;
    with_pre(file, pre, &data);
    struct gguf *g = gguf_open_memory(data.p, data.n, &err);
    struct vocab *v = g ? vocab_new(g, &err) : NULL;
    if (!v)
        fail_msg("%s", err.text);
    struct str texts_file = read_file(GOLDEN "texts.txt"), texts = texts_file;
    uint32_t h = FNV_START;
    for (int n = 1; texts.n; n++) {
        struct buf text = {0};
        unescape(next_line(&texts), &text);
        struct token_list ids = ids_of(v, buf_str(&text), true, true);
        h = fnv(fnv(h, ids.p, 4 * ids.n), "\xFF\xFF\xFF\xFF", 4);
        free(ids.p);
        buf_release(&text);
        if (n % 20 == 0) {
            buf_printf(&line, n == 20 ? "%08x" : " %08x", h);
            h = FNV_START;
        }
    }
    if (!str_eq(buf_str(&line), hashes))
        fail_msg("%.*s:\n%s, not\n%.*s", STR_ARG(pre), line.p, STR_ARG(hashes));
    vocab_free(v);
    gguf_close(g);
    free((void *)texts_file.p);
    buf_release(&data);
    buf_release(&line);
}

static void every_pretokenizer(void **state)
{
    (void)state;
    struct str file = read_file(GOLDEN "pairs.gguf"), all_file = read_file(GOLDEN "pretok.txt"),
               all = all_file;
    assert_non_null(file.p);
    assert_non_null(all.p);
    int n = 0;
    for (; all.n; n++) {
        struct str line = next_line(&all);
        size_t name = (size_t)((const char *)memchr(line.p, ' ', line.n) - line.p);
        compare_pre(file, (struct str){line.p, name}, (struct str){line.p + name + 1, line.n - name - 1});
    }
    assert_true(n >= 70);
    free((void *)file.p);
    free((void *)all_file.p);
}

#define SMALL(name)                                                                                          \
    {                                                                                                        \
        name, small, NULL, NULL, (void *)name                                                                \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        SMALL("pairs"),
        SMALL("stories260K"),
        SMALL("rwkv"),
        SMALL("plamo2"),
        SMALL("unigram"),
        SMALL("unigram-merged"),
        SMALL("unigram-prefix"),
        SMALL("wordpiece"),
        SMALL("wordpiece-cased"),
        SMALL("wordpiece-accents"),
        SMALL("fim"),
        SMALL("hybriddna"),
        SMALL("whitespace"),
        SMALL("whitespace-lower"),
        cmocka_unit_test(every_pretokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
