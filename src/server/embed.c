/* Embeddings, in llama-server's form and OpenAI's. */
#include "server/chat.h"

#include "server/server.h"

#include <math.h>
#include <stdlib.h>

struct request {
    bool openai, base64;
    int32_t normalize;
    const json_t *input;
};

static int read_request(struct exchange *x, const json_t *body, bool openai, struct request *q,
                        struct grappa_err *err)
{
    const char *format = "float";
    *q = (struct request){.openai = openai, .normalize = x->srv->p->embd_normalize};
    if (!x->srv->p->embeddings)
        return fail(err, 501, "This server does not support embeddings. Start it with `--embeddings`");
    q->input = member(body, "input");
    if (!q->input) {
        q->input = member(body, "content");
        q->openai = false;
    }
    if (!q->input)
        return fail(err, 400, "\"input\" or \"content\" must be provided");
    if (q->openai && x->srv->p->pooling == GRAPPA_POOLING_NONE)
        return fail(err, 400,
                    "Pooling type 'none' is not OAI compatible. Please use a different pooling type");
    if (member_string(body, "encoding_format", &format, err) ||
        member_i32(body, "embd_normalize", &q->normalize, err))
        return -1;
    q->base64 = strcmp(format, "base64") == 0;
    if (!q->base64 && strcmp(format, "float") != 0)
        return fail(err, 400, "The format to return the embeddings in. Can be either float or base64");
    return 0;
}

/* By llama.cpp's --embd-normalize: -1 not at all, 0 to the range of 16-bit numbers, else by the p-norm. */
static void normalize(float *v, int32_t n, int32_t kind)
{
    double sum = 0;
    if (kind < 0)
        return;
    for (int32_t i = 0; i < n; i++) {
        double a = fabs((double)v[i]);
        if (kind == 0)
            sum = a > sum ? a : sum;
        else
            sum += kind == 2 ? a * a : pow(a, kind);
    }
    if (kind == 0)
        sum /= 32760.0;
    else if (kind == 2)
        sum = sqrt(sum);
    else
        sum = pow(sum, 1.0 / kind);
    float scale = sum > 0 ? (float)(1.0 / sum) : 0;
    for (int32_t i = 0; i < n; i++)
        v[i] *= scale;
}

static json_t *row_json(const float *v, int32_t n)
{
    json_t *a = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(a, real_json((double)v[i]));
    return a;
}

static json_t *base64_json(const void *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = data;
    struct buf b = {0};
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned v =
            (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0u);
        buf_putc(&b, digits[v >> 18]);
        buf_putc(&b, digits[v >> 12 & 63]);
        buf_putc(&b, left > 1 ? digits[v >> 6 & 63] : '=');
        buf_putc(&b, left > 2 ? digits[v & 63] : '=');
    }
    json_t *j = text_json(b.p, b.n);
    buf_release(&b);
    return j;
}

static json_t *native_answer(struct run *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct grappa_event *e = &r->parts[i].last->e;
        json_t *rows = json_array();
        for (int32_t k = 0; k < e->n_rows; k++)
            json_array_append_new(rows, row_json(e->embedding + (size_t)k * (size_t)e->n_embd, e->n_embd));
        json_array_append_new(all, json_pack("{s:i, s:o}", "index", (int)i, "embedding", rows));
    }
    return all;
}

static json_t *openai_answer(struct run *r, const struct request *q, const json_t *body)
{
    const json_t *model = member(body, "model");
    json_t *data = json_array();
    int n_tokens = 0;
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct grappa_event *e = &r->parts[i].last->e;
        n_tokens += (int)r->parts[i].n_prompt;
        json_t *v = q->base64 ? base64_json(e->embedding, (size_t)e->n_embd * sizeof(float))
                              : row_json(e->embedding, e->n_embd);
        json_t *j = json_pack("{s:o, s:i, s:s}", "embedding", v, "index", (int)i, "object", "embedding");
        if (q->base64)
            json_object_set_new(j, "encoding_format", json_string("base64"));
        json_array_append_new(data, j);
    }
    return json_pack("{s:o, s:s, s:{s:i, s:i}, s:o}", "model",
                     json_is_string(model) ? json_incref((json_t *)model) : json_string(r->model->name),
                     "object", "list", "usage", "prompt_tokens", n_tokens, "total_tokens", n_tokens, "data",
                     data);
}

static void normalize_all(struct run *r, const struct request *q)
{
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct grappa_event *e = &r->parts[i].last->e;
        if (!e->embedding || (e->n_rows > 1 && r->s.p->pooling == GRAPPA_POOLING_NONE))
            continue; /* rows of their own are left as they are */
        normalize((float *)e->embedding, e->n_embd, q->normalize);
    }
}

static void add_prompt(void *user, grappa_token *ids, size_t n)
{
    run_add_prompt(user, ids, n);
}

static void embed(struct exchange *x, json_t *body, bool openai)
{
    static const struct dialect none = {.name = "embeddings"};
    struct grappa_err err = {0};
    struct request q;
    if (read_request(x, body, openai, &q, &err)) {
        reply_error(x, &err);
        return;
    }
    json_t *fields = json_object(); /* nothing of the body speaks to a sampler */
    const json_t *model = json_object_get(body, "model");
    if (json_is_string(model))
        json_object_set(fields, "model", (json_t *)model);
    struct run *r = begin_run(x, fields, &none);
    json_decref(fields);
    if (!r)
        return;
    r->embeddings = true;
    if (each_prompt(r->model, q.input, true, true, add_prompt, r, &err)) {
        reply_error(x, &err);
        return;
    }
    for (size_t i = 0; i < r->n_parts; i++) {
        if (r->parts[i].n_prompt == 0) {
            reply_fail(x, 400, "Input content cannot be empty");
            return;
        }
    }
    if (run_start_and_wait(r))
        return;
    normalize_all(r, &q);
    reply_json(x, 200, q.openai ? openai_answer(r, &q, body) : native_answer(r));
}

static void embed_native(struct exchange *x, json_t *body)
{
    embed(x, body, false);
}

static void embed_openai(struct exchange *x, json_t *body)
{
    embed(x, body, true);
}

void post_embeddings(struct exchange *x)
{
    with_body(x, embed_native);
}

void post_openai_embeddings(struct exchange *x)
{
    with_body(x, embed_openai);
}
