/* The parts of the command line that need no model: stop texts in a stream, scores of logits, the option
 * table. */
#include "cli/common.h"
#include "cli/options.h"
#include "cli/score.h"
#include "base/stop.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- stop texts ---- */

#define S(z)                                                                                                 \
    {                                                                                                        \
        z, sizeof z - 1                                                                                      \
    }

/* Pushes `text` in pieces of `size` bytes; *stopped says whether a stop text came. All that came out is in
 * `out`. */
static void pass(struct stop *s, struct str text, size_t size, struct buf *out, bool *stopped)
{
    *stopped = false;
    for (size_t i = 0; i < text.n && !*stopped; i += size) {
        struct str piece = {text.p + i, text.n - i < size ? text.n - i : size}, shown;
        *stopped = stop_add(s, piece, &shown);
        buf_add(out, shown.p, shown.n);
        /* What is shown is the text so far, but for what may yet be a stop text. */
        assert_true(out->n == 0 || memcmp(out->p, text.p, out->n) == 0);
    }
    if (!*stopped) {
        struct str rest = stop_end(s);
        buf_add(out, rest.p, rest.n);
    }
}

static void stop_texts(void **state)
{
    (void)state;
    static const struct {
        struct str stops[3], text, want;
        bool stopped;
    } cases[] = {
        {{S("O P Q")}, S("L M N O P Q R"), S("L M N "), true},
        {{S("O P Q")}, S("L M N O P R O P"), S("L M N O P R O P"), false},
        {{S("aab")}, S("aaaab!"), S("aa"), true},          /* begins anew inside itself */
        {{S("bc"), S("abcd")}, S("xabcd"), S("xa"), true}, /* complete first, whatever the pieces */
        {{S("abcd"), S("c")}, S("xabcd"), S("xab"), true},
        {{S("User:"), S("\n\n")}, S("Hi\nUser: x"), S("Hi\n"), true},
        {{S("")}, S("abc"), S("abc"), false}, /* an empty text stops nothing */
        {{S("\xC3\xA9")}, S("caf\xC3\xA9!"), S("caf"), true},
        {{S("a\0b")}, S("xa\0b"), S("x"), true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t size = 1; size <= cases[i].text.n; size++) {
            struct str stops[3];
            memcpy(stops, cases[i].stops, sizeof stops);
            struct stop s = {.texts = stops, .n = 3};
            struct buf out = {0};
            bool stopped;
            pass(&s, cases[i].text, size, &out, &stopped);
            assert_int_equal(stopped, cases[i].stopped);
            assert_int_equal(out.n, cases[i].want.n);
            assert_memory_equal(out.p ? out.p : "", cases[i].want.p, out.n);
            stop_reset(&s);
            assert_int_equal(stop_end(&s).n, 0);
            stop_release(&s);
            buf_release(&out);
        }
    }
}

/* Nothing is held back without need: text that can't be part of a stop text comes out at once. */
static void stop_texts_let_through(void **state)
{
    (void)state;
    struct str stops[] = {S("END"), S("\nUser")}, out;
    struct stop s = {.texts = stops, .n = 2};
    static const struct {
        struct str in, want;
    } steps[] = {
        {S("hello"), S("hello")},
        {S(" EN"), S(" ")},
        {S("D"), S("")},
        {S(""), S("")},
    };
    assert_false(stop_add(&s, steps[0].in, &out));
    assert_true(str_eq(out, steps[0].want));
    assert_false(stop_add(&s, steps[1].in, &out));
    assert_true(str_eq(out, steps[1].want));
    assert_true(stop_add(&s, steps[2].in, &out));
    assert_int_equal(out.n, 0);
    assert_false(stop_add(&s, (struct str)S("x\nUs"), &out));
    assert_true(str_is(out, "x"));
    assert_false(stop_add(&s, (struct str)S("e of it"), &out));
    assert_true(str_is(out, "\nUse of it"));
    stop_release(&s);
}

/* ---- scores ---- */

/* log softmax of {1, 2, 3, -30}: by Python, math.log(sum(math.exp(x) for x in v)) = 3.40760596444438 */
static const float row[4] = {1, 2, 3, -30};
#define LOG_SUM 3.40760596444438

static void scores(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_true(fabs(score_nll(row, 4, i) - (LOG_SUM - (double)row[i])) < 1e-6);

    uint16_t packed[4 + 4];
    assert_int_equal(score_row_u16(4), 8);
    assert_int_equal(score_row_u16(5), 10);
    assert_true(fabs(score_nll_packed(row, 4, 1, packed) - (LOG_SUM - 2)) < 1e-6);
    float head[2];
    memcpy(head, packed, sizeof head);
    for (int i = 0; i < 4; i++) { /* 16 below the greatest is the least that is kept */
        double kept = fmax((double)row[i], 3 - 16) - LOG_SUM;
        assert_true(fabs((double)(head[0] * (float)packed[4 + i] + head[1]) - kept) < 16 / 65535.0);
    }

    struct score_pair p;
    score_compare(row, packed, 4, 1, &p);
    assert_true(fabs(p.kld) < 1e-4 && fabs(p.p_diff) < 1e-4 && p.same_top);
    /* From {3, 2, 1} to {1, 2, 3}: the sum of p_base * (log p_base - log p) over the three is 1.1504208. */
    static const float base[4] = {3, 2, 1, -30};
    score_nll_packed(base, 4, 0, packed);
    score_compare(row, packed, 4, 0, &p);
    assert_true(fabs(p.kld - 1.1504208) < 1e-3);
    assert_true(fabs(p.nll - (LOG_SUM - 1)) < 1e-6 && fabs(p.nll_base - (LOG_SUM - 3)) < 1e-3);
    assert_true(fabs(p.p_diff - (exp(1 - LOG_SUM) - exp(3 - LOG_SUM))) < 1e-3 && !p.same_top);
}

static void flat_row_packs(void **state)
{
    (void)state;
    static const float flat[3] = {7, 7, 7};
    uint16_t packed[8];
    assert_true(fabs(score_nll_packed(flat, 3, 2, packed) - log(3)) < 1e-6);
    struct score_pair p;
    score_compare(flat, packed, 3, 2, &p);
    assert_true(fabs(p.kld) < 1e-6 && fabs(p.nll_base - log(3)) < 1e-6 && p.same_top);
}

static void statistics(void **state)
{
    (void)state;
    struct score_sum s = {0};
    assert_true(score_mean(&s) == 0 && score_uncertainty(&s) == 0);
    static const double v[] = {2, 4, 4, 4, 5, 5, 7, 9}; /* mean 5, deviation 2 */
    for (size_t i = 0; i < 8; i++)
        score_sum_add(&s, v[i]);
    assert_true(fabs(score_mean(&s) - 5) < 1e-12 && fabs(score_uncertainty(&s) - 2 / sqrt(7)) < 1e-12);
    static const float sorted[] = {1, 2, 3, 10};
    assert_true(score_percentile(sorted, 4, 0) == 1 && score_percentile(sorted, 4, 1) == 10);
    assert_true(fabsf(score_percentile(sorted, 4, 0.5f) - 2.5f) < 1e-6f);
    assert_true(fabsf(score_percentile(sorted, 4, 0.9f) - 7.9f) < 1e-5f);
    assert_true(score_percentile(sorted, 1, 0.5f) == 1);
}

/* ---- escapes ---- */

static void escapes(void **state)
{
    (void)state;
    static const struct {
        struct str in, want;
    } cases[] = {
        {S("a\\nb\\r\\t\\'\\\"\\\\"), S("a\nb\r\t'\"\\")},
        {S("\\x41\\x0a\\xfF"), S("A\n\xff")},
        {S("\\x4"), S("\\x4")},
        {S("\\xg1"), S("\\xg1")},
        {S("\\q\\"), S("\\q\\")},
        {S("\\\\n"), S("\\n")}, /* an escaped backslash escapes nothing */
        {S("\\q\\n"), S("\\q\n")},
        {S("\\\0n"), S("\\\0n")},
        {S(""), S("")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        memcpy(text, cases[i].in.p, cases[i].in.n);
        size_t n = unescape(text, cases[i].in.n);
        assert_int_equal(n, cases[i].want.n);
        assert_memory_equal(text, cases[i].want.p, n);
    }
}

/* ---- the option table ---- */

static bool name_is_sound(const char *name, size_t len, void *user)
{
    (void)user;
    return !(len >= 2 && len < 48 && name[0] == '-' && (name[1] != '-' || len > 3));
}

/* A name belongs to one row of a command, and a row says all it must. */
static void table(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_options; i++) {
        const struct option *d = &option_table[i];
        if (d->kind == OPT_SECTION)
            continue;
        assert_true(d->commands && d->names && *d->names && d->off && d->value);
        assert_false(each_name(d->names, name_is_sound, NULL) || each_name(d->off, name_is_sound, NULL));
        assert_true(d->kind == OPT_NOP || (d->help && *d->help));
        assert_true(d->kind == OPT_REFUSED || (d->takes == TAKES_FLAG) == (*d->value == '\0'));
        if (d->kind == OPT_I32 || d->kind == OPT_U32 || d->kind == OPT_F32 || d->kind == OPT_INTS)
            assert_true(d->least < d->most);
    }
}

struct seen {
    const char *names[512];
    size_t lens[512], n;
};

static bool is_twice(const char *name, size_t len, void *user)
{
    struct seen *s = user;
    for (size_t i = 0; i < s->n; i++) {
        if (s->lens[i] == len && memcmp(s->names[i], name, len) == 0)
            return true;
    }
    s->names[s->n] = name;
    s->lens[s->n++] = len;
    return false;
}

static void names_are_unique(void **state)
{
    (void)state;
    for (unsigned c = 0; c < N_COMMANDS; c++) {
        struct seen s = {.n = 0};
        for (size_t i = 0; i < n_options; i++) {
            const struct option *d = &option_table[i];
            if (d->kind == OPT_SECTION || !(d->commands & (1u << c)))
                continue;
            assert_false(each_name(d->names, is_twice, &s));
            assert_false(each_name(d->off, is_twice, &s));
        }
        assert_true(s.n > 5);
    }
}

/* The table's defaults are those of the library, which are llama.cpp's. */
static void sampling_defaults(void **state)
{
    (void)state;
    struct options o;
    struct grappa_err err = {0};
    assert_int_equal(options_parse(&o, &commands[COMMAND_RUN], "grappa", 0, NULL, &err), 0);
    assert_true(o.seed == 0xFFFFFFFF && o.top_k == 40 && o.repeat_last_n == 64 && o.mirostat == 0);
    assert_true(o.temp == 0.8f && o.top_p == 0.95f && o.min_p == 0.05f && o.typical == 1 &&
                o.top_n_sigma == -1);
    assert_true(o.repeat_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0);
    assert_true(o.xtc_probability == 0 && o.xtc_threshold == 0.1f && o.dry_base == 1.75f &&
                o.dry_multiplier == 0);
    assert_true(o.dry_allowed_length == 2 && o.dry_penalty_last_n == 64 && o.mirostat_ent == 5);
    assert_true(o.mirostat_lr == 0.1f && o.n_predict == -1 && o.n_batch == 2048 && o.n_ubatch == 512);
    assert_true(o.escape && o.display_prompt && o.conversation == -1 && o.n_ctx == 0);
    options_release(&o);
    assert_int_equal(options_parse(&o, &commands[COMMAND_PERPLEXITY], "grappa", 0, NULL, &err), 0);
    assert_true(o.n_ctx == 512 && !o.escape);
    options_release(&o);
}

static void parsing(void **state)
{
    (void)state;
    char *argv[] = {"-m",          "x.gguf",      "--seed", "-1",      "-r",   "a",  "-r",
                    "b",           "--no-escape", "-v",     "-v",      "-ngl", "-1", "-fa",
                    "--temp=1e-2", "--top_k",     "-5",     "-no-cnv", "-p",   "-n"};
    struct options o;
    struct grappa_err err = {0};
    int n = (int)(sizeof argv / sizeof *argv);
    assert_int_equal(options_parse(&o, &commands[COMMAND_RUN], "grappa", n, argv, &err), 0);
    assert_string_equal(o.model, "x.gguf");
    assert_true(o.seed == 0xFFFFFFFF && o.verbose == 2 && !o.escape && o.conversation == 0);
    assert_true(o.reverse_prompts.n == 2 && strcmp(o.reverse_prompts.v[1], "b") == 0);
    assert_true(o.temp == 0.01f && o.top_k == -5);
    assert_string_equal(o.prompt, "-n"); /* a value may look like an option */
    assert_true(o.ignored.n == 2 && strcmp(o.ignored.v[1], "-fa") == 0);
    options_release(&o);

    char *wrong[] = {"--top-k", "3", "--typ", "1"};
    assert_int_equal(options_parse(&o, &commands[COMMAND_RUN], "grappa", 4, wrong, &err), -1);
    assert_int_equal(err.exit_status, 2);
    assert_string_equal(err.text, "--typ: unknown option; did you mean --temp?");
    options_release(&o);
}

static void nearest(void **state)
{
    (void)state;
    assert_string_equal(command_nearest("perplexty"), "perplexity");
    assert_string_equal(command_nearest("tokenise"), "tokenize");
    assert_null(command_nearest("q"));
    char long_name[200];
    memset(long_name, 'a', sizeof long_name);
    long_name[199] = '\0';
    assert_null(command_nearest(long_name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_texts),
        cmocka_unit_test(stop_texts_let_through),
        cmocka_unit_test(scores),
        cmocka_unit_test(flat_row_packs),
        cmocka_unit_test(statistics),
        cmocka_unit_test(escapes),
        cmocka_unit_test(table),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(sampling_defaults),
        cmocka_unit_test(parsing),
        cmocka_unit_test(nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
