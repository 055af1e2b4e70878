/* Shapes from a hostile file: a byte string drives the building of a graph, one operation after another, with
 * dimensions, axes and lengths of all kinds. Whatever comes, an operation gives a valid shape or a failure
 * that has a text, and a graph that has not failed can be written. */
#include "ir/ir.h"

#include <stdlib.h>

struct input {
    const uint8_t *p;
    size_t n;
};

static uint8_t byte(struct input *in)
{
    if (in->n == 0)
        return 0;
    in->n--;
    return *in->p++;
}

/* Mostly small numbers, sometimes those at the edges. */
static int64_t number(struct input *in)
{
    static const int64_t edges[] = {INT64_MAX,        INT64_MIN,        INT64_MAX - 1, INT64_MIN + 1,
                                    (int64_t)1 << 62, (int64_t)1 << 32, UINT32_MAX,    INT32_MIN};
    uint8_t b = byte(in);
    return b >= 248 ? edges[b - 248] : (int64_t)(b % 19) - 4;
}

static int list(struct input *in, int64_t v[8])
{
    int n = byte(in) % 8;
    for (int i = 0; i < n; i++)
        v[i] = number(in);
    return n;
}

static struct ir_shape shape(struct input *in)
{
    int64_t v[8];
    struct ir_shape s = {.rank = list(in, v)};
    for (int i = 0; i < s.rank && i < IR_MAX_RANK; i++)
        s.d[i] = v[i];
    return s;
}

enum { MAX_VALUES = 64 };

static int axis(struct input *in)
{
    return byte(in) % 16 - 8;
}

/* One operation on values made before. */
static void step(struct ir *g, struct input *in, ir_val *v, int *n)
{
    uint8_t op = byte(in);
    ir_val a = v[byte(in) % *n], b = v[byte(in) % *n], c = v[byte(in) % *n], out[8], made = IR_NONE;
    int64_t dims[8] = {0};
    int count = list(in, dims);
    switch (op % 24) {
    case 0:
        made = ir_parameter(g, (char[]){(char)(byte(in) | 1), 0}, (enum ir_type)(byte(in) % 10), shape(in));
        break;
    case 1:
        made = ir_i64s(g, count, dims);
        break;
    case 2:
        made = ir_i64(g, number(in));
        break;
    case 3:
        made = ir_binary(g, (enum ir_binary)(byte(in) % 12), a, b);
        break;
    case 4:
        made = ir_unary(g, (enum ir_unary)(byte(in) % 14), a);
        break;
    case 5:
        made = ir_select(g, a, b, c);
        break;
    case 6:
        made = ir_reshape(g, a, count, dims, byte(in) & 1);
        break;
    case 7:
        made = ir_reshape_dyn(g, a, b, shape(in));
        break;
    case 8:
        made = ir_transpose(g, a, count, dims);
        break;
    case 9:
        made = ir_unsqueeze(g, a, count, dims);
        break;
    case 10:
        made = ir_concat(g, 3, (ir_val[]){a, b, c}, axis(in));
        break;
    case 11:
        made = ir_slice(g, a, axis(in), number(in), number(in), number(in));
        break;
    case 12:
        ir_split(g, a, axis(in), count, byte(in) & 1 ? dims : NULL, out);
        made = count ? out[0] : IR_NONE;
        break;
    case 13:
        made = ir_gather(g, a, b, axis(in));
        break;
    case 14:
        made = ir_broadcast(g, a, b, byte(in) & 1, shape(in));
        break;
    case 15:
        made = ir_tile(g, a, count, dims);
        break;
    case 16:
        made = ir_range(g, a, b, c, (enum ir_type)(byte(in) % 10));
        break;
    case 17:
        made = ir_scatter_elements(g, a, b, c, axis(in));
        break;
    case 18:
        made = ir_reduce(g, (enum ir_reduce)(byte(in) % 3), a, axis(in), byte(in) & 1);
        break;
    case 19:
        made = ir_matmul(g, a, b, byte(in) & 1, byte(in) & 1);
        break;
    case 20:
        ir_topk(g, a, number(in), axis(in), &made, &out[0]);
        break;
    case 21:
        made = ir_sdpa(g, a, b, c, IR_NONE, IR_NONE, true);
        break;
    case 22:
        made = ir_shape(g, a);
        break;
    case 23:
        made = ir_const_ref(g, (enum ir_type)(byte(in) % 10), shape(in), (uint64_t)number(in),
                            (uint64_t)number(in));
        break;
    }
    if (made != IR_NONE && *n < MAX_VALUES)
        v[(*n)++] = made;
}

static void check_shape(struct ir_shape s)
{
    if (s.rank < 0 || s.rank > IR_MAX_RANK)
        abort();
    for (int i = 0; i < s.rank; i++) {
        if (s.d[i] < IR_DYN)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct ir *g = ir_new("fuzz");
    struct err err = ERR_INIT;
    struct buf xml = {.ceiling = 1 << 20}, tail = {.ceiling = 1 << 20};
    ir_val v[MAX_VALUES];
    int n = 0;
    v[n++] = ir_parameter(g, "x", IR_F32, IR_SHAPE(IR_DYN, 4, 6));
    v[n++] = ir_parameter(g, "i", IR_I64, IR_SHAPE(3));
    while (in.n && n < MAX_VALUES && !ir_failed(g, NULL))
        step(g, &in, v, &n);
    for (int i = 0; i < n; i++)
        check_shape(ir_shape_of(g, v[i]));
    if (ir_failed(g, &err)) {
        if (!err.text[0])
            abort();
    } else if (ir_write(g, UINT32_MAX, &xml, &tail, &err) == 0) {
        check_shape(IR_SHAPE((int64_t)xml.n));
    } else if (err.code != ERR_RANGE && err.code != ERR_MEMORY) {
        abort();
    }
    ir_free(g);
    buf_release(&xml);
    buf_release(&tail);
    return 0;
}
