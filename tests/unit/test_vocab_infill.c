/* Prompts for filling in the middle against llama-server's: tests/golden/vocab/infill.txt, made by
 * tests/tools/infill_golden.py, which says what the fields of a line are. */
#include "vocab_build.h"
#include "vocab_golden.h"

enum { NAME, SUFFIX_FIRST, N_BATCH, N_PREDICT, N_CTX, PREFIX, SUFFIX, PROMPT, EXTRA, MAX_FIELDS = 64 };

struct line {
    struct buf field[MAX_FIELDS];
    int n;
};

static void read_line(struct str text, struct line *line)
{
    *line = (struct line){0};
    while (true) {
        const char *tab = memchr(text.p, '\t', text.n);
        size_t n = tab ? (size_t)(tab - text.p) : text.n;
        assert_true(line->n < MAX_FIELDS);
        buf_puts(&line->field[line->n], "");
        unescape((struct str){text.p, n}, &line->field[line->n++]);
        if (!tab)
            break;
        text = (struct str){text.p + n + 1, text.n - n - 1};
    }
    assert_true(line->n >= EXTRA + 2 && line->n % 2 == 0);
}

static int number(const struct line *line, int field)
{
    return atoi(line->field[field].p);
}

static struct vocab *open_vocab(const char *name, struct gguf **g)
{
    const char *models = getenv("GRAPPA_MODELS");
    struct err err = ERR_INIT;
    char path[600];
    snprintf(path, sizeof path, GOLDEN "%s.gguf", name);
    *g = gguf_open(path, NULL);
    if (!*g) {
        snprintf(path, sizeof path, "%s/vocabs/ggml-vocab-%s.gguf", models ? models : SOURCE_DIR "/.models",
                 name);
        *g = gguf_open(path, &err);
    }
    struct vocab *v = *g ? vocab_new(*g, &err) : NULL;
    if (!v)
        fail_msg("%s (run `make deps`)", err.text);
    return v;
}

static void compare(const struct vocab *v, const struct line *l)
{
    struct token_list prefix = ids_of(v, buf_str(&l->field[PREFIX]), false, false);
    struct token_list suffix = ids_of(v, buf_str(&l->field[SUFFIX]), false, false);
    struct token_list prompt = ids_of(v, buf_str(&l->field[PROMPT]), false, true), ids = {0};
    struct vocab_infill_file extra[MAX_FIELDS];
    struct vocab_infill in = {.prefix = prefix.p,
                              .suffix = suffix.p,
                              .prompt = prompt.p,
                              .n_prefix = prefix.n,
                              .n_suffix = suffix.n,
                              .n_prompt = prompt.n,
                              .extra = extra,
                              .n_batch = number(l, N_BATCH),
                              .n_predict = number(l, N_PREDICT),
                              .n_ctx = number(l, N_CTX),
                              .suffix_first = number(l, SUFFIX_FIRST) != 0};
    for (int i = EXTRA; i + 2 < l->n; i += 2) {
        struct str name = buf_str(&l->field[i]);
        extra[in.n_extra++] =
            (struct vocab_infill_file){str_is(name, "-") ? str_of("tmp") : name, buf_str(&l->field[i + 1])};
    }
    struct err err = ERR_INIT;
    struct buf text = {0};
    if (vocab_infill(v, &in, &ids, &err) != 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ids.n; i++)
        vocab_piece(v, ids.p[i], 0, true, &text);
    assert_int_equal(ids.n, number(l, l->n - 2));
    assert_string_equal(text.p, l->field[l->n - 1].p);
    free(prefix.p);
    free(suffix.p);
    free(prompt.p);
    free(ids.p);
    buf_release(&text);
}

static void same_as_llama_server(void **state)
{
    (void)state;
    struct str file = read_file(GOLDEN "infill.txt"), rest = file;
    assert_non_null(file.p);
    char name[64] = "";
    struct gguf *g = NULL;
    struct vocab *v = NULL;
    int n = 0;
    for (; rest.n; n++) {
        struct line line;
        read_line(next_line(&rest), &line);
        if (strcmp(name, line.field[NAME].p) != 0) {
            vocab_free(v);
            gguf_close(g);
            snprintf(name, sizeof name, "%s", line.field[NAME].p);
            v = open_vocab(name, &g);
        }
        compare(v, &line);
        for (int i = 0; i < line.n; i++)
            buf_release(&line.field[i]);
    }
    assert_true(n >= 70);
    vocab_free(v);
    gguf_close(g);
    free((void *)file.p);
}

/* The tokens by their names, and by a key. */
static void tokens(void **state)
{
    (void)state;
    struct gguf *g;
    struct vocab *v = open_vocab("fim", &g);
    assert_int_equal(vocab_fim_pre(v), vocab_find(v, str_of("<|fim_prefix|>")));
    assert_int_equal(vocab_fim_suf(v), vocab_find(v, str_of("<|fim_suffix|>")));
    assert_int_equal(vocab_fim_mid(v), vocab_find(v, str_of("<|fim_middle|>")));
    assert_int_equal(vocab_fim_pad(v), vocab_find(v, str_of("<|fim_pad|>")));
    assert_int_equal(vocab_fim_rep(v), vocab_find(v, str_of("<|repo_name|>")));
    assert_int_equal(vocab_fim_sep(v), vocab_find(v, str_of("<|file_sep|>")));
    assert_true(vocab_is_eog(v, vocab_fim_sep(v)));
    vocab_free(v);
    gguf_close(g);

    struct file f;
    file_begin(&f);
    key_str(&f, "tokenizer.ggml.model", "llama");
    key_strs(&f, "tokenizer.ggml.tokens", (const char *[]){"<unk>", "a", "<PRE>", "b", NULL});
    key_u32(&f, "tokenizer.ggml.fim_pre_token_id", 1);
    key_u32(&f, "tokenizer.ggml.suffix_token_id", 3); /* an older name */
    struct str bytes = file_bytes(&f);
    g = gguf_open_memory(bytes.p, bytes.n, NULL);
    v = vocab_new(g, NULL);
    assert_int_equal(vocab_fim_pre(v), 1);
    assert_int_equal(vocab_fim_suf(v), 3);
    assert_int_equal(vocab_fim_mid(v), TOKEN_NONE);
    struct err err = ERR_INIT;
    struct token_list ids = {0};
    assert_int_equal(vocab_infill(v, &(struct vocab_infill){.n_batch = 64, .n_ctx = 64}, &ids, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_string_equal(err.text, "Infill is not supported by this model: middle token is missing. ");
    vocab_free(v);
    gguf_close(g);
    buf_release(&f.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_llama_server),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
