/* Requests that real clients send and that broke servers, requests that are wrong, and templates that are
 * hostile. What whole templates make of good requests is in test_chat_matrix.c. */
#include "chat/conversation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#define USER "{\"role\": \"user\", \"content\": \"Hi\"}"
#define FRAME                                                                                                \
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt "           \
    "%}[assistant]{% endif %}"

static struct conversation_params params(const char *template, const char *messages)
{
    return (struct conversation_params){
        .template = str_of(template),
        .bos = str_of("<s>"),
        .eos = str_of("</s>"),
        .messages = str_of(messages),
        .add_generation_prompt = true,
        .continue_final = true,
        .now = 86400,
    };
}

static void expect(const struct conversation_params *p, const char *prompt)
{
    struct err err = ERR_INIT;
    struct conversation *c = conversation_new(p, &err);
    if (!c)
        fail_msg("%s", err.text);
    assert_string_equal(conversation_prompt(c).p, prompt);
    assert_int_equal(conversation_prompt(c).n, strlen(prompt));
    conversation_free(c);
}

static void refuse(const struct conversation_params *p, const char *says)
{
    struct err err = ERR_INIT;
    struct conversation *c = conversation_new(p, &err);
    assert_null(c);
    if (!strstr(err.text, says) || err_http_status(err.code) != 400)
        fail_msg("want %s, got %d %s", says, err.code, err.text);
}

/* Wrong requests: what the error has to name. */
static void wrong_messages(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *says;
    } rows[] = {
        {"", "messages"},
        {"[", "messages"},
        {"{}", "messages: an array expected, it is an object"},
        {"[1]", "messages[0]"},
        {"[" USER ", {\"content\": \"x\"}]", "messages[1].role"},
        {"[{\"role\": 1, \"content\": \"x\"}]", "messages[0].role"},
        {"[{\"role\": \"user\"}]", "'content' is missing"},
        {"[{\"role\": \"assistant\"}]", "'tool_calls'"},
        {"[{\"role\": \"user\", \"content\": 1}]", "messages[0].content: a string or an array expected"},
        {"[{\"role\": \"user\", \"content\": [1]}]", "content[].type"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]", "content[].text"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"poem\", \"text\": \"x\"}]}]", "poem"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {}}]}]",
         "image input is not supported"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"input_audio\", \"input_audio\": {}}]}]",
         "audio input"},
        {"[{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": {}}]", "messages[0].tool_calls"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}]", "tool_calls[].type"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"type\": \"function\"}]}]", "tool_calls[].function"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"type\": \"function\", \"function\": {\"arguments\": "
         "\"{}\"}}]}]",
         "function.name"},
        {"[{\"role\": \"assistant\", \"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": "
         "\"f\"}}]}]",
         "function.arguments"},
        {"[{\"role\": \"user\", \"content\": \"x\", \"name\": 1}]", "messages[0].name"},
        {"[" USER
         ", {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]",
         "can't be continued"},
        {"[" USER ", {\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": [{\"type\": \"function\", "
         "\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}]",
         "can't be continued"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct conversation_params p = params(FRAME, rows[i].messages);
        refuse(&p, rows[i].says);
    }
}

static void wrong_rest(void **state)
{
    (void)state;
    struct conversation_params p = params(FRAME, "[" USER "]");
    static const struct {
        const char *tools, *kwargs, *says;
    } rows[] = {
        {"{}", "", "tools: an array expected"},
        {"[{}]", "", "tools[0].type"},
        {"[{\"type\": \"function\"}]", "", "tools[0].function"},
        {"[{\"type\": \"function\", \"function\": {\"name\": 1}}]", "", "tools[0].function"},
        {"", "[]", "chat_template_kwargs: an object expected"},
        {"", "{", "chat_template_kwargs"},
        {"", "{\"enable_thinking\": \"no\"}", "chat_template_kwargs.enable_thinking: a boolean"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        p.tools = str_of(rows[i].tools);
        p.template_kwargs = str_of(rows[i].kwargs);
        refuse(&p, rows[i].says);
    }
}

/* A template's own words reach the client. */
static void template_refuses(void **state)
{
    (void)state;
    struct conversation_params p = params("{% for m in messages %}{% if m.role == 'system' and not "
                                          "loop.first %}{{ raise_exception('System message must "
                                          "be at the beginning.') }}{% endif %}{{ m.content }}{% endfor %}",
                                          "[" USER ", {\"role\": \"system\", \"content\": \"s\"}, " USER "]");
    refuse(&p, "System message must be at the beginning.");
}

#define CALL(ARGUMENTS, CONTENT)                                                                             \
    "[" USER ", {\"role\": \"assistant\", " CONTENT                                                          \
    "\"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": "                                \
    "{\"name\": \"f\", \"arguments\": " ARGUMENTS "}}]}, {\"role\": \"tool\", \"content\": \"r\"}]"

/* Arguments and content come as a template wants them, in whatever form they were sent. */
static void forms_of_calls(void **state)
{
    (void)state;
    static const char objects[] =
        "{% for m in messages %}[{{ m.content }}]{% for c in m.tool_calls %}{% for k, v in "
        "c.function.arguments.items() %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}";
    static const char texts[] =
        "{% for m in messages %}[{{ m.content + '' }}]{% for c in m.tool_calls %}{{ 'x' + "
        "c.function.arguments }}{% endfor %}{% endfor %}";
    static const char *const messages[] = {
        CALL("\"{\\\"a\\\": 1, \\\"b\\\": \\\"c\\\"}\"", "\"content\": null, "),
        CALL("{\"a\": 1, \"b\": \"c\"}", ""),
        CALL("{\"a\": 1, \"b\": \"c\"}", "\"content\": \"\", "),
    };
    for (size_t i = 0; i < 3; i++) {
        struct conversation_params p = params(objects, messages[i]);
        expect(&p, "[Hi][]a=1;b=c;[r]");
        p = params(texts, messages[i]);
        expect(&p, i == 0 ? "[Hi][]x{\"a\": 1, \"b\": \"c\"}[r]" : "[Hi][]x{\"a\":1,\"b\":\"c\"}[r]");
    }
    struct conversation_params p = params(objects, CALL("\"{broken\"", ""));
    refuse(&p, "messages[1]: arguments of a tool call");
    p = params(objects, CALL("\"\"", ""));
    expect(&p, "[Hi][][r]");
}

static void content_and_roles(void **state)
{
    (void)state;
    struct conversation_params p = params(
        FRAME, "[{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
               "\"text\", \"text\": \"b\"}]}, " USER "]");
    expect(&p, "[system]a\nb[user]Hi[assistant]");
    p = params("{% for m in messages %}{% for x in m.content %}<{{ x.text }}>{% endfor %}{% endfor %}",
               "[" USER "]");
    expect(&p, "<Hi>");
    p = params("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
               "[{\"role\": \"system\", \"content\": \"s\"}, " USER "]");
    expect(&p, "s\nHi");
}

static void variables(void **state)
{
    (void)state;
    struct conversation_params p = params(
        "{{ enable_thinking }} {{ x }} {{ date_string }} {{ strftime_now('%Y-%m-%d') }} {{ tools is none }} "
        "{{ preserve_thinking }} {{ clear_thinking }}{{ '<think>' if enable_thinking else '<think></think>' "
        "}}",
        "[" USER "]");
    p.template_kwargs = str_of("{\"x\": [1, \"a\"], \"preserve_reasoning\": true}");
    expect(&p, "True [1, 'a'] 02 Jan 1970 1970-01-02 True True False<think>");
    p.template_kwargs = str_of("{\"enable_thinking\": false}");
    expect(&p, "False  02 Jan 1970 1970-01-02 True  <think></think>");
    p.template_kwargs = (struct str){0};
    p.enable_thinking = -1;
    expect(&p, "False  02 Jan 1970 1970-01-02 True  <think></think>");
}

static void beginning_and_end(void **state)
{
    (void)state;
    struct conversation_params p = params(
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}", "[" USER "]");
    expect(&p, "<s>Hi</s>");
    p.strip_bos = p.strip_eos = true;
    expect(&p, "Hi");
}

static void template_for_tools(void **state)
{
    (void)state;
    struct conversation_params p = params("plain", "[" USER "]");
    p.template_tool_use = str_of("with {{ tools[0].function.name }}{{ tools[0].function.description }}");
    expect(&p, "plain");
    p.tools = str_of("[]");
    expect(&p, "plain");
    p.tools = str_of("[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]");
    expect(&p, "with f");
}

/* Clean errors in bounded time; the answer's time is that of the looks at the template as well. */
static void hostile_templates(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{% set l = [] %}{% for i in range(1000000000) %}{% set _ = l.append(l) %}{% endfor %}",
        "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.append([l, l]) %}{% endfor %}{{ l }}",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s + 1 %}{% endfor %}",
        "{{ [].pop() }}",
        "{% set l = [1] %}{{ l.pop(7) }}",
        "{{ messages.append(1) }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct conversation_params p = params(sources[i], "[" USER "]");
        clock_t from = clock();
        refuse(&p, "");
        if (clock() - from > 30 * CLOCKS_PER_SEC)
            fail_msg("%s: %.1f s", sources[i], (double)(clock() - from) / CLOCKS_PER_SEC);
    }
}

/* Where Python refuses, llama.cpp's rules: adding to texts, lists that change. */
static void lenient(void **state)
{
    (void)state;
    static const struct {
        const char *source, *text;
    } rows[] = {
        {"{{ 'a' + 1 }}{{ 1.5 + 'b' }}{{ 'a' + nothing }}{{ none + 'b' }}{{ 1 + 2 }}{{ [1] + [2] }}",
         "a11.5bab3[1, 2]"},
        {"{% set l = [] %}{% set _ = l.append(1) %}{% set _ = l.append([2]) %}{{ l }}{{ l.pop(0) }}{{ l }}{{ "
         "l|length }}",
         "[1, [2]]1[[2]]1"},
        {"{% for k, v in nothing.items() %}x{% endfor %}y", "y"},
        {"{{ '<b>'|safe + '<' }}{{ '<' + '>' }}", "<b>&lt;<>"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct conversation_params p = params(rows[i].source, "[" USER "]");
        expect(&p, rows[i].text);
    }
}

static void names_of_templates(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    struct str source;
    assert_int_equal(chat_template_choose("chatml", &source, &err), 0);
    assert_non_null(strstr(source.p, "im_start"));
    assert_int_equal(chat_template_choose("{{ x }}", &source, &err), 0);
    assert_string_equal(source.p, "{{ x }}");
    assert_int_equal(chat_template_choose("nope", &source, &err), -1);
    assert_int_equal(err.code, ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_messages),     cmocka_unit_test(wrong_rest),
        cmocka_unit_test(template_refuses),   cmocka_unit_test(forms_of_calls),
        cmocka_unit_test(content_and_roles),  cmocka_unit_test(variables),
        cmocka_unit_test(beginning_and_end),  cmocka_unit_test(template_for_tools),
        cmocka_unit_test(hostile_templates),  cmocka_unit_test(lenient),
        cmocka_unit_test(names_of_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
