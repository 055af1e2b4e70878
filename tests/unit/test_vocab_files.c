/* The vocabularies of real models against llama.cpp's ids: tests/golden/vocab/NAME.txt, and the .inp and .out
 * files beside them. They are in the folder $GRAPPA_VOCABS, or vocabs/ of $GRAPPA_MODELS or .models; `make
 * deps` fetches them. */
#include "vocab_golden.h"

static char folder[400];

static int find_folder(void **state)
{
    (void)state;
    const char *vocabs = getenv("GRAPPA_VOCABS"), *models = getenv("GRAPPA_MODELS");
    if (vocabs)
        snprintf(folder, sizeof folder, "%s", vocabs);
    else
        snprintf(folder, sizeof folder, "%s/vocabs", models ? models : SOURCE_DIR "/.models");
    return 0;
}

static void need(struct str file, const char *path)
{
    if (!file.p)
        fail_msg("%s is missing: run `make deps`, or set GRAPPA_VOCABS to the folder of ggml-vocab-*.gguf",
                 path);
}

static struct str trim(struct str s)
{
    while (s.n && s.p[0] == ' ')
        s = (struct str){s.p + 1, s.n - 1};
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* Texts between lines of "__ggml_vocab_test__"; ids of one text a line. */
static void compare_out(const struct vocab *v, const char *path)
{
    static const char between[] = "\n__ggml_vocab_test__\n";
    char name[600];
    snprintf(name, sizeof name, "%s.inp", path);
    struct str inp_file = read_file(name);
    snprintf(name, sizeof name, "%s.out", path);
    struct str out_file = read_file(name), inp = inp_file, out = out_file;
    if (!inp.p)
        return; /* not all vocabularies have them */
    need(out, name);
    int n = 0;
    while (out.n) {
        const char *end = memmem(inp.p, inp.n, between, sizeof between - 1);
        struct str text = {inp.p, end ? (size_t)(end - inp.p) : inp.n}, want = next_line(&out);
        inp = end ? (struct str){end + sizeof between - 1, inp.n - text.n - sizeof between + 1}
                  : (struct str){"", 0};
        struct token_list ids = ids_of(v, text, false, false);
        struct buf line = {0};
        for (size_t i = 0; i < ids.n; i++)
            buf_printf(&line, i ? " %d" : "%d", ids.p[i]);
        want = trim(want);
        if (!str_eq(buf_str(&line), want))
            fail_msg("%s, text %d: '%s', not '%.*s'", path, n, line.p ? line.p : "", STR_ARG(want));
        free(ids.p);
        buf_release(&line);
        n++;
    }
    assert_true(n > 40);
    free((void *)inp_file.p);
    free((void *)out_file.p);
}

static void same_as_llama_cpp(void **state)
{
    char path[512];
    snprintf(path, sizeof path, "%.400s/ggml-vocab-%s.gguf", folder, (const char *)*state);
    struct str file = read_file(path);
    need(file, path);
    free((void *)file.p);
    compare_golden(path, *state);
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open(path, &err);
    struct vocab *v = vocab_new(g, &err);
    assert_non_null(v);
    compare_out(v, path);
    vocab_free(v);
    gguf_close(g);
}

#define SAME(name)                                                                                           \
    {                                                                                                        \
#name, same_as_llama_cpp, NULL, NULL, (void *)name                                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        SAME("aquila"),    SAME("baichuan"),  SAME("command-r"), SAME("deepseek-coder"), SAME("deepseek-llm"),
        SAME("falcon"),    SAME("gemma-4"),   SAME("gpt-2"),     SAME("gpt-neox"),       SAME("llama-bpe"),
        SAME("llama-spm"), SAME("mpt"),       SAME("phi-3"),     SAME("qwen2"),          SAME("qwen35"),
        SAME("refact"),    SAME("starcoder"), SAME("bert-bge"),  SAME("nomic-bert-moe"),
    };
    return cmocka_run_group_tests(tests, find_folder, NULL);
}
