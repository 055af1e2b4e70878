/* Outputs of models in every format (tests/golden/chat/formats) to messages: whole, byte by byte, and cut in
 * two at every place. Every format of the table has outputs there. */
#include "chat/format_row.h"

#include "test_chat_records.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define GOLDEN    SOURCE_DIR "/tests/golden/chat/formats/"
#define TEMPLATES SOURCE_DIR "/.models/templates/"

static json_t *load(const char *path)
{
    json_error_t why;
    json_t *j = json_load_file(path, 0, &why);
    if (!j)
        fail_msg("%s: %s", path, why.text);
    return j;
}

static struct str text_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return (struct str){json_is_string(v) ? json_string_value(v) : "", json_string_length(v)};
}

/* ---- what came out, put together from the deltas ---- */

struct got {
    struct buf content, reasoning;
    struct {
        struct buf name, id, arguments;
    } calls[16];
    int n;
};

static void release(struct got *g)
{
    buf_release(&g->content);
    buf_release(&g->reasoning);
    for (int i = 0; i < 16; i++) {
        buf_release(&g->calls[i].name);
        buf_release(&g->calls[i].id);
        buf_release(&g->calls[i].arguments);
    }
}

static void add(struct got *g, struct chat_parser *p, const char *text, size_t n, bool last)
{
    const struct chat_delta *d;
    char *copy = malloc(n + 1); /* so that a sanitizer sees a read behind it */
    memcpy(copy, text, n);
    for (size_t i = 0, n_d = chat_parser_add(p, copy, n, last, &d); i < n_d; i++) {
        switch (d[i].type) {
        case CHAT_DELTA_CONTENT:
            buf_add(&g->content, d[i].text, d[i].n_text);
            break;
        case CHAT_DELTA_REASONING:
            buf_add(&g->reasoning, d[i].text, d[i].n_text);
            break;
        case CHAT_DELTA_TOOL:
            assert_int_equal(d[i].index, g->n);
            buf_puts(&g->calls[g->n].name, d[i].name);
            buf_puts(&g->calls[g->n++].id, d[i].id);
            break;
        case CHAT_DELTA_ARGUMENTS:
            assert_int_equal(d[i].index, g->n - 1);
            buf_add(&g->calls[g->n - 1].arguments, d[i].text, d[i].n_text);
        }
    }
    free(copy);
}

static bool is(const struct buf *b, struct str s)
{
    return str_eq(buf_str(b), s);
}

static bool as_expected(const struct got *g, const json_t *message)
{
    const json_t *calls = json_object_get(message, "calls"), *call;
    size_t i;
    bool good = is(&g->content, text_of(message, "content")) &&
                is(&g->reasoning, text_of(message, "reasoning")) && (int)json_array_size(calls) == g->n;
    json_array_foreach(calls, i, call)
    {
        struct str id = text_of(call, "id");
        good = good && is(&g->calls[i].name, text_of(call, "name")) &&
               is(&g->calls[i].arguments, text_of(call, "arguments")) && g->calls[i].id.n > 0 &&
               (id.n == 0 || is(&g->calls[i].id, id));
    }
    return good;
}

static void tell(const char *name, const char *how, const struct got *g, const json_t *message)
{
    char *expected = json_dumps(message, JSON_SORT_KEYS);
    print_message("%s (%s):\n  expected %s\n  content \"%s\" reasoning \"%s\"\n", name, how, expected,
                  g->content.p ? g->content.p : "", g->reasoning.p ? g->reasoning.p : "");
    for (int i = 0; i < g->n; i++)
        print_message("  call %s %s %s\n", g->calls[i].name.p, g->calls[i].id.p, g->calls[i].arguments.p);
    free(expected);
}

/* ---- one output ---- */

/* Fed in pieces: up to a, up to b, the rest; step > 0: that many bytes at a time. */
static bool feed(const struct chat_syntax *s, struct str out, size_t a, size_t b, size_t step,
                 const json_t *c, const char *how)
{
    struct err err = ERR_INIT;
    struct got g = {0};
    struct chat_parser *p = chat_parser_new(s, 7, &err);
    if (step > 0) {
        for (size_t i = 0; i < out.n; i += step)
            add(&g, p, out.p + i, out.n - i < step ? out.n - i : step, false);
        add(&g, p, "", 0, true);
    } else {
        add(&g, p, out.p, a, false);
        add(&g, p, out.p + a, b - a, false);
        add(&g, p, out.p + b, out.n - b, true);
    }
    bool good = as_expected(&g, json_object_get(c, "message"));
    if (!good)
        tell(json_string_value(json_object_get(c, "name")), how, &g, json_object_get(c, "message"));
    assert_int_equal(chat_parser_n_calls(p), g.n);
    size_t n;
    json_t *whole = json_loads(chat_parser_message(p, &n), 0, NULL);
    struct str content = text_of(whole, "content");
    assert_true(is(&g.content, content) &&
                json_array_size(json_object_get(whole, "tool_calls")) == (size_t)g.n);
    json_decref(whole);
    chat_parser_free(p);
    release(&g);
    return good;
}

static int try_output(const struct chat_format *f, const json_t *c, struct str tools)
{
    struct err err = ERR_INIT;
    struct chat_syntax_params params = {
        .format = *f, .tools = tools, .parallel_tool_calls = true, .prompt = text_of(c, "prompt")};
    struct str out = text_of(c, "output");
    int bad = 0;
    for (int eager = 0; eager < 2; eager++) {
        params.eager = eager;
        struct chat_syntax *s = chat_syntax_new(&params, &err);
        if (!s)
            fail_msg("%s", err.text);
        if (!eager || json_array_size(json_object_get(json_object_get(c, "message"), "calls")) > 0) {
            bad += !feed(s, out, out.n, out.n, 0, c, eager ? "eager" : "whole");
            bad += !feed(s, out, 0, 0, 1, c, "byte by byte");
        }
        for (size_t i = 0; !eager && i < out.n && bad == 0; i++)
            bad += !feed(s, out, i, i + (out.n - i) / 2, 0, c, "cut");
        chat_syntax_free(s);
    }
    return bad > 0;
}

/* The format as the template's source gives it, or, without the file, as the table has it. */
static struct chat_format format_of(const json_t *c, const char *name)
{
    char path[512];
    struct str file = text_of(c, "template");
    snprintf(path, sizeof path, TEMPLATES "%.*s", STR_ARG(file));
    FILE *f = file.n ? fopen(path, "rb") : NULL;
    if (f) {
        fclose(f);
        struct buf source = read_file(path);
        struct chat_format found = chat_format_find(buf_str(&source), true, (struct str){0});
        if (strcmp(found.name, name) != 0)
            fail_msg("%s is %s, not %s", path, found.name, name);
        buf_release(&source);
        return found;
    }
    const struct chat_format_row *row = chat_format_row(name);
    const json_t *think = json_object_get(c, "think");
    struct chat_format plain = {
        .row = row, .name = name, .think_start = row->think_start, .think_end = row->think_end};
    if (think) {
        plain.think_start = json_string_value(json_array_get(think, 0));
        plain.think_end = json_string_value(json_array_get(think, 1));
        plain.think_trim = json_is_true(json_array_get(think, 2));
    }
    return plain;
}

static void outputs(void **state)
{
    (void)state;
    json_t *tools = load(GOLDEN "tools.json");
    char *tools_text = json_dumps(tools, 0);
    int n = 0, bad = 0;
    for (size_t r = 0; r < chat_format_n_rows; r++) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "%s.json", chat_format_rows[r].name);
        if (chat_format_rows[r].kind == CALLS_NONE && strcmp(chat_format_rows[r].name, "content-only") != 0)
            continue;
        json_t *file = load(path), *c;
        size_t i;
        json_array_foreach(json_object_get(file, "cases"), i, c)
        {
            struct chat_format f = format_of(c, chat_format_rows[r].name);
            bad += try_output(&f, c, str_of(tools_text));
            n++;
        }
        json_decref(file);
    }
    free(tools_text);
    json_decref(tools);
    print_message("%d outputs, %d wrong\n", n, bad);
    assert_true(n > 300);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(outputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
