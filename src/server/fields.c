/* Tables of fields, and members one by one. */
#include "server/fields.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <sys/random.h>

/* Integers of more than 64 bits are reals to llama-server's parser, and errors to this one: so they get a
 * fraction. */
static void put_reals(struct buf *out, const char *p, size_t n)
{
    bool text = false;
    for (size_t i = 0; i < n;) {
        size_t digits = 0;
        while (!text && i + digits < n && p[i + digits] >= '0' && p[i + digits] <= '9')
            digits++;
        if (digits) {
            char after = i + digits < n ? p[i + digits] : ' ', before = i ? p[i - 1] : ' ';
            buf_add(out, p + i, digits);
            if (digits >= 19 && !strchr(".eE", after) && !strchr(".eE+", before))
                buf_puts(out, ".0");
            i += digits;
            continue;
        }
        bool escape = text && p[i] == '\\' && i + 1 < n;
        text ^= p[i] == '"';
        buf_add(out, p + i, escape ? 2 : 1);
        i += escape ? 2 : 1;
    }
}

static json_t *parse(const char *p, size_t n, size_t flags, json_error_t *where)
{
    json_t *j = json_loadb(p, n, flags, where);
    if (j || json_error_code(where) != json_error_numeric_overflow)
        return j;
    struct buf reals = {.ceiling = 2 * n + 64};
    json_error_t again;
    put_reals(&reals, p, n);
    if (!reals.failed)
        j = json_loadb(reals.p, reals.n, flags, &again);
    buf_release(&reals);
    return j;
}

json_t *read_body(struct exchange *x, bool any, struct grappa_err *err)
{
    json_error_t where;
    json_t *j =
        parse(x->body.p ? x->body.p : "", x->body.n, JSON_ALLOW_NUL | (any ? JSON_DECODE_ANY : 0), &where);
    if (!j) {
        fail(err, 400, "the body is no JSON: %s at byte %d", where.text, where.position);
        return NULL;
    }
    if (!any && !json_is_object(j)) {
        fail(err, 400, "the body must be a JSON object, but is %s", json_type_name(j));
        json_decref(j);
        return NULL;
    }
    return j;
}

const char *json_type_name(const json_t *j)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "object",  [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "number", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",  [JSON_NULL] = "null"};
    return j ? names[json_typeof(j)] : "nothing";
}

json_t *member(const json_t *object, const char *name)
{
    json_t *j = json_object_get(object, name);
    return json_is_null(j) ? NULL : j;
}

static int wrong_type(const char *name, const char *want, const json_t *got, struct grappa_err *err)
{
    return fail(err, 400, "Field '%s': type must be %s, but is %s", name, want, json_type_name(got));
}

int member_bool(const json_t *o, const char *name, bool *out, struct grappa_err *err)
{
    const json_t *j = member(o, name);
    if (!j)
        return 0;
    if (!json_is_boolean(j))
        return wrong_type(name, "boolean", j, err);
    *out = json_is_true(j);
    return 0;
}

int member_i32(const json_t *o, const char *name, int32_t *out, struct grappa_err *err)
{
    const json_t *j = member(o, name);
    if (!j)
        return 0;
    if (!json_is_integer(j))
        return wrong_type(name, "number", j, err);
    json_int_t v = json_integer_value(j);
    if (v < INT32_MIN || v > INT32_MAX)
        return fail(err, 400, "Field '%s': %lld is out of range", name, (long long)v);
    *out = (int32_t)v;
    return 0;
}

int member_string(const json_t *o, const char *name, const char **out, struct grappa_err *err)
{
    const json_t *j = member(o, name);
    if (!j)
        return 0;
    if (!json_is_string(j))
        return wrong_type(name, "string", j, err);
    if (strlen(json_string_value(j)) != json_string_length(j))
        return fail(err, 400, "Field '%s': a NUL character can't be in it", name);
    *out = json_string_value(j);
    return 0;
}

int member_array(const json_t *o, const char *name, json_t **out, struct grappa_err *err)
{
    json_t *j = member(o, name);
    if (j && !json_is_array(j))
        return wrong_type(name, "array", j, err);
    if (j)
        *out = j;
    return 0;
}

int member_object(const json_t *o, const char *name, json_t **out, struct grappa_err *err)
{
    json_t *j = member(o, name);
    if (j && !json_is_object(j))
        return wrong_type(name, "object", j, err);
    if (j)
        *out = j;
    return 0;
}

/* ---- tables ---- */

static int read_number(void *to, const struct field *f, const char *name, const json_t *j,
                       struct grappa_err *err)
{
    if (!json_is_number(j) && !json_is_boolean(j)) /* true is 1, as with llama-server */
        return wrong_type(name, "number", j, err);
    double v = json_is_boolean(j) ? json_is_true(j) : json_number_value(j);
    if (f->limit == HARD && !(v >= f->least && v <= f->most))
        return fail(err, 400, "Field '%s': Value must be between %.10g <= value <= %.10g, but got %.10g",
                    name, f->least, f->most, v);
    v = v < f->least ? f->least : v > f->most ? f->most : v;
    switch (f->kind) {
    case FIELD_F32:
        *(float *)to = (float)v;
        break;
    case FIELD_I64:
        *(int64_t *)to = (int64_t)v;
        break;
    case FIELD_U32: /* -1 is all ones */
        *(uint32_t *)to = (uint32_t)(int64_t)v;
        break;
    default:
        *(int32_t *)to = (int32_t)v;
        break;
    }
    return 0;
}

static int read_field(void *into, const struct field *f, const char *name, const json_t *j,
                      struct grappa_err *err)
{
    void *to = (char *)into + f->offset;
    switch (f->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(j))
            return wrong_type(name, "boolean", j, err);
        *(bool *)to = json_is_true(j);
        return 0;
    case FIELD_OWN: {
        struct grappa_err e = {0};
        if (f->read(into, j, &e))
            return fail(err, e.http_status, "Field '%s': %s", name, e.text);
        return 0;
    }
    default:
        return read_number(to, f, name, j, err);
    }
}

int read_fields(void *into, const struct field *table, size_t n, const json_t *object, struct grappa_err *err)
{
    for (size_t i = 0; i < n; i++) {
        char name[64];
        for (const char *p = table[i].names; *p;) {
            size_t len = strcspn(p, ",");
            snprintf(name, sizeof name, "%.*s", (int)len, p);
            const json_t *j = member(object, name);
            if (j) {
                if (read_field(into, &table[i], name, j, err))
                    return -1;
                break;
            }
            p += len + (p[len] == ',');
        }
    }
    return 0;
}

/* ---- text ---- */

json_t *text_json(const char *p, size_t n)
{
    json_t *j = json_stringn(p ? p : "", n);
    if (j)
        return j;
    struct buf b = {0};
    for (size_t i = 0; i < n;) {
        size_t len = utf8_len(p + i, n - i);
        if (len)
            buf_add(&b, p + i, len);
        else
            buf_put_utf8(&b, 0xFFFD);
        i += len ? len : 1;
    }
    j = json_stringn(b.p ? b.p : "", b.n);
    buf_release(&b);
    return j;
}

json_t *bytes_json(const char *p, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer((unsigned char)p[i]));
    return a;
}

json_t *real_json(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

void random_id(char out[64], const char *prefix)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned char raw[32];
    if (getrandom(raw, sizeof raw, 0) != sizeof raw)
        memset(raw, 0, sizeof raw);
    int n = snprintf(out, 24, "%s", prefix);
    for (size_t i = 0; i < sizeof raw; i++)
        out[(size_t)n + i] = letters[raw[i] % (sizeof letters - 1)];
    out[(size_t)n + sizeof raw] = '\0';
}
