/* Plain chats, by grappa_chat_apply: no tools, no reasoning. */
#include "server/http.h"

#include "grappa-chat.h"

#include <stdlib.h>

struct grappa_chat {
    char *prompt;
    size_t n;
};
struct grappa_chat_parser {
    struct buf text, json;
    struct grappa_delta delta;
};

struct grappa_chat *grappa_chat_new(const struct grappa_vocab *v, const struct grappa_chat_params *p,
                                    struct grappa_err *err)
{
    json_t *a = json_loads(p->messages, 0, NULL);
    size_t n = json_array_size(a);
    struct grappa_message *m = calloc(n + 1, sizeof *m);
    struct grappa_chat *c = NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_array_get(a, i), *content = json_object_get(e, "content");
        m[i].role = json_string_value(json_object_get(e, "role"));
        m[i].content = json_string_value(content);
        struct buf b = {0};
        for (size_t k = 0; k < json_array_size(content); k++) {
            const char *t = json_string_value(json_object_get(json_array_get(content, k), "text"));
            buf_printf(&b, "%s%s", k ? "\n" : "", t ? t : "");
        }
        if (json_is_array(content))
            m[i].content = b.p;
        if (!m[i].content)
            m[i].content = "";
        if (!m[i].role) {
            fail(err, 400, "role missing");
            goto out;
        }
    }
    size_t len;
    char *text = grappa_chat_apply(v, p->chat_template, m, n, p->add_generation_prompt, &len, err);
    if (text) {
        c = calloc(1, sizeof *c);
        c->prompt = text;
        c->n = len;
    }
out:
    free(m);
    json_decref(a);
    return c;
}
void grappa_chat_free(struct grappa_chat *c)
{
    if (c)
        free(c->prompt);
    free(c);
}
const char *grappa_chat_prompt(const struct grappa_chat *c, size_t *len)
{
    *len = c->n;
    return c->prompt;
}
const char *grappa_chat_format(const struct grappa_chat *c)
{
    (void)c;
    return "Content-only";
}
const struct grappa_grammar_params *grappa_chat_grammar(const struct grappa_chat *c)
{
    (void)c;
    return NULL;
}
size_t grappa_chat_stops(const struct grappa_chat *c, const char *const **out)
{
    (void)c;
    (void)out;
    return 0;
}
size_t grappa_chat_preserved(const struct grappa_chat *c, const grappa_token **out)
{
    (void)c;
    (void)out;
    return 0;
}
const char *grappa_chat_think_start(const struct grappa_chat *c)
{
    (void)c;
    return NULL;
}
const char *grappa_chat_think_end(const struct grappa_chat *c)
{
    (void)c;
    return NULL;
}
bool grappa_chat_thinking_open(const struct grappa_chat *c)
{
    (void)c;
    return false;
}
const char *grappa_chat_caps(const struct grappa_chat *c)
{
    (void)c;
    return "{}";
}
struct grappa_chat_parser *grappa_chat_parser_new(const struct grappa_chat *c, struct grappa_err *err)
{
    (void)c;
    (void)err;
    return calloc(1, sizeof(struct grappa_chat_parser));
}
void grappa_chat_parser_free(struct grappa_chat_parser *p)
{
    if (!p)
        return;
    buf_release(&p->text);
    buf_release(&p->json);
    free(p);
}
size_t grappa_chat_parser_add(struct grappa_chat_parser *p, const char *text, size_t len, bool last,
                              const struct grappa_delta **out)
{
    (void)last;
    buf_add(&p->text, text, len);
    p->delta = (struct grappa_delta){.type = GRAPPA_DELTA_CONTENT, .text = text, .n_text = len};
    *out = &p->delta;
    return len ? 1 : 0;
}
const char *grappa_chat_parser_message(struct grappa_chat_parser *p, size_t *len)
{
    json_t *j = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          json_stringn(p->text.p ? p->text.p : "", p->text.n));
    buf_clear(&p->json);
    dump_json(&p->json, j);
    json_decref(j);
    *len = p->json.n;
    return p->json.p;
}
int grappa_chat_parser_n_calls(const struct grappa_chat_parser *p)
{
    (void)p;
    return 0;
}
