/* The blocks of GGUF as they lie in a file. Every field is bytes, so that a block may start at any address;
 * numbers are little-endian. An f16 is written h[2] here.
 *
 * "Split nibbles": byte i of a run of n bytes has element i in its lower and element i + n in its upper half.
 */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include "gguf/gguf.h"
#include "quant/quant.h"

#include <string.h>

/* Elements and bytes of a block as constants: BLOCK_Q4_0, BYTES_Q4_0, … */
enum {
#define GGML_TYPE(id, name, block, bytes) BLOCK_##name = block, BYTES_##name = bytes,
#include "gguf/types.def"
#undef GGML_TYPE
};

struct block_q4_0 { /* d * (q - 8) */
    uint8_t d[2];
    uint8_t qs[16]; /* split nibbles */
};
struct block_q4_1 { /* d * q + m */
    uint8_t d[2], m[2];
    uint8_t qs[16]; /* split nibbles */
};
struct block_q5_0 { /* d * (q - 16) */
    uint8_t d[2];
    uint8_t qh[4];  /* bit i: the fifth bit of element i */
    uint8_t qs[16]; /* split nibbles: the lower four bits */
};
struct block_q5_1 { /* d * q + m */
    uint8_t d[2], m[2];
    uint8_t qh[4];
    uint8_t qs[16];
};
struct block_q8_0 { /* d * q */
    uint8_t d[2];
    int8_t qs[32];
};
struct block_iq4_nl { /* d * quant_codes_nl[q] */
    uint8_t d[2];
    uint8_t qs[16]; /* split nibbles */
};
struct block_mxfp4 { /* 2^(e - 128) * quant_codes_e2m1[q] */
    uint8_t e;
    uint8_t qs[16]; /* split nibbles */
};

/* The K types: 256 elements in groups of 16 or 32 with a small whole-number scale each. */
struct block_q2_k {     /* d * scale * q - dmin * min, groups of 16 */
    uint8_t scales[16]; /* lower nibble: scale, upper nibble: min */
    uint8_t qs[64];     /* per 128 elements 32 bytes: element 32 j + i is in byte i at bit 2 j */
    uint8_t d[2], dmin[2];
};
struct block_q3_k {     /* d * (scale - 32) * (q - 4), groups of 16 */
    uint8_t hmask[32];  /* bit g of byte i: the third bit of element 32 g + i */
    uint8_t qs[64];     /* the lower two bits, as in q2_k */
    uint8_t scales[12]; /* six bits each, see q3_k_scales */
    uint8_t d[2];
};
struct block_q4_k { /* d * scale * q - dmin * min, groups of 32 */
    uint8_t d[2], dmin[2];
    uint8_t scales[12]; /* six bits each, see q4_k_scales */
    uint8_t qs[128];    /* per 64 elements 32 bytes of split nibbles */
};
struct block_q5_k { /* as q4_k */
    uint8_t d[2], dmin[2];
    uint8_t scales[12];
    uint8_t qh[32]; /* bit g of byte i: the fifth bit of element 32 g + i */
    uint8_t qs[128];
};
struct block_q6_k {  /* d * scale * (q - 32), groups of 16 */
    uint8_t ql[128]; /* per 128 elements 64 bytes of split nibbles: the lower four bits */
    uint8_t qh[64];  /* per 128 elements 32 bytes: bits 2 j of byte i are the upper two of element 32 j + i */
    int8_t scales[16];
    uint8_t d[2];
};
struct block_iq4_xs { /* d * (scale - 32) * quant_codes_nl[q], groups of 32 */
    uint8_t d[2];
    uint8_t scales_h[2]; /* bits 2 g: the upper two of group g's scale */
    uint8_t scales_l[4]; /* nibble g: its lower four */
    uint8_t qs[128];     /* per 32 elements 16 bytes of split nibbles */
};

#define CHECK_BLOCK(name, type) _Static_assert(sizeof(struct name) == BYTES_##type, "the file's block size")
CHECK_BLOCK(block_q4_0, Q4_0);
CHECK_BLOCK(block_q4_1, Q4_1);
CHECK_BLOCK(block_q5_0, Q5_0);
CHECK_BLOCK(block_q5_1, Q5_1);
CHECK_BLOCK(block_q8_0, Q8_0);
CHECK_BLOCK(block_q2_k, Q2_K);
CHECK_BLOCK(block_q3_k, Q3_K);
CHECK_BLOCK(block_q4_k, Q4_K);
CHECK_BLOCK(block_q5_k, Q5_K);
CHECK_BLOCK(block_q6_k, Q6_K);
CHECK_BLOCK(block_iq4_nl, IQ4_NL);
CHECK_BLOCK(block_iq4_xs, IQ4_XS);
CHECK_BLOCK(block_mxfp4, MXFP4);
#undef CHECK_BLOCK

/* What a nibble stands for. IQ4: a code book, denser around zero. E2M1: twice the value of a 4-bit float. */
static const int8_t quant_codes_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t quant_codes_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float load_f16(const uint8_t h[2])
{
    return quant_f16_to_f32(load_u16(h));
}

/* Half of 2^(e - 127), because the codes are doubled. The two lowest are subnormal. */
static inline float e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Four scales at a time, a byte each. Q4_K and Q5_K: the first four have their six bits in a byte of their
 * own; the last four have the lower four bits in scales[8..11] and the upper two on top of the first ones'
 * bytes. */
static inline void q4_k_scales(const uint8_t s[12], uint8_t scale[8], uint8_t min[8])
{
    uint32_t a = load_u32(s), b = load_u32(s + 4), c = load_u32(s + 8);
    uint32_t scales[2] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)};
    uint32_t mins[2] = {b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030)};
    memcpy(scale, scales, 8);
    memcpy(min, mins, 8);
}

/* Q3_K: sixteen nibbles (first the lower halves of eight bytes, then the upper ones), then the upper bit
 * pairs, bit 2 j of byte 8 + i being that of scale 4 j + i. */
static inline void q3_k_scales(const uint8_t s[12], uint8_t scale[16])
{
    uint32_t a = load_u32(s), b = load_u32(s + 4), c = load_u32(s + 8);
    uint32_t scales[4] = {
        (a & 0x0f0f0f0f) | (c << 4 & 0x30303030),
        (b & 0x0f0f0f0f) | (c << 2 & 0x30303030),
        (a >> 4 & 0x0f0f0f0f) | (c & 0x30303030),
        (b >> 4 & 0x0f0f0f0f) | (c >> 2 & 0x30303030),
    };
    memcpy(scale, scales, 16);
}

#endif
