/* The tools of a request: names, schemas, and which types each argument may have, for formats that write
 * arguments as bare text. */
#include "chat/format_row.h"

#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>

static unsigned type_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"string", TYPE_STRING},   {"number", TYPE_NUMBER}, {"integer", TYPE_NUMBER},
                 {"boolean", TYPE_BOOLEAN}, {"null", TYPE_NULL},     {"object", TYPE_OBJECT},
                 {"array", TYPE_ARRAY}};
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, name) == 0)
            return names[i].type;
    }
    return 0;
}

static unsigned type_of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    }
    return TYPE_ANY;
}

/* "#/$defs/x" and "#/definitions/x" in the whole schema. */
static const json_t *resolve(const json_t *whole, const char *ref)
{
    static const char *const places[] = {"$defs", "definitions"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        size_t n = strlen(places[i]);
        if (strncmp(ref, "#/", 2) == 0 && strncmp(ref + 2, places[i], n) == 0 && ref[2 + n] == '/')
            return json_object_get(json_object_get(whole, places[i]), ref + n + 3);
    }
    return NULL;
}

static unsigned schema_types(const json_t *whole, const json_t *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    unsigned types = 0, allowed = TYPE_ANY;
    size_t i;
    const json_t *item;
    if (depth > 16 || !json_is_object(schema))
        return TYPE_ANY;
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    const json_t *constant = json_object_get(schema, "const"), *ref = json_object_get(schema, "$ref");
    const json_t *all = json_object_get(schema, "allOf");
    if (json_is_string(type)) {
        allowed &= type_of_name(json_string_value(type));
    } else if (json_is_array(type)) {
        json_array_foreach(type, i, item) types |= type_of_name(json_string_value(item));
        allowed &= types;
    }
    if (json_is_array(values)) {
        types = 0;
        json_array_foreach(values, i, item) types |= type_of_value(item);
        allowed &= types;
    }
    if (constant)
        allowed &= type_of_value(constant);
    for (size_t u = 0; u < sizeof unions / sizeof *unions; u++) {
        const json_t *list = json_object_get(schema, unions[u]);
        types = 0;
        json_array_foreach(list, i, item) types |= schema_types(whole, item, depth + 1);
        if (json_array_size(list) > 0)
            allowed &= types;
    }
    json_array_foreach(all, i, item) allowed &= schema_types(whole, item, depth + 1);
    if (json_is_string(ref) && resolve(whole, json_string_value(ref)))
        allowed &= schema_types(whole, resolve(whole, json_string_value(ref)), depth + 1);
    return allowed ? allowed : TYPE_ANY;
}

/* A schema on its own: with the definitions that it may refer to. */
static char *dump_part(const json_t *whole, const json_t *part)
{
    json_t *copy = json_copy((json_t *)part);
    static const char *const places[] = {"$defs", "definitions"};
    for (size_t i = 0; json_is_object(copy) && i < sizeof places / sizeof *places; i++) {
        json_t *defs = json_object_get(whole, places[i]);
        if (defs && !json_object_get(copy, places[i]))
            json_object_set(copy, places[i], defs);
    }
    char *plain = json_dumps(copy, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(copy);
    char *closed = plain && plain[0] == '{' ? chat_schema_text(str_of(plain)) : NULL;
    if (!closed)
        return plain;
    free(plain);
    return closed;
}

static bool is_required(const json_t *params, const char *name)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(params, "required"), i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

static int read_arguments(struct chat_tool *t, const json_t *params, struct err *err)
{
    const char *key;
    json_t *schema, *properties = json_object_get(params, "properties");
    if (properties && !json_is_object(properties))
        return err_set(err, ERR_USAGE, "tool %s: 'properties' is no object", t->name);
    t->args = xcalloc(json_object_size(properties) + 1, sizeof *t->args);
    json_object_foreach(properties, key, schema)
    {
        struct chat_argument *a = &t->args[t->n_args++];
        a->name = xstrdup(key);
        a->types = schema_types(params, schema, 0);
        a->required = is_required(params, key);
        a->schema = dump_part(params, schema);
        if (!a->schema)
            return err_set(err, ERR_MEMORY, "out of memory");
    }
    return 0;
}

static int read_tool(struct chat_tool *t, const json_t *tool, struct err *err)
{
    const json_t *function = json_object_get(tool, "function");
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!json_is_object(tool) || !type)
        return err_set(err, ERR_USAGE, "Missing tool type");
    if (strcmp(type, "function") != 0)
        return err_set(err, ERR_USAGE, "Unsupported tool type: %s", type);
    if (!json_is_object(function))
        return err_set(err, ERR_USAGE, "Missing tool function");
    const char *name = json_string_value(json_object_get(function, "name"));
    const json_t *params = json_object_get(function, "parameters");
    if (!name || !*name)
        return err_set(err, ERR_USAGE, "Missing tool name");
    if (params && !json_is_null(params) && !json_is_object(params))
        return err_set(err, ERR_USAGE, "tool %s: 'parameters' is no object", name);
    t->name = xstrdup(name);
    if (json_object_size(params) == 0) {
        t->parameters = xstrdup("{\"type\":\"object\",\"properties\":{}}");
        return 0;
    }
    char *plain = json_dumps(params, JSON_COMPACT);
    t->parameters = plain ? chat_schema_text(str_of(plain)) : NULL;
    free(plain);
    if (!t->parameters)
        return err_set(err, ERR_MEMORY, "out of memory");
    return read_arguments(t, params, err);
}

int chat_tools_parse(struct chat_tools *t, struct str text, struct err *err)
{
    *t = (struct chat_tools){0};
    if (text.n == 0)
        return 0;
    if (text.n > CHAT_MAX_TOOLS_SIZE)
        return err_set(err, ERR_USAGE, "'tools' is over %zu bytes", CHAT_MAX_TOOLS_SIZE);
    json_error_t why;
    json_t *list = json_loadb(text.p, text.n, JSON_DECODE_ANY, &why);
    if (!list)
        return err_set(err, ERR_USAGE, "'tools' is no JSON: %s", why.text);
    size_t i;
    const json_t *tool;
    int status = 0;
    if (!json_is_array(list) && !json_is_null(list)) {
        status = err_set(err, ERR_USAGE, "'tools' must be an array");
    } else if (json_array_size(list) > CHAT_MAX_TOOLS) {
        status = err_set(err, ERR_USAGE, "more than %d tools", CHAT_MAX_TOOLS);
    } else {
        t->tools = xcalloc(json_array_size(list) + 1, sizeof *t->tools);
        json_array_foreach(list, i, tool)
        {
            if (status == 0)
                status = read_tool(&t->tools[t->n++], tool, err);
        }
    }
    json_decref(list);
    return status;
}

void chat_tools_release(struct chat_tools *t)
{
    for (size_t i = 0; i < t->n; i++) {
        for (size_t j = 0; j < t->tools[i].n_args; j++) {
            free(t->tools[i].args[j].name);
            free(t->tools[i].args[j].schema);
        }
        free(t->tools[i].args);
        free(t->tools[i].name);
        free(t->tools[i].parameters);
    }
    free(t->tools);
    *t = (struct chat_tools){0};
}

const struct chat_tool *chat_tools_find(const struct chat_tools *t, struct str name)
{
    for (size_t i = 0; i < t->n; i++) {
        if (str_is(name, t->tools[i].name))
            return &t->tools[i];
    }
    return NULL;
}

unsigned chat_tool_types(const struct chat_tool *t, struct str argument)
{
    for (size_t i = 0; i < t->n_args; i++) {
        if (str_is(argument, t->args[i].name))
            return t->args[i].types;
    }
    return TYPE_ANY;
}
