/* From the forms of a prompt to ids. */
#include "server/prompt.h"

#include <stdlib.h>

struct ids {
    grappa_token *p;
    size_t n, size;
};

static void ids_add(struct ids *ids, const grappa_token *p, size_t n)
{
    if (ids->n + n > ids->size) {
        ids->size = 2 * ids->size + n + 64;
        ids->p = xrealloc(ids->p, ids->size * sizeof *ids->p);
    }
    if (n)
        memcpy(ids->p + ids->n, p, n * sizeof *p);
    ids->n += n;
}

static int add_text(struct ids *ids, const struct model *m, const json_t *text, bool add_special,
                    bool parse_special, struct grappa_err *err)
{
    size_t n;
    grappa_token *p = grappa_tokenize_new(m->v, json_string_value(text), json_string_length(text),
                                          add_special, parse_special, &n, err);
    if (!p)
        return -1;
    ids_add(ids, p, n);
    free(p);
    return 0;
}

static int add_id(struct ids *ids, const struct model *m, const json_t *id, struct grappa_err *err)
{
    json_int_t v = json_integer_value(id);
    if (!json_is_integer(id))
        return fail(err, 400, "\"prompt\": %.6g is no token id", json_number_value(id));
    if (v < 0 || v >= m->info.n_vocab)
        return fail(err, 400, "\"prompt\": token id %lld is outside of the vocabulary (0 to %d)",
                    (long long)v, m->info.n_vocab - 1);
    grappa_token t = (grappa_token)v;
    ids_add(ids, &t, 1);
    return 0;
}

static int add_mixed(struct ids *ids, const struct model *m, const json_t *list, bool add_special,
                     bool parse_special, struct grappa_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *e = json_array_get(list, i);
        int status = json_is_string(e) ? add_text(ids, m, e, add_special && i == 0, parse_special, err)
                     : json_is_number(e)
                         ? add_id(ids, m, e, err)
                         : fail(err, 400, "\"prompt\" may hold texts and ids, but no %s", json_type_name(e));
        if (status)
            return -1;
    }
    return 0;
}

static int add_object(struct ids *ids, const struct model *m, const json_t *o, bool add_special,
                      bool parse_special, struct grappa_err *err)
{
    const json_t *text = json_object_get(o, "prompt_string");
    if (json_object_get(o, "multimodal_data"))
        return fail(err, 400, "Multimodal data provided, but model does not support multimodal requests.");
    if (json_is_array(text))
        return add_mixed(ids, m, text, add_special, parse_special, err);
    if (!json_is_string(text))
        return fail(err, 400, "\"prompt\": an object must have a string \"prompt_string\"");
    return add_text(ids, m, text, add_special, parse_special, err);
}

grappa_token *read_prompt_ids(const struct model *m, const json_t *prompt, bool add_special,
                              bool parse_special, size_t *n, struct grappa_err *err)
{
    struct ids ids = {.p = xmalloc(64 * sizeof *ids.p), .size = 64};
    int status = json_is_string(prompt)  ? add_text(&ids, m, prompt, add_special, parse_special, err)
                 : json_is_array(prompt) ? add_mixed(&ids, m, prompt, add_special, parse_special, err)
                 : json_is_object(prompt)
                     ? add_object(&ids, m, prompt, add_special, parse_special, err)
                     : fail(err, 400,
                            "\"prompt\" must be a string, a list of token ids, an object "
                            "with a prompt string, or a list of these, but is %s",
                            json_type_name(prompt));
    if (status) {
        free(ids.p);
        return NULL;
    }
    *n = ids.n;
    return ids.p;
}

static bool has_number(const json_t *a)
{
    for (size_t i = 0; i < json_array_size(a); i++) {
        if (json_is_number(json_array_get(a, i)))
            return true;
    }
    return false;
}

int each_prompt(const struct model *m, const json_t *prompt, bool add_special, bool parse_special,
                void (*add)(void *user, grappa_token *ids, size_t n), void *user, struct grappa_err *err)
{
    enum { MOST = 1024 };
    bool several = json_is_array(prompt) && !has_number(prompt);
    size_t count = several ? json_array_size(prompt) : 1;
    if (count == 0)
        return fail(err, 400, "\"prompt\" must not be empty");
    if (count > MOST)
        return fail(err, 400, "more than %d prompts", MOST);
    for (size_t i = 0; i < count; i++) {
        size_t n;
        grappa_token *ids = read_prompt_ids(m, several ? json_array_get(prompt, i) : prompt, add_special,
                                            parse_special, &n, err);
        if (!ids)
            return -1;
        add(user, ids, n);
    }
    return 0;
}
