/* Inside of room ir: what a graph is made of, and the helpers the operations share.
 *
 * Nodes and values sit in two growing arrays in the order they were made; a node's outputs are neighbours in
 * the array of values, its inputs neighbours in an array of indices. Strings and attributes live in one
 * arena. The bytes of copied constants are laid out at once as they will stand in the tail (see ir_write). */
#ifndef IR_GRAPH_H
#define IR_GRAPH_H

#include "base/map.h"
#include "base/mem.h"
#include "ir/ir.h"

#include <stdarg.h>

/* Where each copied constant starts, and the start of the tail itself. */
#define IR_ALIGN ((size_t)64)

enum ir_kind { KIND_OP, KIND_PARAMETER, KIND_CONST_REF, KIND_CONST_COPY };

struct node {
    const char *name, *type, *opset;
    enum ir_kind kind;
    int32_t first_in, n_in;
    ir_val first_out;
    int32_t n_out;
    int32_t n_attr, n_info;
    const struct ir_attr *attr, *info;
    uint64_t offset, size; /* constants: of their bytes, in the blob or in `data` */
};

struct value {
    int32_t node;
    enum ir_type type;
    struct ir_shape shape;
    const char *tensor_names; /* comma-separated, or NULL */
};

struct ir {
    const char *name;
    struct arena mem;
    struct node *nodes;
    struct value *values;
    ir_val *inputs;
    size_t n_nodes, n_values, n_inputs;
    size_t size_nodes, size_values, size_inputs;

    struct buf data;      /* copied constants, each aligned to IR_ALIGN */
    struct map constants; /* type, shape and bytes of a small constant -> its value */
    struct map names;     /* node name -> how often it was asked for */
    struct map tensors;   /* names of parameters and results */
    struct map variables; /* variable -> node of its ReadValue << 1 | assigned */

    struct buf path;  /* open scopes, joined by dots */
    struct buf marks; /* a size_t per open scope: path.n before it */
    const char *next; /* what ir_name said, or NULL */
    struct err err;
};

/* A node about to be made. `name` overrides scope and ir_name. */
struct op {
    const char *type, *opset, *name;
    enum ir_kind kind;
    int n_in;
    const ir_val *in;
    int n_attr;
    const struct ir_attr *attr;
    int n_info;
    const struct ir_attr *info;
    int n_out;
    const struct ir_out *out;
    uint64_t offset, size;
};

/* --- graph.c --- */
/* Adds the node; returns its first output's value (IR_NONE for a node without outputs, or after a failure).
 */
ir_val ir_emit(struct ir *g, const struct op *op);
/* The common case: one output. */
ir_val ir_emit1(struct ir *g, const char *type, const char *opset, int n_in, const ir_val *in, int n_attr,
                const struct ir_attr *attr, enum ir_type out_type, struct ir_shape out_shape);
/* Marks the graph as failed; the text says which node, named as it would have been. Returns IR_NONE. */
ir_val ir_fail_at(struct ir *g, const char *type, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
ir_val ir_fail_memory(struct ir *g);
/* False if the graph has failed, or if an operand is no value (that is a failure then). */
bool ir_operands(struct ir *g, const char *type, int n, const ir_val *v);
bool ir_unique_tensor(struct ir *g, const char *type, const char *name);

/* --- constants.c --- */
/* i64 constants named by their values: operands that an operation adds on its own. */
ir_val ir_const_i64(struct ir *g, struct ir_shape shape, const int64_t *v);
/* The value of a copied i64 scalar; false for any other value. */
bool ir_known_i64(const struct ir *g, ir_val v, int64_t *out);

/* --- shape.c --- */
struct type_row {
    const char *element;   /* in attributes: "f32" */
    const char *precision; /* of ports: "FP32" */
    int bits;
    bool real, integer;
};
extern const struct type_row ir_types[];

struct text {
    char s[128];
};
struct text ir_shape_text(struct ir_shape s); /* "[?,64]" */
/* A double so that it reads back equal, with a point whatever the locale. */
struct text ir_real_text(double v);
struct text ir_int_text(int64_t v);

bool ir_merge_dim(int64_t a, int64_t b, int64_t *out); /* equal, or one of them unknown */
bool ir_merge_type(enum ir_type a, enum ir_type b, enum ir_type *out);
bool ir_broadcast_dim(int64_t a, int64_t b, int64_t *out);
bool ir_broadcast_shape(struct ir_shape a, struct ir_shape b, struct ir_shape *out);
/* Elements of a shape; false if a dimension is unknown, negative, or the product overflows. */
bool ir_shape_count(struct ir_shape s, uint64_t *out);
/* Axis from 0; false if it is outside [-rank, rank). */
bool ir_norm_axis(int *axis, int rank);
bool ir_shape_ok(struct ir_shape s);

#endif
