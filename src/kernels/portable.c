/* Products in plain C for every machine, written so that compilers make vector code of the inner loops.
 *
 * A step of four rows of W is unpacked to 16-bit numbers and then meets every row of x. */
#include "kernels/rows.h"

#define TARGET
#define INLINE static inline __attribute__((always_inline))

enum { W_ROWS = 4 };

struct step {
    int16_t q[STEP]; /* less zero */
    float scale[STEP_MAX_GROUPS], min[STEP_MAX_GROUPS];
};

typedef void unpack_fn(const uint8_t *p, struct step *to);

struct kind {
    unpack_fn *unpack;
    size_t step_bytes;
    int zero;
    size_t group;
    enum rounding rounding;
    bool min;
};

/* 2 n split nibbles, or what they stand for. */
INLINE void nibbles(const uint8_t *qs, int n, int16_t *to)
{
    for (int i = 0; i < n; i++) {
        to[i] = qs[i] & 15;
        to[i + n] = qs[i] >> 4;
    }
}

INLINE void codes(const int8_t code[16], const uint8_t *qs, int16_t *to)
{
    for (int i = 0; i < 16; i++) {
        to[i] = (int16_t)(code[qs[i] & 15] + 128);
        to[i + 16] = (int16_t)(code[qs[i] >> 4] + 128);
    }
}

INLINE void add_bits(const uint8_t qh[4], int16_t *to)
{
    uint32_t bits = load_u32(qh);
    for (int i = 0; i < 32; i++)
        to[i] = (int16_t)(to[i] + (int)(bits >> i << 4 & 16));
}

#define BLOCKS(name)                                                                                         \
    const struct block_##name *b = (const void *)p;                                                          \
    for (int i = 0; i < STEP / 32; i++, b++)

INLINE void unpack_q4_0(const uint8_t *p, struct step *to)
{
    BLOCKS(q4_0)
    {
        nibbles(b->qs, 16, to->q + 32 * i);
        to->scale[i] = load_f16(b->d);
    }
}

INLINE void unpack_q4_1(const uint8_t *p, struct step *to)
{
    BLOCKS(q4_1)
    {
        nibbles(b->qs, 16, to->q + 32 * i);
        to->scale[i] = load_f16(b->d);
        to->min[i] = load_f16(b->m);
    }
}

INLINE void unpack_q5_0(const uint8_t *p, struct step *to)
{
    BLOCKS(q5_0)
    {
        nibbles(b->qs, 16, to->q + 32 * i);
        add_bits(b->qh, to->q + 32 * i);
        to->scale[i] = load_f16(b->d);
    }
}

INLINE void unpack_q5_1(const uint8_t *p, struct step *to)
{
    BLOCKS(q5_1)
    {
        nibbles(b->qs, 16, to->q + 32 * i);
        add_bits(b->qh, to->q + 32 * i);
        to->scale[i] = load_f16(b->d);
        to->min[i] = load_f16(b->m);
    }
}

INLINE void unpack_q8_0(const uint8_t *p, struct step *to)
{
    BLOCKS(q8_0)
    {
        for (int j = 0; j < 32; j++)
            to->q[32 * i + j] = (int16_t)(b->qs[j] + 128);
        to->scale[i] = load_f16(b->d);
    }
}

INLINE void unpack_iq4_nl(const uint8_t *p, struct step *to)
{
    BLOCKS(iq4_nl)
    {
        codes(quant_codes_nl, b->qs, to->q + 32 * i);
        to->scale[i] = load_f16(b->d);
    }
}

INLINE void unpack_mxfp4(const uint8_t *p, struct step *to)
{
    BLOCKS(mxfp4)
    {
        codes(quant_codes_e2m1, b->qs, to->q + 32 * i);
        to->scale[i] = e8m0_half(b->e);
    }
}

/* 128 bit pairs. */
INLINE void pairs(const uint8_t *qs, int16_t *to)
{
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 32; i++)
            to[32 * j + i] = qs[i] >> 2 * j & 3;
}

/* Bit g of byte i is worth `value` for element 32 g + i. */
INLINE void add_run_bits(const uint8_t bits[32], int value, int16_t *to)
{
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 32; i++)
            to[32 * g + i] = (int16_t)(to[32 * g + i] + (bits[i] >> g & 1) * value);
}

INLINE void unpack_q2_k(const uint8_t *p, struct step *to)
{
    const struct block_q2_k *b = (const void *)p;
    float d = load_f16(b->d), dmin = load_f16(b->dmin);
    pairs(b->qs, to->q);
    pairs(b->qs + 32, to->q + 128);
    for (int g = 0; g < 16; g++) {
        to->scale[g] = d * (float)(b->scales[g] & 15);
        to->min[g] = -dmin * (float)(b->scales[g] >> 4);
    }
}

INLINE void unpack_q3_k(const uint8_t *p, struct step *to)
{
    const struct block_q3_k *b = (const void *)p;
    float d = load_f16(b->d);
    uint8_t scales[16];
    q3_k_scales(b->scales, scales);
    pairs(b->qs, to->q);
    pairs(b->qs + 32, to->q + 128);
    add_run_bits(b->hmask, 4, to->q);
    for (int g = 0; g < 16; g++)
        to->scale[g] = d * (float)(scales[g] - 32);
}

INLINE void k_scales(const uint8_t *d, const uint8_t *dmin, const uint8_t *packed, struct step *to)
{
    uint8_t scales[8], mins[8];
    q4_k_scales(packed, scales, mins);
    for (int g = 0; g < 8; g++) {
        to->scale[g] = load_f16(d) * (float)scales[g];
        to->min[g] = -load_f16(dmin) * (float)mins[g];
    }
}

INLINE void unpack_q4_k(const uint8_t *p, struct step *to)
{
    const struct block_q4_k *b = (const void *)p;
    for (int i = 0; i < 4; i++)
        nibbles(b->qs + 32 * i, 32, to->q + 64 * i);
    k_scales(b->d, b->dmin, b->scales, to);
}

INLINE void unpack_q5_k(const uint8_t *p, struct step *to)
{
    const struct block_q5_k *b = (const void *)p;
    for (int i = 0; i < 4; i++)
        nibbles(b->qs + 32 * i, 32, to->q + 64 * i);
    add_run_bits(b->qh, 16, to->q);
    k_scales(b->d, b->dmin, b->scales, to);
}

INLINE void unpack_q6_k(const uint8_t *p, struct step *to)
{
    const struct block_q6_k *b = (const void *)p;
    float d = load_f16(b->d);
    int16_t high[STEP];
    for (int i = 0; i < 2; i++) {
        nibbles(b->ql + 64 * i, 64, to->q + 128 * i);
        pairs(b->qh + 32 * i, high + 128 * i);
    }
    for (int i = 0; i < STEP; i++)
        to->q[i] = (int16_t)(to->q[i] + high[i] * 16);
    for (int g = 0; g < 16; g++)
        to->scale[g] = d * (float)b->scales[g];
}

INLINE void unpack_iq4_xs(const uint8_t *p, struct step *to)
{
    const struct block_iq4_xs *b = (const void *)p;
    float d = load_f16(b->d);
    uint32_t high = load_u16(b->scales_h), low = load_u32(b->scales_l);
    for (int g = 0; g < 8; g++) {
        codes(quant_codes_nl, b->qs + 16 * g, to->q + 32 * g);
        to->scale[g] = d * (float)((int)((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) - 32);
    }
}

INLINE void fill(const struct product *p, const struct kind *k, const uint8_t *row, size_t step,
                 struct step *to)
{
    uint8_t tail[STEP_MAX_BYTES];
    const uint8_t *from = row + step * k->step_bytes;
    if (k->rounding == ROUND_32 && step == p->cols / STEP) {
        product_tail(p, row, k->step_bytes, tail);
        from = tail;
    }
    k->unpack(from, to);
    for (int i = 0; i < STEP; i++)
        to->q[i] = (int16_t)(to->q[i] - k->zero);
}

/* Sums over one step, for four rows of W. */
INLINE void multiply(const struct rounded *x, size_t row, size_t step, const struct kind *k,
                     const struct step w[W_ROWS], float sum[W_ROWS])
{
    size_t at = row * x->steps + step, groups = STEP / k->group;
    const int8_t *q = (const int8_t *)x->q + at * STEP;
    const float *s = (k->group == 16 ? x->s16 : x->s) + at * groups;
    for (int r = 0; r < W_ROWS; r++)
        sum[r] = 0;
    for (size_t g = 0; g < groups; g++, q += k->group) {
        float d = k->rounding == ROUND_32 ? x->d[at * groups + g] : x->d[at];
        for (int r = 0; r < W_ROWS; r++) {
            int dot = 0;
            for (size_t i = 0; i < k->group; i++)
                dot += q[i] * w[r].q[g * k->group + i];
            sum[r] += (float)dot * (w[r].scale[g] * d);
            if (k->min)
                sum[r] += w[r].min[g] * s[g];
        }
    }
}

INLINE void product(const struct product *p, const struct kind *k)
{
    struct step w[W_ROWS];
    for (size_t n = p->first; n < p->last; n += W_ROWS) {
        size_t rows = p->last - n < W_ROWS ? p->last - n : W_ROWS;
        for (size_t step = 0; step < p->x->steps; step++) {
            for (size_t r = 0; r < W_ROWS; r++)
                fill(p, k, product_row(p, n + (r < rows ? r : rows - 1)), step, &w[r]);
            for (size_t i = 0; i < p->m; i++) {
                float sum[W_ROWS], *y = p->y + i * p->stride + n;
                multiply(p->x, i, step, k, w, sum);
                for (size_t r = 0; r < rows; r++)
                    y[r] = step ? y[r] + sum[r] : sum[r];
            }
        }
    }
}

#include "kernels/round.h"

#define X(TYPE, name, zero, group, rounding, min)                                                            \
    static void product_##name(const struct product *p)                                                      \
    {                                                                                                        \
        const struct kind k = {unpack_##name, STEP_BYTES(TYPE), zero, group, rounding, min};                 \
        product(p, &k);                                                                                      \
    }
LINEAR_TYPES(X)
#undef X

const struct linear_kernels linear_portable = {
    .max_few = 0,
    .step = W_ROWS,
    .round = {round_32, round_256},
#define X(TYPE, name, ...) [GGML_##TYPE] = product_##name,
    .many = {LINEAR_TYPES(X)},
#undef X
};
