/* The repacking kernels, written once with the compilers' vector types and built once for each instruction
 * set: the including file defines LEVEL (the table's name), LEVEL_NAME, TARGET (a function attribute) and
 * WIDTH (bytes of a vector, 16 or 32).
 *
 * A kernel turns blocks into three plain arrays: q in the order of the columns, scales, mins. Most of the
 * work is on "split nibbles", where a byte holds element i and element i + n; an image's byte holds
 * neighbours. A 16-bit word of two such bytes has the nibbles  i, i+n, i+1, i+1+n  (lowest first). Swapping
 * the middle two gives  i, i+1, i+n, i+1+n : two finished bytes, one for the first and one for the second
 * half of the output. Then even bytes go to the first half and odd bytes to the second.
 *
 * Blocks of 32 elements are done in vectors of 16 bytes, which is all they have; the K types have runs of 32
 * bytes and use WIDTH. */
#include "quant/blocks.h"
#include "quant/repack.h"

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint8_t vec __attribute__((vector_size(WIDTH)));
typedef uint16_t vec_u16 __attribute__((vector_size(WIDTH)));

#define INLINE static inline __attribute__((always_inline)) TARGET
#define KERNEL(name)                                                                                         \
    static TARGET void name(const void *restrict src, size_t n, uint8_t *restrict q, void *restrict scale,   \
                            void *restrict min)

INLINE u8x16 load16(const void *p)
{
    u8x16 v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store16(void *p, u8x16 v)
{
    memcpy(p, &v, sizeof v);
}

INLINE vec load(const void *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(void *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

INLINE void store_f32(void *array, size_t i, float f)
{
    memcpy((uint8_t *)array + i * sizeof f, &f, sizeof f);
}

/* 16 bytes of split nibbles -> 32 elements, two in a byte. */
INLINE u8x16 pair_nibbles16(u8x16 split)
{
    u16x8 w = (u16x8)split;
    w = (w & 0xf00f) | (w >> 4 & 0x00f0) | (w << 4 & 0x0f00);
    return __builtin_shufflevector((u8x16)w, (u8x16)w, 0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
}

/* A part of a run of 32 bytes of split nibbles, which makes 16 bytes for the run's first 32 elements and, at
 * out + 16, as many for the last. */
INLINE void store_pairs(uint8_t *out, vec split)
{
    vec_u16 w = (vec_u16)split;
    w = (w & 0xf00f) | (w >> 4 & 0x00f0) | (w << 4 & 0x0f00);
#if WIDTH == 32
    vec v = __builtin_shufflevector((vec)w, (vec)w, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                    1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    store(out, v);
#else
    vec v = __builtin_shufflevector((vec)w, (vec)w, 0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    memcpy(out, &v, 8);
    memcpy(out + 16, (const uint8_t *)&v + 8, 8);
#endif
}

/* 16 bits -> 16 bytes, 16 where the bit is set. */
INLINE u8x16 spread_bits(const uint8_t bits[2])
{
    const u8x16 select = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    u8x16 v = (u8x16)((u16x8){0} + load_u16(bits));
    v = __builtin_shufflevector(v, v, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    return (u8x16)((v & select) == select) & 16;
}

/* Five bits of 32 elements, less 16. */
INLINE void store_fives(uint8_t *out, const uint8_t qs[16], const uint8_t qh[4])
{
    u8x16 v = load16(qs);
    store16(out, ((v & 15) | spread_bits(qh)) - 16);
    store16(out + 16, (v >> 4 | spread_bits(qh + 2)) - 16);
}

/* Nibbles -> the bytes of a code book of 16. */
INLINE u8x16 look_up(const int8_t codes[16], u8x16 nibbles)
{
#if defined(__clang__)
    u8x16 out;
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)codes[nibbles[i]];
    return out;
#else
    return __builtin_shuffle(load16(codes), nibbles);
#endif
}

INLINE void store_codes(uint8_t *out, const uint8_t qs[16], const int8_t codes[16])
{
    u8x16 v = load16(qs);
    store16(out, look_up(codes, v & 15));
    store16(out + 16, look_up(codes, v >> 4));
}

KERNEL(q4_0)
{
    (void)min;
    const struct block_q4_0 *b = src;
    for (size_t i = 0; i < n; i++) {
        store16(q + 16 * i, pair_nibbles16(load16(b[i].qs)));
        memcpy((uint8_t *)scale + 2 * i, b[i].d, 2);
    }
}

KERNEL(q4_1)
{
    const struct block_q4_1 *b = src;
    for (size_t i = 0; i < n; i++) {
        store16(q + 16 * i, pair_nibbles16(load16(b[i].qs)));
        memcpy((uint8_t *)scale + 2 * i, b[i].d, 2);
        store_f32(min, i, 8 * load_f16(b[i].d) + load_f16(b[i].m));
    }
}

KERNEL(q5_0)
{
    (void)min;
    const struct block_q5_0 *b = src;
    for (size_t i = 0; i < n; i++) {
        store_fives(q + 32 * i, b[i].qs, b[i].qh);
        memcpy((uint8_t *)scale + 2 * i, b[i].d, 2);
    }
}

KERNEL(q5_1)
{
    const struct block_q5_1 *b = src;
    for (size_t i = 0; i < n; i++) {
        store_fives(q + 32 * i, b[i].qs, b[i].qh);
        memcpy((uint8_t *)scale + 2 * i, b[i].d, 2);
        store_f32(min, i, 16 * load_f16(b[i].d) + load_f16(b[i].m));
    }
}

KERNEL(q8_0)
{
    (void)min;
    const struct block_q8_0 *b = src;
    for (size_t i = 0; i < n; i++) {
        memcpy(q + 32 * i, b[i].qs, 32);
        memcpy((uint8_t *)scale + 2 * i, b[i].d, 2);
    }
}

KERNEL(iq4_nl)
{
    (void)min;
    const struct block_iq4_nl *b = src;
    for (size_t i = 0; i < n; i++) {
        store_codes(q + 32 * i, b[i].qs, quant_codes_nl);
        memcpy((uint8_t *)scale + 2 * i, b[i].d, 2);
    }
}

KERNEL(mxfp4)
{
    (void)min;
    const struct block_mxfp4 *b = src;
    for (size_t i = 0; i < n; i++) {
        store_codes(q + 32 * i, b[i].qs, quant_codes_e2m1);
        store_f32(scale, i, e8m0_half(b[i].e));
    }
}

/* Bit pairs of 128 elements -> split nibbles of elements 0..63 and of 64..127, their upper two bits 0. */
INLINE vec first_pairs(vec qs)
{
    return (qs & 0x03) | (qs << 2 & 0x30);
}

INLINE vec second_pairs(vec qs)
{
    return (qs >> 4 & 0x03) | (qs >> 2 & 0x30);
}

KERNEL(q2_k)
{
    const struct block_q2_k *b = src;
    for (size_t i = 0; i < n; i++, b++, q += 128) {
        for (int half = 0; half < 2; half++)
            for (int at = 0; at < 32; at += WIDTH) {
                vec qs = load(b->qs + 32 * half + at);
                store_pairs(q + 64 * half + at / 2, first_pairs(qs));
                store_pairs(q + 64 * half + 32 + at / 2, second_pairs(qs));
            }
        float d = load_f16(b->d), dmin = load_f16(b->dmin), scales[16], mins[16];
        for (int g = 0; g < 16; g++) {
            scales[g] = d * (float)(b->scales[g] & 15);
            mins[g] = -(dmin * (float)(b->scales[g] >> 4));
        }
        memcpy((uint8_t *)scale + i * sizeof scales, scales, sizeof scales);
        memcpy((uint8_t *)min + i * sizeof mins, mins, sizeof mins);
    }
}

/* The third bit makes 0..7, which stands for -4..3; stored with zero 8 that is 4 more. */
KERNEL(q3_k)
{
    (void)min;
    const struct block_q3_k *b = src;
    for (size_t i = 0; i < n; i++, b++, q += 128) {
        for (int half = 0; half < 2; half++)
            for (int at = 0; at < 32; at += WIDTH) {
                vec qs = load(b->qs + 32 * half + at), h = load(b->hmask + at) >> 4 * half;
                vec first = first_pairs(qs) | (h << 2 & 0x04) | (h << 5 & 0x40);
                vec second = second_pairs(qs) | (h & 0x04) | (h << 3 & 0x40);
                store_pairs(q + 64 * half + at / 2, first + 0x44);
                store_pairs(q + 64 * half + 32 + at / 2, second + 0x44);
            }
        uint8_t packed[16];
        q3_k_scales(b->scales, packed);
        float d = load_f16(b->d), scales[16];
        for (int g = 0; g < 16; g++)
            scales[g] = d * (float)(packed[g] - 32);
        memcpy((uint8_t *)scale + i * sizeof scales, scales, sizeof scales);
    }
}

/* Scales and mins of block i of Q4_K or Q5_K; `centre` is what was taken off q. */
INLINE void k_scales(const uint8_t d[2], const uint8_t dmin[2], const uint8_t packed[12], float centre,
                     void *scale, void *min, size_t i)
{
    uint8_t s[8], m[8];
    q4_k_scales(packed, s, m);
    float fd = load_f16(d), fdmin = load_f16(dmin), scales[8], mins[8];
    for (int g = 0; g < 8; g++) {
        scales[g] = fd * (float)s[g];
        mins[g] = centre * scales[g] - fdmin * (float)m[g];
    }
    memcpy((uint8_t *)scale + i * sizeof scales, scales, sizeof scales);
    memcpy((uint8_t *)min + i * sizeof mins, mins, sizeof mins);
}

KERNEL(q4_k)
{
    const struct block_q4_k *b = src;
    for (size_t i = 0; i < n; i++, b++, q += 128) {
        for (int run = 0; run < 4; run++)
            for (int at = 0; at < 32; at += WIDTH)
                store_pairs(q + 32 * run + at / 2, load(b->qs + 32 * run + at));
        k_scales(b->d, b->dmin, b->scales, 8, scale, min, i);
    }
}

KERNEL(q5_k)
{
    const struct block_q5_k *b = src;
    for (size_t i = 0; i < n; i++, b++, q += 256) {
        for (int run = 0; run < 4; run++)
            for (int at = 0; at < 32; at += WIDTH) {
                vec qs = load(b->qs + 32 * run + at), h = load(b->qh + at) >> 2 * run;
                store(q + 64 * run + at, ((qs & 15) | (h << 4 & 16)) - 16);
                store(q + 64 * run + 32 + at, (qs >> 4 | (h << 3 & 16)) - 16);
            }
        k_scales(b->d, b->dmin, b->scales, 16, scale, min, i);
    }
}

KERNEL(q6_k)
{
    (void)min;
    const struct block_q6_k *b = src;
    for (size_t i = 0; i < n; i++, b++, q += 256) {
        for (int half = 0; half < 2; half++)
            for (int at = 0; at < 32; at += WIDTH) {
                vec l0 = load(b->ql + 64 * half + at), l1 = load(b->ql + 64 * half + 32 + at);
                vec h = load(b->qh + 32 * half + at);
                uint8_t *out = q + 128 * half + at;
                store(out, ((l0 & 15) | (h << 4 & 0x30)) - 32);
                store(out + 32, ((l1 & 15) | (h << 2 & 0x30)) - 32);
                store(out + 64, (l0 >> 4 | (h & 0x30)) - 32);
                store(out + 96, (l1 >> 4 | (h >> 2 & 0x30)) - 32);
            }
        float d = load_f16(b->d), scales[16];
        for (int g = 0; g < 16; g++)
            scales[g] = d * (float)b->scales[g];
        memcpy((uint8_t *)scale + i * sizeof scales, scales, sizeof scales);
    }
}

KERNEL(iq4_xs)
{
    (void)min;
    const struct block_iq4_xs *b = src;
    for (size_t i = 0; i < n; i++, b++, q += 256) {
        float d = load_f16(b->d), scales[8];
        uint32_t high = load_u16(b->scales_h), low = load_u32(b->scales_l);
        for (int g = 0; g < 8; g++) {
            store_codes(q + 32 * g, b->qs + 16 * g, quant_codes_nl);
            scales[g] = d * (float)((int)((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) - 32);
        }
        memcpy((uint8_t *)scale + i * sizeof scales, scales, sizeof scales);
    }
}

const struct repack_level LEVEL = {
    .name = LEVEL_NAME,
    .kernel =
        {
            [GGML_Q4_0] = q4_0,
            [GGML_Q4_1] = q4_1,
            [GGML_Q5_0] = q5_0,
            [GGML_Q5_1] = q5_1,
            [GGML_Q8_0] = q8_0,
            [GGML_Q2_K] = q2_k,
            [GGML_Q3_K] = q3_k,
            [GGML_Q4_K] = q4_k,
            [GGML_Q5_K] = q5_k,
            [GGML_Q6_K] = q6_k,
            [GGML_IQ4_NL] = iq4_nl,
            [GGML_IQ4_XS] = iq4_xs,
            [GGML_MXFP4] = mxfp4,
        },
};
