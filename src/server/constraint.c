/* Which texts an answer may be: "grammar", "json_schema", and what a lazy one waits for. Read into struct
 * settings, and written from it. */
#include "server/constraint.h"

#include <stdlib.h>

enum { MAX_TRIGGERS = 1024 };

/* llama-server's numbers of kinds. */
enum { TRIGGER_TOKEN, TRIGGER_WORD, TRIGGER_PATTERN, TRIGGER_PATTERN_FULL };

/* A text without NUL inside, in the arena; NULL: 400. */
static const char *keep_text(struct settings *s, const json_t *j, struct grappa_err *err)
{
    if (!json_is_string(j)) {
        fail(err, 400, "type must be string, but is %s", json_type_name(j));
        return NULL;
    }
    if (strlen(json_string_value(j)) != json_string_length(j)) {
        fail(err, 400, "a NUL character can't be in it");
        return NULL;
    }
    return arena_strndup(&s->mem, json_string_value(j), json_string_length(j));
}

int read_grammar(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    const char *source = keep_text(s, j, err);
    if (!source)
        return -1;
    s->grammar_given = true;
    if (*source) {
        s->s.grammar.type = GRAPPA_GRAMMAR_GBNF;
        s->s.grammar.source = source;
    }
    return 0;
}

int read_json_schema(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    if (s->grammar_given) /* it wins */
        return 0;
    if (!json_is_object(j) && !json_is_boolean(j))
        return fail(err, 400, "type must be object, but is %s", json_type_name(j));
    char *text = json_dumps(j, JSON_COMPACT);
    if (!text)
        return fail(err, 400, "the schema can't be written");
    s->s.grammar.type = GRAPPA_GRAMMAR_JSON_SCHEMA;
    s->s.grammar.source = arena_strndup(&s->mem, text, strlen(text));
    free(text);
    return 0;
}

/* ---- triggers ---- */

/* The one token that a text is; -1: it is several. */
static grappa_token single_token(const struct settings *s, const char *text)
{
    grappa_token id = -1;
    int64_t n = grappa_tokenize(s->model->v, text, strlen(text), false, true, &id, 1, NULL);
    return n == 1 ? id : -1;
}

static bool is_preserved(const struct settings *s, grappa_token t)
{
    for (size_t i = 0; i < s->n_preserved; i++) {
        if (s->preserved[i] == t)
            return true;
    }
    return false;
}

/* Of texts that are one token each; others count for nothing, as with llama-server. */
int read_preserved_tokens(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    if (!json_is_array(j) || json_array_size(j) > MAX_TRIGGERS)
        return fail(err, 400, "must be an array of at most %d strings", MAX_TRIGGERS);
    s->preserved = arena_alloc(&s->mem, (json_array_size(j) + 1) * sizeof *s->preserved);
    s->n_preserved = 0;
    for (size_t i = 0; i < json_array_size(j); i++) {
        const char *text = keep_text(s, json_array_get(j, i), err);
        if (!text)
            return -1;
        grappa_token t = single_token(s, text);
        if (t >= 0 && !is_preserved(s, t))
            s->preserved[s->n_preserved++] = t;
    }
    return 0;
}

/* A whole text's pattern stands between ^ and $. */
static const char *anchored(struct settings *s, const char *pattern)
{
    size_t n = strlen(pattern), room = n + 3;
    char *out = arena_alloc(&s->mem, room);
    if (n == 0)
        snprintf(out, room, "^$");
    else
        snprintf(out, room, "%s%s%s", pattern[0] == '^' ? "" : "^", pattern,
                 pattern[n - 1] == '$' ? "" : "$");
    return out;
}

/* A word that is one token is that token; the client must know that it is, since other texts have a way
 * around it. */
static int settle_word(struct settings *s, struct trigger_row *row, struct grappa_err *err)
{
    grappa_token t = single_token(s, row->value);
    if (t < 0)
        return 0;
    if (!is_preserved(s, t))
        return fail(err, 400, "Grammar trigger word should be marked as preserved token: %.200s", row->value);
    row->type = TRIGGER_TOKEN;
    row->token = t;
    return 0;
}

static int read_trigger(struct settings *s, const json_t *j, struct trigger_row *row, struct grappa_err *err)
{
    const json_t *type = json_object_get(j, "type"), *token = json_object_get(j, "token");
    if (!json_is_object(j))
        return fail(err, 400, "entries must be objects, but one is %s", json_type_name(j));
    if (!json_is_integer(type) || json_integer_value(type) < 0 ||
        json_integer_value(type) > TRIGGER_PATTERN_FULL)
        return fail(err, 400, "\"type\" must be 0 (token), 1 (word), 2 (pattern) or 3 (pattern of all)");
    *row = (struct trigger_row){.type = (int)json_integer_value(type), .token = -1};
    row->value = keep_text(s, json_object_get(j, "value"), err);
    if (!row->value)
        return -1;
    if (row->type == TRIGGER_WORD)
        return settle_word(s, row, err);
    if (row->type != TRIGGER_TOKEN)
        return 0;
    if (!json_is_integer(token) || json_integer_value(token) < 0 ||
        json_integer_value(token) >= s->model->info.n_vocab)
        return fail(err, 400, "\"token\" must be an id of the vocabulary");
    row->token = (grappa_token)json_integer_value(token);
    return 0;
}

/* From the rows to what the sampler takes. */
static void hand_over(struct settings *s)
{
    struct grappa_grammar_params *g = &s->s.grammar;
    const char **words = arena_alloc(&s->mem, (s->n_triggers + 1) * sizeof *words);
    const char **patterns = arena_alloc(&s->mem, (s->n_triggers + 1) * sizeof *patterns);
    grappa_token *tokens = arena_alloc(&s->mem, (s->n_triggers + 1) * sizeof *tokens);
    g->n_trigger_words = g->n_trigger_patterns = g->n_trigger_tokens = 0;
    for (size_t i = 0; i < s->n_triggers; i++) {
        const struct trigger_row *row = &s->triggers[i];
        switch (row->type) {
        case TRIGGER_TOKEN:
            tokens[g->n_trigger_tokens++] = row->token;
            break;
        case TRIGGER_WORD:
            words[g->n_trigger_words++] = row->value;
            break;
        default:
            patterns[g->n_trigger_patterns++] =
                row->type == TRIGGER_PATTERN_FULL ? anchored(s, row->value) : row->value;
            break;
        }
    }
    g->trigger_words = words;
    g->trigger_patterns = patterns;
    g->trigger_tokens = tokens;
}

int read_triggers(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    if (!json_is_array(j) || json_array_size(j) > MAX_TRIGGERS)
        return fail(err, 400, "must be an array of at most %d objects", MAX_TRIGGERS);
    s->triggers = arena_alloc(&s->mem, (json_array_size(j) + 1) * sizeof *s->triggers);
    s->n_triggers = 0;
    for (size_t i = 0; i < json_array_size(j); i++) {
        if (read_trigger(s, json_array_get(j, i), &s->triggers[i], err))
            return -1;
        s->n_triggers++;
    }
    hand_over(s);
    if (s->s.grammar.lazy && s->n_triggers == 0)
        return fail(err, 400, "Error: no triggers set for lazy grammar!");
    return 0;
}

/* ---- as JSON ---- */

void put_constraint(json_t *j, const struct settings *s)
{
    const struct grappa_grammar_params *g = &s->s.grammar;
    json_t *triggers = json_array(), *preserved = json_array();
    for (size_t i = 0; i < s->n_triggers; i++) {
        const struct trigger_row *row = &s->triggers[i];
        json_t *t =
            json_pack("{s:i, s:o}", "type", row->type, "value", text_json(row->value, strlen(row->value)));
        if (row->type == TRIGGER_TOKEN)
            json_object_set_new(t, "token", json_integer(row->token));
        json_array_append_new(triggers, t);
    }
    for (size_t i = 0; i < s->n_preserved; i++)
        json_array_append_new(preserved, json_integer(s->preserved[i]));
    json_object_set_new(j, "grammar", g->source ? text_json(g->source, strlen(g->source)) : json_string(""));
    json_object_set_new(j, "grammar_lazy", json_boolean(g->lazy));
    json_object_set_new(j, "grammar_triggers", triggers);
    json_object_set_new(j, "preserved_tokens", preserved);
}
