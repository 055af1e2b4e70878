/* The graph itself: making nodes, naming them, and the one failure a graph can carry. */
#include "ir/graph.h"

#include <stdio.h>
#include <stdlib.h>

/* Far above any model; a bound for counts that come from a file. */
#define MAX_NODES ((size_t)1 << 22)

struct ir *ir_new(const char *name)
{
    struct ir *g = xcalloc(1, sizeof *g);
    g->name = arena_strndup(&g->mem, name, strlen(name));
    return g;
}

void ir_free(struct ir *g)
{
    if (!g)
        return;
    free(g->nodes);
    free(g->values);
    free(g->inputs);
    buf_release(&g->data);
    buf_release(&g->path);
    buf_release(&g->marks);
    map_release(&g->constants);
    map_release(&g->names);
    map_release(&g->tensors);
    map_release(&g->variables);
    arena_release(&g->mem);
    free(g);
}

/* --- failures --- */

bool ir_failed(const struct ir *g, struct err *err)
{
    if (g->err.code == ERR_NONE)
        return false;
    err_set(err, g->err.code, "%s", g->err.text);
    return true;
}

/* "blk.3.attn.q: ", or less if there is no scope or no name. */
static void prefix_place(struct ir *g)
{
    const char *path = g->path.n ? g->path.p : "", *next = g->next ? g->next : "";
    if (*path || *next)
        err_prefix(&g->err, "%s%s%s", path, *path && *next ? "." : "", next);
}

ir_val ir_fail_at(struct ir *g, const char *type, const char *fmt, ...)
{
    if (g->err.code != ERR_NONE)
        return IR_NONE;
    char text[sizeof g->err.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&g->err, ERR_FORMAT, "%s: %s", type, text);
    prefix_place(g);
    return IR_NONE;
}

void ir_fail(struct ir *g, const char *fmt, ...)
{
    if (g->err.code != ERR_NONE)
        return;
    char text[sizeof g->err.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&g->err, ERR_FORMAT, "%s", text);
    prefix_place(g);
}

ir_val ir_fail_memory(struct ir *g)
{
    err_set(&g->err, ERR_MEMORY, "%s: out of memory for the graph", g->name);
    return IR_NONE;
}

bool ir_operands(struct ir *g, const char *type, int n, const ir_val *v)
{
    if (g->err.code != ERR_NONE)
        return false;
    for (int i = 0; i < n; i++) {
        if (v[i] < 0 || (size_t)v[i] >= g->n_values) {
            ir_fail_at(g, type, "operand %d is missing", i);
            return false;
        }
    }
    return true;
}

/* --- what is known of a value --- */

static const struct value *value_of(const struct ir *g, ir_val v)
{
    return v >= 0 && (size_t)v < g->n_values ? &g->values[v] : NULL;
}

enum ir_type ir_type_of(const struct ir *g, ir_val v)
{
    const struct value *x = value_of(g, v);
    return x ? x->type : IR_DYNAMIC;
}

struct ir_shape ir_shape_of(const struct ir *g, ir_val v)
{
    const struct value *x = value_of(g, v);
    return x ? x->shape : IR_SCALAR;
}

int64_t ir_dim(const struct ir *g, ir_val v, int axis)
{
    const struct value *x = value_of(g, v);
    if (!x || !ir_norm_axis(&axis, x->shape.rank))
        return IR_DYN;
    return x->shape.d[axis];
}

size_t ir_n_nodes(const struct ir *g)
{
    return g->n_nodes;
}

/* --- names --- */

void ir_scope(struct ir *g, const char *fmt, ...)
{
    size_t before = g->path.n;
    buf_add(&g->marks, &before, sizeof before);
    if (before)
        buf_putc(&g->path, '.');
    char part[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(part, sizeof part, fmt, ap);
    va_end(ap);
    buf_puts(&g->path, part);
    if (g->path.failed || g->marks.failed)
        ir_fail_memory(g);
}

void ir_leave(struct ir *g)
{
    size_t before;
    if (g->marks.n < sizeof before) {
        ir_fail(g, "ir_leave without ir_scope");
        return;
    }
    g->marks.n -= sizeof before;
    memcpy(&before, g->marks.p + g->marks.n, sizeof before);
    g->path.n = before;
    g->path.p[before] = '\0';
}

void ir_name(struct ir *g, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    g->next = arena_strndup(&g->mem, name, strlen(name));
}

/* `base`, or `base_2`, `base_3`, … if it is taken. The map counts requests per base, so that a name asked for
 * n times costs n steps in all, not n squared. */
static const char *unique_name(struct ir *g, const char *base)
{
    struct str key = str_of(base);
    if (!map_reserve(&g->names, g->names.n + 2)) {
        ir_fail_memory(g);
        return base;
    }
    uint64_t count;
    if (map_add(&g->names, key, 1, &count))
        return base;
    for (;;) {
        const char *name = arena_printf(&g->mem, "%s_%llu", base, (unsigned long long)++count);
        if (map_add(&g->names, str_of(name), 1, NULL)) {
            map_set(&g->names, key, count);
            return name;
        }
    }
}

/* The name of the node made now: scope and ir_name; an unnamed one is called by its type. */
static const char *take_name(struct ir *g, const char *type)
{
    const char *last = g->next ? g->next : type;
    g->next = NULL;
    return g->path.n ? arena_printf(&g->mem, "%s.%s", g->path.p, last) : last;
}

bool ir_unique_tensor(struct ir *g, const char *type, const char *name)
{
    if (!map_reserve(&g->tensors, g->tensors.n + 1)) {
        ir_fail_memory(g);
        return false;
    }
    if (!map_add(&g->tensors, str_of(arena_strndup(&g->mem, name, strlen(name))), 1, NULL)) {
        ir_fail_at(g, type, "the name '%s' is taken", name);
        return false;
    }
    return true;
}

/* --- nodes --- */

/* Makes room for `more` items of `item` bytes behind the n there are. */
static bool grow(void **items, size_t *size, size_t n, size_t more, size_t item)
{
    if (n + more <= *size)
        return true;
    size_t want = *size ? *size * 2 : 256;
    while (want < n + more)
        want *= 2;
    size_t bytes;
    void *p = mul_size(want, item, &bytes) ? realloc(*items, bytes) : NULL;
    if (!p)
        return false;
    *items = p;
    *size = want;
    return true;
}

static const struct ir_attr *copy_attrs(struct ir *g, int n, const struct ir_attr *attr)
{
    if (n <= 0)
        return NULL;
    struct ir_attr *copy = arena_alloc(&g->mem, (size_t)n * sizeof *copy);
    for (int i = 0; i < n; i++) {
        copy[i].name = arena_strndup(&g->mem, attr[i].name, strlen(attr[i].name));
        copy[i].value = arena_strndup(&g->mem, attr[i].value, strlen(attr[i].value));
    }
    return copy;
}

static bool make_room(struct ir *g, const struct op *op)
{
    if (g->n_nodes >= MAX_NODES)
        return false;
    return grow((void **)&g->nodes, &g->size_nodes, g->n_nodes, 1, sizeof *g->nodes) &&
           grow((void **)&g->values, &g->size_values, g->n_values, (size_t)op->n_out, sizeof *g->values) &&
           grow((void **)&g->inputs, &g->size_inputs, g->n_inputs, (size_t)op->n_in, sizeof *g->inputs);
}

ir_val ir_emit(struct ir *g, const struct op *op)
{
    if (!ir_operands(g, op->type, op->n_in, op->in))
        return IR_NONE;
    for (int i = 0; i < op->n_out; i++) {
        if (!ir_shape_ok(op->out[i].shape))
            return ir_fail_at(g, op->type, "output %d has no valid shape (rank %d)", i,
                              op->out[i].shape.rank);
    }
    const char *name = unique_name(g, op->name ? op->name : take_name(g, op->type));
    if (g->err.code != ERR_NONE || !make_room(g, op))
        return ir_fail_memory(g);

    struct node *n = &g->nodes[g->n_nodes];
    *n = (struct node){
        .name = name,
        .type = op->type,
        .opset = op->opset,
        .kind = op->kind,
        .first_in = (int32_t)g->n_inputs,
        .n_in = op->n_in,
        .first_out = (ir_val)g->n_values,
        .n_out = op->n_out,
        .n_attr = op->n_attr,
        .n_info = op->n_info,
        .attr = copy_attrs(g, op->n_attr, op->attr),
        .info = copy_attrs(g, op->n_info, op->info),
        .offset = op->offset,
        .size = op->size,
    };
    for (int i = 0; i < op->n_in; i++)
        g->inputs[g->n_inputs++] = op->in[i];
    for (int i = 0; i < op->n_out; i++)
        g->values[g->n_values++] =
            (struct value){.node = (int32_t)g->n_nodes, .type = op->out[i].type, .shape = op->out[i].shape};
    g->n_nodes++;
    return op->n_out ? n->first_out : IR_NONE;
}

ir_val ir_emit1(struct ir *g, const char *type, const char *opset, int n_in, const ir_val *in, int n_attr,
                const struct ir_attr *attr, enum ir_type out_type, struct ir_shape out_shape)
{
    struct ir_out out = {out_type, out_shape};
    struct op op = {.type = type,
                    .opset = opset,
                    .n_in = n_in,
                    .in = in,
                    .n_attr = n_attr,
                    .attr = attr,
                    .n_out = 1,
                    .out = &out};
    return ir_emit(g, &op);
}

void ir_node(struct ir *g, const char *type, const char *opset, int n_in, const ir_val *in, int n_attr,
             const struct ir_attr *attr, int n_info, const struct ir_attr *info, int n_out,
             const struct ir_out *outs, ir_val *out)
{
    struct op op = {.type = arena_strndup(&g->mem, type, strlen(type)),
                    .opset = arena_strndup(&g->mem, opset, strlen(opset)),
                    .n_in = n_in,
                    .in = in,
                    .n_attr = n_attr,
                    .attr = attr,
                    .n_info = n_info,
                    .info = info,
                    .n_out = n_out,
                    .out = outs};
    ir_val first = ir_emit(g, &op);
    for (int i = 0; i < n_out; i++)
        out[i] = first == IR_NONE ? IR_NONE : first + i;
}

/* --- the graph's ends --- */

ir_val ir_parameter(struct ir *g, const char *name, enum ir_type type, struct ir_shape shape)
{
    if (g->err.code != ERR_NONE || !ir_unique_tensor(g, "Parameter", name))
        return IR_NONE;
    struct ir_out out = {type, shape};
    const char *copy = arena_strndup(&g->mem, name, strlen(name));
    struct op op = {.type = "Parameter",
                    .opset = "opset1",
                    .name = copy,
                    .kind = KIND_PARAMETER,
                    .n_out = 1,
                    .out = &out};
    ir_val v = ir_emit(g, &op);
    if (v != IR_NONE)
        g->values[v].tensor_names = copy;
    return v;
}

void ir_result(struct ir *g, const char *name, ir_val v)
{
    if (!ir_operands(g, "Result", 1, &v) || !ir_unique_tensor(g, "Result", name))
        return;
    struct value *x = &g->values[v];
    if (x->tensor_names)
        x->tensor_names = arena_printf(&g->mem, "%s,%s", x->tensor_names, name);
    else
        x->tensor_names = arena_strndup(&g->mem, name, strlen(name));
    struct op op = {.type = "Result",
                    .opset = "opset1",
                    .name = arena_printf(&g->mem, "%s.result", name),
                    .n_in = 1,
                    .in = &v};
    ir_emit(g, &op);
}
