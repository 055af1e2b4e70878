/* Operations that join many elements into one (reductions, products, attention), and the states of stateful
 * models. */
#include "ir/graph.h"

static const char *const reductions[] = {
    [IR_REDUCE_SUM] = "ReduceSum",
    [IR_REDUCE_MEAN] = "ReduceMean",
    [IR_REDUCE_MAX] = "ReduceMax",
};

ir_val ir_reduce(struct ir *g, enum ir_reduce op, ir_val a, int axis, bool keep)
{
    const char *type = reductions[op];
    if (!ir_operands(g, type, 1, &a))
        return IR_NONE;
    struct ir_shape from = ir_shape_of(g, a), to = {0};
    if (!ir_norm_axis(&axis, from.rank))
        return ir_fail_at(g, type, "axis %d does not fit %s", axis, ir_shape_text(from).s);
    for (int i = 0; i < from.rank; i++) {
        if (i != axis)
            to.d[to.rank++] = from.d[i];
        else if (keep)
            to.d[to.rank++] = 1;
    }
    ir_val in[] = {a, ir_i64s(g, 1, &(int64_t){axis})};
    struct ir_attr attr = {"keep_dims", keep ? "true" : "false"};
    return ir_emit1(g, type, "opset1", 2, in, 1, &attr, ir_type_of(g, a), to);
}

/* Rows and columns of a factor. A vector is a row on the left, a column on the right, and never transposed.
 */
static void factor(struct ir_shape s, bool transposed, bool left, int64_t *rows, int64_t *columns)
{
    if (s.rank == 1) {
        *rows = left ? 1 : s.d[0];
        *columns = left ? s.d[0] : 1;
        return;
    }
    *rows = s.d[s.rank - (transposed ? 1 : 2)];
    *columns = s.d[s.rank - (transposed ? 2 : 1)];
}

ir_val ir_matmul(struct ir *g, ir_val a, ir_val b, bool transpose_a, bool transpose_b)
{
    if (!ir_operands(g, "MatMul", 2, (ir_val[]){a, b}))
        return IR_NONE;
    struct ir_shape sa = ir_shape_of(g, a), sb = ir_shape_of(g, b), batch;
    enum ir_type type;
    if (!ir_merge_type(ir_type_of(g, a), ir_type_of(g, b), &type))
        return ir_fail_at(g, "MatMul", "factors are %s and %s", ir_types[ir_type_of(g, a)].element,
                          ir_types[ir_type_of(g, b)].element);
    if (sa.rank < 1 || sb.rank < 1)
        return ir_fail_at(g, "MatMul", "a scalar factor");
    int64_t rows, inner_a, inner_b, columns, inner;
    factor(sa, transpose_a, true, &rows, &inner_a);
    factor(sb, transpose_b, false, &inner_b, &columns);
    struct ir_shape ba = sa, bb = sb;
    ba.rank = sa.rank > 2 ? sa.rank - 2 : 0;
    bb.rank = sb.rank > 2 ? sb.rank - 2 : 0;
    if (!ir_merge_dim(inner_a, inner_b, &inner) || !ir_broadcast_shape(ba, bb, &batch))
        return ir_fail_at(g, "MatMul", "%s%s and %s%s don't go together", ir_shape_text(sa).s,
                          transpose_a ? " transposed" : "", ir_shape_text(sb).s,
                          transpose_b ? " transposed" : "");
    if (sa.rank > 1)
        batch.d[batch.rank++] = rows;
    if (sb.rank > 1)
        batch.d[batch.rank++] = columns;
    struct ir_attr attr[] = {{"transpose_a", transpose_a ? "true" : "false"},
                             {"transpose_b", transpose_b ? "true" : "false"}};
    return ir_emit1(g, "MatMul", "opset1", 2, (ir_val[]){a, b}, 2, attr, type, batch);
}

ir_val ir_softmax(struct ir *g, ir_val a, int axis)
{
    if (!ir_operands(g, "SoftMax", 1, &a))
        return IR_NONE;
    struct ir_shape shape = ir_shape_of(g, a);
    if (!ir_norm_axis(&axis, shape.rank))
        return ir_fail_at(g, "SoftMax", "axis %d does not fit %s", axis, ir_shape_text(shape).s);
    struct text at = ir_int_text(axis);
    struct ir_attr attr = {"axis", at.s};
    return ir_emit1(g, "SoftMax", "opset8", 1, &a, 1, &attr, ir_type_of(g, a), shape);
}

void ir_topk(struct ir *g, ir_val a, int64_t k, int axis, ir_val *values, ir_val *indices)
{
    *values = *indices = IR_NONE;
    if (!ir_operands(g, "TopK", 1, &a))
        return;
    struct ir_shape shape = ir_shape_of(g, a);
    if (!ir_norm_axis(&axis, shape.rank) || k < 1 || (shape.d[axis] != IR_DYN && k > shape.d[axis])) {
        ir_fail_at(g, "TopK", "%lld of %s along axis %d", (long long)k, ir_shape_text(shape).s, axis);
        return;
    }
    struct text at = ir_int_text(axis);
    shape.d[axis] = k;
    struct op op = {.type = "TopK",
                    .opset = "opset11",
                    .n_in = 2,
                    .in = (ir_val[]){a, ir_i64(g, k)},
                    .n_attr = 5,
                    .attr = (struct ir_attr[]){{"axis", at.s},
                                               {"mode", "max"},
                                               {"sort", "value"},
                                               {"index_element_type", "i32"},
                                               {"stable", "false"}},
                    .n_out = 2,
                    .out = (struct ir_out[]){{ir_type_of(g, a), shape}, {IR_I32, shape}}};
    *values = ir_emit(g, &op);
    if (*values != IR_NONE)
        *indices = *values + 1;
}

ir_val ir_sdpa(struct ir *g, ir_val q, ir_val k, ir_val v, ir_val mask, ir_val scale, bool causal)
{
    const char *type = "ScaledDotProductAttention";
    ir_val in[5] = {q, k, v, mask, scale};
    int n = scale != IR_NONE ? 5 : mask != IR_NONE ? 4 : 3;
    if (n == 5 && mask == IR_NONE)
        in[3] = ir_f32(g, 0.0f); /* operands go by position: a mask of nothing */
    if (!ir_operands(g, type, n, in))
        return IR_NONE;
    struct ir_shape sq = ir_shape_of(g, q), sk = ir_shape_of(g, k), sv = ir_shape_of(g, v), out = sq;
    bool fits = sq.rank >= 3 && sk.rank == sq.rank && sv.rank == sq.rank;
    int64_t same;
    for (int i = 0; fits && i < sq.rank - 2; i++)
        fits = ir_broadcast_dim(sq.d[i], sk.d[i], &same) && ir_broadcast_dim(same, sv.d[i], &out.d[i]);
    fits = fits && ir_merge_dim(sq.d[sq.rank - 1], sk.d[sk.rank - 1], &same) &&
           ir_merge_dim(sk.d[sk.rank - 2], sv.d[sv.rank - 2], &same);
    if (!fits)
        return ir_fail_at(g, type, "query %s, key %s, value %s don't go together", ir_shape_text(sq).s,
                          ir_shape_text(sk).s, ir_shape_text(sv).s);
    out.d[out.rank - 1] = sv.d[sv.rank - 1];
    struct ir_attr attr = {"causal", causal ? "true" : "false"};
    return ir_emit1(g, type, "opset13", n, in, 1, &attr, ir_type_of(g, q), out);
}

/* --- states --- */

ir_val ir_read_value(struct ir *g, ir_val init, const char *variable, enum ir_type type,
                     struct ir_shape shape)
{
    int n = init != IR_NONE;
    if (!ir_operands(g, "ReadValue", n, &init))
        return IR_NONE;
    if (!ir_shape_ok(shape) || type == IR_DYNAMIC)
        return ir_fail_at(g, "ReadValue", "the state '%s' needs a type and a shape", variable);
    struct ir_shape from = ir_shape_of(g, init);
    bool fits = !n || (from.rank == shape.rank && ir_type_of(g, init) == type);
    for (int i = 0; n && fits && i < shape.rank; i++)
        fits = ir_merge_dim(from.d[i], shape.d[i], &(int64_t){0});
    if (!fits)
        return ir_fail_at(g, "ReadValue", "the state '%s' is %s, its start %s", variable,
                          ir_shape_text(shape).s, ir_shape_text(from).s);
    if (!map_reserve(&g->variables, g->variables.n + 1))
        return ir_fail_memory(g);
    struct str key = str_of(arena_strndup(&g->mem, variable, strlen(variable)));
    if (!map_add(&g->variables, key, (uint64_t)g->n_nodes << 1, NULL))
        return ir_fail_at(g, "ReadValue", "the state '%s' is read twice", variable);

    struct text dims = ir_shape_text(shape); /* "[?,64]": without the brackets it is the attribute */
    dims.s[strlen(dims.s) - 1] = '\0';
    struct ir_attr attr[] = {
        {"variable_id", variable}, {"variable_type", ir_types[type].element}, {"variable_shape", dims.s + 1}};
    return ir_emit1(g, "ReadValue", "opset6", n, &init, 3, attr, type, shape);
}

void ir_assign(struct ir *g, ir_val v, const char *variable)
{
    uint64_t state;
    if (!ir_operands(g, "Assign", 1, &v))
        return;
    struct str key = str_of(variable);
    bool read = map_get(&g->variables, key, &state);
    if (!read || state & 1) {
        ir_fail_at(g, "Assign", "the state '%s' is %s", variable, read ? "set twice" : "never read");
        return;
    }
    struct ir_shape held = ir_shape_of(g, g->nodes[state >> 1].first_out), given = ir_shape_of(g, v);
    bool fits = held.rank == given.rank && ir_type_of(g, v) == ir_type_of(g, g->nodes[state >> 1].first_out);
    for (int i = 0; fits && i < held.rank; i++)
        fits = ir_merge_dim(held.d[i], given.d[i], &(int64_t){0});
    if (!fits) {
        ir_fail_at(g, "Assign", "the state '%s' is %s, not %s", variable, ir_shape_text(held).s,
                   ir_shape_text(given).s);
        return;
    }
    map_set(&g->variables, key, state | 1); /* there already: the key of ReadValue stays */
    struct ir_attr attr = {"variable_id", variable};
    ir_emit1(g, "Assign", "opset6", 1, &v, 1, &attr, ir_type_of(g, v), given);
}
