/* JSON of requests: reading it by tables, and making text for answers. A wrong type is an error (400) that
 * names the field; null stands for "not there"; what no table knows is ignored. */
#ifndef SERVER_FIELDS_H
#define SERVER_FIELDS_H

#include "server/http.h"

#include "base/mem.h"

#include <stdint.h>

/* The body as an object (or whatever it is, with `any`); NULL: 400. Decref it. */
json_t *read_body(struct exchange *x, bool any, struct grappa_err *err);

/* "number", "string", … */
const char *json_type_name(const json_t *j);
/* The member, or NULL when it is not there or null. */
json_t *member(const json_t *object, const char *name);
/* Members of a known type: 0 and *out set (or left alone when not there), -1: wrong type. Strings have no NUL
 * inside and live as long as the JSON. */
int member_bool(const json_t *o, const char *name, bool *out, struct grappa_err *err);
int member_i32(const json_t *o, const char *name, int32_t *out, struct grappa_err *err);
int member_string(const json_t *o, const char *name, const char **out, struct grappa_err *err);
int member_array(const json_t *o, const char *name, json_t **out, struct grappa_err *err);
int member_object(const json_t *o, const char *name, json_t **out, struct grappa_err *err);

/* ---- tables ---- */
enum field_kind { FIELD_BOOL, FIELD_I32, FIELD_I64, FIELD_U32, FIELD_F32, FIELD_OWN };
enum field_limit { CLAMP, HARD }; /* a value outside: the nearest inside, or a 400 */

struct field {
    const char *names; /* the first that is there counts; separated by commas */
    enum field_kind kind;
    size_t offset;
    double least, most;
    enum field_limit limit;
    int (*read)(void *into, const json_t *value, struct grappa_err *err); /* of FIELD_OWN */
};
int read_fields(void *into, const struct field *table, size_t n, const json_t *object,
                struct grappa_err *err);

/* ---- text ---- */
/* A JSON string of bytes that may not all be UTF-8: what is not becomes U+FFFD. */
json_t *text_json(const char *p, size_t n);
/* The bytes as numbers. */
json_t *bytes_json(const char *p, size_t n);
/* A number as JSON; null for what JSON can't write. */
json_t *real_json(double v);
/* `prefix` and 32 random letters and digits; free it. */
void random_id(char out[64], const char *prefix);

#endif
