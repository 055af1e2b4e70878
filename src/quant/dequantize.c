/* The f32 values that blocks stand for, one function per type, in ggml's order of operations, so that they
 * are the same bits. Written element by element from the layouts in blocks.h and on purpose not from the
 * repacking kernels, which tests compare with it. */
#include "quant/blocks.h"

static void dequant_f32(const void *block, float *y)
{
    memcpy(y, block, sizeof *y);
}

static void dequant_f16(const void *block, float *y)
{
    *y = load_f16(block);
}

static void dequant_bf16(const void *block, float *y)
{
    *y = quant_bf16_to_f32(load_u16(block));
}

/* Element i of n / 2 bytes of split nibbles. */
static int nibble(const uint8_t *qs, int i, int n)
{
    return i < n / 2 ? qs[i] & 15 : qs[i - n / 2] >> 4;
}

static int bit(const uint8_t *bits, int i)
{
    return bits[i / 8] >> i % 8 & 1;
}

static void dequant_q4_0(const void *block, float *y)
{
    const struct block_q4_0 *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < BLOCK_Q4_0; i++)
        y[i] = d * (float)(nibble(b->qs, i, BLOCK_Q4_0) - 8);
}

static void dequant_q4_1(const void *block, float *y)
{
    const struct block_q4_1 *b = block;
    float d = load_f16(b->d), m = load_f16(b->m);
    for (int i = 0; i < BLOCK_Q4_1; i++)
        y[i] = d * (float)nibble(b->qs, i, BLOCK_Q4_1) + m;
}

static void dequant_q5_0(const void *block, float *y)
{
    const struct block_q5_0 *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < BLOCK_Q5_0; i++)
        y[i] = d * (float)((nibble(b->qs, i, BLOCK_Q5_0) | bit(b->qh, i) << 4) - 16);
}

static void dequant_q5_1(const void *block, float *y)
{
    const struct block_q5_1 *b = block;
    float d = load_f16(b->d), m = load_f16(b->m);
    for (int i = 0; i < BLOCK_Q5_1; i++)
        y[i] = d * (float)(nibble(b->qs, i, BLOCK_Q5_1) | bit(b->qh, i) << 4) + m;
}

static void dequant_q8_0(const void *block, float *y)
{
    const struct block_q8_0 *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < BLOCK_Q8_0; i++)
        y[i] = d * (float)b->qs[i];
}

static void dequant_iq4_nl(const void *block, float *y)
{
    const struct block_iq4_nl *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < BLOCK_IQ4_NL; i++)
        y[i] = d * (float)quant_codes_nl[nibble(b->qs, i, BLOCK_IQ4_NL)];
}

static void dequant_mxfp4(const void *block, float *y)
{
    const struct block_mxfp4 *b = block;
    float d = e8m0_half(b->e);
    for (int i = 0; i < BLOCK_MXFP4; i++)
        y[i] = d * (float)quant_codes_e2m1[nibble(b->qs, i, BLOCK_MXFP4)];
}

/* Two bits of element i of 256, as Q2_K and Q3_K (and the upper ones of Q6_K) keep them. */
static int bit_pair(const uint8_t *qs, int i)
{
    return qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* One bit of element i of 256: 32 bytes, a bit for each run of 32 elements. */
static int run_bit(const uint8_t *bits, int i)
{
    return bits[i % 32] >> i / 32 & 1;
}

static void dequant_q2_k(const void *block, float *y)
{
    const struct block_q2_k *b = block;
    float d = load_f16(b->d), dmin = load_f16(b->dmin);
    for (int i = 0; i < BLOCK_Q2_K; i++) {
        float scale = d * (float)(b->scales[i / 16] & 15), min = dmin * (float)(b->scales[i / 16] >> 4);
        y[i] = scale * (float)bit_pair(b->qs, i) - min;
    }
}

static void dequant_q3_k(const void *block, float *y)
{
    const struct block_q3_k *b = block;
    float d = load_f16(b->d);
    uint8_t scales[16];
    q3_k_scales(b->scales, scales);
    for (int i = 0; i < BLOCK_Q3_K; i++) {
        float scale = d * (float)(scales[i / 16] - 32);
        y[i] = scale * (float)((bit_pair(b->qs, i) | run_bit(b->hmask, i) << 2) - 4);
    }
}

static void dequant_q4_k(const void *block, float *y)
{
    const struct block_q4_k *b = block;
    float d = load_f16(b->d), dmin = load_f16(b->dmin);
    uint8_t scales[8], mins[8];
    q4_k_scales(b->scales, scales, mins);
    for (int i = 0; i < BLOCK_Q4_K; i++) {
        int q = nibble(b->qs + i / 64 * 32, i % 64, 64);
        y[i] = d * (float)scales[i / 32] * (float)q - dmin * (float)mins[i / 32];
    }
}

static void dequant_q5_k(const void *block, float *y)
{
    const struct block_q5_k *b = block;
    float d = load_f16(b->d), dmin = load_f16(b->dmin);
    uint8_t scales[8], mins[8];
    q4_k_scales(b->scales, scales, mins);
    for (int i = 0; i < BLOCK_Q5_K; i++) {
        int q = nibble(b->qs + i / 64 * 32, i % 64, 64) | run_bit(b->qh, i) << 4;
        y[i] = d * (float)scales[i / 32] * (float)q - dmin * (float)mins[i / 32];
    }
}

static void dequant_q6_k(const void *block, float *y)
{
    const struct block_q6_k *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < BLOCK_Q6_K; i++) {
        int q = nibble(b->ql + i / 128 * 64, i % 128, 128) | bit_pair(b->qh, i) << 4;
        y[i] = d * (float)b->scales[i / 16] * (float)(q - 32);
    }
}

static void dequant_iq4_xs(const void *block, float *y)
{
    const struct block_iq4_xs *b = block;
    float d = load_f16(b->d);
    for (int i = 0; i < BLOCK_IQ4_XS; i++) {
        int g = i / 32;
        int scale = (b->scales_l[g / 2] >> g % 2 * 4 & 15) | (load_u16(b->scales_h) >> 2 * g & 3) << 4;
        y[i] = d * (float)(scale - 32) * (float)quant_codes_nl[nibble(b->qs + g * 16, i % 32, 32)];
    }
}

#define ROW(type, fn) [GGML_##type] = {BLOCK_##type, BYTES_##type, fn}

static const struct {
    uint32_t block, bytes;
    void (*fn)(const void *block, float *y);
} rows[] = {
    ROW(F32, dequant_f32),     ROW(F16, dequant_f16),       ROW(BF16, dequant_bf16),
    ROW(Q4_0, dequant_q4_0),   ROW(Q4_1, dequant_q4_1),     ROW(Q5_0, dequant_q5_0),
    ROW(Q5_1, dequant_q5_1),   ROW(Q8_0, dequant_q8_0),     ROW(Q2_K, dequant_q2_k),
    ROW(Q3_K, dequant_q3_k),   ROW(Q4_K, dequant_q4_k),     ROW(Q5_K, dequant_q5_k),
    ROW(Q6_K, dequant_q6_k),   ROW(IQ4_NL, dequant_iq4_nl), ROW(IQ4_XS, dequant_iq4_xs),
    ROW(MXFP4, dequant_mxfp4),
};

bool quant_dequantize(uint32_t ggml_type, const void *src, uint64_t n, float *out)
{
    if (ggml_type >= sizeof rows / sizeof rows[0] || !rows[ggml_type].fn)
        return false;
    const uint8_t *block = src;
    for (uint64_t i = 0; i < n; i += rows[ggml_type].block, block += rows[ggml_type].bytes)
        rows[ggml_type].fn(block, out + i);
    return true;
}
