/* Operations that work element by element, with NumPy's broadcasting. */
#include "ir/graph.h"

static const struct ir_attr numpy = {"auto_broadcast", "numpy"};

enum result_type { AS_OPERANDS, COMPARES, LOGICAL };

static const struct {
    const char *type;
    enum result_type result;
} binaries[] = {
    [IR_ADD] = {"Add", AS_OPERANDS},      [IR_SUB] = {"Subtract", AS_OPERANDS},
    [IR_MUL] = {"Multiply", AS_OPERANDS}, [IR_DIV] = {"Divide", AS_OPERANDS},
    [IR_POW] = {"Power", AS_OPERANDS},    [IR_MAX] = {"Maximum", AS_OPERANDS},
    [IR_MIN] = {"Minimum", AS_OPERANDS},  [IR_LESS_EQUAL] = {"LessEqual", COMPARES},
    [IR_GREATER] = {"Greater", COMPARES}, [IR_EQUAL] = {"Equal", COMPARES},
    [IR_AND] = {"LogicalAnd", LOGICAL},   [IR_OR] = {"LogicalOr", LOGICAL},
};

ir_val ir_binary(struct ir *g, enum ir_binary op, ir_val a, ir_val b)
{
    const char *type = binaries[op].type;
    enum result_type result = binaries[op].result;
    if (!ir_operands(g, type, 2, (ir_val[]){a, b}))
        return IR_NONE;
    enum ir_type element;
    if (!ir_merge_type(ir_type_of(g, a), ir_type_of(g, b), &element))
        return ir_fail_at(g, type, "operands are %s and %s", ir_types[ir_type_of(g, a)].element,
                          ir_types[ir_type_of(g, b)].element);
    if (result == LOGICAL ? element != IR_BOOL : result == AS_OPERANDS && element == IR_BOOL)
        return ir_fail_at(g, type, "not for operands of %s", ir_types[element].element);
    struct ir_shape shape;
    if (!ir_broadcast_shape(ir_shape_of(g, a), ir_shape_of(g, b), &shape))
        return ir_fail_at(g, type, "shapes %s and %s don't go together", ir_shape_text(ir_shape_of(g, a)).s,
                          ir_shape_text(ir_shape_of(g, b)).s);
    return ir_emit1(g, type, "opset1", 2, (ir_val[]){a, b}, 1, &numpy, result == COMPARES ? IR_BOOL : element,
                    shape);
}

static const struct {
    const char *type, *opset;
    struct ir_attr attr;
    bool integer; /* has a meaning for integers too */
} unaries[] = {
    [IR_SQRT] = {"Sqrt", "opset1", {0}, false},
    [IR_EXP] = {"Exp", "opset1", {0}, false},
    [IR_LOG] = {"Log", "opset1", {0}, false},
    [IR_NEG] = {"Negative", "opset1", {0}, true},
    [IR_ABS] = {"Abs", "opset1", {0}, true},
    [IR_SIN] = {"Sin", "opset1", {0}, false},
    [IR_COS] = {"Cos", "opset1", {0}, false},
    [IR_TANH] = {"Tanh", "opset1", {0}, false},
    [IR_SIGMOID] = {"Sigmoid", "opset1", {0}, false},
    [IR_RELU] = {"ReLU", "opset1", {0}, true},
    [IR_SOFTPLUS] = {"SoftPlus", "opset4", {0}, false},
    [IR_SWISH] = {"Swish", "opset4", {0}, false},
    [IR_GELU_ERF] = {"Gelu", "opset7", {"approximation_mode", "ERF"}, false},
    [IR_GELU_TANH] = {"Gelu", "opset7", {"approximation_mode", "TANH"}, false},
};

/* The result of an operation that keeps its operand's type and shape. */
static ir_val same(struct ir *g, const char *type, const char *opset, ir_val a, int n_attr,
                   const struct ir_attr *attr)
{
    return ir_emit1(g, type, opset, 1, &a, n_attr, attr, ir_type_of(g, a), ir_shape_of(g, a));
}

ir_val ir_unary(struct ir *g, enum ir_unary op, ir_val a)
{
    const char *type = unaries[op].type;
    if (!ir_operands(g, type, 1, &a))
        return IR_NONE;
    const struct type_row *t = &ir_types[ir_type_of(g, a)];
    if (!t->real && !(unaries[op].integer && t->integer))
        return ir_fail_at(g, type, "not for an operand of %s", t->element);
    return same(g, type, unaries[op].opset, a, unaries[op].attr.name != NULL, &unaries[op].attr);
}

ir_val ir_clamp(struct ir *g, ir_val a, double min, double max)
{
    if (!ir_operands(g, "Clamp", 1, &a))
        return IR_NONE;
    if (!(min <= max))
        return ir_fail_at(g, "Clamp", "the range from %g to %g is empty", min, max);
    struct text lo = ir_real_text(min), hi = ir_real_text(max);
    return same(g, "Clamp", "opset1", a, 2, (struct ir_attr[]){{"min", lo.s}, {"max", hi.s}});
}

ir_val ir_convert(struct ir *g, ir_val a, enum ir_type to)
{
    if (!ir_operands(g, "Convert", 1, &a))
        return IR_NONE;
    if (to == IR_DYNAMIC)
        return ir_fail_at(g, "Convert", "to no definite type");
    struct ir_attr attr = {"destination_type", ir_types[to].element};
    return ir_emit1(g, "Convert", "opset1", 1, &a, 1, &attr, to, ir_shape_of(g, a));
}

ir_val ir_select(struct ir *g, ir_val cond, ir_val yes, ir_val no)
{
    ir_val in[] = {cond, yes, no};
    if (!ir_operands(g, "Select", 3, in))
        return IR_NONE;
    enum ir_type element, flag;
    if (!ir_merge_type(ir_type_of(g, cond), IR_BOOL, &flag))
        return ir_fail_at(g, "Select", "the condition is %s", ir_types[ir_type_of(g, cond)].element);
    if (!ir_merge_type(ir_type_of(g, yes), ir_type_of(g, no), &element))
        return ir_fail_at(g, "Select", "choices are %s and %s", ir_types[ir_type_of(g, yes)].element,
                          ir_types[ir_type_of(g, no)].element);
    struct ir_shape shape;
    if (!ir_broadcast_shape(ir_shape_of(g, yes), ir_shape_of(g, no), &shape) ||
        !ir_broadcast_shape(ir_shape_of(g, cond), shape, &shape))
        return ir_fail_at(g, "Select", "shapes %s, %s and %s don't go together",
                          ir_shape_text(ir_shape_of(g, cond)).s, ir_shape_text(ir_shape_of(g, yes)).s,
                          ir_shape_text(ir_shape_of(g, no)).s);
    return ir_emit1(g, "Select", "opset1", 3, in, 1, &numpy, element, shape);
}
