/* Steps of 256 elements of every type in AVX2 registers: q in the order of the columns as unsigned bytes,
 * scales and mins as f32. */
#ifndef KERNELS_AVX2_H
#define KERNELS_AVX2_H

#include "kernels/rows.h"
#include "kernels/unroll.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) TARGET

struct step {
    __m256i q[STEP / 32];
    float scale[STEP_MAX_GROUPS], min[STEP_MAX_GROUPS];
};

typedef void unpack_fn(const uint8_t *p, struct step *to);

INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE __m256i low4(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

INLINE __m256i high4(__m256i v)
{
    return low4(_mm256_srli_epi16(v, 4));
}

/* 16 bytes of split nibbles -> 32 nibbles. */
INLINE __m256i nibbles16(const uint8_t *p)
{
    __m128i v = _mm_loadu_si128((const void *)p);
    return low4(_mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1));
}

/* Nibbles -> code + 128. */
INLINE __m256i look_up(const int8_t codes[16], __m256i nibbles)
{
    __m128i table = _mm_xor_si128(_mm_loadu_si128((const void *)codes), _mm_set1_epi8((char)0x80));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles);
}

/* 16 in the bytes whose bit is set. */
INLINE __m256i fifth_bits(const uint8_t qh[4])
{
    const __m256i byte = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(qh)), byte);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit), _mm256_set1_epi8(16));
}

/* Bit `bit` of each byte to bit `to`. */
INLINE __m256i move_bit(__m256i v, int bit, int to)
{
    v = bit < to ? _mm256_slli_epi16(v, to - bit) : _mm256_srli_epi16(v, bit - to);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)(1 << to)));
}

/* f16 of eight blocks. */
INLINE void scales_f16(const uint8_t *p, size_t stride, float *to)
{
    uint16_t h[8];
    for (size_t i = 0; i < 8; i++)
        h[i] = load_u16(p + i * stride);
    _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const void *)h)));
}

INLINE void scale_bytes(__m128i eight, float d, float *to)
{
    __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)); /* none of the unsigned ones is over 63 */
    _mm256_storeu_ps(to, _mm256_mul_ps(v, _mm256_set1_ps(d)));
}

INLINE void scale_16_bytes(__m128i bytes, float d, float *to)
{
    scale_bytes(bytes, d, to);
    scale_bytes(_mm_srli_si128(bytes, 8), d, to + 8);
}

INLINE void unpack_q4_0(const uint8_t *p, struct step *to)
{
    const struct block_q4_0 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i++) to->q[i] = nibbles16(b[i].qs);
    scales_f16(b->d, sizeof *b, to->scale);
}

INLINE void unpack_q4_1(const uint8_t *p, struct step *to)
{
    const struct block_q4_1 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i++) to->q[i] = nibbles16(b[i].qs);
    scales_f16(b->d, sizeof *b, to->scale);
    scales_f16(b->m, sizeof *b, to->min);
}

INLINE void unpack_q5_0(const uint8_t *p, struct step *to)
{
    const struct block_q5_0 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i++) to->q[i] = _mm256_or_si256(nibbles16(b[i].qs), fifth_bits(b[i].qh));
    scales_f16(b->d, sizeof *b, to->scale);
}

INLINE void unpack_q5_1(const uint8_t *p, struct step *to)
{
    const struct block_q5_1 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i++) to->q[i] = _mm256_or_si256(nibbles16(b[i].qs), fifth_bits(b[i].qh));
    scales_f16(b->d, sizeof *b, to->scale);
    scales_f16(b->m, sizeof *b, to->min);
}

INLINE void unpack_q8_0(const uint8_t *p, struct step *to)
{
    const struct block_q8_0 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i++) to->q[i] =
        _mm256_xor_si256(load32(b[i].qs), _mm256_set1_epi8((char)0x80));
    scales_f16(b->d, sizeof *b, to->scale);
}

INLINE void unpack_iq4_nl(const uint8_t *p, struct step *to)
{
    const struct block_iq4_nl *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i++) to->q[i] = look_up(quant_codes_nl, nibbles16(b[i].qs));
    scales_f16(b->d, sizeof *b, to->scale);
}

INLINE void unpack_mxfp4(const uint8_t *p, struct step *to)
{
    const struct block_mxfp4 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i++)
    {
        to->q[i] = look_up(quant_codes_e2m1, nibbles16(b[i].qs));
        to->scale[i] = e8m0_half(b[i].e);
    }
}

/* 256 bit pairs. */
INLINE void pairs(const uint8_t qs[64], __m256i q[8])
{
    UNROLL for (int i = 0; i < 8; i++) q[i] =
        _mm256_and_si256(_mm256_srli_epi16(load32(qs + i / 4 * 32), i % 4 * 2), _mm256_set1_epi8(3));
}

INLINE void unpack_q2_k(const uint8_t *p, struct step *to)
{
    const struct block_q2_k *b = (const void *)p;
    const __m128i low = _mm_set1_epi8(15);
    __m128i packed = _mm_loadu_si128((const void *)b->scales);
    pairs(b->qs, to->q);
    scale_16_bytes(_mm_and_si128(packed, low), load_f16(b->d), to->scale);
    scale_16_bytes(_mm_and_si128(_mm_srli_epi16(packed, 4), low), -load_f16(b->dmin), to->min);
}

INLINE void unpack_q3_k(const uint8_t *p, struct step *to)
{
    const struct block_q3_k *b = (const void *)p;
    uint8_t scales[16];
    __m256i bits = load32(b->hmask);
    pairs(b->qs, to->q);
    UNROLL for (int i = 0; i < 8; i++) to->q[i] = _mm256_or_si256(to->q[i], move_bit(bits, i, 2));
    q3_k_scales(b->scales, scales);
    __m128i v = _mm_sub_epi8(_mm_loadu_si128((const void *)scales), _mm_set1_epi8(32));
    scale_16_bytes(v, load_f16(b->d), to->scale);
}

/* Scales and mins of Q4_K and Q5_K. */
INLINE void k_scales(const uint8_t *d, const uint8_t *dmin, const uint8_t *packed, struct step *to)
{
    uint8_t scales[8], mins[8];
    q4_k_scales(packed, scales, mins);
    scale_bytes(_mm_loadl_epi64((const void *)scales), load_f16(d), to->scale);
    scale_bytes(_mm_loadl_epi64((const void *)mins), -load_f16(dmin), to->min);
}

INLINE void unpack_q4_k(const uint8_t *p, struct step *to)
{
    const struct block_q4_k *b = (const void *)p;
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i v = load32(b->qs + 32 * i);
        to->q[2 * i] = low4(v);
        to->q[2 * i + 1] = high4(v);
    }
    k_scales(b->d, b->dmin, b->scales, to);
}

INLINE void unpack_q5_k(const uint8_t *p, struct step *to)
{
    const struct block_q5_k *b = (const void *)p;
    __m256i bits = load32(b->qh);
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m256i v = load32(b->qs + 32 * i);
        to->q[2 * i] = _mm256_or_si256(low4(v), move_bit(bits, 2 * i, 4));
        to->q[2 * i + 1] = _mm256_or_si256(high4(v), move_bit(bits, 2 * i + 1, 4));
    }
    k_scales(b->d, b->dmin, b->scales, to);
}

INLINE void unpack_q6_k(const uint8_t *p, struct step *to)
{
    const struct block_q6_k *b = (const void *)p;
    const __m256i upper = _mm256_set1_epi8(0x30);
    UNROLL for (int i = 0; i < 2; i++)
    {
        __m256i l = load32(b->ql + 64 * i), m = load32(b->ql + 64 * i + 32), h = load32(b->qh + 32 * i);
        to->q[4 * i] = _mm256_or_si256(low4(l), _mm256_and_si256(_mm256_slli_epi16(h, 4), upper));
        to->q[4 * i + 1] = _mm256_or_si256(low4(m), _mm256_and_si256(_mm256_slli_epi16(h, 2), upper));
        to->q[4 * i + 2] = _mm256_or_si256(high4(l), _mm256_and_si256(h, upper));
        to->q[4 * i + 3] = _mm256_or_si256(high4(m), _mm256_and_si256(_mm256_srli_epi16(h, 2), upper));
    }
    scale_16_bytes(_mm_loadu_si128((const void *)b->scales), load_f16(b->d), to->scale);
}

INLINE void unpack_iq4_xs(const uint8_t *p, struct step *to)
{
    const struct block_iq4_xs *b = (const void *)p;
    float d = load_f16(b->d);
    uint32_t high = load_u16(b->scales_h), low = load_u32(b->scales_l);
    UNROLL for (int g = 0; g < 8; g++)
    {
        to->q[g] = look_up(quant_codes_nl, nibbles16(b->qs + 16 * g));
        to->scale[g] = d * (float)((int)((low >> 4 * g & 15) | (high >> 2 * g & 3) << 4) - 32);
    }
}

#endif
