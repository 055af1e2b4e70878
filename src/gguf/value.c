/* Values out of the file as C numbers and strings, and as text for people. Files differ in the integer type
 * they use for a key, so any integer type will do where an integer is asked for, as long as the number fits.
 */
#include "gguf/value.h"
#include "base/utf8.h"
#include "gguf/part.h"
#include "gguf/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* X(value type, C type): the integers. */
#define INTEGERS(X)                                                                                          \
    X(GGUF_U8, uint8_t)                                                                                      \
    X(GGUF_I8, int8_t)                                                                                       \
    X(GGUF_U16, uint16_t)                                                                                    \
    X(GGUF_I16, int16_t)                                                                                     \
    X(GGUF_U32, uint32_t)                                                                                    \
    X(GGUF_I32, int32_t)                                                                                     \
    X(GGUF_I64, int64_t)

/* Element i, in place or through a copy: the file does not align its numbers. */
#define LOAD(c_type, kv, i) load_##c_type((kv)->data + (i) * sizeof(c_type))
#define DEFINE_LOAD(c_type)                                                                                  \
    static c_type load_##c_type(const uint8_t *p)                                                            \
    {                                                                                                        \
        c_type v;                                                                                            \
        memcpy(&v, p, sizeof v);                                                                             \
        return v;                                                                                            \
    }
#define X(type, c_type) DEFINE_LOAD(c_type)
INTEGERS(X)
#undef X
DEFINE_LOAD(uint64_t)
DEFINE_LOAD(float)
DEFINE_LOAD(double)

int64_t gguf_i64_at(const struct gguf_kv *kv, uint64_t i)
{
    switch (kv->type) {
#define X(type, c_type)                                                                                      \
    case type:                                                                                               \
        return (int64_t)LOAD(c_type, kv, i);
        INTEGERS(X)
#undef X
    case GGUF_U64: {
        uint64_t v = LOAD(uint64_t, kv, i);
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    case GGUF_BOOL:
        return kv->data[i] != 0;
    default:
        return 0;
    }
}

double gguf_f64_at(const struct gguf_kv *kv, uint64_t i)
{
    switch (kv->type) {
    case GGUF_F32:
        return (double)LOAD(float, kv, i);
    case GGUF_F64:
        return LOAD(double, kv, i);
    case GGUF_U64:
        return (double)LOAD(uint64_t, kv, i);
    default:
        return (double)gguf_i64_at(kv, i);
    }
}

struct str gguf_str_at(const struct gguf_kv *kv, uint64_t i)
{
    return kv->strings ? kv->strings[i] : (struct str){"", 0};
}

static bool is_integer(const struct gguf_kv *kv)
{
    switch (kv->type) {
#define X(type, c_type) case type:
        INTEGERS(X)
#undef X
    case GGUF_U64:
        return !kv->is_array;
    default:
        return false;
    }
}

static int wrong_type(const struct gguf_kv *kv, const char *wanted, struct err *err)
{
    return err_set(err, ERR_FORMAT, "key " NAME_FMT " is of type %s%s instead of %s", NAME_ARG(kv->key),
                   kv->is_array ? "array of " : "", value_type_info(kv->type)->name, wanted);
}

int value_u32(const struct gguf_kv *kv, uint32_t *out, struct err *err)
{
    if (!is_integer(kv))
        return wrong_type(kv, "u32", err);
    int64_t v = gguf_i64_at(kv, 0);
    if (v < 0 || v > UINT32_MAX) {
        char shown[32];
        gguf_kv_print(kv, shown, sizeof shown);
        return err_set(err, ERR_FORMAT, "key " NAME_FMT " is %s, outside of 0 to 2^32-1", NAME_ARG(kv->key),
                       shown);
    }
    *out = (uint32_t)v;
    return 0;
}

int value_f32(const struct gguf_kv *kv, float *out, struct err *err)
{
    if (kv->is_array || !(kv->type == GGUF_F32 || kv->type == GGUF_F64 || is_integer(kv)))
        return wrong_type(kv, "f32", err);
    *out = (float)gguf_f64_at(kv, 0);
    return 0;
}

int value_bool(const struct gguf_kv *kv, bool *out, struct err *err)
{
    if (kv->is_array || kv->type != GGUF_BOOL)
        return wrong_type(kv, "bool", err);
    *out = kv->data[0] != 0;
    return 0;
}

int value_string(const struct gguf_kv *kv, struct str *out, struct err *err)
{
    if (kv->is_array || kv->type != GGUF_STRING)
        return wrong_type(kv, "string", err);
    *out = kv->strings[0];
    return 0;
}

/* Text into a space that may be too small; `full` once something did not fit. */
struct sink {
    char *p;
    size_t n, size;
    bool full;
};

static void put(struct sink *s, const char *p, size_t n)
{
    if (s->full || n >= s->size - s->n) {
        s->full = true;
        return;
    }
    memcpy(s->p + s->n, p, n);
    s->n += n;
    s->p[s->n] = '\0';
}

/* On one line: control characters and stray bytes as escapes. */
static void put_str(struct sink *s, struct str v)
{
    for (size_t i = 0, n; i < v.n && !s->full; i += n) {
        n = utf8_len(v.p + i, v.n - i);
        unsigned char c = (unsigned char)v.p[i];
        char escape[8];
        if (c == '\n') {
            put(s, "\\n", 2);
        } else if (c < 0x20 || c == 0x7F || n == 0) {
            int escape_n = snprintf(escape, sizeof escape, "\\x%02x", c);
            put(s, escape, (size_t)escape_n);
        } else {
            put(s, v.p + i, n);
        }
        n = n ? n : 1;
    }
}

/* As few digits as read back as the same number: 1e-05, not 9.99999975e-06. */
static int shortest(char *out, size_t size, double v, bool is_float)
{
    int n = 0;
    for (int digits = is_float ? 6 : 15; digits <= (is_float ? 9 : 17); digits++) {
        n = snprintf(out, size, "%.*g", digits, v);
        double back = strtod(out, NULL);
        if (is_float ? (float)back == (float)v : back == v)
            break;
    }
    return n;
}

static void put_element(struct sink *s, const struct gguf_kv *kv, uint64_t i)
{
    char text[40];
    int n = 0;
    switch (kv->type) {
    case GGUF_STRING:
        if (kv->is_array)
            put(s, "\"", 1);
        put_str(s, kv->strings[i]);
        if (kv->is_array)
            put(s, "\"", 1);
        return;
    case GGUF_BOOL:
        n = snprintf(text, sizeof text, "%s", kv->data[i] ? "true" : "false");
        break;
    case GGUF_U64:
        n = snprintf(text, sizeof text, "%" PRIu64, LOAD(uint64_t, kv, i));
        break;
    case GGUF_F32:
        n = shortest(text, sizeof text, gguf_f64_at(kv, i), true);
        break;
    case GGUF_F64:
        n = shortest(text, sizeof text, gguf_f64_at(kv, i), false);
        break;
    default:
        n = snprintf(text, sizeof text, "%" PRId64, gguf_i64_at(kv, i));
    }
    put(s, text, (size_t)n);
}

/* The whole value, or as much as fits: whole elements of an array, whole characters of a string. Returns the
 * length of that. */
static size_t put_value(struct sink *s, const struct gguf_kv *kv)
{
    if (!kv->is_array) {
        put_element(s, kv, 0);
        return s->n;
    }
    put(s, "[", 1);
    size_t whole = s->n;
    for (uint64_t i = 0; i < kv->n && !s->full; i++) {
        if (i)
            put(s, ", ", 2);
        put_element(s, kv, i);
        if (!s->full)
            whole = s->n;
    }
    put(s, "]", 1);
    return whole;
}

void gguf_kv_print(const struct gguf_kv *kv, char *out, size_t size)
{
    if (size == 0)
        return;
    out[0] = '\0';
    struct sink s = {.p = out, .size = size};
    put_value(&s, kv);
    if (!s.full)
        return;
    const char *tail = kv->is_array ? ", ...]" : "...";
    out[0] = '\0';
    size_t tail_n = strlen(tail);
    if (size <= tail_n + 1)
        return;
    s = (struct sink){.p = out, .size = size - tail_n};
    size_t whole = put_value(&s, kv);
    s = (struct sink){.p = out, .n = whole, .size = size};
    if (kv->is_array && whole == 1)
        tail = "...]";
    put(&s, tail, strlen(tail));
}
