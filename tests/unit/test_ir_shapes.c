/* Static shape inference: what each operation makes of known and unknown dimensions, what it refuses, and
 * that a refusal names the node. Expected shapes follow NumPy and OpenVINO's operation specification. */
#include "ir/ir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Shapes in this file are text: "?,64" is {IR_DYN, 64}, "" a scalar. */
static struct ir_shape shape_of(const char *text)
{
    struct ir_shape s = {0};
    while (*text) {
        int n = 0;
        long long d = IR_DYN;
        if (*text == '?')
            n = 1;
        else
            assert_int_equal(sscanf(text, "%lld%n", &d, &n), 1);
        s.d[s.rank++] = d;
        text += n + (text[n] == ',');
    }
    return s;
}

static const char *text_of(struct ir_shape s)
{
    static char text[200];
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < s.rank; i++) {
        if (s.d[i] == IR_DYN)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s?", i ? "," : "");
        else
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", i ? "," : "", (long long)s.d[i]);
    }
    return text;
}

/* A graph for one case: a fresh one each time, since a failure is final. */
struct fixture {
    struct ir *g;
    int n;
};

static ir_val input(struct fixture *f, const char *shape, enum ir_type type)
{
    char name[16];
    snprintf(name, sizeof name, "in%d", f->n++);
    return ir_parameter(f->g, name, type, shape_of(shape));
}

/* `want` is a shape, or NULL for a failure. */
static void check(struct fixture *f, ir_val v, const char *want)
{
    struct err err = ERR_INIT;
    if (!want) {
        assert_true(ir_failed(f->g, &err));
        assert_int_equal(v, IR_NONE);
        if (!strstr(err.text, "blk.7.node"))
            fail_msg("the failure does not name its node: %s", err.text);
    } else {
        if (ir_failed(f->g, &err))
            fail_msg("%s", err.text);
        assert_string_equal(text_of(ir_shape_of(f->g, v)), want);
    }
    ir_free(f->g);
}

static struct fixture start(void)
{
    struct fixture f = {ir_new("case"), 0};
    ir_scope(f.g, "blk.%d", 7);
    ir_name(f.g, "node");
    return f;
}

/* Parameters have names of their own and leave "node" to the operation. */
#define CASE(want, make)                                                                                     \
    do {                                                                                                     \
        struct fixture f = start();                                                                          \
        ir_val v = (make);                                                                                   \
        check(&f, v, want);                                                                                  \
    } while (0)
#define IN(shape)  input(&f, shape, IR_F32)
#define INT(shape) input(&f, shape, IR_I64)
#define LIST(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                   \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

static void test_broadcasting(void **unused)
{
    (void)unused;
    CASE("2,3", ir_add(f.g, IN("2,3"), IN("2,3")));
    CASE("2,3", ir_add(f.g, IN("2,3"), IN("3")));
    CASE("2,3", ir_add(f.g, IN(""), IN("2,3")));
    CASE("4,2,3", ir_add(f.g, IN("4,1,3"), IN("2,1")));
    CASE("?,3", ir_add(f.g, IN("?,3"), IN("1,3")));
    CASE("5,3", ir_add(f.g, IN("?,3"), IN("5,3")));
    CASE("?,3", ir_add(f.g, IN("?,1"), IN("?,3")));
    CASE("0,3", ir_add(f.g, IN("0,3"), IN("1,3")));
    CASE(NULL, ir_add(f.g, IN("2,3"), IN("2,4")));
    CASE(NULL, ir_add(f.g, IN("2,3"), IN("2")));
    CASE(NULL, ir_add(f.g, IN("2,3"), INT("2,3")));
    CASE(NULL, ir_binary(f.g, IR_AND, IN("2"), IN("2")));
    CASE("4,2,3", ir_select(f.g, input(&f, "4,1,1", IR_BOOL), IN("2,1"), IN("3")));
    CASE(NULL, ir_select(f.g, IN("2"), IN("2"), IN("2")));
    CASE(NULL, ir_select(f.g, input(&f, "2", IR_BOOL), IN("2"), IN("3")));
}

static void test_types(void **unused)
{
    (void)unused;
    struct fixture f = start();
    ir_val x = IN("?,3"), any = input(&f, "?,3", IR_DYNAMIC);
    assert_int_equal(ir_type_of(f.g, ir_binary(f.g, IR_LESS_EQUAL, x, x)), IR_BOOL);
    assert_int_equal(ir_type_of(f.g, ir_add(f.g, x, any)), IR_F32);
    assert_int_equal(ir_type_of(f.g, ir_convert(f.g, x, IR_U8)), IR_U8);
    assert_int_equal(ir_type_of(f.g, ir_shape(f.g, x)), IR_I64);
    ir_val values, indices;
    ir_topk(f.g, x, 2, -1, &values, &indices);
    assert_int_equal(ir_type_of(f.g, values), IR_F32);
    assert_int_equal(ir_type_of(f.g, indices), IR_I32);
    assert_string_equal(text_of(ir_shape_of(f.g, indices)), "?,2");
    assert_false(ir_failed(f.g, NULL));
    ir_free(f.g);
}

static void test_types_refused(void **unused)
{
    (void)unused;
    CASE(NULL, ir_unary(f.g, IR_SQRT, INT("2")));
    CASE("2", ir_unary(f.g, IR_NEG, INT("2")));
    CASE(NULL, ir_convert(f.g, IN("2"), IR_DYNAMIC));
    CASE(NULL, ir_clamp(f.g, IN("2"), 1, 0));
    CASE(NULL, ir_clamp(f.g, IN("2"), NAN, 0));
}

static void test_reshape(void **unused)
{
    (void)unused;
    CASE("6", ir_reshape(f.g, IN("2,3"), LIST(6), false));
    CASE("3,2", ir_reshape(f.g, IN("2,3"), LIST(-1, 2), false));
    CASE("?,4,16", ir_reshape(f.g, IN("?,64"), LIST(-1, 4, 16), false));
    CASE("?,4,16", ir_reshape(f.g, IN("?,64"), LIST(0, 4, -1), true)); /* the unknown one cancels out */
    CASE("?,16,4", ir_reshape(f.g, IN("?,4,4,4"), LIST(0, -1, 4), true));
    CASE("?,?,64", ir_reshape(f.g, IN("?,?,4,16"), LIST(0, 0, 64), true));
    CASE("?,64", ir_reshape(f.g, IN("?,?,64"), LIST(-1, 64), true));
    CASE("1,64", ir_reshape(f.g, IN("?,64"), LIST(1, 64), false)); /* the run decides */
    CASE("", ir_reshape(f.g, IN("1"), 0, NULL, false));
    CASE("0,5", ir_reshape(f.g, IN("0,3"), LIST(0, 5), false)); /* 0 taken literally */
    CASE(NULL, ir_reshape(f.g, IN("2,3"), LIST(4), false));
    CASE(NULL, ir_reshape(f.g, IN("2,3"), LIST(-1, 4), false));
    CASE(NULL, ir_reshape(f.g, IN("2,3"), LIST(-1, -1), false));
    CASE(NULL, ir_reshape(f.g, IN("2,3"), LIST(-2, 3), false));
    CASE(NULL, ir_reshape(f.g, IN("2"), LIST(2, 0), true)); /* nothing to copy from */
    CASE(NULL, ir_reshape(f.g, IN("?,64"), LIST(3, 5), false));
    CASE(NULL, ir_reshape(f.g, IN("?,64"), LIST(0, 63), true));
    CASE(NULL, ir_reshape(f.g, IN("2,3"), LIST(INT64_MAX, INT64_MAX), false));
    CASE(NULL, ir_reshape(f.g, IN("1"), LIST(1, 1, 1, 1, 1, 1, 1), false));
    CASE("?,8", ir_reshape_dyn(f.g, IN("?,2,4"), INT("2"), shape_of("?,8")));
    CASE(NULL, ir_reshape_dyn(f.g, IN("?,2,4"), INT("3"), shape_of("?,8")));
    CASE(NULL, ir_reshape_dyn(f.g, IN("3,8"), INT("2"), shape_of("4,8")));
    CASE(NULL, ir_reshape_dyn(f.g, IN("3,8"), INT("?"), (struct ir_shape){.rank = IR_MAX_RANK + 1}));
    CASE(NULL, ir_reshape_dyn(f.g, IN("3,8"), INT("2"), IR_SHAPE(-5, 8)));
}

static void test_movement(void **unused)
{
    (void)unused;
    CASE("?,3,2", ir_transpose(f.g, IN("2,3,?"), LIST(2, 1, 0)));
    CASE(NULL, ir_transpose(f.g, IN("2,3,?"), LIST(0, 1, 1)));
    CASE(NULL, ir_transpose(f.g, IN("2,3,?"), LIST(0, 1)));
    CASE("1,2,3,1", ir_unsqueeze(f.g, IN("2,3"), LIST(0, -1)));
    CASE("2,1,3", ir_unsqueeze(f.g, IN("2,3"), LIST(1)));
    CASE(NULL, ir_unsqueeze(f.g, IN("2,3"), LIST(1, -3)));
    CASE(NULL, ir_unsqueeze(f.g, IN("2,3"), LIST(3)));
    CASE("?,7", ir_concat(f.g, 2, (ir_val[]){IN("?,3"), IN("?,4")}, 1));
    CASE("5,7", ir_concat(f.g, 2, (ir_val[]){IN("?,3"), IN("5,4")}, -1));
    CASE("?,3", ir_concat(f.g, 3, (ir_val[]){IN("1,3"), IN("?,3"), IN("2,3")}, 0));
    CASE(NULL, ir_concat(f.g, 2, (ir_val[]){IN("2,3"), IN("2,4")}, 0));
    CASE(NULL, ir_concat(f.g, 2, (ir_val[]){IN("2,3"), IN("3")}, 0));
    CASE(NULL, ir_concat(f.g, 2, (ir_val[]){IN("2,3"), INT("2,3")}, 0));
    CASE(NULL, ir_concat(f.g, 1, (ir_val[]){IN("2,3")}, 2));
    CASE("2,1", ir_gather(f.g, IN("2,3"), INT("1"), 1));
    CASE("?,64", ir_gather(f.g, IN("100,64"), INT("?"), 0));
    CASE("5,2,7,3", ir_gather(f.g, IN("5,9,3"), INT("2,7"), -2));
    CASE("3", ir_gather(f.g, IN("5,3"), INT(""), 0));
    CASE(NULL, ir_gather(f.g, IN("5,3"), IN("2"), 0));
    CASE(NULL, ir_gather(f.g, IN("5,3"), INT("2"), 2));
    CASE("3", ir_shape(f.g, IN("5,?,4")));
    CASE("2,6,?", ir_tile(f.g, IN("3,?"), LIST(2, 2, 1)));
    CASE("3,8", ir_tile(f.g, IN("3,4"), LIST(2)));
    CASE(NULL, ir_tile(f.g, IN("3,4"), LIST(-1)));
    CASE("?,8", ir_broadcast(f.g, IN("8"), INT("2"), false, shape_of("?,8")));
    CASE("2,?,8", ir_broadcast(f.g, IN("?,8"), INT("3"), true, shape_of("2,?,8")));
    CASE(NULL, ir_broadcast(f.g, IN("7"), INT("2"), false, shape_of("?,8")));
    CASE(NULL, ir_broadcast(f.g, IN("8"), INT("3"), false, shape_of("?,8")));
    CASE("3,4", ir_scatter_elements(f.g, IN("3,4"), INT("3,2"), IN("3,2"), 1));
    CASE(NULL, ir_scatter_elements(f.g, IN("3,4"), INT("3,2"), IN("3,1"), 1));
    CASE(NULL, ir_scatter_elements(f.g, IN("3,4"), INT("3"), IN("3"), 1));
}

static void test_slices(void **unused)
{
    (void)unused;
    CASE("3", ir_slice(f.g, IN("10"), 0, 2, 5, 1));
    CASE("8", ir_slice(f.g, IN("10"), 0, 2, INT64_MAX, 1));
    CASE("3", ir_slice(f.g, IN("10"), 0, -3, INT64_MAX, 1));
    CASE("7", ir_slice(f.g, IN("10"), 0, 0, -3, 1));
    CASE("10", ir_slice(f.g, IN("10"), 0, -99, 99, 1));
    CASE("0", ir_slice(f.g, IN("10"), 0, 5, 5, 1));
    CASE("0", ir_slice(f.g, IN("10"), 0, 6, 5, 1));
    CASE("4", ir_slice(f.g, IN("10"), 0, 0, INT64_MAX, 3));
    CASE("1", ir_slice(f.g, IN("10"), 0, 0, INT64_MAX, INT64_MAX));
    CASE("10", ir_slice(f.g, IN("10"), 0, INT64_MAX, INT64_MIN, -1));
    CASE("5", ir_slice(f.g, IN("10"), 0, -1, INT64_MIN, -2));
    CASE("1", ir_slice(f.g, IN("10"), 0, 5, INT64_MIN, INT64_MIN));
    CASE("?,3", ir_slice(f.g, IN("?,8"), -1, 5, 99, 1));
    CASE("?,8", ir_slice(f.g, IN("?,8"), 0, 0, 2, 1));
    CASE(NULL, ir_slice(f.g, IN("10"), 0, 0, 5, 0));
    CASE(NULL, ir_slice(f.g, IN("10"), 1, 0, 5, 1));
}

static ir_val part(struct ir *g, ir_val v, int axis, int n, const int64_t *lengths, int which)
{
    ir_val out[8];
    ir_split(g, v, axis, n, lengths, out);
    return out[which];
}

static void test_splits(void **unused)
{
    (void)unused;
    CASE("?,2", part(f.g, IN("?,8"), 1, 4, NULL, 3));
    CASE("?,8", part(f.g, IN("?,8"), 0, 4, NULL, 0));
    CASE("?,5", part(f.g, IN("?,8"), -1, 2, (int64_t[]){3, 5}, 1));
    CASE("?,4", part(f.g, IN("?,8"), -1, 3, (int64_t[]){3, -1, 1}, 1));
    CASE("?,8", part(f.g, IN("?,8"), 0, 2, (int64_t[]){3, -1}, 1));
    CASE(NULL, part(f.g, IN("?,8"), 1, 3, NULL, 0));
    CASE(NULL, part(f.g, IN("?,8"), 1, 2, (int64_t[]){3, 4}, 0));
    CASE(NULL, part(f.g, IN("?,8"), 1, 2, (int64_t[]){9, -1}, 0));
    CASE(NULL, part(f.g, IN("?,8"), 1, 2, (int64_t[]){-1, -1}, 0));
    CASE(NULL, part(f.g, IN("?,8"), 2, 2, NULL, 0));
}

static void test_ranges(void **unused)
{
    (void)unused;
    CASE("3", ir_range(f.g, ir_i64(f.g, 1), ir_i64(f.g, 10), ir_i64(f.g, 4), IR_I64));
    CASE("0", ir_range(f.g, ir_i64(f.g, 1), ir_i64(f.g, 1), ir_i64(f.g, 1), IR_I64));
    CASE("0", ir_range(f.g, ir_i64(f.g, 5), ir_i64(f.g, 1), ir_i64(f.g, 1), IR_I64));
    CASE("2", ir_range(f.g, ir_i64(f.g, 5), ir_i64(f.g, 1), ir_i64(f.g, -2), IR_I64));
    CASE("?", ir_range(f.g, ir_i64(f.g, 0), INT(""), ir_i64(f.g, 1), IR_I64));
    CASE(NULL, ir_range(f.g, ir_i64(f.g, 0), ir_i64(f.g, 9), ir_i64(f.g, 0), IR_I64));
    CASE(NULL, ir_range(f.g, ir_i64(f.g, INT64_MIN), ir_i64(f.g, INT64_MAX), ir_i64(f.g, 1), IR_I64));
    CASE(NULL, ir_range(f.g, ir_i64(f.g, 0), INT("1"), ir_i64(f.g, 1), IR_I64));
}

static void test_products(void **unused)
{
    (void)unused;
    CASE("?,1", ir_reduce(f.g, IR_REDUCE_SUM, IN("?,8"), -1, true));
    CASE("8", ir_reduce(f.g, IR_REDUCE_MAX, IN("?,8"), 0, false));
    CASE("", ir_reduce(f.g, IR_REDUCE_MEAN, IN("8"), 0, false));
    CASE(NULL, ir_reduce(f.g, IR_REDUCE_MEAN, IN("8"), 1, false));
    CASE("?,32", ir_matmul(f.g, IN("?,64"), IN("32,64"), false, true));
    CASE("64,32", ir_matmul(f.g, IN("?,64"), IN("?,32"), true, false));
    CASE("4,?,32", ir_matmul(f.g, IN("1,?,64"), IN("4,32,64"), false, true));
    CASE("5,4,3,2", ir_matmul(f.g, IN("5,1,3,7"), IN("4,7,2"), false, false));
    CASE("3", ir_matmul(f.g, IN("3,7"), IN("7"), false, true)); /* a vector is not transposed */
    CASE("3", ir_matmul(f.g, IN("7"), IN("7,3"), false, false));
    CASE("", ir_matmul(f.g, IN("7"), IN("7"), false, false));
    CASE(NULL, ir_matmul(f.g, IN("?,64"), IN("64,32"), false, true));
    CASE(NULL, ir_matmul(f.g, IN("2,3,4"), IN("3,4,5"), false, false));
    CASE(NULL, ir_matmul(f.g, IN("3,4"), input(&f, "4,5", IR_F16), false, false));
    CASE(NULL, ir_matmul(f.g, IN(""), IN("4,5"), false, false));
    CASE("?,8", ir_softmax(f.g, IN("?,8"), -1));
    CASE(NULL, ir_softmax(f.g, IN("?,8"), 2));
    CASE("1,8,?,64", ir_sdpa(f.g, IN("1,8,?,32"), IN("1,8,?,32"), IN("1,8,?,64"), IR_NONE, IR_NONE, true));
    CASE(NULL, ir_sdpa(f.g, IN("1,8,?,32"), IN("1,8,?,16"), IN("1,8,?,64"), IR_NONE, IR_NONE, true));
    CASE(NULL, ir_sdpa(f.g, IN("1,8,?,32"), IN("1,3,?,32"), IN("1,3,?,32"), IR_NONE, IR_NONE, true));
}

static ir_val topk(struct ir *g, ir_val v, int64_t k)
{
    ir_val values, indices;
    ir_topk(g, v, k, -1, &values, &indices);
    return values;
}

static void test_topk(void **unused)
{
    (void)unused;
    CASE("?,8", topk(f.g, IN("?,8"), 8));
    CASE("2,3", topk(f.g, IN("2,?"), 3));
    CASE(NULL, topk(f.g, IN("?,8"), 9));
    CASE(NULL, topk(f.g, IN("?,8"), 0));
}

static void test_constants(void **unused)
{
    (void)unused;
    CASE("32,16", ir_const_ref(f.g, IR_F32, shape_of("32,16"), 64, 32 * 16 * 4));
    CASE("3", ir_const_ref(f.g, IR_U4, shape_of("3"), 0, 2));
    CASE(NULL, ir_const_ref(f.g, IR_F32, shape_of("32,16"), 0, 32 * 16));
    CASE(NULL, ir_const_ref(f.g, IR_F32, shape_of("?,16"), 0, 64));
    CASE(NULL, ir_const_ref(f.g, IR_DYNAMIC, shape_of("4"), 0, 0));
    CASE(NULL, ir_const_ref(f.g, IR_F32, shape_of("4611686018427387904,8"), 0, 0));
    CASE(NULL, ir_const_ref(f.g, IR_F32, shape_of("2305843009213693952"), 0, 0));
    CASE(NULL, ir_const_ref(f.g, IR_F32, shape_of("1"), UINT64_MAX - 1, 4));
    CASE(NULL, ir_const(f.g, IR_F32, shape_of("?"), NULL));
}

static ir_val kept(struct ir *g, ir_val init, const char *held, ir_val next)
{
    ir_val past = ir_read_value(g, init, "s", IR_F32, shape_of(held));
    ir_name(g, "node");
    ir_assign(g, next, "s");
    return ir_failed(g, NULL) ? IR_NONE : past;
}

static ir_val assigned(struct ir *g, ir_val v, const char *variable)
{
    ir_assign(g, v, variable);
    return IR_NONE;
}

static void test_states(void **unused)
{
    (void)unused;
    CASE("1,?,4", kept(f.g, IN("1,0,4"), "1,?,4", IN("1,?,4")));
    CASE("1,?,4", kept(f.g, IR_NONE, "1,?,4", IN("1,7,4")));
    CASE(NULL, kept(f.g, IN("1,0,5"), "1,?,4", IN("1,?,4")));
    CASE(NULL, kept(f.g, IN("1,0,4"), "1,?,4", IN("1,?,5")));
    CASE(NULL, kept(f.g, IN("1,0,4"), "1,?,4", INT("1,?,4")));
    CASE(NULL, assigned(f.g, IN("4"), "never read"));
    CASE(NULL, (kept(f.g, IR_NONE, "4", IN("4")), ir_name(f.g, "node"), assigned(f.g, IN("4"), "s")));
    CASE(NULL, (ir_read_value(f.g, IR_NONE, "s", IR_F32, shape_of("4")), ir_name(f.g, "node"),
                ir_read_value(f.g, IR_NONE, "s", IR_F32, shape_of("4"))));
}

static void test_the_first_failure_stays(void **unused)
{
    (void)unused;
    struct ir *g = ir_new("first");
    struct err err = ERR_INIT;
    ir_val x = ir_parameter(g, "x", IR_F32, IR_SHAPE(2, 3));
    size_t before = ir_n_nodes(g);
    ir_scope(g, "blk.0");
    ir_name(g, "a");
    ir_val bad = ir_matmul(g, x, x, false, false);
    ir_name(g, "b");
    assert_int_equal(ir_add(g, x, x), IR_NONE);
    assert_int_equal(ir_unary(g, IR_EXP, bad), IR_NONE);
    assert_int_equal(ir_f32(g, 1), IR_NONE);
    ir_fail(g, "later");
    assert_int_equal(ir_n_nodes(g), before);
    assert_int_equal(ir_dim(g, bad, 0), IR_DYN);
    assert_true(ir_failed(g, &err));
    assert_int_equal(err.code, ERR_FORMAT);
    assert_string_equal(err.text, "blk.0.a: MatMul: [2,3] and [2,3] don't go together");

    struct buf xml = {0}, tail = {0};
    struct err again = ERR_INIT;
    assert_int_equal(ir_write(g, 0, &xml, &tail, &again), -1);
    assert_string_equal(again.text, err.text);
    assert_int_equal(xml.n + tail.n, 0);
    ir_free(g);
}

static void test_missing_operands(void **unused)
{
    (void)unused;
    CASE(NULL, ir_add(f.g, IN("2"), IR_NONE));
    CASE(NULL, ir_add(f.g, IN("2"), 12345));
    CASE(NULL, ir_shape(f.g, IR_NONE));
    CASE(NULL, part(f.g, IR_NONE, 0, 2, NULL, 1));
    CASE(NULL, ir_parameter(f.g, "wrong", IR_F32, (struct ir_shape){7, {1, 1, 1, 1, 1, 1}}));
    CASE(NULL, (ir_fail(f.g, "needs %d heads", 3), IR_NONE));
    CASE(NULL, (IN("2"), ir_parameter(f.g, "in0", IR_F32, IR_SCALAR)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broadcasting),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_types_refused),
        cmocka_unit_test(test_reshape),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_topk),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_the_first_failure_stays),
        cmocka_unit_test(test_missing_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
