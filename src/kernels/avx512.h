/* Steps of 256 elements of every type in AVX-512 registers: q in the order of the columns as unsigned bytes,
 * scales and mins as f32, one lane per group (8 or 16 lanes).
 *
 * Most layouts keep nibbles or bit pairs of several runs in the same bytes. A load that repeats 16 or 32
 * bytes in the register and a shift by another count in each part puts the runs next to each other: no
 * shuffles. */
#ifndef KERNELS_AVX512_H
#define KERNELS_AVX512_H

#include "kernels/rows.h"
#include "kernels/unroll.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) TARGET

/* Up to so many rows of x go through avx512_tile.c; with more, panels of 32 rows of W with six rows of x at a
 * time cost less (avx512_many.c). */
enum { AVX512_MAX_FEW = 32 };

struct step {
    __m512i q[4];
    __m512 scale, min;
};

typedef void unpack_fn(const uint8_t *p, struct step *to);

/* Every 32-bit element of the lower and of the upper 256 bits. */
INLINE __m512i halves(int low, int high)
{
    return _mm512_inserti64x4(_mm512_set1_epi32(low), _mm256_set1_epi32(high), 1);
}

INLINE __m512i byte_halves(int low, int high)
{
    return _mm512_inserti64x4(_mm512_set1_epi8((char)low), _mm256_set1_epi8((char)high), 1);
}

INLINE __m128i load16(const void *p)
{
    return _mm_loadu_si128(p);
}

/* 32 bytes, twice. */
INLINE __m512i twice32(const void *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256(p));
}

/* Twice 16 bytes of split nibbles -> 64 nibbles. */
INLINE __m512i nibbles16(const uint8_t *a, const uint8_t *b)
{
    const __m512i shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
    __m512i v = _mm512_broadcast_i32x4(load16(a));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, load16(b));
    return _mm512_and_si512(_mm512_srlv_epi32(v, shift), _mm512_set1_epi8(15));
}

/* 32 bytes of split nibbles -> 64 nibbles. */
INLINE __m512i nibbles32(const uint8_t *p)
{
    return _mm512_and_si512(_mm512_srlv_epi32(twice32(p), halves(0, 4)), _mm512_set1_epi8(15));
}

/* `value` added to the bytes whose bit in `bits` is set: for 64 elements from element 64 * i on. */
INLINE __m512i add_run_bits(__m512i q, __m512i bits, int i, int value)
{
    __mmask64 set = _mm512_test_epi8_mask(bits, byte_halves(1 << 2 * i, 2 << 2 * i));
    return _mm512_mask_add_epi8(q, set, q, _mm512_set1_epi8((char)value));
}

INLINE __m512i add_bits(__m512i q, const uint8_t *low, const uint8_t *high, int value)
{
    __mmask64 set = load_u32(low) | (uint64_t)load_u32(high) << 32;
    return _mm512_mask_add_epi8(q, set, q, _mm512_set1_epi8((char)value));
}

/* Eight f16 that lie `stride` bytes apart. */
INLINE __m512 load_f16x8(const uint8_t *p, size_t stride)
{
    uint64_t low = load_u16(p) | (uint64_t)load_u16(p + stride) << 16 |
                   (uint64_t)load_u16(p + 2 * stride) << 32 | (uint64_t)load_u16(p + 3 * stride) << 48;
    p += 4 * stride;
    uint64_t high = load_u16(p) | (uint64_t)load_u16(p + stride) << 16 |
                    (uint64_t)load_u16(p + 2 * stride) << 32 | (uint64_t)load_u16(p + 3 * stride) << 48;
    return _mm512_zextps256_ps512(_mm256_cvtph_ps(_mm_set_epi64x((int64_t)high, (int64_t)low)));
}

/* Sixteen f16 out of 64 bytes at p and 64 more at q, by their indices as 16-bit words. */
INLINE __m512 pick_f16(const uint8_t *p, const uint8_t *q, __m512i words)
{
    __m512i picked = _mm512_permutex2var_epi16(_mm512_loadu_si512(p), words, _mm512_loadu_si512(q));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(picked));
}

/* d of eight blocks of 18 bytes, of which the first 128 hold all of them. */
INLINE __m512 pick_d18(const uint8_t *p)
{
    const __m512i words =
        _mm512_castsi256_si512(_mm256_setr_epi16(0, 9, 18, 27, 36, 45, 54, 63, 0, 0, 0, 0, 0, 0, 0, 0));
    return pick_f16(p, p + 64, words);
}

INLINE __m512 scalar_f16(const uint8_t *p)
{
    return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
}

/* Bytes -> f32, times d. */
INLINE __m512 scale_u8x8(uint64_t bytes, __m512 d)
{
    __m256i v = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)bytes));
    return _mm512_zextps256_ps512(_mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm512_castps512_ps256(d)));
}

INLINE __m512 scale_i8x16(__m128i bytes, __m512 d)
{
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), d);
}

INLINE void unpack_q4_0(const uint8_t *p, struct step *to)
{
    const struct block_q4_0 *b = (const void *)p;
    UNROLL for (int i = 0; i < 4; i++) to->q[i] = nibbles16(b[2 * i].qs, b[2 * i + 1].qs);
    to->scale = pick_d18(p);
}

INLINE void unpack_q4_1(const uint8_t *p, struct step *to)
{
    const struct block_q4_1 *b = (const void *)p;
    UNROLL for (int i = 0; i < 4; i++) to->q[i] = nibbles16(b[2 * i].qs, b[2 * i + 1].qs);
    /* d and m of four blocks are among the first 64 bytes, those of the other four among the last 80. */
    const __m512i words = _mm512_castsi256_si512(
        _mm256_setr_epi16(0, 10, 20, 30, 32, 42, 52, 62, 1, 11, 21, 31, 33, 43, 53, 63));
    __m512 both = pick_f16(p, p + 80, words);
    to->scale = both;
    to->min = _mm512_zextps256_ps512(_mm512_extractf32x8_ps(both, 1));
}

INLINE void unpack_q5_0(const uint8_t *p, struct step *to)
{
    const struct block_q5_0 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i += 2) to->q[i / 2] =
        add_bits(nibbles16(b[i].qs, b[i + 1].qs), b[i].qh, b[i + 1].qh, 16);
    to->scale = load_f16x8(b->d, sizeof *b);
}

INLINE void unpack_q5_1(const uint8_t *p, struct step *to)
{
    const struct block_q5_1 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i += 2) to->q[i / 2] =
        add_bits(nibbles16(b[i].qs, b[i + 1].qs), b[i].qh, b[i + 1].qh, 16);
    to->scale = load_f16x8(b->d, sizeof *b);
    to->min = load_f16x8(b->m, sizeof *b);
}

INLINE void unpack_q8_0(const uint8_t *p, struct step *to)
{
    const struct block_q8_0 *b = (const void *)p;
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)b[i].qs));
        v = _mm512_inserti64x4(v, _mm256_loadu_si256((const void *)b[i + 1].qs), 1);
        to->q[i / 2] = _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
    }
    to->scale = load_f16x8(b->d, sizeof *b);
}

/* Nibbles -> code + 128. */
INLINE __m512i look_up(const int8_t codes[16], __m512i nibbles)
{
    __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(load16(codes)), _mm512_set1_epi8((char)0x80));
    return _mm512_shuffle_epi8(table, nibbles);
}

INLINE void unpack_iq4_nl(const uint8_t *p, struct step *to)
{
    const struct block_iq4_nl *b = (const void *)p;
    UNROLL for (int i = 0; i < 4; i++) to->q[i] =
        look_up(quant_codes_nl, nibbles16(b[2 * i].qs, b[2 * i + 1].qs));
    to->scale = pick_d18(p);
}

INLINE void unpack_mxfp4(const uint8_t *p, struct step *to)
{
    const struct block_mxfp4 *b = (const void *)p;
    uint64_t e = 0;
    for (int i = 0; i < 8; i++)
        e |= (uint64_t)b[i].e << 8 * i;
    UNROLL for (int i = 0; i < 4; i++) to->q[i] =
        look_up(quant_codes_e2m1, nibbles16(b[2 * i].qs, b[2 * i + 1].qs));
    /* As e8m0_half. */
    __m256i v = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)e));
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(v, _mm256_set1_epi32(1)), 23);
    __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), v);
    __m256i bits = _mm256_mask_mov_epi32(normal, _mm256_cmplt_epi32_mask(v, _mm256_set1_epi32(2)), subnormal);
    to->scale = _mm512_zextps256_ps512(_mm256_castsi256_ps(bits));
}

/* 64 bit pairs from element 64 * i on. */
INLINE __m512i pairs(const uint8_t *qs, int i)
{
    __m512i v = _mm512_srlv_epi32(twice32(qs + i / 2 * 32), halves(i % 2 * 4, i % 2 * 4 + 2));
    return _mm512_and_si512(v, _mm512_set1_epi8(3));
}

INLINE void unpack_q2_k(const uint8_t *p, struct step *to)
{
    const struct block_q2_k *b = (const void *)p;
    UNROLL for (int i = 0; i < 4; i++) to->q[i] = pairs(b->qs, i);
    __m128i packed = load16(b->scales), low = _mm_set1_epi8(15);
    to->scale = scale_i8x16(_mm_and_si128(packed, low), scalar_f16(b->d));
    __m512 min = scale_i8x16(_mm_and_si128(_mm_srli_epi16(packed, 4), low), scalar_f16(b->dmin));
    to->min = _mm512_sub_ps(_mm512_setzero_ps(), min);
}

INLINE void unpack_q3_k(const uint8_t *p, struct step *to)
{
    const struct block_q3_k *b = (const void *)p;
    __m512i bits = twice32(b->hmask);
    UNROLL for (int i = 0; i < 4; i++) to->q[i] = add_run_bits(pairs(b->qs, i), bits, i, 4);
    /* As q3_k_scales. */
    uint64_t low = load_u32(b->scales) | (uint64_t)load_u32(b->scales + 4) << 32;
    __m128i high = _mm_srlv_epi32(_mm_set1_epi32((int)load_u32(b->scales + 8)), _mm_setr_epi32(0, 2, 4, 6));
    __m128i scales = _mm_set_epi64x((int64_t)(low >> 4), (int64_t)low);
    scales = _mm_and_si128(scales, _mm_set1_epi8(15));
    high = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(3)), 4);
    scales = _mm_sub_epi8(_mm_or_si128(scales, high), _mm_set1_epi8(32));
    to->scale = scale_i8x16(scales, scalar_f16(b->d));
}

/* Scales and mins of Q4_K and Q5_K. */
INLINE void unpack_k_scales(const uint8_t *d, const uint8_t *dmin, const uint8_t *packed, struct step *to)
{
    uint8_t scales[8], mins[8];
    uint64_t s, m;
    q4_k_scales(packed, scales, mins);
    memcpy(&s, scales, sizeof s);
    memcpy(&m, mins, sizeof m);
    to->scale = scale_u8x8(s, scalar_f16(d));
    to->min = scale_u8x8(m, _mm512_sub_ps(_mm512_setzero_ps(), scalar_f16(dmin)));
}

INLINE void unpack_q4_k(const uint8_t *p, struct step *to)
{
    const struct block_q4_k *b = (const void *)p;
    UNROLL for (int i = 0; i < 4; i++) to->q[i] = nibbles32(b->qs + 32 * i);
    unpack_k_scales(b->d, b->dmin, b->scales, to);
}

INLINE void unpack_q5_k(const uint8_t *p, struct step *to)
{
    const struct block_q5_k *b = (const void *)p;
    __m512i bits = twice32(b->qh);
    UNROLL for (int i = 0; i < 4; i++) to->q[i] = add_run_bits(nibbles32(b->qs + 32 * i), bits, i, 16);
    unpack_k_scales(b->d, b->dmin, b->scales, to);
}

INLINE void unpack_q6_k(const uint8_t *p, struct step *to)
{
    const struct block_q6_k *b = (const void *)p;
    const __m512i low = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(0x30);
    UNROLL for (int i = 0; i < 2; i++)
    {
        __m512i l = _mm512_loadu_si512(b->ql + 64 * i), h = twice32(b->qh + 32 * i);
        /* nibble | (pair & 0x30) */
        to->q[2 * i] = _mm512_ternarylogic_epi32(_mm512_and_si512(l, low), _mm512_sllv_epi32(h, halves(4, 2)),
                                                 upper, 0xf8);
        to->q[2 * i + 1] = _mm512_ternarylogic_epi32(_mm512_and_si512(_mm512_srli_epi16(l, 4), low),
                                                     _mm512_srlv_epi32(h, halves(0, 2)), upper, 0xf8);
    }
    to->scale = scale_i8x16(load16(b->scales), scalar_f16(b->d));
}

INLINE void unpack_iq4_xs(const uint8_t *p, struct step *to)
{
    const struct block_iq4_xs *b = (const void *)p;
    UNROLL for (int i = 0; i < 4; i++) to->q[i] =
        look_up(quant_codes_nl, nibbles16(b->qs + 32 * i, b->qs + 32 * i + 16));
    const __m256i shift_l = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i shift_h = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i l = _mm256_srlv_epi32(_mm256_set1_epi32((int)load_u32(b->scales_l)), shift_l);
    __m256i h = _mm256_srlv_epi32(_mm256_set1_epi32(load_u16(b->scales_h)), shift_h);
    l = _mm256_and_si256(l, _mm256_set1_epi32(15));
    h = _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(3)), 4);
    __m256i scale = _mm256_sub_epi32(_mm256_or_si256(l, h), _mm256_set1_epi32(32));
    __m256 d = _mm512_castps512_ps256(scalar_f16(b->d));
    to->scale = _mm512_zextps256_ps512(_mm256_mul_ps(_mm256_cvtepi32_ps(scale), d));
}

void avx512_round_32(const float *x, size_t cols, const struct rounded *to, size_t row);
void avx512_round_256(const float *x, size_t cols, const struct rounded *to, size_t row);

/* Columns become rows, 16 by 16 of 32 bits. */
static inline TARGET void transpose(__m512i v[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* v[4 a + b]: quarter q has column 4 q + b of rows 4 a … 4 a + 3. */
    for (int b = 0; b < 4; b++) {
        t[b] = _mm512_shuffle_i32x4(v[b], v[4 + b], 0x88);
        t[4 + b] = _mm512_shuffle_i32x4(v[b], v[4 + b], 0xdd);
        t[8 + b] = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0x88);
        t[12 + b] = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0xdd);
    }
    for (int b = 0; b < 4; b++) {
        v[b] = _mm512_shuffle_i32x4(t[b], t[8 + b], 0x88);
        v[8 + b] = _mm512_shuffle_i32x4(t[b], t[8 + b], 0xdd);
        v[4 + b] = _mm512_shuffle_i32x4(t[4 + b], t[12 + b], 0x88);
        v[12 + b] = _mm512_shuffle_i32x4(t[4 + b], t[12 + b], 0xdd);
    }
}

#define X(TYPE, ...) void avx512_few_##TYPE(const struct product *p);
LINEAR_TYPES(X)
#undef X

#endif
