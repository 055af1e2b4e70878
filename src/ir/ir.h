/* A graph under construction, and its OpenVINO IR (version 11) text.
 *
 * Nodes are made by the functions below; each checks its operands and computes the result's element type and
 * static shape (IR_DYN for a dimension that is known only at run time). Big constants are held by reference
 * in one blob laid out by the caller's image builder; small ones are copied into the graph.
 *
 * A failure (shape mismatch, out of memory) marks the graph as failed with one text that names the node, and
 * every later call returns IR_NONE: check once, with ir_write or ir_failed. Node names come from
 * ir_scope/ir_name, so that a dump reads `blk.3.attn.q` and not `Add_512`.
 *
 * A constant made by ir_f32, ir_i64 or ir_i64s, or by an operation for its own axes and lengths, is named by
 * its value and leaves ir_name to the node that uses it.
 *
 * Format: the <net version="11"> documents of OpenVINO; operations as in its "Operation Sets" specification.
 */
#ifndef IR_IR_H
#define IR_IR_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ir_type { IR_F32, IR_F16, IR_BF16, IR_I64, IR_I32, IR_I8, IR_U8, IR_U4, IR_BOOL, IR_DYNAMIC };

#define IR_MAX_RANK 6
#define IR_DYN      (-1)

struct ir_shape {
    int rank;
    int64_t d[IR_MAX_RANK];
};

/* Builds a shape from a list: IR_SHAPE(IR_DYN, 64). */
#define IR_SHAPE(...)                                                                                        \
    ((struct ir_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define IR_SCALAR ((struct ir_shape){0, {0}})

/* An output of a node: the value that flows along an edge. */
typedef int32_t ir_val; /* index of a value, IR_NONE after a failure */
#define IR_NONE (-1)

struct ir;

struct ir *ir_new(const char *name);
void ir_free(struct ir *g);
bool ir_failed(const struct ir *g, struct err *err);
void ir_fail(struct ir *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Names: ir_scope pushes a part ("blk.3"), ir_leave pops it; ir_name names the node made next. A name that is
 * taken gets a counter ("q_2"); a node without one is called by its type. */
void ir_scope(struct ir *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ir_leave(struct ir *g);
void ir_name(struct ir *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

enum ir_type ir_type_of(const struct ir *g, ir_val v);
struct ir_shape ir_shape_of(const struct ir *g, ir_val v);
int64_t ir_dim(const struct ir *g, ir_val v, int axis); /* negative axes count from the end; IR_DYN if none */
size_t ir_n_nodes(const struct ir *g);

/* --- inputs, constants, results --- */
ir_val ir_parameter(struct ir *g, const char *name, enum ir_type type, struct ir_shape shape);
/* Bytes [offset, offset + size) of the blob; size must be what type and shape take. */
ir_val ir_const_ref(struct ir *g, enum ir_type type, struct ir_shape shape, uint64_t offset, uint64_t size);
/* Copies the data. Equal small constants become one node. */
ir_val ir_const(struct ir *g, enum ir_type type, struct ir_shape shape, const void *data);
ir_val ir_f32(struct ir *g, float v);   /* scalar */
ir_val ir_i64(struct ir *g, int64_t v); /* scalar */
ir_val ir_i64s(struct ir *g, int n, const int64_t *v);
void ir_result(struct ir *g, const char *name, ir_val v);

/* --- elementwise, with NumPy broadcasting --- */
enum ir_binary {
    IR_ADD,
    IR_SUB,
    IR_MUL,
    IR_DIV,
    IR_POW,
    IR_MAX,
    IR_MIN,
    IR_LESS_EQUAL,
    IR_GREATER,
    IR_EQUAL,
    IR_AND,
    IR_OR
};
enum ir_unary {
    IR_SQRT,
    IR_EXP,
    IR_LOG,
    IR_NEG,
    IR_ABS,
    IR_SIN,
    IR_COS,
    IR_TANH,
    IR_SIGMOID,
    IR_RELU,
    IR_SOFTPLUS,
    IR_SWISH,
    IR_GELU_ERF,
    IR_GELU_TANH
};
ir_val ir_binary(struct ir *g, enum ir_binary op, ir_val a, ir_val b);
ir_val ir_unary(struct ir *g, enum ir_unary op, ir_val a);
ir_val ir_clamp(struct ir *g, ir_val a, double min, double max);
ir_val ir_convert(struct ir *g, ir_val a, enum ir_type to);
ir_val ir_select(struct ir *g, ir_val cond, ir_val yes, ir_val no);

static inline ir_val ir_add(struct ir *g, ir_val a, ir_val b)
{
    return ir_binary(g, IR_ADD, a, b);
}
static inline ir_val ir_mul(struct ir *g, ir_val a, ir_val b)
{
    return ir_binary(g, IR_MUL, a, b);
}

/* --- shapes and data movement --- */
/* Dims with -1 inferred (at most one) and, if special_zero, 0 = copied from the input. */
ir_val ir_reshape(struct ir *g, ir_val a, int rank, const int64_t *dims, bool special_zero);
ir_val ir_reshape_dyn(struct ir *g, ir_val a, ir_val shape, struct ir_shape result);
ir_val ir_transpose(struct ir *g, ir_val a, int rank, const int64_t *order);
ir_val ir_unsqueeze(struct ir *g, ir_val a, int n, const int64_t *axes);
ir_val ir_concat(struct ir *g, int n, const ir_val *v, int axis);
/* [start, stop) of one axis; a stop of INT64_MAX means to the end. Axis may be negative. */
ir_val ir_slice(struct ir *g, ir_val a, int axis, int64_t start, int64_t stop, int64_t step);
/* Given lengths along an axis (one may be -1: the rest), or equal ones if lengths is NULL; writes n values.
 */
void ir_split(struct ir *g, ir_val a, int axis, int n, const int64_t *lengths, ir_val *out);
ir_val ir_gather(struct ir *g, ir_val data, ir_val indices, int axis);
ir_val ir_shape(struct ir *g, ir_val a); /* ShapeOf, i64 */
ir_val ir_broadcast(struct ir *g, ir_val a, ir_val shape, bool bidirectional, struct ir_shape result);
ir_val ir_tile(struct ir *g, ir_val a, int rank, const int64_t *repeats);
ir_val ir_range(struct ir *g, ir_val start, ir_val stop, ir_val step, enum ir_type type);
ir_val ir_scatter_elements(struct ir *g, ir_val data, ir_val indices, ir_val updates, int axis);

/* --- reductions and products --- */
enum ir_reduce { IR_REDUCE_SUM, IR_REDUCE_MEAN, IR_REDUCE_MAX };
ir_val ir_reduce(struct ir *g, enum ir_reduce op, ir_val a, int axis, bool keep);
ir_val ir_matmul(struct ir *g, ir_val a, ir_val b, bool transpose_a, bool transpose_b);
ir_val ir_softmax(struct ir *g, ir_val a, int axis);
/* Values and i32 indices of the k largest along the axis, sorted by value. */
void ir_topk(struct ir *g, ir_val a, int64_t k, int axis, ir_val *values, ir_val *indices);

/* --- states of stateful models --- */
/* `init` may be IR_NONE: the state starts empty or as zeros. A variable is read once and set once. */
ir_val ir_read_value(struct ir *g, ir_val init, const char *variable, enum ir_type type,
                     struct ir_shape shape);
void ir_assign(struct ir *g, ir_val v, const char *variable);
/* softmax(q k^T * scale + mask) v; mask and scale may be IR_NONE: none, and 1/sqrt of the head's size. */
ir_val ir_sdpa(struct ir *g, ir_val q, ir_val k, ir_val v, ir_val mask, ir_val scale, bool causal);

/* --- anything else: internal operations and our own --- */
struct ir_attr {
    const char *name;
    const char *value; /* copied */
};
struct ir_out {
    enum ir_type type;
    struct ir_shape shape;
};
/* `opset` is the IR's version attribute ("opset1", "extension", "grappa"); n_info pairs go into <rt_info> as
 * user_data. Writes n_out values to out. */
void ir_node(struct ir *g, const char *type, const char *opset, int n_in, const ir_val *in, int n_attr,
             const struct ir_attr *attr, int n_info, const struct ir_attr *info, int n_out,
             const struct ir_out *outs, ir_val *out);

/* --- writing --- */
/* The copied constants' bytes are appended behind `blob_size` (aligned to 64) in the order of the graph:
 * `tail` receives them, and the blob that OpenVINO gets is the caller's blob, padded to a multiple of 64,
 * followed by the tail. */
int ir_write(const struct ir *g, uint64_t blob_size, struct buf *xml, struct buf *tail, struct err *err);

#endif
