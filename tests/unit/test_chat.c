/* Chat templates against Jinja2 and llama.cpp (tests/golden/chat), and the bounds that a hostile template
 * meets. */
#include "chat/chat.h"

#include "test_chat_records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>
#include <cmocka.h>

#define GOLDEN SOURCE_DIR "/tests/golden/chat/"

static int render(struct str source, struct str messages, struct str extra, bool prompt, struct buf *out,
                  struct err *err)
{
    struct chat_template *t = chat_template_new(source, str_of("<s>"), str_of("</s>"), err);
    if (!t)
        return -1;
    int status = chat_template_render(t, messages, extra, prompt, 0, out, err);
    chat_template_free(t);
    return status;
}

static int render_z(const char *source, const char *messages, const char *extra, struct buf *out,
                    struct err *err)
{
    return render(str_of(source), str_of(messages), extra ? str_of(extra) : (struct str){0}, true, out, err);
}

/* The last record of a case is what must come out. */
static bool as_expected(struct str key, struct str expected, int status, const struct buf *out,
                        const struct err *err)
{
    if (str_is(key, "text"))
        return status == 0 && str_eq(buf_str(out), expected);
    if (str_is(key, "raised"))
        return status == -1 && err->code == ERR_USAGE && str_eq(str_of(err->text), expected);
    return status == -1 && err->text[0] != '\0';
}

static void features(void **state)
{
    (void)state;
    struct buf file = read_file(GOLDEN "features.txt");
    struct str name = {0}, source = {0}, messages = {0}, variables = {0};
    struct record r;
    int n = 0, bad = 0;
    for (size_t at = 0; next_record(&file, &at, &r);) {
        struct str *field = str_is(r.key, "name")        ? &name
                            : str_is(r.key, "template")  ? &source
                            : str_is(r.key, "messages")  ? &messages
                            : str_is(r.key, "variables") ? &variables
                                                         : NULL;
        if (field) {
            *field = r.text;
            continue;
        }
        struct buf out = {0};
        struct err err = ERR_INIT;
        int status = render(source, messages, variables, true, &out, &err);
        n++;
        if (!as_expected(r.key, r.text, status, &out, &err)) {
            bad++;
            print_message("%.*s: want %.*s\n%.*s\ngot %d %s\n%s\n", STR_ARG(name), STR_ARG(r.key),
                          STR_ARG(r.text), status, err.text, out.p ? out.p : "");
        }
        buf_release(&out);
    }
    buf_release(&file);
    assert_true(n > 50);
    assert_int_equal(bad, 0);
}

static void builtins(void **state)
{
    (void)state;
    struct buf file = read_file(GOLDEN "builtin.txt");
    struct str name = {0}, messages = {0};
    struct record r;
    int n = 0, bad = 0;
    for (size_t at = 0; next_record(&file, &at, &r);) {
        if (str_is(r.key, "messages"))
            messages = r.text;
        if (str_is(r.key, "name"))
            name = r.text;
        if (!str_is(r.key, "text"))
            continue;
        char z[64];
        snprintf(z, sizeof z, "%.*s", STR_ARG(name));
        const char *source = chat_template_builtin(z);
        assert_non_null(source);
        struct buf out = {0};
        struct err err = ERR_INIT;
        int status = render(str_of(source), messages, (struct str){0}, true, &out, &err);
        n++;
        if (!as_expected(r.key, r.text, status, &out, &err)) {
            bad++;
            print_message("%s: want\n%.*s\ngot %s\n%s\n", z, STR_ARG(r.text), err.text, out.p ? out.p : "");
        }
        buf_release(&out);
    }
    buf_release(&file);
    assert_true(n > 100);
    assert_int_equal(bad, 0);
    assert_null(chat_template_builtin("nosuch"));
    assert_null(chat_template_builtin(""));
}

static const char *const one_user = "[{\"role\": \"user\", \"content\": \"Hi\"}]";

/* What each of these would make without bounds fits no machine. */
#define DOUBLED(EXPRESSION)                                                                                  \
    "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(64) %}{% set ns.l = " EXPRESSION                \
    " %}{% endfor %}{{ ns.l }}"
/* 90,000 deep: nothing may go down that far. */
#define NESTED(EXPRESSION)                                                                                   \
    "{% set ns = namespace(l=[1]) %}{% for i in range(90000) %}{% set ns.l = " EXPRESSION " %}{% endfor %}"

static const char *const hostile[] = {
    "{% for i in range(1000000000) %}{{ i }}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{{ range(1000000000)|list|length }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f(0) }}",
    "{% for x in [1] recursive %}{{ loop([x, x]) }}{% endfor %}",
    "{{ 'x' * 1000000000000 }}",
    "{{ [0] * 1000000000000 }}",
    "{{ ([0] * 100000000)|sum }}",
    "{{ '%1000000000000d'|format(1) }}",
    "{{ '{:1000000000000}'.format(1) }}",
    "{{ 'x'.ljust(1000000000000) }}",
    "{{ 'a\nb'|indent(1000000000000) }}",
    "{{ [1]|batch(1000000000000, 'x')|list }}",
    "{{ 2 ** 1000000000 }}",
    DOUBLED("ns.l + ns.l"),
    DOUBLED("[ns.l, ns.l]"),
    DOUBLED("(ns.l, ns.l)"),
    DOUBLED("{'a': ns.l, 'b': ns.l}"),
    DOUBLED("[ns.l] * 2"),
    DOUBLED("[] + 2 * ns.l"),
    DOUBLED("ns.l|zip(ns.l)|list"),
    DOUBLED("dict(a=ns.l, b=ns.l)"),
    DOUBLED("ns.l ~ ns.l"),
    DOUBLED("(ns.l|string).replace('1', '11')"),
    NESTED("[ns.l]"),
    NESTED("{'a': ns.l}"),
    NESTED("namespace(a=ns.l)"),
    NESTED("ns"),
    NESTED("[ns]"),
    "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(17) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m "
    "= [ns.m, ns.m] %}"
    "{% endfor %}{% for i in range(100000) %}{% if ns.l == ns.m %}{% endif %}{% endfor %}",
};

/* Each ends with an error of one line, soon, and without output. */
static void hostile_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        struct buf out = {0};
        struct err err = ERR_INIT;
        struct timespec from, to;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
        int status = render_z(hostile[i], one_user, NULL, &out, &err);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
        double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        if (status == 0 || seconds > 20)
            print_message("%s: status %d, %.1f s\n", hostile[i], status, seconds);
        assert_int_equal(status, -1);
        assert_true(err.code == ERR_USAGE || err.code == ERR_RANGE);
        assert_true(err.text[0] && !strchr(err.text, '\n'));
        assert_int_equal(out.n, 0);
        assert_true(seconds < 20);
        buf_release(&out);
    }
}

/* Piling up what is lazy in the engine is harmless here, so it may work. */
static void lazy_values(void **state)
{
    (void)state;
    static const char *const sources[] = {
        NESTED("ns.l * 1") "{{ ns.l }}",
        NESTED("ns.l[0:]") "{{ ns.l }}",
        NESTED("ns.l|reverse") "{{ ns.l }}",
        NESTED("ns.l|map('int')") "{{ ns.l }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct buf out = {0};
        struct err err = ERR_INIT;
        if (render_z(sources[i], one_user, NULL, &out, &err) != 0)
            fail_msg("%s: %s", sources[i], err.text);
        assert_string_equal(out.p, "[1]");
        buf_release(&out);
    }
}

/* Sources that go down a level with each piece: whatever comes of it, it comes soon and nothing breaks. */
static void deep_source(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *piece, *end;
    } rows[] = {
        {"{{ ", "(", ""},
        {"{{ ", "[", ""},
        {"{{ ", "{1:", ""},
        {"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ 1", "+1", " }}"},
        {"{{ 1", "~1", " }}"},
        {"{{ a", ".a", " }}"},
        {"{{ a", "[0]", " }}"},
        {"{{ a", "()", " }}"},
        {"{{ 1", "|e", " }}"},
        {"{{ 1", " and 1", " }}"},
        {"{{ 1", "**1", " }}"},
        {"{{ 1", "<1", " }}"},
        {"", "{% if true %}", ""},
        {"{% if 0 %}", "{% elif 0 %}", "{% endif %}"},
        {"", "{", ""},
        {"{{ '", "\\", ""},
        {"{#", "{#", ""},
        {"", "{% generation %}", ""},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        struct buf source = {0}, out = {0};
        struct err err = ERR_INIT;
        size_t size = i % 2 ? 100000 : 4000; /* one below, one above the limit of a tag */
        buf_puts(&source, rows[i / 2].begin);
        while (source.n + strlen(rows[i / 2].piece) < size)
            buf_puts(&source, rows[i / 2].piece);
        buf_puts(&source, rows[i / 2].end);
        if (render(buf_str(&source), str_of(one_user), (struct str){0}, true, &out, &err) != 0)
            assert_true(err.text[0] != '\0');
        buf_release(&source);
        buf_release(&out);
    }
}

static void bad_input(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *extra, *names;
    } rows[] = {
        {"[", NULL, "messages"},           {"", NULL, "messages"},
        {"[1] 2", NULL, "messages"},       {"[\"\xff\"]", NULL, "messages"},
        {"[]", "[]", "not a JSON object"}, {"[]", "{\"a\": }", "template variables"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct buf out = {0};
        struct err err = ERR_INIT;
        assert_int_equal(render_z("x", rows[i].messages, rows[i].extra, &out, &err), -1);
        assert_int_equal(err.code, ERR_USAGE);
        assert_non_null(strstr(err.text, rows[i].names));
        buf_release(&out);
    }
    struct buf deep = {0}, out = {0};
    struct err err = ERR_INIT;
    for (int i = 0; i < 10000; i++)
        buf_putc(&deep, '[');
    assert_int_equal(render_z("x", deep.p, NULL, &out, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
    buf_release(&deep);
}

/* Output goes behind what the buffer holds; a failure takes back its part and no more. */
static void output_is_appended(void **state)
{
    (void)state;
    struct buf out = {0};
    struct err err = ERR_INIT;
    buf_puts(&out, "before ");
    assert_int_equal(render_z("{{ messages[0].content }}", one_user, NULL, &out, &err), 0);
    assert_string_equal(out.p, "before Hi");
    assert_int_equal(render_z("a lot {{ raise_exception('no\nway') }}", one_user, NULL, &out, &err), -1);
    assert_string_equal(out.p, "before Hi");
    assert_string_equal(err.text, "no way");
    buf_release(&out);

    struct buf small = {.ceiling = 10};
    struct err full = ERR_INIT;
    assert_int_equal(render_z("{{ 'x' * 100 }}", one_user, NULL, &small, &full), -1);
    assert_int_equal(full.code, ERR_MEMORY);
    buf_release(&small);
}

static void errors_name_the_line(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    assert_null(chat_template_new(str_of("a\nb\n{% if %}\n"), str_of(""), str_of(""), &err));
    assert_non_null(strstr(err.text, "line 3"));
    struct buf out = {0};
    err = (struct err)ERR_INIT;
    assert_int_equal(render_z("\n{{ 1 + [1] }}", one_user, NULL, &out, &err), -1);
    assert_non_null(strstr(err.text, "line 2"));
}

static void later_variables_win(void **state)
{
    (void)state;
    struct buf out = {0};
    struct err err = ERR_INIT;
    assert_int_equal(render_z("{{ bos_token }}{{ enable_thinking }}{{ tools }}", one_user,
                              "{\"enable_thinking\": false, \"bos_token\": \"B\", \"tools\": [1]}", &out,
                              &err),
                     0);
    assert_string_equal(out.p, "BFalse[1]");
    buf_release(&out);
}

/* Long conversations are no hostile ones. */
static void long_conversation(void **state)
{
    (void)state;
    struct buf messages = {0}, out = {0};
    struct err err = ERR_INIT;
    buf_putc(&messages, '[');
    for (int i = 0; i < 4000; i++) {
        buf_printf(&messages, "%s{\"role\": \"%s\", \"content\": \"", i ? "," : "",
                   i % 2 ? "assistant" : "user");
        for (int j = 0; j < 50; j++)
            buf_puts(&messages, "Some words. ");
        buf_puts(&messages, "\"}");
    }
    buf_putc(&messages, ']');
    const char *source =
        "{% for m in messages %}{% set c = m.content.split('</think>')[-1].lstrip() | trim %}"
        "{{ '<|im_start|>' + m.role + '\n' + c + '<|im_end|>\n' }}{% endfor %}";
    if (render_z(source, messages.p, NULL, &out, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(out.n > 4000 * 600);
    buf_release(&messages);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features),
        cmocka_unit_test(builtins),
        cmocka_unit_test(hostile_templates),
        cmocka_unit_test(lazy_values),
        cmocka_unit_test(deep_source),
        cmocka_unit_test(bad_input),
        cmocka_unit_test(output_is_appended),
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(later_variables_win),
        cmocka_unit_test(long_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
