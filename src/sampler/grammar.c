/* Grammars with their vocabulary: the mask that is computed once for a place in the text, and the wait for
 * triggers.
 */
#include "sampler/grammar.h"

#include "base/mem.h"
#include "grappa_constraint.h"
#include "sampler/trigger.h"

#include <stdlib.h>

struct grammar_vocab {
    const struct vocab *v;
    struct grappa_constraint_vocab *tokens;
};

struct grammar {
    const struct grammar_vocab *gv;
    struct grappa_constraint *constraint;
    struct trigger *trigger; /* NULL: not lazy */
    bool waiting;            /* for it */
    bool ready;              /* the mask is that of this place */
    uint32_t *mask;
    struct buf piece;
};

static enum grappa_constraint_token_kind kind_of(const struct vocab *v, token_id t)
{
    if (vocab_is_eog(v, t))
        return GRAPPA_CONSTRAINT_END;
    return vocab_attr(v, t) & (VOCAB_ATTR_CONTROL | VOCAB_ATTR_UNKNOWN) ? GRAPPA_CONSTRAINT_CONTROL
                                                                        : GRAPPA_CONSTRAINT_TEXT;
}

struct grammar_vocab *grammar_vocab_new(const struct vocab *v, struct err *err)
{
    size_t n = (size_t)vocab_n_tokens(v);
    struct buf bytes = {0};
    struct grappa_constraint_token *tokens = calloc(n + 1, sizeof *tokens);
    size_t *starts = calloc(n + 1, sizeof *starts);
    struct grammar_vocab *gv = NULL;
    if (!tokens || !starts) {
        err_set(err, ERR_MEMORY, "grammar: no memory for %zu tokens", n);
        goto done;
    }
    for (size_t t = 0; t < n; t++) {
        vocab_piece(v, (token_id)t, 0, true, &bytes);
        starts[t + 1] = bytes.n;
    }
    for (size_t t = 0; t < n; t++) {
        struct grappa_jinja_text text = {bytes.p + starts[t], starts[t + 1] - starts[t]};
        tokens[t] = (struct grappa_constraint_token){text, kind_of(v, (token_id)t)};
    }
    struct grappa_constraint_vocab *made = bytes.failed ? NULL : grappa_constraint_vocab_new(tokens, n);
    if (!made) {
        err_set(err, ERR_MEMORY, "grammar: no memory for %zu tokens", n);
        goto done;
    }
    gv = xmalloc(sizeof *gv);
    *gv = (struct grammar_vocab){v, made};
done:
    buf_release(&bytes);
    free(tokens);
    free(starts);
    return gv;
}

void grammar_vocab_free(struct grammar_vocab *gv)
{
    if (!gv)
        return;
    grappa_constraint_vocab_free(gv->tokens);
    free(gv);
}

/* Row: the library's name for it, and ours in errors. */
static const struct {
    enum grappa_constraint_language language;
    const char *name;
} languages[] = {
    [GRAMMAR_GBNF] = {GRAPPA_CONSTRAINT_GBNF, "grammar"},
    [GRAMMAR_JSON_SCHEMA] = {GRAPPA_CONSTRAINT_JSON_SCHEMA, "JSON schema"},
    [GRAMMAR_REGEX] = {GRAPPA_CONSTRAINT_REGEX, "regex"},
    [GRAMMAR_LARK] = {GRAPPA_CONSTRAINT_LARK, "Lark grammar"},
};

/* The one token that a text like "<think>" is. */
static int32_t token_of(void *ctx, struct grappa_jinja_text text)
{
    struct token_list ids = {0};
    const struct vocab *v = ctx;
    int32_t found = TOKEN_NONE;
    if (vocab_tokenize(v, (struct str){text.p, text.n}, false, true, &ids, NULL) == 0 && ids.n == 1)
        found = ids.p[0];
    free(ids.p);
    return found;
}

struct grammar *grammar_new(const struct grammar_vocab *gv, const struct grammar_params *p, struct err *err)
{
    char why[sizeof err->text];
    if (p->type <= GRAMMAR_NONE || p->type > GRAMMAR_LARK || !p->source) {
        err_set(err, ERR_USAGE, "no such kind of grammar");
        return NULL;
    }
    if (p->lazy && p->n_trigger_words + p->n_trigger_patterns + p->n_trigger_tokens == 0) {
        err_set(err, ERR_USAGE, "a lazy grammar needs a trigger");
        return NULL;
    }
    struct grammar *g = xcalloc(1, sizeof *g);
    g->gv = gv;
    g->trigger = p->lazy ? trigger_new(p, err) : NULL;
    if (p->lazy && !g->trigger)
        goto fail;
    struct grappa_jinja_text source = {p->source, strlen(p->source)};
    g->constraint = grappa_constraint_new(gv->tokens, languages[p->type].language, source, token_of,
                                          (void *)(uintptr_t)gv->v, why, sizeof why);
    if (!g->constraint) {
        err_set(err, ERR_USAGE, "%s: %s", languages[p->type].name, why);
        goto fail;
    }
    g->mask = calloc(((size_t)vocab_n_tokens(gv->v) + 31) / 32, sizeof *g->mask);
    if (!g->mask) {
        err_set(err, ERR_MEMORY, "grammar: no memory for a mask");
        goto fail;
    }
    g->waiting = p->lazy;
    return g;
fail:
    grammar_free(g);
    return NULL;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    grappa_constraint_free(g->constraint);
    trigger_free(g->trigger);
    buf_release(&g->piece);
    free(g->mask);
    free(g);
}

void grammar_reset(struct grammar *g)
{
    grappa_constraint_reset(g->constraint);
    g->waiting = g->trigger != NULL;
    g->ready = false;
    if (g->trigger)
        trigger_reset(g->trigger);
}

const uint32_t *grammar_mask(struct grammar *g)
{
    if (g->waiting)
        return NULL;
    if (!g->ready)
        grappa_constraint_mask(g->constraint, g->mask);
    g->ready = true;
    return g->mask;
}

/* The tokens since the trigger's beginning count, of the first one perhaps only the end. */
static void replay(struct grammar *g, size_t start)
{
    struct str text = trigger_text(g->trigger);
    size_t n;
    const struct trigger_token *tokens = trigger_tokens(g->trigger, &n);
    g->waiting = false;
    for (size_t i = 0, from = 0; i < n; from = tokens[i++].end) {
        if (tokens[i].end <= start)
            continue;
        size_t begin = from < start ? start : from;
        struct grappa_jinja_text piece = {text.p + begin, tokens[i].end - begin};
        grappa_constraint_accept(g->constraint, tokens[i].id, &piece);
    }
    trigger_reset(g->trigger);
}

void grammar_accept(struct grammar *g, token_id t)
{
    if (!g->waiting) {
        if (!vocab_is_eog(g->gv->v, t)) {
            grappa_constraint_accept(g->constraint, t, NULL);
            g->ready = false;
        }
        return;
    }
    size_t start;
    buf_clear(&g->piece);
    vocab_piece(g->gv->v, t, 0, true, &g->piece);
    if (trigger_add(g->trigger, t, buf_str(&g->piece), &start)) {
        g->ready = false;
        replay(g, start);
    }
}

bool grammar_finished(const struct grammar *g)
{
    return !g->waiting && grappa_constraint_finished(g->constraint);
}
