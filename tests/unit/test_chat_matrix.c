/* Requests of many kinds through all chat templates of llama.cpp's source package, against what Hugging Face
 * transformers or llama-server makes of them (tests/golden/chat/matrix.txt, made by
 * tests/tools/chat_matrix.py).
 *
 * With the argument "render" it reads lines {"template": path, "now", "request"} and writes for each a line
 * {"prompt"} or {"error"}; chat_matrix.py shows differences with that. */
#include "chat/conversation.h"
#include "chat/messages.h"

#include "test_chat_records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#define GOLDEN SOURCE_DIR "/tests/golden/chat/"

/* Where `make deps` puts the templates. */
static const char *folder(void)
{
    static char path[4096];
    const char *templates = getenv("GRAPPA_TEMPLATES"), *models = getenv("GRAPPA_MODELS");
    if (templates)
        return templates;
    snprintf(path, sizeof path, "%s/templates", models ? models : SOURCE_DIR "/.models");
    return path;
}

/* A field of the request as JSON text, empty when absent. */
static struct str field(const json_t *request, const char *name, struct buf *text)
{
    json_t *value = json_object_get(request, name);
    buf_clear(text);
    if (!value)
        return (struct str){0};
    chat_json_text(value, text);
    return buf_str(text);
}

static struct conversation *converse(struct str source, const json_t *request, int64_t now, struct err *err)
{
    struct buf messages = {0}, tools = {0}, kwargs = {0};
    json_t *ask = json_object_get(request, "add_generation_prompt");
    const char *choice = json_string_value(json_object_get(request, "tool_choice"));
    struct conversation_params p = {
        .template = source,
        .bos = str_of("<|im_start|>"),
        .eos = str_of("<|im_end|>"),
        .messages = field(request, "messages", &messages),
        .tools = field(request, "tools", &tools),
        .template_kwargs = field(request, "chat_template_kwargs", &kwargs),
        .tool_choice = choice && strcmp(choice, "none") == 0 ? CHAT_TOOLS_NONE : CHAT_TOOLS_AUTO,
        .add_generation_prompt = !ask || json_is_true(ask),
        .continue_final = true,
        .now = now,
    };
    struct conversation *c = conversation_new(&p, err);
    buf_release(&messages);
    buf_release(&tools);
    buf_release(&kwargs);
    return c;
}

/* ---- as a program ---- */

static int render_lines(void)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL), *out = json_object();
        struct buf source = read_file(json_string_value(json_object_get(row, "template")));
        struct err err = ERR_INIT;
        struct conversation *c = converse(buf_str(&source), json_object_get(row, "request"),
                                          json_integer_value(json_object_get(row, "now")), &err);
        if (c) {
            struct buf caps = {0};
            struct str prompt = conversation_prompt(c);
            chat_caps_json(conversation_caps(c), &caps);
            json_object_set_new(out, "prompt", json_stringn(prompt.p, prompt.n));
            json_object_set_new(out, "caps", json_loads(caps.p, 0, NULL));
            buf_release(&caps);
        } else {
            json_object_set_new(out, "error", json_string(err.text));
        }
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        conversation_free(c);
        buf_release(&source);
        json_decref(out);
        json_decref(row);
    }
    free(line);
    return 0;
}

/* ---- as a test ---- */

/* FNV-1a. */
static void digest(struct str text, char out[17])
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < text.n; i++)
        h = (h ^ (unsigned char)text.p[i]) * 0x100000001B3u;
    snprintf(out, 17, "%016llx", (unsigned long long)h);
}

static void matrix(void **state)
{
    (void)state;
    struct buf golden = read_file(GOLDEN "matrix.txt"), source = {0};
    struct buf text = read_file(GOLDEN "requests.json");
    json_t *requests = json_loadb(text.p, text.n, 0, NULL);
    char loaded[128] = "";
    long long now = 0;
    int n = 0, bad = 0;
    assert_non_null(requests);
    setenv("TZ", "UTC", 1);
    char *save = NULL, *line = strtok_r(golden.p, "\n", &save);
    assert_int_equal(sscanf(line, "now %lld", &now), 1);
    while ((line = strtok_r(NULL, "\n", &save))) {
        char want[17], whose[16], template[128], name[64], path[5000], got[17];
        assert_int_equal(sscanf(line, "%16s\t%15s\t%127[^\t]\t%63[^\t]", want, whose, template, name), 4);
        if (strcmp(loaded, template) != 0) {
            buf_release(&source);
            snprintf(path, sizeof path, "%s/%s.jinja", folder(), template);
            source = read_file(path);
            snprintf(loaded, sizeof loaded, "%s", template);
        }
        struct err err = ERR_INIT;
        struct conversation *c = converse(buf_str(&source), json_object_get(requests, name), now, &err);
        snprintf(got, sizeof got, "%s", "----------------");
        if (c)
            digest(conversation_prompt(c), got);
        else
            assert_true(err.text[0] && err.code == ERR_USAGE);
        n++;
        if (strcmp(got, want) != 0) {
            bad++;
            print_message("%s: %s: want that of %s, got %s\n", template, name, whose,
                          c ? "another" : err.text);
        }
        conversation_free(c);
    }
    buf_release(&source);
    buf_release(&golden);
    buf_release(&text);
    json_decref(requests);
    assert_true(n > 2000);
    assert_int_equal(bad, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrix),
    };
    if (argc == 2 && strcmp(argv[1], "render") == 0)
        return render_lines();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
