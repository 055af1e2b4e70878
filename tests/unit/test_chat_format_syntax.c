/* What a format means for a request: what is refused, which constraint there is, and that the recorded
 * outputs with calls (tests/golden/chat/formats) are allowed by it, their marks as text and as control
 * tokens. */
#include "chat/format_row.h"
#include "grappa_constraint.h"

#include "test_chat_records.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define GOLDEN SOURCE_DIR "/tests/golden/chat/formats/"

static const char two_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"one\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"type\":"
    "\"string\"}},\"required\":[\"a\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"two\"}}]";

static struct chat_format format_named(const char *name)
{
    const struct chat_format_row *row = chat_format_row(name);
    return (struct chat_format){
        .row = row, .name = row->name, .think_start = row->think_start, .think_end = row->think_end};
}

static void refused(const char *tools, enum chat_tool_choice choice, const char *name, const char *grammar,
                    const char *why)
{
    struct err err = ERR_INIT;
    struct chat_syntax_params p = {.format = format_named("hermes"),
                                   .tools = str_of(tools),
                                   .tool_choice = choice,
                                   .tool_name = str_of(name),
                                   .grammar = str_of(grammar)};
    assert_null(chat_syntax_new(&p, &err));
    if (err.code != ERR_USAGE || !strstr(err.text, why))
        fail_msg("'%s' isn't about '%s'", err.text, why);
}

static void requests(void **state)
{
    (void)state;
    refused("{", CHAT_TOOLS_AUTO, "", "", "no JSON");
    refused("{\"a\":1}", CHAT_TOOLS_AUTO, "", "", "must be an array");
    refused("[1]", CHAT_TOOLS_AUTO, "", "", "Missing tool type");
    refused("[{\"type\":\"retrieval\"}]", CHAT_TOOLS_AUTO, "", "", "Unsupported tool type");
    refused("[{\"type\":\"function\"}]", CHAT_TOOLS_AUTO, "", "", "Missing tool function");
    refused("[{\"type\":\"function\",\"function\":{}}]", CHAT_TOOLS_AUTO, "", "", "Missing tool name");
    refused("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":3}}]", CHAT_TOOLS_AUTO, "",
            "", "f: 'parameters'");
    refused("[]", CHAT_TOOLS_REQUIRED, "", "", "no tools");
    refused(two_tools, CHAT_TOOLS_REQUIRED, "three", "", "three");
    refused(two_tools, CHAT_TOOLS_AUTO, "", "root ::= \"a\"", "grammar with tools");
}

static struct chat_syntax *syntax_of(const char *format, enum chat_tool_choice choice, const char *name)
{
    struct err err = ERR_INIT;
    struct chat_syntax_params p = {.format = format_named(format),
                                   .tools = str_of(two_tools),
                                   .tool_choice = choice,
                                   .tool_name = str_of(name)};
    struct chat_syntax *s = chat_syntax_new(&p, &err);
    if (!s)
        fail_msg("%s: %s", format, err.text);
    return s;
}

static void choices(void **state)
{
    (void)state;
    for (size_t i = 0; i < chat_format_n_rows; i++) {
        const char *name = chat_format_rows[i].name;
        bool calls = chat_format_rows[i].kind != CALLS_NONE && strcmp(name, "muse-glimmer") != 0;
        struct chat_syntax *s = syntax_of(name, CHAT_TOOLS_AUTO, "");
        const struct chat_grammar *g = chat_syntax_grammar(s);
        assert_true(calls == (g != NULL));
        assert_true(!g || (g->lazy && g->n_trigger_words + g->n_trigger_patterns > 0));
        chat_syntax_free(s);
        s = syntax_of(name, CHAT_TOOLS_REQUIRED, "two");
        g = chat_syntax_grammar(s);
        assert_true(!g || (!g->lazy && strstr(g->source, "two") && !strstr(g->source, "one")));
        chat_syntax_free(s);
        s = syntax_of(name, CHAT_TOOLS_NONE, "");
        assert_null(chat_syntax_grammar(s));
        chat_syntax_free(s);
    }
}

static void ids(void **state)
{
    (void)state;
    char first[40] = "";
    for (int round = 0; round < 3; round++) {
        struct err err = ERR_INIT;
        const struct chat_delta *d;
        struct chat_syntax *s = syntax_of(round < 2 ? "hermes" : "mistral-args", CHAT_TOOLS_AUTO, "");
        struct chat_parser *p = chat_parser_new(s, 5, &err);
        const char *out =
            round < 2 ? "<tool_call>{\"name\": \"two\"}</tool_call>" : "[TOOL_CALLS]two[ARGS]{}";
        assert_int_equal(chat_parser_add(p, out, strlen(out), true, &d), 2);
        assert_int_equal(strlen(d[0].id), round < 2 ? 32 : 9);
        if (round == 0)
            snprintf(first, sizeof first, "%s", d[0].id);
        else if (round == 1)
            assert_string_equal(first, d[0].id);
        chat_parser_free(p);
        chat_syntax_free(s);
    }
}

static void reasoning_formats(void **state)
{
    (void)state;
    static const struct {
        enum chat_reasoning how;
        const char *prompt, *content, *reasoning;
    } cases[] = {
        {CHAT_REASONING_DEEPSEEK, "x", "B", "A\n"},
        {CHAT_REASONING_AUTO, "x", "B", "A\n"},
        {CHAT_REASONING_NONE, "x", "<think>\nA\n</think>\n\nB", ""},
        {CHAT_REASONING_DEEPSEEK_LEGACY, "x", "<think>A\n</think>B", "A\n"},
        {CHAT_REASONING_NONE, "x<think>\n", "<think>\n<think>\nA\n</think>\n\nB", ""},
        {CHAT_REASONING_DEEPSEEK, "x<think>\n\n</think>\n\n", "<think>\nA\n</think>\n\nB", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = ERR_INIT;
        const struct chat_delta *d;
        size_t n;
        struct chat_syntax_params params = {
            .format = format_named("hermes"), .reasoning = cases[i].how, .prompt = str_of(cases[i].prompt)};
        params.format.think_start = "<think>";
        params.format.think_end = "</think>";
        params.format.think_trim = true;
        struct chat_syntax *s = chat_syntax_new(&params, &err);
        struct chat_parser *p = chat_parser_new(s, 1, &err);
        static const char out[] = "<think>\nA\n</think>\n\nB";
        chat_parser_add(p, out, sizeof out - 1, true, &d);
        json_t *m = json_loads(chat_parser_message(p, &n), 0, NULL);
        const char *reasoning = json_string_value(json_object_get(m, "reasoning_content"));
        assert_string_equal(json_string_value(json_object_get(m, "content")), cases[i].content);
        assert_string_equal(reasoning ? reasoning : "", cases[i].reasoning);
        json_decref(m);
        chat_parser_free(p);
        chat_syntax_free(s);
    }
}

/* ---- outputs and constraints ---- */

/* Bytes are tokens, and so are the marks of a format if it has control tokens. */
struct vocabulary {
    char bytes[256];
    struct grappa_constraint_token tokens[320];
    size_t n;
    struct grappa_constraint_vocab *made;
};

static int64_t control_token(void *user, const char *text)
{
    const struct vocabulary *v = user;
    for (size_t i = 257; i < v->n; i++) {
        if (strlen(text) == v->tokens[i].text.n &&
            memcmp(text, v->tokens[i].text.p, v->tokens[i].text.n) == 0)
            return (int64_t)i;
    }
    return -1;
}

static void make_vocabulary(struct vocabulary *v, const struct chat_syntax *marks)
{
    *v = (struct vocabulary){.n = 257};
    for (size_t i = 0; i < 256; i++) {
        v->bytes[i] = (char)i;
        v->tokens[i] = (struct grappa_constraint_token){{&v->bytes[i], 1}, GRAPPA_CONSTRAINT_TEXT};
    }
    v->tokens[256] = (struct grappa_constraint_token){{"<end>", 5}, GRAPPA_CONSTRAINT_END};
    const char *const *texts = NULL;
    size_t n = marks ? chat_syntax_preserved(marks, &texts) : 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(texts[i]);
        bool like_one = len > 3 && (texts[i][0] == '<' || texts[i][0] == '[') &&
                        (texts[i][len - 1] == '>' || texts[i][len - 1] == ']');
        like_one = like_one && !strstr(texts[i], "param");
        if (like_one && !memchr(texts[i] + 1, '<', len - 1) && !memchr(texts[i], ' ', len))
            v->tokens[v->n++] = (struct grappa_constraint_token){{texts[i], len}, GRAPPA_CONSTRAINT_CONTROL};
    }
    v->made = grappa_constraint_vocab_new(v->tokens, v->n);
}

/* The longest token at the text's beginning. */
static int32_t token_at(const struct vocabulary *v, struct str s)
{
    size_t best = (unsigned char)s.p[0], n = 1;
    for (size_t i = 257; i < v->n; i++) {
        size_t len = v->tokens[i].text.n;
        if (len > n && len <= s.n && memcmp(s.p, v->tokens[i].text.p, len) == 0) {
            best = i;
            n = len;
        }
    }
    return (int32_t)best;
}

static bool allowed(const struct vocabulary *v, const char *source, struct str out, const char *name)
{
    char why[512] = "";
    struct grappa_constraint *c = grappa_constraint_new(v->made, GRAPPA_CONSTRAINT_LARK,
                                                        (struct grappa_jinja_text){source, strlen(source)},
                                                        NULL, NULL, why, sizeof why);
    if (!c)
        fail_msg("%s: %s\n%s", name, why, source);
    size_t at = 0;
    bool good = true;
    while (good && at < out.n) {
        int32_t t = token_at(v, (struct str){out.p + at, out.n - at});
        good = grappa_constraint_accept(c, t, NULL);
        at += good ? v->tokens[t].text.n : 0;
    }
    if (!good || !grappa_constraint_accepting(c)) {
        print_message("%s: refused behind \"%.*s\", before \"%.40s\"\n", name, (int)at, out.p, out.p + at);
        good = false;
    }
    grappa_constraint_free(c);
    return good;
}

static struct str text_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return (struct str){json_is_string(v) ? json_string_value(v) : "", json_string_length(v)};
}

/* By the template's own hand, nothing but reasoning and calls. Not those with escapes of JSON or lists of
 * Python that a constraint has one way of writing for. */
static bool only_calls(const json_t *c)
{
    const json_t *m = json_object_get(c, "message");
    const char *out = json_string_value(json_object_get(c, "output"));
    if (!out || strstr(out, "\\u") || strstr(out, "['") || strstr(out, "value='"))
        return false;
    return strncmp(json_string_value(json_object_get(c, "name")), "by hand", 7) != 0 &&
           json_array_size(json_object_get(m, "calls")) > 0 &&
           json_string_length(json_object_get(m, "content")) == 0;
}

/* Without marks and white space behind the calls: there the text may be over. */
static struct str without_end(const struct chat_format_row *row, struct str s)
{
    for (size_t i = 0; i < ROW_TEXTS; i++) {
        while (s.n > 0 && strchr("\n ", s.p[s.n - 1]))
            s.n--;
        size_t n = row->drop[i] ? strlen(row->drop[i]) : 0;
        if (n > 0 && s.n >= n && memcmp(s.p + s.n - n, row->drop[i], n) == 0)
            s.n -= n;
    }
    return s;
}

static int try_outputs(const struct chat_format_row *row, const json_t *cases, const char *tools,
                       const struct vocabulary *bytes, int *n)
{
    struct vocabulary marked = {.n = 0};
    int bad = 0;
    size_t i;
    const json_t *c;
    struct err err = ERR_INIT;
    json_array_foreach(cases, i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        struct str out = without_end(row, text_of(c, "output"));
        if (!out.n || !only_calls(c) || row->kind == CALLS_NONE || strcmp(row->name, "muse-glimmer") == 0)
            continue;
        struct chat_syntax_params p = {.format = format_named(row->name),
                                       .tools = str_of(tools),
                                       .tool_choice = CHAT_TOOLS_REQUIRED,
                                       .parallel_tool_calls = true,
                                       .prompt = text_of(c, "prompt")};
        if (!p.format.think_end && strstr(out.p, "[/THINK]")) {
            p.format.think_start = "[THINK]";
            p.format.think_end = "[/THINK]";
        } else if (!p.format.think_end && (strstr(out.p, "</think>") || strstr(p.prompt.p, "<think>"))) {
            p.format.think_start = "<think>";
            p.format.think_end = "</think>";
        }
        struct chat_syntax *plain = chat_syntax_new(&p, &err);
        bad += !allowed(bytes, chat_syntax_grammar(plain)->source, out, name);
        if (!marked.made)
            make_vocabulary(&marked, plain);
        p.control_token = control_token;
        p.user = &marked;
        struct chat_syntax *control = chat_syntax_new(&p, &err);
        bad += !allowed(&marked, chat_syntax_grammar(control)->source, out, name);
        chat_syntax_free(control);
        chat_syntax_free(plain);
        ++*n;
    }
    grappa_constraint_vocab_free(marked.made);
    return bad;
}

static void outputs(void **state)
{
    (void)state;
    int n = 0, bad = 0;
    struct vocabulary bytes;
    make_vocabulary(&bytes, NULL);
    json_t *tools = json_load_file(GOLDEN "tools.json", 0, NULL);
    char *tools_text = json_dumps(tools, 0);
    for (size_t r = 0; r < chat_format_n_rows; r++) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "%s.json", chat_format_rows[r].name);
        json_t *file = json_load_file(path, 0, NULL);
        bad += try_outputs(&chat_format_rows[r], json_object_get(file, "cases"), tools_text, &bytes, &n);
        json_decref(file);
    }
    free(tools_text);
    json_decref(tools);
    grappa_constraint_vocab_free(bytes.made);
    print_message("%d outputs, %d refused\n", n, bad);
    assert_true(n > 100);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(requests), cmocka_unit_test(choices),
                                       cmocka_unit_test(ids), cmocka_unit_test(reasoning_formats),
                                       cmocka_unit_test(outputs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
