/* Prompts for filling in the middle. With tokens for repositories and files:
 *
 *     REP myproject SEP name text SEP name text … SEP filename PRE prefix prompt SUF suffix MID
 *
 * Without them, the other files stand before it with a line between them. */
#include "vocab/inside.h"

#include <stdlib.h>

static bool push_all(struct token_list *out, const token_id *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!token_push(out, ids[i]))
            return false;
    }
    return true;
}

/* A token, if there is one, and a text behind it. */
static int push_marked(const struct vocab *v, enum vocab_role role, struct str text, struct token_list *out,
                       struct err *err)
{
    if (v->role[role] >= 0 && !token_push(out, v->role[role]))
        return no_memory(err);
    return vocab_tokenize(v, text, false, false, out, err);
}

static int push_line(const struct vocab *v, enum vocab_role role, struct str name, struct token_list *out,
                     struct err *err)
{
    struct buf line = {0};
    buf_add(&line, name.p, name.n);
    buf_putc(&line, '\n');
    int rc = line.failed ? no_memory(err) : push_marked(v, role, buf_str(&line), out, err);
    buf_release(&line);
    return rc;
}

static int push_extra(const struct vocab *v, const struct vocab_infill *in, struct token_list *out,
                      struct err *err)
{
    const bool files = v->role[ROLE_FIM_SEP] >= 0;
    if (v->role[ROLE_FIM_REP] >= 0 && push_line(v, ROLE_FIM_REP, str_of("myproject"), out, err) != 0)
        return -1;
    for (size_t i = 0; i < in->n_extra; i++) {
        int rc = files ? push_line(v, ROLE_FIM_SEP, in->extra[i].name, out, err)
                       : vocab_tokenize(v, str_of("\n\n--- snippet ---\n\n"), false, false, out, err);
        if (rc != 0 || vocab_tokenize(v, in->extra[i].text, false, false, out, err) != 0)
            return -1;
    }
    return files ? push_line(v, ROLE_FIM_SEP, str_of("filename"), out, err) : 0;
}

static size_t at_most(size_t n, int64_t limit)
{
    return limit < 0 ? 0 : n < (uint64_t)limit ? n : (size_t)limit;
}

static bool push_prefix(const struct vocab *v, const struct vocab_infill *in, struct token_list *out)
{
    size_t n = at_most(in->n_prefix, 3 * (int64_t)(in->n_batch / 4));
    return token_push(out, v->role[ROLE_FIM_PRE]) && push_all(out, in->prefix + in->n_prefix - n, n) &&
           push_all(out, in->prompt, in->n_prompt);
}

static bool push_suffix(const struct vocab *v, const struct vocab_infill *in, struct token_list *out)
{
    size_t n = at_most(in->n_suffix, in->n_batch / 4 - 2 - (int64_t)in->n_prompt);
    return token_push(out, v->role[ROLE_FIM_SUF]) && push_all(out, in->suffix, n);
}

static int check(const struct vocab *v, struct err *err)
{
    const char *pre = v->role[ROLE_FIM_PRE] < 0 ? "prefix token is missing. " : "";
    const char *suf = v->role[ROLE_FIM_SUF] < 0 ? "suffix token is missing. " : "";
    const char *mid = v->role[ROLE_FIM_MID] < 0 ? "middle token is missing. " : "";
    if (!*pre && !*suf && !*mid)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "Infill is not supported by this model: %s%s%s", pre, suf, mid);
}

int vocab_infill(const struct vocab *v, const struct vocab_infill *in, struct token_list *out,
                 struct err *err)
{
    struct token_list extra = {0};
    int rc = -1;
    if (check(v, err) != 0 || push_extra(v, in, &extra, err) != 0)
        goto cleanup;
    size_t n = at_most(extra.n, (int64_t)in->n_ctx - in->n_batch - 2 * (int64_t)in->n_predict);
    bool ok = push_all(out, extra.p + extra.n - n, n);
    if (v->add_bos && v->role[ROLE_BOS] >= 0)
        ok = ok && token_push(out, v->role[ROLE_BOS]);
    ok = ok && (in->suffix_first ? push_suffix(v, in, out) && push_prefix(v, in, out)
                                 : push_prefix(v, in, out) && push_suffix(v, in, out));
    ok = ok && token_push(out, v->role[ROLE_FIM_MID]);
    rc = ok ? 0 : no_memory(err);
cleanup:
    free(extra.p);
    return rc;
}
