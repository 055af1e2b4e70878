/* Constants: by reference into the caller's blob, or copied. Small equal ones become one node, whose name
 * says its value (`i64[0,2,32]`, `f32(0.5)`), so that a dump can be read without the weights. */
#include "ir/graph.h"

#include <stdio.h>

/* Above this a constant is taken to be data, and no equal one is looked for. */
#define SMALL 256
/* Elements up to which a name lists the values. */
#define NAMED 8

/* Bytes that a constant takes; false (and failed) if type or shape allow none. */
static bool const_size(struct ir *g, enum ir_type type, struct ir_shape shape, uint64_t *size)
{
    uint64_t count, bits;
    if (!ir_shape_ok(shape) || !ir_shape_count(shape, &count)) {
        ir_fail_at(g, "Const", "shape %s cannot be stored", ir_shape_text(shape).s);
        return false;
    }
    if (type == IR_DYNAMIC) {
        ir_fail_at(g, "Const", "a constant needs an element type");
        return false;
    }
    if (__builtin_mul_overflow(count, (uint64_t)ir_types[type].bits, &bits) || bits > UINT64_MAX - 7) {
        ir_fail_at(g, "Const", "shape %s of %s is too large", ir_shape_text(shape).s, ir_types[type].element);
        return false;
    }
    *size = (bits + 7) / 8;
    return true;
}

static ir_val emit_const(struct ir *g, enum ir_kind kind, const char *name, struct ir_out out,
                         uint64_t offset, uint64_t size)
{
    struct op op = {.type = "Const",
                    .opset = "opset1",
                    .name = name,
                    .kind = kind,
                    .n_out = 1,
                    .out = &out,
                    .offset = offset,
                    .size = size};
    return ir_emit(g, &op);
}

ir_val ir_const_ref(struct ir *g, enum ir_type type, struct ir_shape shape, uint64_t offset, uint64_t size)
{
    uint64_t want, end;
    if (g->err.code != ERR_NONE || !const_size(g, type, shape, &want))
        return IR_NONE;
    if (size != want)
        return ir_fail_at(g, "Const", "%llu bytes given, %s of %s takes %llu", (unsigned long long)size,
                          ir_shape_text(shape).s, ir_types[type].element, (unsigned long long)want);
    if (__builtin_add_overflow(offset, size, &end))
        return ir_fail_at(g, "Const", "offset %llu is out of range", (unsigned long long)offset);
    return emit_const(g, KIND_CONST_REF, NULL, (struct ir_out){type, shape}, offset, size);
}

/* Element i as text. */
static struct text element_text(enum ir_type type, const void *data, size_t i)
{
    struct text t = {""};
    const char *at = (const char *)data + i * (size_t)ir_types[type].bits / 8;
    int64_t i64;
    int32_t i32;
    float f32;
    switch (type) {
    case IR_I64:
        memcpy(&i64, at, sizeof i64);
        return ir_int_text(i64);
    case IR_I32:
        memcpy(&i32, at, sizeof i32);
        return ir_int_text(i32);
    case IR_U8:
        return ir_int_text((unsigned char)*at);
    case IR_F32:
        memcpy(&f32, at, sizeof f32);
        snprintf(t.s, sizeof t.s, "%g", (double)f32);
        return t;
    default:
        return t;
    }
}

/* "i64[0,2,32]", "f32(0.5)"; with its scope "blk.3.f32.4x64" where values would be too many or are not shown.
 */
static const char *value_name(struct ir *g, enum ir_type type, struct ir_shape shape, const void *data)
{
    char name[NAMED * 32 + 16];
    uint64_t count;
    size_t n = (size_t)snprintf(name, sizeof name, "%s", ir_types[type].element);
    bool shown = (type == IR_I64 || type == IR_I32 || type == IR_U8 || type == IR_F32) && shape.rank < 2 &&
                 ir_shape_count(shape, &count) && count <= NAMED;
    if (!shown) {
        for (int i = 0; i < shape.rank; i++)
            n += (size_t)snprintf(name + n, sizeof name - n, "%c%lld", i ? 'x' : '.', (long long)shape.d[i]);
        return g->path.n ? arena_printf(&g->mem, "%s.%s", g->path.p, name) : arena_strndup(&g->mem, name, n);
    }
    name[n++] = shape.rank ? '[' : '(';
    for (size_t i = 0; i < count; i++)
        n += (size_t)snprintf(name + n, sizeof name - n, "%s%s", i ? "," : "", element_text(type, data, i).s);
    name[n++] = shape.rank ? ']' : ')';
    return arena_strndup(&g->mem, name, n);
}

/* Type, shape and bytes in one string of the arena. */
static struct str small_key(struct ir *g, enum ir_type type, struct ir_shape shape, const void *data,
                            size_t size)
{
    size_t head = 2 + (size_t)shape.rank * sizeof(int64_t);
    char *key = arena_alloc(&g->mem, head + size);
    key[0] = (char)type;
    key[1] = (char)shape.rank;
    memcpy(key + 2, shape.d, (size_t)shape.rank * sizeof(int64_t));
    if (size)
        memcpy(key + head, data, size);
    return (struct str){key, head + size};
}

static ir_val copy_const(struct ir *g, enum ir_type type, struct ir_shape shape, const void *data, bool named)
{
    uint64_t size, known;
    if (g->err.code != ERR_NONE || !const_size(g, type, shape, &size))
        return IR_NONE;
    struct str key = {NULL, 0};
    if (size <= SMALL) {
        key = small_key(g, type, shape, data, (size_t)size);
        if (map_get(&g->constants, key, &known)) {
            if (named)
                g->next = NULL;
            return (ir_val)known;
        }
    }
    static const char zeros[IR_ALIGN];
    buf_add(&g->data, zeros, align_up(g->data.n, IR_ALIGN) - g->data.n);
    size_t offset = g->data.n;
    buf_add(&g->data, data, (size_t)size);
    if (g->data.failed || !map_reserve(&g->constants, g->constants.n + 1))
        return ir_fail_memory(g);
    const char *name = named && g->next ? NULL : value_name(g, type, shape, data);
    ir_val v = emit_const(g, KIND_CONST_COPY, name, (struct ir_out){type, shape}, offset, size);
    if (v != IR_NONE && key.p)
        map_add(&g->constants, key, (uint64_t)v, NULL);
    return v;
}

ir_val ir_const(struct ir *g, enum ir_type type, struct ir_shape shape, const void *data)
{
    return copy_const(g, type, shape, data, true);
}

ir_val ir_f32(struct ir *g, float v)
{
    return copy_const(g, IR_F32, IR_SCALAR, &v, false);
}

ir_val ir_i64(struct ir *g, int64_t v)
{
    return copy_const(g, IR_I64, IR_SCALAR, &v, false);
}

ir_val ir_i64s(struct ir *g, int n, const int64_t *v)
{
    return copy_const(g, IR_I64, IR_SHAPE(n), v, false);
}

ir_val ir_const_i64(struct ir *g, struct ir_shape shape, const int64_t *v)
{
    return copy_const(g, IR_I64, shape, v, false);
}

bool ir_known_i64(const struct ir *g, ir_val v, int64_t *out)
{
    if (ir_type_of(g, v) != IR_I64 || ir_shape_of(g, v).rank != 0)
        return false;
    const struct node *n = &g->nodes[g->values[v].node];
    if (n->kind != KIND_CONST_COPY)
        return false;
    memcpy(out, g->data.p + n->offset, sizeof *out);
    return true;
}
