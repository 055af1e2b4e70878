/* The written document: small graphs against tests/golden/ir, byte by byte, and what must hold for any graph.
 *
 * With IR_SAMPLES=folder in the environment the graphs are written there as NAME.xml and NAME.bin, for
 * tests/e2e/test_ir.py, which lets OpenVINO read, check and run them. The golden texts were made that way and
 * passed that check. */
#include "ir/ir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* --- the graphs --- */

/* The caller's blob: for `linear` 32 x 16 f32 weights, w[i] = (i % 7 - 3) / 8; 100 bytes of it unused. */
static const uint64_t linear_blob = 32 * 16 * 4 + 100;

static void fill_blob(struct buf *b)
{
    for (int i = 0; i < 32 * 16; i++) {
        float w = (float)(i % 7 - 3) / 8;
        buf_add(b, &w, sizeof w);
    }
    while (b->n < linear_blob)
        buf_putc(b, 0);
}

/* RMS norm and a product: scopes, names, weights by reference, a result. */
static struct ir *linear(void)
{
    struct ir *g = ir_new("linear");
    ir_val x = ir_parameter(g, "x", IR_F32, IR_SHAPE(IR_DYN, 16));
    ir_scope(g, "blk.%d", 0);
    ir_scope(g, "norm");
    ir_name(g, "square");
    ir_val square = ir_mul(g, x, x);
    ir_name(g, "mean");
    ir_val mean = ir_reduce(g, IR_REDUCE_MEAN, square, -1, true);
    ir_val root = ir_unary(g, IR_SQRT, ir_add(g, mean, ir_f32(g, 1e-5f)));
    ir_val normed = ir_binary(g, IR_DIV, x, root);
    ir_leave(g);
    ir_name(g, "q.weight");
    ir_val w = ir_const_ref(g, IR_F32, IR_SHAPE(32, 16), 0, 32 * 16 * 4);
    ir_name(g, "q");
    ir_val q = ir_matmul(g, normed, w, false, true);
    ir_leave(g);
    ir_name(g, "heads <\"q\" & 'k'>");
    ir_result(g, "y", ir_reshape(g, q, 3, (int64_t[]){0, 2, 16}, true));
    return g;
}

/* A state that grows by a row a step, as a KV cache does. */
static struct ir *state(void)
{
    struct ir *g = ir_new("state");
    ir_val x = ir_parameter(g, "x", IR_F32, IR_SHAPE(1, IR_DYN, 4));
    ir_val zero = ir_const(g, IR_F32, IR_SHAPE(1, 0, 4), NULL);
    ir_name(g, "past");
    ir_val past = ir_read_value(g, zero, "past.0", IR_F32, IR_SHAPE(1, IR_DYN, 4));
    ir_name(g, "present");
    ir_val all = ir_concat(g, 2, (ir_val[]){past, x}, 1);
    ir_name(g, "keep");
    ir_assign(g, all, "past.0");
    ir_result(g, "sum", ir_reduce(g, IR_REDUCE_SUM, all, 1, false));
    return g;
}

/* An operation known by name only, with runtime information, and a parameter whose type the plugin chooses.
 */
static struct ir *internal(void)
{
    struct ir *g = ir_new("internal");
    ir_val x = ir_parameter(g, "x", IR_F32, IR_SHAPE(IR_DYN, 64));
    ir_parameter(g, "key_cache.0", IR_DYNAMIC, IR_SHAPE(IR_DYN, 2, IR_DYN, 64));
    ir_val out;
    ir_name(g, "gate");
    ir_node(g, "Swish", "opset4", 1, &x, 0, NULL, 2,
            (struct ir_attr[]){{"k_head_size", "64"}, {"note", "a<b"}}, 1,
            (struct ir_out[]){{IR_F32, IR_SHAPE(IR_DYN, 64)}}, &out);
    ir_result(g, "y", out);
    ir_result(g, "y again", out);
    return g;
}

static void each_elementwise(struct ir *g, ir_val x, ir_val y)
{
    static const char *const binary[] = {"add", "sub",        "mul",     "div",   "pow", "max",
                                         "min", "less_equal", "greater", "equal", "and", "or"};
    static const char *const unary[] = {"sqrt",     "exp",   "log",      "neg",      "abs",
                                        "sin",      "cos",   "tanh",     "sigmoid",  "relu",
                                        "softplus", "swish", "gelu_erf", "gelu_tanh"};
    ir_val less = IR_NONE, more = IR_NONE;
    for (int op = IR_ADD; op <= IR_EQUAL; op++) {
        ir_name(g, "%s", binary[op]);
        ir_val v = ir_binary(g, (enum ir_binary)op, x, y);
        less = op == IR_LESS_EQUAL ? v : less;
        more = op == IR_GREATER ? v : more;
        ir_result(g, binary[op], v);
    }
    ir_result(g, "and", ir_binary(g, IR_AND, less, more));
    ir_result(g, "or", ir_binary(g, IR_OR, less, more));
    ir_result(g, "select", ir_select(g, less, x, y));
    for (int op = IR_SQRT; op <= IR_GELU_TANH; op++) {
        ir_name(g, "%s", unary[op]);
        ir_result(g, unary[op], ir_unary(g, (enum ir_unary)op, x));
    }
    ir_result(g, "clamp", ir_clamp(g, x, 0.5, 1.25));
    ir_result(g, "clamp_below", ir_clamp(g, x, 1, HUGE_VAL));
    ir_result(g, "f16", ir_convert(g, x, IR_F16));
    ir_result(g, "i64", ir_convert(g, x, IR_I64));
}

static void each_movement(struct ir *g, ir_val x, ir_val ids)
{
    ir_val parts[4];
    ir_result(g, "reshape", ir_reshape(g, x, 3, (int64_t[]){0, 4, -1}, true));
    ir_result(g, "reshape_flat", ir_reshape(g, x, 1, (int64_t[]){-1}, false));
    ir_val heads = ir_reshape(g, x, 3, (int64_t[]){-1, 4, 2}, false);
    ir_result(g, "transpose", ir_transpose(g, heads, 3, (int64_t[]){1, 2, 0}));
    ir_result(g, "unsqueeze", ir_unsqueeze(g, x, 2, (int64_t[]){0, -1}));
    ir_result(g, "concat", ir_concat(g, 2, (ir_val[]){x, x}, -1));
    ir_result(g, "slice", ir_slice(g, x, -1, 1, INT64_MAX, 3));
    ir_result(g, "slice_rows", ir_slice(g, x, 0, -2, INT64_MAX, 1));
    ir_result(g, "slice_back", ir_slice(g, x, 1, 6, 1, -2));
    ir_split(g, x, 1, 4, NULL, parts);
    ir_result(g, "split", parts[2]);
    ir_split(g, x, 1, 3, (int64_t[]){1, -1, 4}, parts);
    ir_result(g, "split_given", parts[1]);
    ir_val table =
        ir_const(g, IR_F16, IR_SHAPE(3, 2), (uint16_t[]){0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600});
    ir_result(g, "gather", ir_convert(g, ir_gather(g, table, ids, 0), IR_F32));
    ir_val shape = ir_shape(g, x);
    ir_result(g, "shape", shape);
    ir_val row = ir_const(g, IR_F32, IR_SHAPE(8), (float[]){1, 2, 3, 4, 5, 6, 7, 8});
    ir_result(g, "broadcast", ir_broadcast(g, row, shape, false, IR_SHAPE(IR_DYN, 8)));
    ir_result(g, "broadcast_both",
              ir_broadcast(g, x, ir_i64s(g, 3, (int64_t[]){2, 1, 1}), true, IR_SHAPE(2, IR_DYN, 8)));
    ir_result(g, "reshape_dyn", ir_reshape_dyn(g, heads, shape, IR_SHAPE(IR_DYN, 8)));
    ir_result(g, "tile", ir_tile(g, x, 3, (int64_t[]){2, 1, 3}));
    ir_result(g, "range", ir_range(g, ir_i64(g, 1), ir_i64(g, 10), ir_i64(g, 4), IR_I32));
    ir_val rows = ir_reshape(g, ir_slice(g, shape, 0, 0, 1, 1), 0, NULL, false);
    ir_result(g, "range_dyn", ir_range(g, ir_i64(g, 0), rows, ir_i64(g, 1), IR_I64));
    ir_val twos = ir_const(g, IR_F32, IR_SHAPE(1, 2), (float[]){20, 21});
    ir_val at = ir_const(g, IR_I32, IR_SHAPE(1, 2), (int32_t[]){5, 0});
    ir_result(g, "scatter",
              ir_scatter_elements(g, ir_reshape(g, row, 2, (int64_t[]){1, 8}, false), at, twos, 1));
}

static void each_product(struct ir *g, ir_val x)
{
    ir_val values, indices;
    ir_result(g, "sum", ir_reduce(g, IR_REDUCE_SUM, x, 0, false));
    ir_result(g, "mean", ir_reduce(g, IR_REDUCE_MEAN, x, -1, true));
    ir_result(g, "largest", ir_reduce(g, IR_REDUCE_MAX, x, 1, false));
    ir_result(g, "softmax", ir_softmax(g, x, -1));
    ir_topk(g, x, 3, -1, &values, &indices);
    ir_result(g, "topk", values);
    ir_result(g, "topk_at", indices);
    float w[4 * 8];
    for (int i = 0; i < 4 * 8; i++)
        w[i] = (float)(i % 5 - 2);
    ir_val right = ir_const(g, IR_F32, IR_SHAPE(4, 8), w);
    ir_result(g, "matmul", ir_matmul(g, x, right, false, true));
    ir_result(g, "matmul_ta", ir_matmul(g, x, x, true, false));
    ir_val batch = ir_const(g, IR_F32, IR_SHAPE(2, 1, 8, 2), w);
    ir_result(g, "matmul_batch", ir_matmul(g, ir_unsqueeze(g, x, 1, (int64_t[]){0}), batch, false, false));
    ir_result(g, "matmul_vector", ir_matmul(g, x, ir_const(g, IR_F32, IR_SHAPE(8), w), false, false));
    ir_val q =
        ir_transpose(g, ir_reshape(g, x, 4, (int64_t[]){1, -1, 2, 4}, false), 4, (int64_t[]){0, 2, 1, 3});
    ir_result(g, "sdpa", ir_sdpa(g, q, q, q, IR_NONE, ir_f32(g, 0.25f), true));
    ir_val mask = ir_const(g, IR_F32, IR_SHAPE(1, 1, 1, 1), (float[]){0});
    ir_result(g, "sdpa_mask", ir_sdpa(g, q, q, q, mask, IR_NONE, false));
}

/* Every type a constant can have, 4-bit ones and an empty one among them. */
static void each_constant(struct ir *g)
{
    ir_result(g, "c_u4", ir_convert(g, ir_const(g, IR_U4, IR_SHAPE(2, 3), "\x21\x43\x65"), IR_F32));
    ir_result(g, "c_u8", ir_convert(g, ir_const(g, IR_U8, IR_SHAPE(2), "\x80\x01"), IR_F32));
    ir_result(g, "c_i8", ir_convert(g, ir_const(g, IR_I8, IR_SHAPE(2), "\x80\x01"), IR_F32));
    ir_result(g, "c_bf16",
              ir_convert(g, ir_const(g, IR_BF16, IR_SHAPE(2), (uint16_t[]){0x3F80, 0xC000}), IR_F32));
    ir_result(g, "c_bool", ir_convert(g, ir_const(g, IR_BOOL, IR_SHAPE(2), "\1\0"), IR_F32));
    ir_val empty = ir_const(g, IR_F32, IR_SHAPE(0, 8), NULL);
    ir_result(g, "c_empty", ir_concat(g, 2, (ir_val[]){empty, empty}, 0));
}

static struct ir *each_op(void)
{
    struct ir *g = ir_new("each_op");
    ir_val x = ir_parameter(g, "x", IR_F32, IR_SHAPE(IR_DYN, 8));
    ir_val y = ir_parameter(g, "y", IR_F32, IR_SHAPE(1, 8));
    ir_val ids = ir_parameter(g, "ids", IR_I64, IR_SHAPE(IR_DYN));
    each_elementwise(g, x, y);
    each_movement(g, x, ids);
    each_product(g, x);
    each_constant(g);
    return g;
}

static const struct {
    const char *name;
    struct ir *(*make)(void);
    bool golden, blob;
} samples[] = {
    {"linear", linear, true, true},
    {"state", state, true, false},
    {"internal", internal, true, false},
    {"each_op", each_op, false, false},
};
#define N_SAMPLES (sizeof samples / sizeof *samples)

/* --- the tests --- */

static void write_ok(const struct ir *g, uint64_t blob_size, struct buf *xml, struct buf *tail)
{
    struct err err = ERR_INIT;
    if (ir_write(g, blob_size, xml, tail, &err) < 0)
        fail_msg("%s", err.text);
}

static void read_file(const char *path, struct buf *b)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        buf_add(b, part, n);
    fclose(f);
}

static void save(const char *folder, const char *name, const char *suffix, const struct buf *b)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->p ? b->p : "", 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

static void test_golden(void **unused)
{
    (void)unused;
    const char *folder = getenv("IR_SAMPLES");
    for (size_t i = 0; i < N_SAMPLES; i++) {
        struct buf xml = {0}, tail = {0}, want = {0}, blob = {0};
        struct ir *g = samples[i].make();
        if (samples[i].blob)
            fill_blob(&blob);
        write_ok(g, blob.n, &xml, &tail);
        if (folder) {
            while (blob.n % 64)
                buf_putc(&blob, 0);
            buf_add(&blob, tail.p, tail.n);
            save(folder, samples[i].name, ".xml", &xml);
            save(folder, samples[i].name, ".bin", &blob);
        } else if (samples[i].golden) {
            char path[256];
            snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/ir/%s.xml", samples[i].name);
            read_file(path, &want);
            assert_string_equal(xml.p, want.p);
        }
        ir_free(g);
        buf_release(&xml);
        buf_release(&tail);
        buf_release(&want);
        buf_release(&blob);
    }
}

/* How often `what` stands in the document. */
static int count(const struct buf *xml, const char *what)
{
    int n = 0;
    for (const char *at = xml->p; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

static void test_names_are_unique(void **unused)
{
    (void)unused;
    struct buf xml = {0}, tail = {0};
    struct ir *g = ir_new("names");
    ir_val x = ir_parameter(g, "x", IR_F32, IR_SHAPE(2));
    ir_name(g, "q_2"); /* takes the name that the second q would get */
    x = ir_unary(g, IR_EXP, x);
    for (int i = 0; i < 3; i++) {
        ir_name(g, "q");
        x = ir_unary(g, IR_EXP, x);
    }
    ir_scope(g, "a");
    ir_scope(g, "b");
    x = ir_unary(g, IR_ABS, x);
    ir_leave(g);
    x = ir_unary(g, IR_ABS, ir_unary(g, IR_ABS, x));
    ir_leave(g);
    ir_name(g, "tab\there\x1b");
    ir_unary(g, IR_ABS, x);
    write_ok(g, 0, &xml, &tail);
    const char *once[] = {"\"q\"",       "\"q_2\"",   "\"q_3\"",     "\"q_4\"",
                          "\"a.b.Abs\"", "\"a.Abs\"", "\"a.Abs_2\"", "\"tab?here?\""};
    for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
        if (count(&xml, once[i]) != 1)
            fail_msg("%s stands %d times in\n%s", once[i], count(&xml, once[i]), xml.p);
    }
    ir_leave(g);
    assert_true(ir_failed(g, NULL)); /* one ir_leave too many */
    ir_free(g);
    buf_release(&xml);
    buf_release(&tail);
}

static void test_equal_constants_are_one(void **unused)
{
    (void)unused;
    struct buf xml = {0}, tail = {0};
    struct ir *g = ir_new("constants");
    assert_int_equal(ir_i64(g, 5), ir_i64(g, 5));
    assert_int_equal(ir_f32(g, 0.5f), ir_f32(g, 0.5f));
    assert_int_not_equal(ir_f32(g, 0.0f), ir_f32(g, -0.0f));
    assert_int_not_equal(ir_i64(g, 5), ir_i64s(g, 1, (int64_t[]){5}));
    assert_int_not_equal(ir_const(g, IR_I8, IR_SHAPE(1), "a"), ir_const(g, IR_U8, IR_SHAPE(1), "a"));
    assert_int_not_equal(ir_const(g, IR_U8, IR_SHAPE(1, 2), "ab"), ir_const(g, IR_U8, IR_SHAPE(2, 1), "ab"));
    ir_name(g, "table");
    ir_val named = ir_const(g, IR_U8, IR_SHAPE(2), "ab");
    assert_int_equal(named, ir_const(g, IR_U8, IR_SHAPE(2), "ab"));
    assert_int_equal(ir_n_nodes(g), 10);
    assert_false(ir_failed(g, NULL));
    write_ok(g, 0, &xml, &tail);
    assert_int_equal(count(&xml, "\"table\""), 1);
    assert_int_equal(count(&xml, "\"i64(5)\""), 1);
    ir_free(g);
    buf_release(&xml);
    buf_release(&tail);
}

static void test_tail_stands_behind_the_blob(void **unused)
{
    (void)unused;
    struct buf xml = {0}, tail = {0};
    struct ir *g = ir_new("tail");
    ir_const_ref(g, IR_U8, IR_SHAPE(10), 90, 10);
    ir_const(g, IR_U8, IR_SHAPE(3), "abc");
    ir_const(g, IR_U8, IR_SHAPE(65), "a string of sixty-five bytes that goes one over a line of the tail");
    ir_const(g, IR_U8, IR_SHAPE(2), "yz");
    write_ok(g, 100, &xml, &tail);
    assert_int_equal(count(&xml, "offset=\"90\" size=\"10\""), 1);
    assert_int_equal(count(&xml, "offset=\"128\" size=\"3\""), 1);
    assert_int_equal(count(&xml, "offset=\"192\" size=\"65\""), 1);
    assert_int_equal(count(&xml, "offset=\"320\" size=\"2\""), 1);
    assert_int_equal(tail.n, 320 - 128 + 2);
    assert_memory_equal(tail.p, "abc", 3);
    assert_memory_equal(tail.p + 192, "yz", 2);
    ir_free(g);
    buf_release(&xml);
    buf_release(&tail);
}

static void test_writing_fails_politely(void **unused)
{
    (void)unused;
    struct buf xml = {0}, tail = {0};
    struct err err = ERR_INIT;
    struct ir *g = ir_new("fails");
    ir_scope(g, "blk.0");
    ir_name(g, "w");
    ir_const_ref(g, IR_U8, IR_SHAPE(10), 91, 10);
    assert_int_equal(ir_write(g, 100, &xml, &tail, &err), -1);
    assert_int_equal(err.code, ERR_RANGE);
    assert_non_null(strstr(err.text, "blk.0.w: bytes 91 to 101 are outside"));

    struct buf small = {.ceiling = 100};
    struct err full = ERR_INIT;
    assert_int_equal(ir_write(g, 200, &small, &tail, &full), -1);
    assert_int_equal(full.code, ERR_MEMORY);
    ir_free(g);
    buf_release(&small);
    buf_release(&xml);
    buf_release(&tail);
}

/* CPU milliseconds to build and write n nodes that all ask for the same name. */
static double cost(int n)
{
    struct buf xml = {0}, tail = {0};
    clock_t begin = clock();
    struct ir *g = ir_new("large");
    ir_val x = ir_parameter(g, "x", IR_F32, IR_SHAPE(IR_DYN, 16));
    ir_scope(g, "blk");
    for (int i = 0; i < n / 2; i++) {
        ir_name(g, "same");
        x = ir_add(g, x, ir_f32(g, (float)i));
    }
    ir_result(g, "y", x);
    write_ok(g, 0, &xml, &tail);
    ir_free(g);
    buf_release(&xml);
    buf_release(&tail);
    return 1000.0 * (double)(clock() - begin) / CLOCKS_PER_SEC;
}

static void test_time_is_linear(void **unused)
{
    (void)unused;
    double small = cost(3000), large = cost(48000);
    print_message("3,000 nodes: %.1f ms; 48,000: %.1f ms\n", small, large);
    assert_true(large < 16 * small * 4 + 50); /* squared growth would be 256 times as much */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_equal_constants_are_one),
        cmocka_unit_test(test_tail_stands_behind_the_blob),
        cmocka_unit_test(test_writing_fails_politely),
        cmocka_unit_test(test_time_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
