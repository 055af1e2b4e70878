/* Reranking: each text beside the query becomes a prompt of its own, and what the model's head says of it the
 * text's score. Answers in Jina's form (jina.ai/reranker), or in that of Text Embeddings Inference when the
 * request has "texts". */
#include "server/chat.h"

#include "server/server.h"

#include <stdlib.h>

struct request {
    const json_t *query, *texts;
    bool tei, return_text;
    int32_t top_n;
};

struct rank {
    int index;
    double score;
};

/* ---- the request ---- */

static const json_t *text_list(const json_t *body, const char *name)
{
    const json_t *list = json_object_get(body, name);
    if (!json_is_array(list))
        return NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_is_string(json_array_get(list, i)))
            return NULL;
    }
    return list;
}

static int read_request(const json_t *body, struct request *q, struct grappa_err *err)
{
    enum { MOST = 1024 };
    *q = (struct request){.query = json_object_get(body, "query"), .texts = text_list(body, "documents")};
    q->tei = json_object_get(body, "texts") != NULL;
    if (!q->query)
        return fail(err, 400, "\"query\" must be provided");
    if (!json_is_string(q->query))
        return fail(err, 400, "\"query\" must be a string");
    if (!q->texts)
        q->texts = text_list(body, "texts");
    size_t n = json_array_size(q->texts);
    if (n == 0)
        return fail(err, 400, "\"documents\" must be a non-empty string array");
    if (n > MOST)
        return fail(err, 400, "more than %d documents", MOST);
    q->top_n = (int32_t)n;
    if (member_i32(body, "top_n", &q->top_n, err) || member_bool(body, "return_text", &q->return_text, err))
        return -1;
    if (q->top_n < 0)
        return fail(err, 400, "Field 'top_n': %d is negative", q->top_n);
    return 0;
}

/* ---- prompts ---- */

static void add_string(struct buf *b, const json_t *s)
{
    buf_add(b, json_string_value(s), json_string_length(s));
}

/* The file's template with both texts in their places. */
static void fill_template(struct buf *out, const char *p, size_t n, const json_t *query, const json_t *text)
{
    const struct {
        struct str name;
        const json_t *value;
    } places[] = {{{"{query}", 7}, query}, {{"{document}", 10}, text}};
    for (size_t i = 0; i < n;) {
        size_t k = 0;
        while (k < 2 && (n - i < places[k].name.n || memcmp(p + i, places[k].name.p, places[k].name.n) != 0))
            k++;
        if (k == 2) {
            buf_putc(out, p[i++]);
            continue;
        }
        add_string(out, places[k].value);
        i += places[k].name.n;
    }
}

/* Without a template: BOS, the query, EOS, the text, EOS, those of them that the vocabulary adds. */
static grappa_token *join_ids(const struct grappa_vocab *v, const json_t *query, const json_t *text,
                              size_t *n, struct grappa_err *err)
{
    size_t n_text = 0, skip;
    grappa_token *ids =
        grappa_tokenize_new(v, json_string_value(query), json_string_length(query), true, false, n, err);
    grappa_token *more = ids ? grappa_tokenize_new(v, json_string_value(text), json_string_length(text), true,
                                                   false, &n_text, err)
                             : NULL;
    if (!more) {
        free(ids);
        return NULL;
    }
    skip = grappa_vocab_add_bos(v) && n_text > 0;
    ids = xrealloc(ids, (*n + n_text + 1) * sizeof *ids);
    memcpy(ids + *n, more + skip, (n_text - skip) * sizeof *ids);
    *n += n_text - skip;
    free(more);
    return ids;
}

static grappa_token *prompt_ids(const struct grappa_vocab *v, const json_t *query, const json_t *text,
                                size_t *n, struct grappa_err *err)
{
    size_t n_template;
    const char *template = grappa_vocab_chat_template(v, "rerank", &n_template);
    if (!template)
        return join_ids(v, query, text, n, err);
    struct buf b = {0};
    grappa_token *ids = NULL;
    fill_template(&b, template, n_template, query, text);
    if (b.failed)
        fail(err, 503, "no memory for the prompt");
    else
        ids = grappa_tokenize_new(v, b.p, b.n, false, true, n, err);
    buf_release(&b);
    return ids;
}

static int add_prompts(struct run *r, const struct request *q, struct grappa_err *err)
{
    for (size_t i = 0; i < json_array_size(q->texts); i++) {
        size_t n;
        grappa_token *ids = prompt_ids(r->model->v, q->query, json_array_get(q->texts, i), &n, err);
        if (!ids)
            return -1;
        run_add_prompt(r, ids, n);
        if (n == 0)
            return fail(err, 400, "Input content cannot be empty");
        /* Too long: the run will say so. A long query is not to be multiplied by the number of texts. */
        if (n >= r->model->info.n_ctx)
            break;
    }
    return 0;
}

/* ---- the answer ---- */

/* Falling; of equals the earlier first. */
static int by_score(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score ? 1 : -1) : x->index - y->index;
}

static json_t *results(const struct run *r, const struct request *q)
{
    struct rank *all = xcalloc(r->n_parts, sizeof *all);
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_parts; i++)
        all[i] = (struct rank){(int)i, (double)r->parts[i].last->e.embedding[0]};
    qsort(all, r->n_parts, sizeof *all, by_score);
    for (size_t i = 0; i < r->n_parts && i < (size_t)q->top_n; i++) {
        json_t *e = json_pack("{s:i, s:o}", "index", all[i].index, q->tei ? "score" : "relevance_score",
                              real_json(all[i].score));
        if (q->tei && q->return_text)
            json_object_set(e, "text", json_array_get(q->texts, (size_t)all[i].index));
        json_array_append_new(list, e);
    }
    free(all);
    return list;
}

static json_t *jina_answer(const struct run *r, const json_t *body, json_t *list)
{
    const json_t *model = member(body, "model");
    int n_tokens = 0;
    for (size_t i = 0; i < r->n_parts; i++)
        n_tokens += (int)r->parts[i].n_prompt;
    return json_pack("{s:o, s:s, s:{s:i, s:i}, s:o}", "model",
                     json_is_string(model) ? json_incref((json_t *)model) : json_string(r->model->name),
                     "object", "list", "usage", "prompt_tokens", n_tokens, "total_tokens", n_tokens,
                     "results", list);
}

static void rerank(struct exchange *x, json_t *body)
{
    static const struct dialect none = {.name = "rerank"};
    struct grappa_err err = {0};
    struct request q;
    if (read_request(body, &q, &err)) {
        reply_error(x, &err);
        return;
    }
    json_t *fields = json_object(); /* nothing of the body speaks to a sampler */
    const json_t *model = member(body, "model");
    if (model)
        json_object_set(fields, "model", (json_t *)model);
    struct run *r = begin_run(x, fields, &none);
    json_decref(fields);
    if (!r)
        return;
    r->embeddings = r->rank = true;
    if (grappa_model_n_cls_out(r->model->m) == 0) {
        reply_fail(x, 501, "This model does not support reranking");
        return;
    }
    if (add_prompts(r, &q, &err)) {
        reply_error(x, &err);
        return;
    }
    if (run_start_and_wait(r))
        return;
    json_t *list = results(r, &q);
    reply_json(x, 200, q.tei ? list : jina_answer(r, body, list));
}

void post_rerank(struct exchange *x)
{
    if (!x->srv->p->reranking)
        reply_fail(x, 501, "This server does not support reranking. Start it with `--reranking`");
    else
        with_body(x, rerank);
}
