/* Element types and shapes: the names they have in IR, how two of them join, and how they look in a message.
 */
#include "ir/graph.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct type_row ir_types[] = {
    [IR_F32] = {"f32", "FP32", 32, true, false},
    [IR_F16] = {"f16", "FP16", 16, true, false},
    [IR_BF16] = {"bf16", "BF16", 16, true, false},
    [IR_I64] = {"i64", "I64", 64, false, true},
    [IR_I32] = {"i32", "I32", 32, false, true},
    [IR_I8] = {"i8", "I8", 8, false, true},
    [IR_U8] = {"u8", "U8", 8, false, true},
    [IR_U4] = {"u4", "U4", 4, false, true},
    [IR_BOOL] = {"boolean", "BOOL", 8, false, false},
    [IR_DYNAMIC] = {"dynamic", "dynamic", 0, true, true}, /* may turn out to be either */
};

struct text ir_int_text(int64_t v)
{
    struct text t;
    snprintf(t.s, sizeof t.s, "%lld", (long long)v);
    return t;
}

struct text ir_real_text(double v)
{
    struct text t;
    /* Infinities have no spelling that OpenVINO reads back. */
    if (v > FLT_MAX)
        v = FLT_MAX;
    if (v < -FLT_MAX)
        v = -FLT_MAX;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(t.s, sizeof t.s, "%.*g", digits, v);
        if (strtod(t.s, NULL) == v)
            break;
    }
    char *comma = strchr(t.s, ',');
    if (comma)
        *comma = '.';
    return t;
}

struct text ir_shape_text(struct ir_shape s)
{
    struct text t = {"["};
    size_t n = 1;
    for (int i = 0; i < s.rank && i < IR_MAX_RANK && n < sizeof t.s - 24; i++) {
        if (i)
            t.s[n++] = ',';
        if (s.d[i] == IR_DYN)
            n += (size_t)snprintf(t.s + n, sizeof t.s - n, "?");
        else
            n += (size_t)snprintf(t.s + n, sizeof t.s - n, "%lld", (long long)s.d[i]);
    }
    t.s[n++] = ']';
    t.s[n] = '\0';
    return t;
}

bool ir_merge_dim(int64_t a, int64_t b, int64_t *out)
{
    *out = a == IR_DYN ? b : a;
    return a == b || a == IR_DYN || b == IR_DYN;
}

bool ir_merge_type(enum ir_type a, enum ir_type b, enum ir_type *out)
{
    *out = a == IR_DYNAMIC ? b : a;
    return a == b || a == IR_DYNAMIC || b == IR_DYNAMIC;
}

/* NumPy's rule. An unknown dimension against one above 1 must become that one, or the run fails. */
bool ir_broadcast_dim(int64_t a, int64_t b, int64_t *out)
{
    if (a == 1 || b == 1) {
        *out = a == 1 ? b : a;
        return true;
    }
    return ir_merge_dim(a, b, out);
}

bool ir_broadcast_shape(struct ir_shape a, struct ir_shape b, struct ir_shape *out)
{
    struct ir_shape r = {.rank = a.rank > b.rank ? a.rank : b.rank};
    for (int i = 1; i <= r.rank; i++) {
        int64_t da = i <= a.rank ? a.d[a.rank - i] : 1;
        int64_t db = i <= b.rank ? b.d[b.rank - i] : 1;
        if (!ir_broadcast_dim(da, db, &r.d[r.rank - i]))
            return false;
    }
    *out = r;
    return true;
}

bool ir_shape_count(struct ir_shape s, uint64_t *out)
{
    uint64_t n = 1;
    for (int i = 0; i < s.rank; i++) {
        if (s.d[i] < 0 || __builtin_mul_overflow(n, (uint64_t)s.d[i], &n))
            return false;
    }
    *out = n;
    return n <= INT64_MAX;
}

bool ir_norm_axis(int *axis, int rank)
{
    if (*axis < -rank || *axis >= rank)
        return false;
    if (*axis < 0)
        *axis += rank;
    return true;
}

bool ir_shape_ok(struct ir_shape s)
{
    if (s.rank < 0 || s.rank > IR_MAX_RANK)
        return false;
    for (int i = 0; i < s.rank; i++) {
        if (s.d[i] < IR_DYN)
            return false;
    }
    return true;
}
