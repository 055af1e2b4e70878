/* /tokenize and /detokenize. */
#include "server/dialects.h"

#include "base/utf8.h"

#include <stdlib.h>

static bool is_text(const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(p + i, n - i);
        if (!len)
            return false;
        i += len;
    }
    return true;
}

static json_t *piece_json(const struct grappa_vocab *v, grappa_token t)
{
    char piece[512];
    size_t n = grappa_token_piece(v, t, true, piece, sizeof piece);
    n = n < sizeof piece ? n : sizeof piece;
    return json_pack("{s:i, s:o}", "id", t, "piece",
                     is_text(piece, n) ? text_json(piece, n) : bytes_json(piece, n));
}

static json_t *tokenize(struct model *m, const json_t *body, struct grappa_err *err)
{
    bool add_special = false, parse_special = true, with_pieces = false;
    size_t n = 0;
    grappa_token *ids = NULL;
    if (member_bool(body, "add_special", &add_special, err) ||
        member_bool(body, "parse_special", &parse_special, err) ||
        member_bool(body, "with_pieces", &with_pieces, err))
        return NULL;
    const json_t *content = member(body, "content");
    if (content) {
        ids = read_prompt_ids(m, content, add_special, parse_special, &n, err);
        if (!ids)
            return NULL;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, with_pieces ? piece_json(m->v, ids[i]) : json_integer(ids[i]));
    free(ids);
    return json_pack("{s:o}", "tokens", list);
}

static json_t *detokenize(struct model *m, const json_t *body, struct grappa_err *err)
{
    json_t *tokens = NULL;
    struct buf text = {0};
    if (member_array(body, "tokens", &tokens, err))
        return NULL;
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *t = json_array_get(tokens, i);
        char piece[512];
        if (!json_is_integer(t) || json_integer_value(t) < 0 || json_integer_value(t) >= m->info.n_vocab) {
            buf_release(&text);
            fail(err, 400, "Field 'tokens': entry %zu is no token id (0 to %d)", i, m->info.n_vocab - 1);
            return NULL;
        }
        size_t n = grappa_token_piece(m->v, (grappa_token)json_integer_value(t), true, piece, sizeof piece);
        buf_add(&text, piece, n < sizeof piece ? n : sizeof piece);
    }
    json_t *j = json_pack("{s:o}", "content", text_json(text.p, text.n));
    buf_release(&text);
    return j;
}

static void answer_with(struct exchange *x,
                        json_t *(*fn)(struct model *m, const json_t *body, struct grappa_err *err))
{
    struct grappa_err err = {0};
    json_t *body = read_body(x, false, &err);
    struct model *m = body ? acquire_for(x, body, &err) : NULL;
    json_t *answer = m ? fn(m, body, &err) : NULL;
    if (answer)
        reply_json(x, 200, answer);
    else
        reply_error(x, &err);
    model_release(m);
    json_decref(body);
}

void post_tokenize(struct exchange *x)
{
    answer_with(x, tokenize);
}

void post_detokenize(struct exchange *x)
{
    answer_with(x, detokenize);
}
