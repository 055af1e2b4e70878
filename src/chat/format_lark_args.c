/* Arguments in constraints, for the formats that don't write them as one JSON object: marked pieces of text,
 * Python's key=value, and dicts in a notation of their own. Every argument has a rule arg_TOOL_N; a value
 * that is JSON has one more, since %json takes a line. */
#include "chat/format_lark.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- lists with separators ---- */

static void separated(struct lark *l, const char *separator)
{
    if (*separator)
        lark_literal(l, separator);
    buf_puts(l->out, " ws");
}

static void item(struct lark *l, const char *rule, size_t tool, size_t i, const char *separator,
                 bool optional)
{
    buf_puts(l->out, optional ? " (" : " ");
    if (separator)
        separated(l, separator);
    buf_printf(l->out, " %s_%zu_%zu", rule, tool, i);
    if (optional)
        buf_puts(l->out, ")?");
}

/* Some of the optional ones from `from` on, in order. */
static void optional_rest(struct lark *l, const char *rule, size_t tool, const bool *required, size_t n,
                          size_t from, const char *separator)
{
    for (size_t i = from; i < n; i++) {
        if (!required[i])
            item(l, rule, tool, i, separator, true);
    }
}

#define MAX_ORDERED 32

/* Required ones in order, then optional ones in order, with separators between. */
static void list(struct lark *l, const char *rule, size_t tool, const bool *required, size_t n,
                 const char *separator)
{
    size_t n_required = 0, n_optional = 0, written = 0;
    for (size_t i = 0; i < n; i++) {
        n_required += required[i];
        n_optional += !required[i];
    }
    for (size_t i = 0; i < n; i++) {
        if (required[i])
            item(l, rule, tool, i, written++ ? separator : NULL, false);
    }
    if (n_required > 0 || n_optional == 0) {
        optional_rest(l, rule, tool, required, n, 0, separator);
        return;
    }
    buf_puts(l->out, " (");
    for (size_t i = 0; i < n && i < MAX_ORDERED; i++) {
        buf_puts(l->out, i ? " |" : "");
        item(l, rule, tool, i, NULL, false);
        optional_rest(l, rule, tool, required, n < MAX_ORDERED ? n : MAX_ORDERED, i + 1, separator);
    }
    buf_puts(l->out, ")?");
}

static bool *required_of(const struct chat_tool *t)
{
    bool *required = calloc(t->n_args + 1, sizeof *required);
    for (size_t i = 0; required && i < t->n_args; i++)
        required[i] = t->args[i].required;
    return required;
}

/* ---- strings ---- */

static void choice(struct lark *l, const json_t *value, size_t n)
{
    buf_puts(l->out, n ? " |" : "");
    if (*json_string_value(value))
        lark_literal(l, json_string_value(value));
    else
        buf_puts(l->out, " \"\"");
}

/* The strings of "enum" or "const". */
static void choices(struct lark *l, const json_t *schema, const char *end)
{
    const json_t *values = json_object_get(schema, "enum"), *v;
    size_t i, n = 0;
    buf_puts(l->out, " (");
    json_array_foreach(values, i, v)
    {
        if (json_is_string(v))
            choice(l, v, n++);
    }
    if (n == 0)
        choice(l, json_object_get(schema, "const"), n);
    buf_puts(l->out, ")");
    lark_mark(l, end);
}

static bool has_choices(const json_t *schema)
{
    const json_t *first = json_array_get(json_object_get(schema, "enum"), 0);
    return json_is_string(first) || json_is_string(json_object_get(schema, "const"));
}

/* Text up to and with a mark, of a length that the schema allows. */
static void text_rule(struct lark *l, size_t tool, size_t i, const char *end, const json_t *schema)
{
    const json_t *min = json_object_get(schema, "minLength"), *max = json_object_get(schema, "maxLength");
    char length[64] = ".*", name[64];
    if (json_is_integer(min) || json_is_integer(max)) {
        long long from = json_integer_value(min), to = json_is_integer(max) ? json_integer_value(max) : -1;
        if (from >= 0 && from < 10000 && to < 10000)
            snprintf(length, sizeof length, to >= 0 ? ".{%lld,%lld}" : ".{%lld,}", from, to);
    }
    if (l->s->row->flags & F_CDATA) { /* which has its own end, and mustn't be read as plain text */
        buf_printf(l->out, "text_%zu_%zu: cdata_%zu_%zu | plain_%zu_%zu\n", tool, i, tool, i, tool, i);
        buf_printf(l->out, "cdata_%zu_%zu[lazy]: /<!\\[CDATA\\[(?s:%s)\\]\\]>", tool, i, length);
        lark_regex(l->out, end);
        buf_printf(l->out, "/\nplain_%zu_%zu[lazy]: /(([^<]|<[^!])(?s:.*))?", tool, i);
        lark_regex(l->out, end);
        buf_puts(l->out, "/\n");
        return;
    }
    snprintf(name, sizeof name, "text_%zu_%zu", tool, i);
    lark_until(l, name, length, end);
}

/* ---- tags ---- */

#define MAX_ANY_ORDER 6

/* Arguments in any order: a rule for each set of those that may still come. */
static void any_order(struct lark *l, size_t tool)
{
    const struct chat_tool *t = &l->s->tools.tools[tool];
    bool commas = l->s->row->kind != CALLS_TAGS;
    if (t->n_args < 2 || t->n_args > MAX_ANY_ORDER)
        return;
    for (unsigned set = 0; set < 1u << t->n_args; set++) {
        bool needed = false, first = true;
        buf_printf(l->out, "any_%zu_%u:", tool, set);
        for (size_t i = 0; i < t->n_args; i++) {
            if (!(set & 1u << i))
                continue;
            needed = needed || t->args[i].required;
            buf_printf(l->out, "%s arg_%zu_%zu ws %s_%zu_%u", first ? "" : " |", tool, i,
                       commas ? "more" : "any", tool, set & ~(1u << i));
            first = false;
        }
        if (!needed)
            buf_puts(l->out, first ? " \"\"" : " | \"\"");
        buf_putc(l->out, '\n');
        if (commas)
            buf_printf(l->out, "more_%zu_%u:%s\n", tool, set, first ? " \"\"" : needed ? "" : " \"\" |");
        if (commas && !first) {
            l->out->n--;
            buf_printf(l->out, " \",\" ws any_%zu_%u\n", tool, set);
        }
    }
}

static bool in_any_order(struct lark *l, size_t tool)
{
    size_t n = l->s->tools.tools[tool].n_args;
    if (n < 2 || n > MAX_ANY_ORDER)
        return false;
    buf_printf(l->out, " any_%zu_%u", tool, (1u << n) - 1);
    return true;
}

void lark_tags_call(struct lark *l, size_t tool)
{
    const struct chat_format_row *r = l->s->row;
    const struct chat_tool *t = &l->s->tools.tools[tool];
    bool *required = required_of(t);
    if (r->name_prefix)
        lark_mark(l, r->name_prefix);
    lark_literal(l, t->name);
    if (r->name_end)
        lark_mark(l, r->name_end);
    if (r->name_skip) {
        buf_puts(l->out, " \" index=\\\"\" /[0-9]{1,4}/ \"\\\"\"");
        lark_mark(l, r->name_skip);
    }
    buf_puts(l->out, " ws");
    bool any = in_any_order(l, tool);
    for (size_t i = 0; required && !any && i < t->n_args; i++)
        buf_printf(l->out, required[i] ? " arg_%zu_%zu ws" : " (arg_%zu_%zu ws)?", tool, i);
    if (r->func_end)
        lark_mark(l, r->func_end);
    free(required);
}

static const char *type_name(const struct chat_format_row *r, unsigned types)
{
    if (!strstr(r->arg_name_end, "type="))
        return types & TYPE_STRING ? "true" : "false";
    return types & TYPE_STRING    ? "string"
           : types & TYPE_NUMBER  ? "number"
           : types & TYPE_BOOLEAN ? "boolean"
           : types & TYPE_OBJECT  ? "object"
           : types & TYPE_ARRAY   ? "array"
                                  : "null";
}

/* One way to write a value: as text, or as JSON. */
static void tag_argument(struct lark *l, size_t tool, size_t i, bool text, const json_t *schema)
{
    const struct chat_format_row *r = l->s->row;
    const struct chat_argument *a = &l->s->tools.tools[tool].args[i];
    const char *line = r->flags & F_LINES ? "\n" : "";
    char end[64];
    snprintf(end, sizeof end, "%s%s", line, r->value_end);
    lark_mark(l, r->arg_start);
    lark_literal(l, a->name);
    lark_mark(l, r->arg_name_end);
    if (r->flags & F_TYPED) {
        unsigned types = text ? TYPE_STRING : a->types & ~(unsigned)TYPE_STRING;
        lark_literal(l, type_name(r, types));
        lark_mark(l, r->type_end);
    }
    if (r->value_start) {
        buf_puts(l->out, " ws");
        lark_mark(l, r->value_start);
    }
    lark_literal(l, line);
    if (!text) {
        buf_printf(l->out, " json_%zu_%zu", tool, i);
        lark_mark(l, end);
    } else if (has_choices(schema)) {
        choices(l, schema, end);
    } else {
        buf_printf(l->out, " text_%zu_%zu", tool, i);
    }
}

static void tag_rules(struct lark *l, size_t tool, size_t i, const json_t *schema)
{
    const struct chat_format_row *r = l->s->row;
    const struct chat_argument *a = &l->s->tools.tools[tool].args[i];
    bool text = (a->types & TYPE_STRING) != 0, both = text && a->types != TYPE_STRING && (r->flags & F_TYPED);
    char end[64];
    snprintf(end, sizeof end, "%s%s", r->flags & F_LINES ? "\n" : "", r->value_end);
    buf_printf(l->out, "arg_%zu_%zu:", tool, i);
    tag_argument(l, tool, i, text, schema);
    if (both) {
        buf_puts(l->out, " |");
        tag_argument(l, tool, i, false, schema);
    }
    buf_putc(l->out, '\n');
    if (text && !has_choices(schema))
        text_rule(l, tool, i, end, schema);
    if (!text || both) {
        buf_printf(l->out, "json_%zu_%zu:", tool, i);
        lark_json(l, a->schema);
    }
}

/* ---- Python ---- */

void lark_python_call(struct lark *l, size_t tool)
{
    const struct chat_tool *t = &l->s->tools.tools[tool];
    bool *required = required_of(t);
    lark_literal(l, t->name);
    buf_puts(l->out, " \"(\" ws");
    if (required && !in_any_order(l, tool))
        list(l, "arg", tool, required, t->n_args, ",");
    buf_puts(l->out, " ws \")\"");
    free(required);
}

/* A schema of strings that allows all of them. */
static bool any_text(const json_t *schema)
{
    static const char *const limits[] = {"enum",  "const", "pattern", "format", "minLength", "maxLength",
                                         "anyOf", "oneOf", "allOf",   "$ref",   "not"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (json_object_get(schema, limits[i]))
            return false;
    }
    return true;
}

static void python_rules(struct lark *l, size_t tool, size_t i, const json_t *schema)
{
    const struct chat_argument *a = &l->s->tools.tools[tool].args[i];
    buf_printf(l->out, "arg_%zu_%zu:", tool, i);
    lark_literal(l, a->name);
    buf_puts(l->out, " \"=\" (");
    if (a->types == TYPE_BOOLEAN || a->types == TYPE_NULL) {
        buf_puts(l->out, a->types == TYPE_NULL ? " \"None\" | \"null\")\n" : " /[Tt]rue|[Ff]alse/)\n");
        return;
    }
    buf_printf(l->out, " json_%zu_%zu", tool, i);
    if (a->types == TYPE_STRING && any_text(schema))
        buf_puts(l->out, " | single_quoted");
    buf_printf(l->out, ")\njson_%zu_%zu:", tool, i);
    lark_json(l, a->schema);
}

/* ---- dicts ---- */

#define MAX_DICT_DEPTH 8

void lark_dict_call(struct lark *l, size_t tool)
{
    const struct chat_tool *t = &l->s->tools.tools[tool];
    bool *required = required_of(t);
    lark_mark(l, l->s->row->name_prefix);
    lark_literal(l, t->name);
    buf_puts(l->out, " \"{\"");
    if (required && !in_any_order(l, tool))
        list(l, "arg", tool, required, t->n_args, ",");
    buf_puts(l->out, " \"}\"");
    free(required);
    l->dicts = true;
}

static void dict_value(struct lark *l, const json_t *schema, int depth);

static bool in_required(const json_t *schema, const char *key)
{
    size_t i;
    const json_t *v;
    json_array_foreach(json_object_get(schema, "required"), i, v)
    {
        if (json_is_string(v) && strcmp(json_string_value(v), key) == 0)
            return true;
    }
    return false;
}

/* Members in the order of the schema; a comma stands before all but the first, so the required come first. */
static void dict_object(struct lark *l, const json_t *schema, int depth)
{
    json_t *properties = json_object_get(schema, "properties"), *value;
    const char *key;
    size_t n = 0;
    buf_puts(l->out, " \"{\"");
    for (int pass = 1; pass >= 0; pass--) {
        json_object_foreach(properties, key, value)
        {
            if (in_required(schema, key) != (pass == 1))
                continue;
            bool optional = pass == 0;
            buf_puts(l->out, optional ? " (" : "");
            if (n++ > 0)
                buf_puts(l->out, " \",\"");
            lark_literal(l, key);
            buf_puts(l->out, " \":\"");
            dict_value(l, value, depth + 1);
            buf_puts(l->out, optional ? ")?" : "");
        }
    }
    buf_puts(l->out, " \"}\"");
}

static bool any_required(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(schema, "properties"), key, value)
    {
        if (in_required(schema, key))
            return true;
    }
    return json_object_size(json_object_get(schema, "properties")) == 1;
}

static void dict_value(struct lark *l, const json_t *schema, int depth)
{
    const char *type = json_string_value(json_object_get(schema, "type"));
    const char *quote = l->s->row->quote;
    if (has_choices(schema)) {
        lark_mark(l, quote);
        choices(l, schema, quote);
    } else if (depth > MAX_DICT_DEPTH || !type || json_object_get(schema, "enum") ||
               json_object_get(schema, "const")) {
        buf_puts(l->out, " d_value");
    } else if (strcmp(type, "string") == 0) {
        buf_puts(l->out, " d_string");
    } else if (strcmp(type, "integer") == 0) {
        buf_puts(l->out, " /-?(0|[1-9][0-9]{0,17})/");
    } else if (strcmp(type, "number") == 0) {
        buf_puts(l->out, " d_number");
    } else if (strcmp(type, "boolean") == 0) {
        buf_puts(l->out, " (\"true\" | \"false\")");
    } else if (strcmp(type, "null") == 0) {
        buf_puts(l->out, " \"null\"");
    } else if (strcmp(type, "object") == 0 && any_required(schema)) {
        dict_object(l, schema, depth);
    } else if (strcmp(type, "array") == 0 && json_is_object(json_object_get(schema, "items"))) {
        const json_t *items = json_object_get(schema, "items");
        buf_puts(l->out, " \"[\" (");
        dict_value(l, items, depth + 1);
        buf_puts(l->out, " (\",\"");
        dict_value(l, items, depth + 1);
        buf_puts(l->out, ")*)? \"]\"");
    } else {
        buf_puts(l->out, " d_value");
    }
}

static void dict_rules(struct lark *l, size_t tool, size_t i, const json_t *schema)
{
    buf_printf(l->out, "arg_%zu_%zu:", tool, i);
    lark_literal(l, l->s->tools.tools[tool].args[i].name);
    buf_puts(l->out, " \":\"");
    dict_value(l, schema, 0);
    buf_putc(l->out, '\n');
}

void lark_shared_values(struct lark *l)
{
    if (l->s->row->kind == CALLS_PYTHON)
        buf_puts(l->out, "single_quoted: /'([^'\\\\\\n]|\\\\.)*'/\n");
    const char *quote = l->s->row->quote;
    if (!l->dicts)
        return;
    buf_puts(l->out, "d_string:");
    lark_mark(l, quote);
    buf_puts(l->out, " d_text\n");
    lark_until(l, "d_text", ".*", quote);
    buf_puts(l->out, "d_number: /-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][-+]?[0-9]{1,3})?/\n"
                     "d_key: /[A-Za-z0-9_.-]+/\n"
                     "d_value: d_string | d_number | \"true\" | \"false\" | \"null\""
                     " | \"[\" (d_value (\",\" d_value)*)? \"]\""
                     " | \"{\" (d_key \":\" d_value (\",\" d_key \":\" d_value)*)? \"}\"\n");
}

void lark_argument_rules(struct lark *l, size_t tool)
{
    const struct chat_tool *t = &l->s->tools.tools[tool];
    enum calls_kind kind = l->s->row->kind;
    if (kind != CALLS_TAGS && kind != CALLS_PYTHON && kind != CALLS_DICT)
        return;
    any_order(l, tool);
    for (size_t i = 0; i < t->n_args; i++) {
        json_t *schema = json_loads(t->args[i].schema, JSON_DECODE_ANY, NULL);
        if (kind == CALLS_TAGS)
            tag_rules(l, tool, i, schema);
        else if (kind == CALLS_PYTHON)
            python_rules(l, tool, i, schema);
        else
            dict_rules(l, tool, i, schema);
        json_decref(schema);
    }
}

/* ---- schemas ---- */

/* As llama.cpp reads them: an object that lists its properties and says nothing of others has no others. Not
 * where the schema is put together of several. */
static void close_objects(json_t *schema, int depth)
{
    static const char *const parts[] = {"allOf",
                                        "anyOf",
                                        "oneOf",
                                        "$ref",
                                        "patternProperties",
                                        "additionalProperties",
                                        "unevaluatedProperties",
                                        "if"};
    const char *key;
    json_t *value;
    size_t i;
    if (depth > 64)
        return;
    json_array_foreach(schema, i, value) close_objects(value, depth + 1);
    if (!json_is_object(schema))
        return;
    bool whole = json_object_get(schema, "allOf") == NULL;
    json_object_foreach(schema, key, value)
    {
        bool names =
            strcmp(key, "properties") == 0 || strcmp(key, "$defs") == 0 || strcmp(key, "definitions") == 0;
        const char *inner_key;
        json_t *inner;
        if (names) {
            json_object_foreach(value, inner_key, inner) close_objects(inner, depth + 1);
        } else if (strcmp(key, "items") == 0 ||
                   (whole && (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0))) {
            close_objects(value, depth + 1);
        }
    }
    if (!json_is_object(json_object_get(schema, "properties")))
        return;
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (json_object_get(schema, parts[i]))
            return;
    }
    json_object_set_new(schema, "additionalProperties", json_false());
}

char *chat_schema_text(struct str text)
{
    json_t *schema = json_loadb(text.p, text.n, 0, NULL);
    if (!json_is_object(schema)) {
        json_decref(schema);
        return NULL;
    }
    close_objects(schema, 0);
    char *out = json_dumps(schema, JSON_COMPACT);
    json_decref(schema);
    return out;
}
