/* Google's Vertex AI: one path for all predictions, each of which says by "@requestFormat" which endpoint it
 * means
 * ("chatCompletions" is /v1/chat/completions). They are answered one after another. */
#include "server/chat.h"

#include <ctype.h>
#include <stdlib.h>

enum { MAX_INSTANCES = 128 };

static const struct {
    const char *format;
    http_handler *handler;
} FORMATS[] = {{"chatCompletions", post_chat},
               {"completions", post_text_completion},
               {"completion", post_completion},
               {"responses", post_responses},
               {"messages", post_messages},
               {"embeddings", post_openai_embeddings},
               {"tokenize", post_tokenize},
               {"detokenize", post_detokenize},
               {"applyTemplate", post_apply_template},
               {"rerank", post_rerank},
               {"infill", post_infill}};

static json_t *refuse(const char *why)
{
    return json_pack("{s:o}", "error", error_body(400, why));
}

/* Hands the body to the handler as if it had come by itself, and takes its answer. */
static json_t *answer_of(struct exchange *x, http_handler *handler, json_t *body)
{
    struct exchange inner = {
        .srv = x->srv, .conn = x->conn, .fd = x->fd, .id = x->id, .method = "POST", .path = x->path};
    dump_json(&inner.body, body);
    handler(&inner);
    json_t *j =
        json_loadb(inner.out.p ? inner.out.p : "", inner.out.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (inner.end)
        inner.end(&inner, inner.user);
    x->n_prompt += inner.n_prompt;
    x->n_predicted += inner.n_predicted;
    buf_release(&inner.body);
    buf_release(&inner.out);
    return j ? j : refuse("no answer");
}

static json_t *predict_one(struct exchange *x, const json_t *instance)
{
    const json_t *format = json_object_get(instance, "@requestFormat");
    if (!json_is_object(instance))
        return refuse("each instance must be a JSON object");
    if (!json_is_string(format))
        return refuse("each instance must include a string @requestFormat");
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        if (strcmp(json_string_value(format), FORMATS[i].format) != 0)
            continue;
        json_t *body = json_copy((json_t *)instance);
        json_object_del(body, "@requestFormat");
        json_object_set_new(body, "stream", json_false());
        json_t *j = answer_of(x, FORMATS[i].handler, body);
        json_decref(body);
        return j;
    }
    return refuse("unknown @requestFormat");
}

static void predict(struct exchange *x, json_t *body)
{
    const json_t *instances = json_object_get(body, "instances");
    if (!json_is_array(instances)) {
        reply_fail(x, 400, "request body must include an array field named instances");
        return;
    }
    if (json_array_size(instances) > MAX_INSTANCES) {
        reply_fail(x, 400, "instances array exceeds maximum size of %d", MAX_INSTANCES);
        return;
    }
    json_t *all = json_array();
    for (size_t i = 0; i < json_array_size(instances); i++)
        json_array_append_new(all, predict_one(x, json_array_get(instances, i)));
    reply_json(x, 200, json_pack("{s:o}", "predictions", all));
}

void post_predict(struct exchange *x)
{
    with_body(x, predict);
}
