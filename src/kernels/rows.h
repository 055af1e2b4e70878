/* What the parts of this room share: the types and what their products need, rows of x rounded to 8 bits, and
 * one product of such rows with rows of blocks.
 *
 * All types are seen the same way. A step is 256 elements of a row of W: 256 whole numbers q and, for each
 * group of 16 or 32 of them, a scale and perhaps a min, both f32. A row of x has as many whole numbers, a
 * scale d, and for types with mins s = d * (sum of q in the group). Then y = sum over groups of  d * scale *
 * (sum of qx * (qw - zero)) + min * s where the inner sum is exact, in 32-bit integers. Types with blocks of
 * 32 have a d for each group; the K types one for each step. Rows of x are padded with zeros to whole steps;
 * rows of W are not, see linear_tail. */
#ifndef KERNELS_ROWS_H
#define KERNELS_ROWS_H

#include "kernels/linear.h"
#include "quant/blocks.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { STEP = 256, STEP_GROUPS = STEP / 32, STEP_MAX_GROUPS = STEP / 16, STEP_MAX_BYTES = STEP / 32 * 34 };

/* How rows of x are rounded: as ggml's Q8_0 and Q8_1 (the same but for s, which is an f16 in Q8_1) or Q8_K.
 */
enum rounding { ROUND_32, ROUND_256, N_ROUNDINGS };

/* Type, its name in lower case, zero of q as unpacked to unsigned bytes, elements in a group, rounding of x,
 * whether groups have a min. A new type is a row here and a function `unpack` for each instruction set. */
#define LINEAR_TYPES(X)                                                                                      \
    X(Q4_0, q4_0, 8, 32, ROUND_32, 0)                                                                        \
    X(Q4_1, q4_1, 0, 32, ROUND_32, 1)                                                                        \
    X(Q5_0, q5_0, 16, 32, ROUND_32, 0)                                                                       \
    X(Q5_1, q5_1, 0, 32, ROUND_32, 1)                                                                        \
    X(Q8_0, q8_0, 128, 32, ROUND_32, 0)                                                                      \
    X(IQ4_NL, iq4_nl, 128, 32, ROUND_32, 0)                                                                  \
    X(MXFP4, mxfp4, 128, 32, ROUND_32, 0)                                                                    \
    X(Q2_K, q2_k, 0, 16, ROUND_256, 1)                                                                       \
    X(Q3_K, q3_k, 4, 16, ROUND_256, 0)                                                                       \
    X(Q4_K, q4_k, 0, 32, ROUND_256, 1)                                                                       \
    X(Q5_K, q5_k, 0, 32, ROUND_256, 1)                                                                       \
    X(Q6_K, q6_k, 32, 16, ROUND_256, 0)                                                                      \
    X(IQ4_XS, iq4_xs, 128, 32, ROUND_256, 0)

enum { LINEAR_N_TYPES = GGML_MXFP4 + 1 };

/* Bytes of a step of W. */
#define STEP_BYTES(TYPE) (STEP / BLOCK_##TYPE * BYTES_##TYPE)

/* Rows of x in one rounding. Each array has a row per row of x. */
struct rounded {
    size_t steps;  /* in a row */
    uint8_t *q;    /* [steps * 256] int8, or that + 128 when `biased` */
    float *d;      /* [steps * 8] in ROUND_32, [steps] in ROUND_256 */
    float *s;      /* [steps * 8], for groups of 32 */
    float *s16;    /* [steps * 16], for groups of 16; ROUND_256 only */
    int32_t *less; /* [steps * less_groups(rounding)]: -(sum of q in a group of 32; of 16 in ROUND_256) */
    bool biased;
};

static inline size_t less_groups(enum rounding r)
{
    return r == ROUND_32 ? STEP_GROUPS : STEP_MAX_GROUPS;
}

/* Rows [first, last) of y for one part. */
struct product {
    const uint8_t *data;
    const uint32_t *row_map;
    size_t cols, row_bytes;
    size_t first, last;
    const struct rounded *x;
    size_t m;
    float *y; /* y[i * stride + n] for row n of the part */
    size_t stride;
};

/* An instruction set: how rows of x are rounded, and the product for each type, of few and of many rows of x.
 * Few means m <= max_few; only for many are rows of x biased. Both add up a row of x in the same order, so
 * that its bits don't depend on how many others go through with it. */
struct linear_kernels {
    size_t max_few, step;
    bool biased; /* whether `many` wants rows of x biased */
    void (*round[N_ROUNDINGS])(const float *x, size_t cols, const struct rounded *to, size_t row);
    void (*few[LINEAR_N_TYPES])(const struct product *p);
    void (*many[LINEAR_N_TYPES])(const struct product *p);
};

extern const struct linear_kernels linear_portable;
#if defined(__x86_64__)
extern const struct linear_kernels linear_avx2, linear_avx512;
#endif

static inline const uint8_t *product_row(const struct product *p, size_t n)
{
    return p->data + (p->row_map ? p->row_map[n] : n) * p->row_bytes;
}

/* The last blocks of a row that make no whole step, with zeros behind them, so that they can be read like
 * one. */
static inline void product_tail(const struct product *p, const uint8_t *row, size_t step_bytes, uint8_t *tail)
{
    size_t done = p->cols / STEP * step_bytes;
    memset(tail, 0, step_bytes);
    memcpy(tail, row + done, p->row_bytes - done);
}

/* The f16 nearest to f, as f32: ties to even, infinity from 65520 on. */
static inline float f16_rounded(float f)
{
    float a = __builtin_fabsf(f), rounded;
    if (a >= 65520)
        rounded = __builtin_inff();
    else if (a < 0x1p-14f)
        rounded = (a + 0.5f) - 0.5f; /* multiples of 2^-24 */
    else {
        uint32_t bits = load_u32(&a);
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
        memcpy(&rounded, &bits, sizeof rounded);
    }
    if (f != f)
        rounded = f;
    return __builtin_copysignf(rounded, f);
}

#endif
