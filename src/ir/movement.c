/* Shapes and data movement: nothing is computed, elements only find another place. */
#include "ir/graph.h"

static bool index_type(const struct ir *g, ir_val v)
{
    enum ir_type t = ir_type_of(g, v);
    return t == IR_I64 || t == IR_I32 || t == IR_DYNAMIC;
}

/* A value that can serve as a shape for `rank` dimensions. */
static bool shape_operand(struct ir *g, const char *type, ir_val shape, int rank)
{
    struct ir_shape s = ir_shape_of(g, shape);
    int64_t n;
    if (index_type(g, shape) && s.rank == 1 && ir_merge_dim(s.d[0], rank, &n))
        return true;
    ir_fail_at(g, type, "%s of %s is no shape of rank %d", ir_shape_text(s).s,
               ir_types[ir_type_of(g, shape)].element, rank);
    return false;
}

static bool rank_fits(struct ir *g, const char *type, int rank)
{
    if (rank >= 0 && rank <= IR_MAX_RANK)
        return true;
    ir_fail_at(g, type, "rank %d is outside 0 to %d", rank, IR_MAX_RANK);
    return false;
}

/* What a Reshape gives. Dimensions copied by 0 leave both sides of the equation "elements before = elements
 * after" together, so that an unknown one that is copied does not hide what -1 stands for. */
static bool reshaped(struct ir_shape a, int rank, const int64_t *dims, bool special_zero,
                     struct ir_shape *out)
{
    uint64_t before = 1, after = 1;
    bool unknown = false; /* an uncopied dimension of the input */
    int inferred = -1;
    for (int i = 0; i < a.rank; i++) {
        if (special_zero && i < rank && dims[i] == 0)
            continue;
        if (a.d[i] == IR_DYN)
            unknown = true;
        else if (__builtin_mul_overflow(before, (uint64_t)a.d[i], &before))
            return false;
    }
    out->rank = rank;
    for (int i = 0; i < rank; i++) {
        out->d[i] = dims[i];
        if (special_zero && dims[i] == 0) {
            if (i >= a.rank)
                return false;
            out->d[i] = a.d[i];
        } else if (dims[i] == -1) {
            if (inferred >= 0)
                return false;
            inferred = i;
        } else if (dims[i] < 0 || __builtin_mul_overflow(after, (uint64_t)dims[i], &after)) {
            return false;
        }
    }
    if (inferred < 0) /* an unknown dimension must make up for the difference */
        return unknown ? before == 0 ? after == 0 : after % before == 0 : before == after;
    if (unknown) {
        out->d[inferred] = IR_DYN;
        return true;
    }
    if (after == 0 || before % after)
        return false;
    out->d[inferred] = (int64_t)(before / after);
    return true;
}

ir_val ir_reshape(struct ir *g, ir_val a, int rank, const int64_t *dims, bool special_zero)
{
    if (!ir_operands(g, "Reshape", 1, &a) || !rank_fits(g, "Reshape", rank))
        return IR_NONE;
    struct ir_shape from = ir_shape_of(g, a), want = {.rank = rank}, to;
    if (rank)
        memcpy(want.d, dims, (size_t)rank * sizeof *dims);
    if (!reshaped(from, rank, want.d, special_zero, &to))
        return ir_fail_at(g, "Reshape", "%s cannot become %s", ir_shape_text(from).s, ir_shape_text(want).s);
    ir_val shape = ir_const_i64(g, IR_SHAPE(rank), want.d);
    struct ir_attr attr = {"special_zero", special_zero ? "true" : "false"};
    return ir_emit1(g, "Reshape", "opset1", 2, (ir_val[]){a, shape}, 1, &attr, ir_type_of(g, a), to);
}

ir_val ir_reshape_dyn(struct ir *g, ir_val a, ir_val shape, struct ir_shape result)
{
    if (!ir_operands(g, "Reshape", 2, (ir_val[]){a, shape}) ||
        !shape_operand(g, "Reshape", shape, result.rank))
        return IR_NONE;
    if (!ir_shape_ok(result))
        return ir_fail_at(g, "Reshape", "the result has no valid shape (rank %d)", result.rank);
    uint64_t before, after;
    if (ir_shape_count(ir_shape_of(g, a), &before) && ir_shape_count(result, &after) && before != after)
        return ir_fail_at(g, "Reshape", "%s cannot become %s", ir_shape_text(ir_shape_of(g, a)).s,
                          ir_shape_text(result).s);
    struct ir_attr attr = {"special_zero", "false"};
    return ir_emit1(g, "Reshape", "opset1", 2, (ir_val[]){a, shape}, 1, &attr, ir_type_of(g, a), result);
}

ir_val ir_transpose(struct ir *g, ir_val a, int rank, const int64_t *order)
{
    if (!ir_operands(g, "Transpose", 1, &a))
        return IR_NONE;
    struct ir_shape from = ir_shape_of(g, a), to = {.rank = rank};
    if (rank != from.rank)
        return ir_fail_at(g, "Transpose", "an order of %d dimensions for %s", rank, ir_shape_text(from).s);
    unsigned seen = 0;
    for (int i = 0; i < rank; i++) {
        if (order[i] < 0 || order[i] >= rank || seen & 1u << order[i])
            return ir_fail_at(g, "Transpose", "the order is no permutation of %d dimensions", rank);
        seen |= 1u << order[i];
        to.d[i] = from.d[order[i]];
    }
    ir_val by = ir_const_i64(g, IR_SHAPE(rank), order);
    return ir_emit1(g, "Transpose", "opset1", 2, (ir_val[]){a, by}, 0, NULL, ir_type_of(g, a), to);
}

ir_val ir_unsqueeze(struct ir *g, ir_val a, int n, const int64_t *axes)
{
    if (!ir_operands(g, "Unsqueeze", 1, &a))
        return IR_NONE;
    struct ir_shape from = ir_shape_of(g, a), to = {.rank = from.rank + n};
    if (n < 0 || !rank_fits(g, "Unsqueeze", to.rank))
        return IR_NONE;
    bool added[IR_MAX_RANK] = {false};
    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + to.rank : axes[i];
        if (axis < 0 || axis >= to.rank || added[axis])
            return ir_fail_at(g, "Unsqueeze", "axis %lld does not fit rank %d", (long long)axes[i], to.rank);
        added[axis] = true;
    }
    for (int i = 0, k = 0; i < to.rank; i++)
        to.d[i] = added[i] ? 1 : from.d[k++];
    ir_val at = ir_const_i64(g, IR_SHAPE(n), axes);
    return ir_emit1(g, "Unsqueeze", "opset1", 2, (ir_val[]){a, at}, 0, NULL, ir_type_of(g, a), to);
}

ir_val ir_concat(struct ir *g, int n, const ir_val *v, int axis)
{
    if (n < 1)
        return ir_fail_at(g, "Concat", "nothing to join");
    if (!ir_operands(g, "Concat", n, v))
        return IR_NONE;
    enum ir_type type = ir_type_of(g, v[0]);
    struct ir_shape to = ir_shape_of(g, v[0]);
    if (!ir_norm_axis(&axis, to.rank))
        return ir_fail_at(g, "Concat", "axis %d does not fit %s", axis, ir_shape_text(to).s);
    for (int i = 1; i < n; i++) {
        struct ir_shape s = ir_shape_of(g, v[i]);
        if (!ir_merge_type(type, ir_type_of(g, v[i]), &type))
            return ir_fail_at(g, "Concat", "operand %d is %s, those before are %s", i,
                              ir_types[ir_type_of(g, v[i])].element, ir_types[type].element);
        bool fits = s.rank == to.rank;
        for (int k = 0; fits && k < to.rank; k++) {
            if (k != axis)
                fits = ir_merge_dim(to.d[k], s.d[k], &to.d[k]);
            else if (to.d[k] == IR_DYN || s.d[k] == IR_DYN)
                to.d[k] = IR_DYN;
            else
                fits = !__builtin_add_overflow(to.d[k], s.d[k], &to.d[k]);
        }
        if (!fits)
            return ir_fail_at(g, "Concat", "%s does not continue %s along axis %d", ir_shape_text(s).s,
                              ir_shape_text(ir_shape_of(g, v[0])).s, axis);
    }
    struct text at = ir_int_text(axis);
    struct ir_attr attr = {"axis", at.s};
    return ir_emit1(g, "Concat", "opset1", n, v, 1, &attr, type, to);
}

/* How many elements [start, stop) by step takes out of n; bounds as in Python. */
static int64_t slice_length(int64_t n, int64_t start, int64_t stop, int64_t step)
{
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    start = start < 0 ? start < -n ? low : start + n : start > high ? high : start;
    stop = stop < 0 ? stop < -n ? low : stop + n : stop > high ? high : stop;
    if (step > 0 ? stop <= start : start <= stop)
        return 0;
    uint64_t span = (uint64_t)(step > 0 ? stop - start : start - stop);
    uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step; /* INT64_MIN too */
    // cppcheck-suppress zerodivcond ; the caller refuses a step of 0
    return (int64_t)((span - 1) / by) + 1;
}

ir_val ir_slice(struct ir *g, ir_val a, int axis, int64_t start, int64_t stop, int64_t step)
{
    if (!ir_operands(g, "Slice", 1, &a))
        return IR_NONE;
    struct ir_shape to = ir_shape_of(g, a);
    if (!ir_norm_axis(&axis, to.rank))
        return ir_fail_at(g, "Slice", "axis %d does not fit %s", axis, ir_shape_text(to).s);
    if (step == 0)
        return ir_fail_at(g, "Slice", "a step of 0");
    if (to.d[axis] != IR_DYN)
        to.d[axis] = slice_length(to.d[axis], start, stop, step);
    ir_val in[] = {a, ir_i64s(g, 1, &start), ir_i64s(g, 1, &stop), ir_i64s(g, 1, &step),
                   ir_i64s(g, 1, &(int64_t){axis})};
    return ir_emit1(g, "Slice", "opset8", 5, in, 0, NULL, ir_type_of(g, a), to);
}

/* The lengths of VariadicSplit; one may be -1. */
static bool split_lengths(int64_t whole, int n, const int64_t *lengths, struct ir_out *outs, int axis)
{
    int64_t sum = 0;
    int rest = -1;
    for (int i = 0; i < n; i++) {
        if (lengths[i] == -1 && rest < 0)
            rest = i;
        else if (lengths[i] < 0 || __builtin_add_overflow(sum, lengths[i], &sum))
            return false;
        outs[i].shape.d[axis] = lengths[i];
    }
    if (rest >= 0)
        outs[rest].shape.d[axis] = whole == IR_DYN ? IR_DYN : whole - sum;
    return whole == IR_DYN || (rest >= 0 ? sum <= whole : sum == whole);
}

void ir_split(struct ir *g, ir_val a, int axis, int n, const int64_t *lengths, ir_val *out)
{
    const char *type = lengths ? "VariadicSplit" : "Split";
    ir_val first = IR_NONE;
    struct ir_shape from = ir_shape_of(g, a);
    if (!ir_operands(g, type, 1, &a)) {
    } else if (n < 1 || !ir_norm_axis(&axis, from.rank)) {
        ir_fail_at(g, type, "%s into %d along axis %d", ir_shape_text(from).s, n, axis);
    } else {
        struct ir_out *outs = arena_alloc(&g->mem, (size_t)n * sizeof *outs);
        for (int i = 0; i < n; i++)
            outs[i] = (struct ir_out){ir_type_of(g, a), from};
        int64_t whole = from.d[axis];
        if (!lengths && whole != IR_DYN) {
            for (int i = 0; i < n; i++)
                outs[i].shape.d[axis] = whole / n;
        }
        if (lengths ? !split_lengths(whole, n, lengths, outs, axis) : whole != IR_DYN && whole % n) {
            ir_fail_at(g, type, "the parts don't make up axis %d of %s", axis, ir_shape_text(from).s);
        } else {
            struct text count = ir_int_text(n);
            struct op op = {.type = type,
                            .opset = "opset1",
                            .n_in = lengths ? 3 : 2,
                            .in = (ir_val[]){a, ir_i64(g, axis), lengths ? ir_i64s(g, n, lengths) : IR_NONE},
                            .n_attr = lengths ? 0 : 1,
                            .attr = &(struct ir_attr){"num_splits", count.s},
                            .n_out = n,
                            .out = outs};
            first = ir_emit(g, &op);
        }
    }
    for (int i = 0; i < n; i++)
        out[i] = first == IR_NONE ? IR_NONE : first + i;
}

ir_val ir_gather(struct ir *g, ir_val data, ir_val indices, int axis)
{
    if (!ir_operands(g, "Gather", 2, (ir_val[]){data, indices}))
        return IR_NONE;
    struct ir_shape from = ir_shape_of(g, data), which = ir_shape_of(g, indices);
    struct ir_shape to = {.rank = from.rank - 1 + which.rank};
    if (!index_type(g, indices))
        return ir_fail_at(g, "Gather", "indices of %s", ir_types[ir_type_of(g, indices)].element);
    if (!ir_norm_axis(&axis, from.rank))
        return ir_fail_at(g, "Gather", "axis %d does not fit %s", axis, ir_shape_text(from).s);
    if (!rank_fits(g, "Gather", to.rank))
        return IR_NONE;
    int k = 0;
    for (int i = 0; i < axis; i++)
        to.d[k++] = from.d[i];
    for (int i = 0; i < which.rank; i++)
        to.d[k++] = which.d[i];
    for (int i = axis + 1; i < from.rank; i++)
        to.d[k++] = from.d[i];
    struct ir_attr attr = {"batch_dims", "0"};
    ir_val in[] = {data, indices, ir_i64(g, axis)};
    return ir_emit1(g, "Gather", "opset8", 3, in, 1, &attr, ir_type_of(g, data), to);
}

ir_val ir_shape(struct ir *g, ir_val a)
{
    struct ir_attr attr = {"output_type", "i64"};
    return ir_emit1(g, "ShapeOf", "opset3", 1, &a, 1, &attr, IR_I64, IR_SHAPE(ir_shape_of(g, a).rank));
}

ir_val ir_broadcast(struct ir *g, ir_val a, ir_val shape, bool bidirectional, struct ir_shape result)
{
    if (!ir_operands(g, "Broadcast", 2, (ir_val[]){a, shape}))
        return IR_NONE;
    struct ir_shape from = ir_shape_of(g, a), both;
    if (!ir_shape_ok(result) || !ir_broadcast_shape(from, result, &both) || both.rank != result.rank)
        return ir_fail_at(g, "Broadcast", "%s cannot become %s", ir_shape_text(from).s,
                          ir_shape_text(result).s);
    /* Under the bidirectional rule the operand may be longer than the shape. */
    int n = bidirectional && ir_dim(g, shape, 0) != IR_DYN ? (int)ir_dim(g, shape, 0) : result.rank;
    if (n > result.rank || !shape_operand(g, "Broadcast", shape, n))
        return ir_fail_at(g, "Broadcast", "the shape operand has rank %d, the result %d", n, result.rank);
    struct ir_attr attr = {"mode", bidirectional ? "bidirectional" : "numpy"};
    return ir_emit1(g, "Broadcast", "opset3", 2, (ir_val[]){a, shape}, 1, &attr, ir_type_of(g, a), result);
}

ir_val ir_tile(struct ir *g, ir_val a, int rank, const int64_t *repeats)
{
    if (!ir_operands(g, "Tile", 1, &a) || !rank_fits(g, "Tile", rank))
        return IR_NONE;
    struct ir_shape from = ir_shape_of(g, a), to = {.rank = from.rank > rank ? from.rank : rank};
    for (int i = 1; i <= to.rank; i++) { /* the shorter of the two is filled up with ones in front */
        int64_t d = i <= from.rank ? from.d[from.rank - i] : 1, r = i <= rank ? repeats[rank - i] : 1;
        int64_t *out = &to.d[to.rank - i];
        if (r < 0 || (d != IR_DYN && __builtin_mul_overflow(d, r, out)))
            return ir_fail_at(g, "Tile", "%lld repetitions of %s", (long long)r, ir_shape_text(from).s);
        if (d == IR_DYN)
            *out = IR_DYN;
    }
    ir_val by = ir_const_i64(g, IR_SHAPE(rank), repeats);
    return ir_emit1(g, "Tile", "opset1", 2, (ir_val[]){a, by}, 0, NULL, ir_type_of(g, a), to);
}

ir_val ir_range(struct ir *g, ir_val start, ir_val stop, ir_val step, enum ir_type type)
{
    ir_val in[] = {start, stop, step};
    if (!ir_operands(g, "Range", 3, in))
        return IR_NONE;
    for (int i = 0; i < 3; i++) {
        if (ir_shape_of(g, in[i]).rank != 0)
            return ir_fail_at(g, "Range", "operand %d is no scalar but %s", i,
                              ir_shape_text(ir_shape_of(g, in[i])).s);
    }
    if (type == IR_DYNAMIC || type == IR_BOOL || type == IR_U4)
        return ir_fail_at(g, "Range", "of %s", ir_types[type].element);
    int64_t from, to, by, n = IR_DYN;
    if (ir_known_i64(g, start, &from) && ir_known_i64(g, stop, &to) && ir_known_i64(g, step, &by)) {
        int64_t span;
        if (by == 0 || by == INT64_MIN || __builtin_sub_overflow(to, from, &span))
            return ir_fail_at(g, "Range", "from %lld to %lld by %lld", (long long)from, (long long)to,
                              (long long)by);
        n = (span > 0) != (by > 0) || span == 0 ? 0 : span / by + (span % by != 0);
    }
    struct ir_attr attr = {"output_type", ir_types[type].element};
    return ir_emit1(g, "Range", "opset4", 3, in, 1, &attr, type, IR_SHAPE(n));
}

ir_val ir_scatter_elements(struct ir *g, ir_val data, ir_val indices, ir_val updates, int axis)
{
    if (!ir_operands(g, "ScatterElementsUpdate", 3, (ir_val[]){data, indices, updates}))
        return IR_NONE;
    const char *type = "ScatterElementsUpdate";
    struct ir_shape to = ir_shape_of(g, data), which = ir_shape_of(g, indices),
                    from = ir_shape_of(g, updates);
    enum ir_type element;
    if (!index_type(g, indices) || !ir_merge_type(ir_type_of(g, data), ir_type_of(g, updates), &element))
        return ir_fail_at(g, type, "data of %s, indices of %s, updates of %s",
                          ir_types[ir_type_of(g, data)].element, ir_types[ir_type_of(g, indices)].element,
                          ir_types[ir_type_of(g, updates)].element);
    bool fits = to.rank == which.rank && which.rank == from.rank;
    for (int i = 0; fits && i < to.rank; i++)
        fits = ir_merge_dim(which.d[i], from.d[i], &(int64_t){0});
    if (!fits)
        return ir_fail_at(g, type, "data %s, indices %s, updates %s", ir_shape_text(to).s,
                          ir_shape_text(which).s, ir_shape_text(from).s);
    if (!ir_norm_axis(&axis, to.rank))
        return ir_fail_at(g, type, "axis %d does not fit %s", axis, ir_shape_text(to).s);
    ir_val in[] = {data, indices, updates, ir_i64(g, axis)};
    struct ir_attr attr[] = {{"reduction", "none"}, {"use_init_val", "true"}};
    return ir_emit1(g, type, "opset12", 4, in, 2, attr, element, to);
}
