/* Grammars: GBNF texts taken and refused as llama.cpp does (tests/golden/grammar), triggers of lazy grammars,
 * what a sampler does with them, and inputs that ask for too much. */
#include "sampler/grammar.h"
#include "sampler/sampler.h"

#include "test_sampler_vocab.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#define END 256 /* the token that ends a text; those before it are the bytes */

static const char *const words[] = {"<s>",      "ab",      "abc", "<tool>", "call ",
                                    "</think>", "<think>", "yes", " no",    "\xc3\xa9t"};
#define N_WORDS ((token_id)(sizeof words / sizeof words[0]))
enum { CONTROL = END + 1, AB, ABC, TOOL, CALL, THINK_END, THINK_START };

static struct vocab *make_vocab(void)
{
    static struct vocab v;
    if (v.n)
        return &v;
    for (int b = 0; b < END; b++)
        buf_putc(&v.text[b], (char)b);
    buf_puts(&v.text[END], "</s>");
    for (int i = 0; i < N_WORDS; i++)
        buf_puts(&v.text[CONTROL + i], words[i]);
    v.control[CONTROL] = v.control[END] = true;
    v.n = END + 1 + N_WORDS;
    v.eog = END;
    for (token_id t = THINK_END; t <= THINK_START; t++) {
        buf_puts(&v.tails[v.n_tails].text, v.text[t].p);
        v.tails[v.n_tails].ids[0] = t;
        v.tails[v.n_tails++].n = 1;
    }
    return &v;
}

static struct grammar_vocab *shared(void)
{
    static struct grammar_vocab *gv;
    if (!gv)
        gv = grammar_vocab_new(make_vocab(), NULL);
    return gv;
}

static int teardown(void **state)
{
    (void)state;
    grammar_vocab_free(shared());
    vocab_stub_release(make_vocab());
    return 0;
}

static struct grammar *make(enum grammar_type type, const char *source)
{
    struct err err = ERR_INIT;
    struct grammar_params p = {.type = type, .source = source};
    struct grammar *g = grammar_new(shared(), &p, &err);
    if (!g)
        fail_msg("%s: %s", source, err.text);
    return g;
}

static bool allowed(struct grammar *g, token_id t)
{
    const uint32_t *mask = grammar_mask(g);
    return !mask || mask[t / 32] >> (t % 32) & 1;
}

/* How many bytes of the text are taken, byte by byte. */
static size_t take(struct grammar *g, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (!allowed(g, (unsigned char)text.p[i]))
            return i;
        grammar_accept(g, (unsigned char)text.p[i]);
    }
    return text.n;
}

/* All of it, and the text may end there. */
static bool whole(struct grammar *g, const char *text)
{
    grammar_reset(g);
    return take(g, str_of(text)) == strlen(text) && allowed(g, END);
}

/* ---- llama.cpp's verdicts ---- */

static size_t unescape(char *s)
{
    static const char codes[] = "nrt", chars[] = "\n\r\t";
    char *out = s, *start = s;
    for (; *s; s++) {
        const char *code;
        if (*s != '\\' || !s[1]) {
            *out++ = *s;
        } else if (*++s == 'x') {
            *out++ = (char)strtol((char[]){s[1], s[2], 0}, NULL, 16);
            s += 2;
        } else {
            code = strchr(codes, *s);
            *out++ = code ? chars[code - codes] : *s;
        }
    }
    *out = 0;
    return (size_t)(out - start);
}

static char *next_line(FILE *f, char *line, int size)
{
    if (!fgets(line, size, f))
        return NULL;
    line[strcspn(line, "\n")] = 0;
    return line;
}

static size_t characters(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t i = 1; i <= n; i++)
        count += i == n || ((unsigned char)p[i] & 0xC0) != 0x80;
    return count;
}

static void check_text(struct grammar *g, const char *name, char *line, const char *verdict)
{
    struct str text = {line, unescape(line)};
    size_t expected;
    char yes[4] = "";
    assert_int_equal(sscanf(verdict, "%zu %3s", &expected, yes), 2);
    grammar_reset(g);
    size_t n = take(g, text);
    while (n < text.n && ((unsigned char)text.p[n] & 0xC0) == 0x80)
        n--; /* a character that is refused in its middle */
    bool ends = n == text.n && allowed(g, END);
    if (characters(line, n) != expected || ends != (strcmp(yes, "yes") == 0))
        fail_msg("%s: \"%s\": %zu characters, end %d; llama.cpp: %s", name, line, characters(line, n), ends,
                 verdict);
}

static void test_golden(void **state)
{
    (void)state;
    FILE *cases = fopen(SOURCE_DIR "/tests/golden/grammar/cases.txt", "r");
    FILE *expected = fopen(SOURCE_DIR "/tests/golden/grammar/expected.txt", "r");
    assert_non_null(cases);
    assert_non_null(expected);
    char line[4096], verdict[64], name[128] = "";
    struct buf source = {0};
    struct grammar *g = NULL;
    enum { OUTSIDE, GRAMMAR, TEXTS } at = OUTSIDE;
    int n = 0;
    while (next_line(cases, line, sizeof line)) {
        if (strncmp(line, "@ ", 2) == 0) {
            snprintf(name, sizeof name, "%.100s", line + 2);
            buf_clear(&source);
            at = GRAMMAR;
        } else if (at == GRAMMAR && strcmp(line, "--") == 0) {
            struct grammar_params p = {.type = GRAMMAR_GBNF, .source = source.p};
            struct err err = ERR_INIT;
            grammar_free(g);
            g = grammar_new(shared(), &p, &err);
            assert_non_null(next_line(expected, verdict, sizeof verdict));
            if ((strcmp(verdict, "@ fine") == 0) != (g != NULL))
                fail_msg("%s: %s, %s", name, verdict, err.text);
            assert_true(g || err.code == ERR_USAGE);
            at = TEXTS;
        } else if (at == GRAMMAR) {
            size_t len = strlen(line);
            bool cr = len >= 2 && strcmp(line + len - 2, "\\r") == 0;
            buf_add(&source, line, cr ? len - 2 : len);
            buf_puts(&source, cr ? "\r\n" : "\n");
        } else if (at == TEXTS) {
            assert_non_null(next_line(expected, verdict, sizeof verdict));
            if (g)
                check_text(g, name, line, verdict);
            n++;
        }
    }
    assert_true(n > 150);
    grammar_free(g);
    buf_release(&source);
    fclose(cases);
    fclose(expected);
}

/* ---- masks ---- */

/* A token is allowed exactly if its bytes are, one after the other. */
static void check_mask(enum grammar_type type, const char *source, const char *text)
{
    struct grammar *g = make(type, source), *h = make(type, source);
    for (size_t n = 0; n <= strlen(text); n++) {
        grammar_reset(g);
        assert_int_equal(take(g, (struct str){text, n}), n);
        for (token_id t = AB; t < make_vocab()->n; t++) {
            struct str bytes = buf_str(&make_vocab()->text[t]);
            grammar_reset(h);
            take(h, (struct str){text, n});
            assert_int_equal(allowed(g, t), take(h, bytes) == bytes.n);
        }
    }
    grammar_free(g);
    grammar_free(h);
}

static void test_masks(void **state)
{
    (void)state;
    check_mask(GRAMMAR_GBNF, "root ::= [a-c\xc3\xa9t]* \"<tool>\"? [^y]*", "abc\xc3\xa9<to");
    check_mask(GRAMMAR_GBNF, "root ::= \"a\" (root | \"b\" | [^x]{0,7})", "aabcaaa");
    check_mask(GRAMMAR_REGEX, "[a-c]*(<tool>)?(yes| no)?", "abcab");
    check_mask(GRAMMAR_LARK, "start: (\"abc\" | /[de]/)+ \" no\"?", "abcdeabc");
}

static void test_tokens_in_grammars(void **state)
{
    (void)state;
    struct grammar *g = make(GRAMMAR_GBNF, "root ::= <think> !</think> \"x\" | <[3]> [a-c]{2} !<[256]>");
    assert_true(allowed(g, THINK_START));
    assert_true(allowed(g, 3));
    assert_false(allowed(g, '<')); /* it isn't the text that counts */
    grammar_accept(g, THINK_START);
    assert_false(allowed(g, THINK_END));
    assert_true(allowed(g, ABC));
    assert_true(allowed(g, '<'));
    assert_false(allowed(g, END)); /* any other token, but the text doesn't end */
    grammar_accept(g, ABC);
    grammar_accept(g, 'x');
    assert_true(grammar_finished(g));
    grammar_reset(g);
    grammar_accept(g, 3);
    assert_true(allowed(g, AB));
    assert_false(allowed(g, ABC));
    grammar_free(g);
}

static void test_other_languages(void **state)
{
    (void)state;
    struct grammar *g = make(GRAMMAR_REGEX, "(yes|no)[0-9]{1,3}");
    assert_true(whole(g, "yes123"));
    assert_true(grammar_finished(g));
    assert_true(whole(g, "no1"));
    assert_false(grammar_finished(g));
    assert_false(whole(g, "no"));
    assert_false(whole(g, "no1234"));
    grammar_free(g);
    g = make(GRAMMAR_REGEX, "^[a-c^$]+[\\^+$?]$");
    assert_true(whole(g, "abc^"));
    assert_false(whole(g, "abd^"));
    grammar_free(g);
    g = make(GRAMMAR_LARK, "start: \"a\" start \"b\" | \"x\"");
    assert_true(whole(g, "aaxbb"));
    assert_false(whole(g, "aaxb"));
    grammar_free(g);
}

static void test_schemas(void **state)
{
    (void)state;
    struct grammar *g = make(GRAMMAR_JSON_SCHEMA, "{}");
    assert_true(whole(g, "{\"a\": [1, null]}"));
    assert_false(whole(g, "[1]"));
    grammar_free(g);
    g = make(GRAMMAR_JSON_SCHEMA,
             "{\"properties\": {\"b\": {\"type\": \"integer\"}, \"a\": {\"enum\": [\"x\", 2]}},"
             "\"type\": \"object\", \"required\": [\"a\"]}");
    assert_true(whole(g, "{\"b\": 1, \"a\": 2}"));
    assert_true(whole(g, "{\n  \"b\":-1,\n  \"a\":\"x\"\n}"));
    assert_false(whole(g, "{\"a\": 2, \"b\": 1}")); /* in the schema's order */
    assert_false(whole(g, "{\"b\": 1}"));
    assert_false(whole(g, "{\"a\": 2, \"c\": 1}"));
    assert_false(whole(g, "{\n\n\n\"a\": 2}")); /* white space is bounded */
    assert_false(whole(g, "{                        \"a\": 2}"));
    grammar_free(g);
    g = make(GRAMMAR_JSON_SCHEMA, "{\"$ref\": \"#/$defs/tree\", \"$defs\": {\"tree\": {\"anyOf\": "
                                  "[{\"type\": \"null\"}, {\"type\": \"object\","
                                  "\"properties\": {\"left\": {\"$ref\": \"#/$defs/tree\"}, \"right\": "
                                  "{\"$ref\": \"#/$defs/tree/anyOf/1\"}},"
                                  "\"required\": [\"left\"]}]}}}");
    assert_true(whole(g, "{\"left\": null, \"right\": {\"left\": {\"left\": null}}}"));
    assert_false(whole(g, "{\"left\": null, \"right\": null}"));
    grammar_free(g);
    g = make(GRAMMAR_JSON_SCHEMA, "{\"type\": [\"number\", \"string\"]}");
    assert_true(whole(g, "-1234567890123456.1234567890123456e10"));
    assert_false(whole(g, "12345678901234567")); /* no number goes on for ever */
    assert_false(whole(g, "0.12345678901234567"));
    assert_true(whole(g, "\"12345678901234567890\\\"12345678901234567890\""));
    grammar_free(g);
}

/* ---- what asks for too much ---- */

static void refused(enum grammar_type type, const char *source)
{
    struct err err = ERR_INIT;
    struct grammar_params p = {.type = type, .source = source};
    struct grammar *g = grammar_new(shared(), &p, &err);
    if (g)
        fail_msg("\"%.60s\" was accepted", source);
    assert_int_equal(err.code, ERR_USAGE);
    assert_true(err.text[0] != 0);
}

static char *repeated(const char *before, const char *z, size_t n, const char *after)
{
    struct buf b = {0};
    buf_puts(&b, before);
    for (size_t i = 0; i < n; i++)
        buf_puts(&b, z);
    buf_puts(&b, after);
    return b.p;
}

static void refused_repeated(enum grammar_type type, const char *before, const char *z, size_t n,
                             const char *after)
{
    char *source = repeated(before, z, n, after);
    refused(type, source);
    free(source);
}

static void test_too_much(void **state)
{
    (void)state;
    refused_repeated(GRAMMAR_GBNF, "root ::= ", "(", 60000, "");
    refused_repeated(GRAMMAR_GBNF, "root ::= ", "(", 60000, "\"a\"");
    refused_repeated(GRAMMAR_GBNF, "root ::= ", "\"a\"{2000} ", 2000, "");
    refused(GRAMMAR_GBNF, "root ::= \"a\"{99999999999999999999}");
    refused(GRAMMAR_GBNF, "root ::= \"a\"{5,2}");
    refused(GRAMMAR_GBNF, "root ::= (((\"a\"{1000}){1000}){1000}){1000}");
    refused(GRAMMAR_GBNF, "root ::= a root \"x\" | \"y\"\na ::= b\nb ::= \"\" | \"z\"");
    refused(GRAMMAR_GBNF, "");
    refused(GRAMMAR_GBNF, "root ::= \"\xff\"");
    refused(GRAMMAR_GBNF, "root ::= <nothing>");
    refused(GRAMMAR_REGEX, "");
    refused(GRAMMAR_REGEX, "^+[a-z]$");
    refused(GRAMMAR_REGEX, "^{2}x$");
    refused(GRAMMAR_REGEX, "a$*");
    refused(GRAMMAR_JSON_SCHEMA, "{\"type\": \"string\", \"pattern\": \"^{2}x$\"}");
    refused(GRAMMAR_JSON_SCHEMA, "{\"type\": \"object\", \"patternProperties\": {\"^+[a-z]$\": {}}}");
    refused(GRAMMAR_REGEX, "[a-z");
    refused_repeated(GRAMMAR_REGEX, "", "(", 60000, "");
    refused_repeated(GRAMMAR_REGEX, "", "(", 60000, "a");
    refused_repeated(GRAMMAR_LARK, "start: ", "(", 60000, "");
    refused(GRAMMAR_LARK, "no grammar");
    refused(GRAMMAR_JSON_SCHEMA, "");
    refused(GRAMMAR_JSON_SCHEMA, "[1]");
    refused(GRAMMAR_JSON_SCHEMA, "{\"type\": \"nothing\"}");
    refused(GRAMMAR_JSON_SCHEMA, "{\"$ref\": \"#\"}");
    refused(GRAMMAR_JSON_SCHEMA, "{\"$ref\": \"#/a\", \"a\": {\"$ref\": \"#/a\"}}");
    refused(GRAMMAR_JSON_SCHEMA, "{\"$ref\": \"#/nowhere\"}");
    refused_repeated(GRAMMAR_JSON_SCHEMA, "", "{\"items\":", 10000, "{}");
    refused_repeated(GRAMMAR_JSON_SCHEMA, "", "[", 60000, "");
}

/* Taken or refused, but in bounded time, and usable if taken. */
static void bounded(enum grammar_type type, const char *source, const char *text)
{
    struct err err = ERR_INIT;
    struct grammar_params p = {.type = type, .source = source};
    struct grammar *g = grammar_new(shared(), &p, &err);
    for (; g && *text; text++) {
        grammar_mask(g);
        grammar_accept(g, (unsigned char)*text);
    }
    assert_true(g || err.code == ERR_USAGE);
    grammar_free(g);
}

static void test_bounds(void **state)
{
    (void)state;
    bounded(GRAMMAR_REGEX, "(((a{1000}){1000}){1000}){1000}", "aaaaaa");
    bounded(GRAMMAR_REGEX, "(a|aa|aaa|a*)*b(x+x+)+y", "aaaaaaaaaabxxxxxxxxx");
    bounded(GRAMMAR_REGEX, "[a-z]{0,50000}[0-9]{0,50000}x", "abc123");
    bounded(GRAMMAR_GBNF, "root ::= (\"a\"?){2000} \"b\"", "aaaaaaaa");
    bounded(GRAMMAR_GBNF, "root ::= a a a a a a\na ::= \"x\" a | \"x\" | a2\na2 ::= \"x\" a a | \"x\"",
            "xxxxxxxxxxxxxxxxxxxx");
    bounded(GRAMMAR_LARK, "start: a a a a a a\na: \"x\" a | \"x\" | a a | ", "xxxxxxxxxxxx");
    bounded(GRAMMAR_JSON_SCHEMA, "{\"type\": \"array\", \"minItems\": 1000000000, \"items\": {}}", "[1,");
    bounded(GRAMMAR_JSON_SCHEMA, "{\"type\": \"string\", \"minLength\": 1000000000}", "\"abc");
    bounded(GRAMMAR_JSON_SCHEMA, "{\"type\": \"integer\", \"minimum\": -1e300, \"maximum\": 1e300}", "12345");
    bounded(GRAMMAR_JSON_SCHEMA, "{\"type\": \"number\", \"multipleOf\": 1e-300}", "12345");
}

/* ---- lazy grammars ---- */

static struct grammar *make_lazy(const char *word, const char *pattern, token_id token)
{
    struct grammar_params p = {.type = GRAMMAR_GBNF,
                               .source = "root ::= \"<tool>\" [a-c]+ \"!\" | \"call \" [0-9]+",
                               .lazy = true,
                               .trigger_words = &word,
                               .n_trigger_words = word != NULL,
                               .trigger_patterns = &pattern,
                               .n_trigger_patterns = pattern != NULL,
                               .trigger_tokens = &token,
                               .n_trigger_tokens = token != TOKEN_NONE};
    struct err err = ERR_INIT;
    struct grammar *g = grammar_new(shared(), &p, &err);
    if (!g)
        fail_msg("%s", err.text);
    return g;
}

static void check_lazy(struct grammar *g, const token_id *text)
{
    for (int i = 0; i < 2; i++) {
        assert_null(grammar_mask(g));
        for (const token_id *t = text; *t != TOKEN_NONE; t++) {
            assert_null(grammar_mask(g));
            grammar_accept(g, *t);
        }
        assert_non_null(grammar_mask(g));
        assert_true(allowed(g, 'a'));
        assert_true(allowed(g, ABC));
        assert_false(allowed(g, '!'));
        assert_false(allowed(g, END));
        grammar_accept(g, ABC);
        assert_true(allowed(g, '!'));
        grammar_accept(g, '!');
        assert_true(grammar_finished(g));
        grammar_reset(g);
    }
    grammar_free(g);
}

static void test_lazy(void **state)
{
    (void)state;
    check_lazy(make_lazy("<tool>", NULL, TOKEN_NONE),
               (token_id[]){'x', ABC, '<', 't', 'o', 'o', 'l', '>', TOKEN_NONE});
    check_lazy(make_lazy("<tool>", NULL, TOKEN_NONE), (token_id[]){TOOL, TOKEN_NONE});
    check_lazy(make_lazy(NULL, NULL, TOOL), (token_id[]){'<', 't', TOOL, TOKEN_NONE});
    check_lazy(make_lazy(NULL, "^[\\s\\S]*?(<tool>)", TOKEN_NONE),
               (token_id[]){'x', '\n', AB, TOOL, TOKEN_NONE});
    check_lazy(make_lazy(NULL, "<to+l>", TOKEN_NONE), (token_id[]){'x', TOOL, TOKEN_NONE});
    /* the trigger begins inside of a token */
    check_lazy(make_lazy(NULL, "b(<tool>)", TOKEN_NONE), (token_id[]){AB, TOOL, TOKEN_NONE});
    struct grammar *g = make_lazy("all 1", NULL, TOKEN_NONE);
    grammar_accept(g, CALL);
    assert_null(grammar_mask(g));
    grammar_accept(g, '1');
    assert_false(allowed(g, '2')); /* "all 1" is no beginning of the grammar */
    assert_true(allowed(g, END));
    grammar_free(g);
}

static void test_bad_triggers(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct grammar_params p = {.type = GRAMMAR_GBNF, .source = "root ::= \"a\"", .lazy = true};
    assert_null(grammar_new(shared(), &p, &err));
    assert_int_equal(err.code, ERR_USAGE);
    err = (struct err)ERR_INIT;
    p.trigger_patterns = (const char *const[]){"a("};
    p.n_trigger_patterns = 1;
    assert_null(grammar_new(shared(), &p, &err));
    assert_int_equal(err.code, ERR_USAGE);
}

/* ---- in a sampler ---- */

static struct sampler_params greedy(enum grammar_type type, const char *source)
{
    struct sampler_params p = sampler_defaults();
    p.temp = 0;
    p.n_ctx = 64;
    p.grammar.type = type;
    p.grammar.source = source;
    p.grammar_vocab = shared();
    return p;
}

/* Writes until the end with logits that are larger for smaller tokens; the text. */
static void write_text(struct sampler *s, struct buf *out, size_t max)
{
    float logits[VOCAB_TEXTS];
    buf_clear(out);
    for (int t = 0; t < make_vocab()->n; t++)
        logits[t] = -(float)t;
    for (size_t i = 0; i < max; i++) {
        sampler_prepare(s);
        token_id t = sampler_sample(s, logits);
        sampler_accept(s, t);
        if (t == END)
            return;
        vocab_piece(make_vocab(), t, 0, true, out);
    }
}

static void check_written(struct sampler_params p, size_t max, const char *expected)
{
    struct err err = ERR_INIT;
    struct buf out = {0};
    struct sampler *s = sampler_new(&p, make_vocab(), &err);
    if (!s)
        fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        for (token_id t = 0; t < 10; t++) /* a prompt doesn't move it */
            sampler_accept(s, t);
        write_text(s, &out, max);
        assert_string_equal(out.p, expected);
        sampler_reset(s);
    }
    sampler_free(s);
    buf_release(&out);
}

static void test_sampler(void **state)
{
    (void)state;
    check_written(greedy(GRAMMAR_GBNF, "root ::= \"b\" [d-f]{2,3} \"z\""), 10, "bdddz");
    check_written(greedy(GRAMMAR_REGEX, "x[0-9]{4}y"), 10, "x0000y");
    struct sampler_params p = greedy(GRAMMAR_GBNF, "root ::= [c-e]{3}");
    p.samplers = "temperature";
    p.ignore_eos = true; /* at the end of the grammar the text ends all the same */
    check_written(p, 3, "ccc");
    const struct sampler_bias banned[] = {{'c', -INFINITY}, {'d', -INFINITY}};
    p.bias = banned;
    p.n_bias = 2;
    check_written(p, 10, "eee");
    p.temp = 0.5f;
    p.samplers = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
    p.typical_p = 0.9f;
    p.repeat_penalty = 1.1f;
    check_written(p, 10, "eee");
}

static struct sampler_params thinking(int32_t budget, bool open)
{
    struct sampler_params p = sampler_defaults();
    p.temp = 0;
    p.n_ctx = 64;
    p.think_budget = budget;
    p.think_start = "<think>";
    p.think_end = "</think>";
    p.think_open = open;
    return p;
}

/* What comes out when `likely` is what the model writes. */
static void check_thoughts(struct sampler_params p, const token_id *likely, const token_id *expected)
{
    struct err err = ERR_INIT;
    struct sampler *s = sampler_new(&p, make_vocab(), &err);
    if (!s)
        fail_msg("%s", err.text);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; likely[i] != TOKEN_NONE; i++) {
            float logits[VOCAB_TEXTS] = {0};
            logits[likely[i]] = 1;
            token_id t = sampler_sample(s, logits);
            assert_int_equal(t, expected[i]);
            sampler_accept(s, t);
        }
        sampler_reset(s);
    }
    sampler_free(s);
}

#define TOKENS(...) ((const token_id[]){__VA_ARGS__, TOKEN_NONE})

static void test_thinking_budget(void **state)
{
    (void)state;
    check_thoughts(thinking(2, false), TOKENS('x', THINK_START, 'a', 'b', 'c', 'd'),
                   TOKENS('x', THINK_START, 'a', 'b', THINK_END, 'd'));
    check_thoughts(thinking(2, true), TOKENS('a', 'b', 'c', 'd'), TOKENS('a', 'b', THINK_END, 'd'));
    check_thoughts(thinking(0, true), TOKENS('a', 'b'), TOKENS(THINK_END, 'b'));
    check_thoughts(thinking(0, false), TOKENS('a', THINK_START, 'b', 'c'),
                   TOKENS('a', THINK_START, THINK_END, 'c'));
    check_thoughts(thinking(3, true), TOKENS('a', THINK_END, 'b', 'c', 'd', 'e'),
                   TOKENS('a', THINK_END, 'b', 'c', 'd', 'e'));
    /* a second thought has a budget of its own */
    check_thoughts(thinking(1, true), TOKENS('a', 'b', THINK_START, 'c', 'd', 'e'),
                   TOKENS('a', THINK_END, THINK_START, 'c', THINK_END, 'e'));
    /* a character is finished first */
    check_thoughts(thinking(1, true), TOKENS(0xC3, 0xA9, 'c', 'd'), TOKENS(0xC3, 0xA9, THINK_END, 'd'));
}

/* What comes out of thoughts that are ended by hand before their n-th token, and go on in `likely`. */
static void check_ended(struct sampler_params p, size_t n, const token_id *likely, const token_id *expected)
{
    struct err err = ERR_INIT;
    struct sampler *s = sampler_new(&p, make_vocab(), &err);
    for (size_t i = 0; likely[i] != TOKEN_NONE; i++) {
        float logits[VOCAB_TEXTS] = {0};
        logits[likely[i]] = 1;
        if (i == n)
            sampler_end_thoughts(s);
        token_id t = sampler_sample(s, logits);
        assert_int_equal(t, expected[i]);
        sampler_accept(s, t);
    }
    sampler_free(s);
}

static void test_thoughts_are_ended(void **state)
{
    (void)state;
    struct sampler_params p = thinking(-1, true), idle = thinking(-1, false), unarmed = thinking(-1, true);
    p.think_control = idle.think_control = true;
    check_ended(p, 2, TOKENS('a', 'b', 'c', 'd'), TOKENS('a', 'b', THINK_END, 'd'));
    check_ended(p, 0, TOKENS('a', 'b', 'c', 'd'), TOKENS(THINK_END, 'b', 'c', 'd'));
    check_ended(p, 1, TOKENS(0xC3, 0xA9, 'c', 'd'), TOKENS(0xC3, 0xA9, THINK_END, 'd'));
    check_ended(p, 2, TOKENS('a', THINK_END, 'c', 'd'), TOKENS('a', THINK_END, 'c', 'd')); /* too late */
    check_ended(idle, 0, TOKENS('a', THINK_START, 'c', 'd'),
                TOKENS('a', THINK_START, 'c', 'd')); /* too early */
    check_ended(unarmed, 1, TOKENS('a', 'b', 'c'), TOKENS('a', 'b', 'c'));
}

static void test_lazy_after_thoughts(void **state)
{
    (void)state;
    struct sampler_params p = thinking(-1, true);
    p.grammar = (struct grammar_params){.type = GRAMMAR_GBNF,
                                        .source = "root ::= \"yes\"",
                                        .lazy = true,
                                        .trigger_patterns = (const char *const[]){"</think>\\s*()"},
                                        .n_trigger_patterns = 1};
    p.grammar_vocab = shared();
    check_thoughts(p, TOKENS('a', '\n', THINK_END, 'x', 'x', 'x', 'x'),
                   TOKENS('a', '\n', THINK_END, 'y', 'e', 's', END));
    /* words in thoughts trigger nothing */
    p.grammar.trigger_patterns = (const char *const[]){"<tool>"};
    p.grammar.source = "root ::= \"<tool>\" \"a\"";
    check_thoughts(p, TOKENS(TOOL, 'x', THINK_END, 'x', TOOL, 'x'),
                   TOKENS(TOOL, 'x', THINK_END, 'x', TOOL, 'a'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_tokens_in_grammars),
        cmocka_unit_test(test_other_languages),
        cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_bad_triggers),
        cmocka_unit_test(test_sampler),
        cmocka_unit_test(test_thinking_budget),
        cmocka_unit_test(test_thoughts_are_ended),
        cmocka_unit_test(test_lazy_after_thoughts),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
