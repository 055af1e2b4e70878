/* Code with a hole: /infill. The prompt is the library's (grappa_infill), the answer that of /completion. */
#include "server/chat.h"

#include "server/server.h"

#include <stdlib.h>

enum { MAX_EXTRA = 4096 };

struct hole {
    struct grappa_infill in;
    grappa_token *prefix, *suffix, *prompt;
    struct grappa_infill_file *extra;
};

static void release(struct hole *h)
{
    free(h->prefix);
    free(h->suffix);
    free(h->prompt);
    free(h->extra);
}

static int check_vocab(const struct grappa_vocab *v, struct grappa_err *err)
{
    const char *pre = grappa_vocab_fim_pre(v) < 0 ? "prefix token is missing. " : "";
    const char *suf = grappa_vocab_fim_suf(v) < 0 ? "suffix token is missing. " : "";
    const char *mid = grappa_vocab_fim_mid(v) < 0 ? "middle token is missing. " : "";
    return *pre || *suf || *mid
               ? fail(err, 501, "Infill is not supported by this model: %s%s%s", pre, suf, mid)
               : 0;
}

/* Text before or behind: a string, ids, or both mixed. */
static int read_side(const struct model *m, const json_t *body, const char *name, grappa_token **ids,
                     size_t *n, struct grappa_err *err)
{
    const json_t *j = member(body, name);
    if (!j)
        return fail(err, 400, "\"%s\" is required", name);
    *ids = read_prompt_ids(m, j, false, false, n, err);
    return *ids ? 0 : -1;
}

static int read_extra(const json_t *body, struct hole *h, struct grappa_err *err)
{
    const json_t *extra = member(body, "input_extra");
    if (!extra)
        return 0;
    if (!json_is_array(extra) || json_array_size(extra) > MAX_EXTRA)
        return fail(err, 400, "\"input_extra\" must be an array of {\"filename\": string, \"text\": string}");
    h->extra = xcalloc(json_array_size(extra) + 1, sizeof *h->extra);
    for (size_t i = 0; i < json_array_size(extra); i++) {
        const json_t *chunk = json_array_get(extra, i), *text = json_object_get(chunk, "text");
        const char *name = NULL;
        if (!json_is_string(text))
            return fail(err, 400, "extra_context chunk must contain a \"text\" field with a string value");
        if (member_string(chunk, "filename", &name, err))
            return -1;
        h->extra[i] = (struct grappa_infill_file){name, json_string_value(text), json_string_length(text)};
    }
    h->in.extra = h->extra;
    h->in.n_extra = json_array_size(extra);
    return 0;
}

static int read_hole(struct exchange *x, const struct model *m, const json_t *body, struct hole *h,
                     struct grappa_err *err)
{
    const struct server_params *p = x->srv->p;
    const char *prompt = "";
    if (check_vocab(m->v, err) || member_string(body, "prompt", &prompt, err) ||
        read_side(m, body, "input_prefix", &h->prefix, &h->in.n_prefix, err) ||
        read_side(m, body, "input_suffix", &h->suffix, &h->in.n_suffix, err) || read_extra(body, h, err))
        return -1;
    h->prompt = grappa_tokenize_new(m->v, prompt, strlen(prompt), false, true, &h->in.n_prompt, err);
    if (!h->prompt)
        return -1;
    h->in.prefix = h->prefix;
    h->in.suffix = h->suffix;
    h->in.prompt = h->prompt;
    h->in.n_batch = p->infill_batch;
    h->in.n_predict = p->n_predict;
    h->in.n_ctx = (int32_t)m->info.n_ctx;
    h->in.suffix_first = p->spm_infill;
    return 0;
}

static void infill(struct exchange *x, json_t *body)
{
    struct grappa_err err = {0};
    struct hole h = {0};
    struct model *m = acquire_for(x, body, &err);
    size_t n = 0;
    grappa_token *ids =
        m && read_hole(x, m, body, &h, &err) == 0 ? grappa_infill_new(m->v, &h.in, &n, &err) : NULL;
    release(&h);
    if (ids)
        run_infill(x, body, ids, n);
    else
        reply_error(x, &err);
    model_release(m);
}

void post_infill(struct exchange *x)
{
    with_body(x, infill);
}
