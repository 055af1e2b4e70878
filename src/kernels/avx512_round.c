/* Rounding rows of x to 8 bits as ggml does, 16 values at a time. */
#include "kernels/rows.h"

#if defined(__x86_64__)
#include "kernels/avx512.h"

INLINE float to_f16(float f)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT)));
}

/* Never below -128, which is what NaN and infinity (of a scale too small to be inverted) become in ggml's
 * bytes. */
INLINE __m512i rounded_i32(__m512 x, __m512 inverse)
{
    return _mm512_max_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x, inverse)), _mm512_set1_epi32(-128));
}

INLINE void store_q(uint8_t *to, __m512i q, bool biased)
{
    __m128i bytes = _mm512_cvtsepi32_epi8(q);
    if (biased)
        bytes = _mm_xor_si128(bytes, _mm_set1_epi8((char)0x80));
    _mm_storeu_si128((void *)to, bytes);
}

/* Zeros behind the last whole group, to the end of the step. */
INLINE void pad(const struct rounded *to, size_t row, size_t cols)
{
    size_t n = to->steps * STEP - cols, groups = n / 32, end = (row + 1) * to->steps;
    memset(to->q + end * STEP - n, to->biased ? 0x80 : 0, n);
    memset(to->d + end * STEP_GROUPS - groups, 0, groups * sizeof *to->d);
    memset(to->s + end * STEP_GROUPS - groups, 0, groups * sizeof *to->s);
    memset(to->less + end * STEP_GROUPS - groups, 0, groups * sizeof *to->less);
}

TARGET void avx512_round_32(const float *x, size_t cols, const struct rounded *to, size_t row)
{
    uint8_t *q = to->q + row * to->steps * STEP;
    float *d = to->d + row * to->steps * STEP_GROUPS, *s = to->s + row * to->steps * STEP_GROUPS;
    int32_t *less = to->less + row * to->steps * STEP_GROUPS;
    for (size_t k = 0; k < cols; k += 32, q += 32) {
        __m512 a = _mm512_loadu_ps(x + k), b = _mm512_loadu_ps(x + k + 16);
        float max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
        __m512 inverse = _mm512_set1_ps(max != 0 ? 127 / max : 0);
        __m512i qa = rounded_i32(a, inverse);
        __m512i qb = rounded_i32(b, inverse);
        store_q(q, qa, to->biased);
        store_q(q + 16, qb, to->biased);
        float scale = max / 127;
        *d++ = to_f16(scale);
        int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(qa, qb));
        *s++ = to_f16(scale * (float)sum);
        *less++ = -sum;
    }
    pad(to, row, cols);
}

/* The value that is farthest from zero, the first of them. */
INLINE float farthest(const __m512 x[16])
{
    __m512 most = _mm512_abs_ps(x[0]);
    for (int i = 1; i < 16; i++)
        most = _mm512_max_ps(most, _mm512_abs_ps(x[i]));
    float max = _mm512_reduce_max_ps(most);
    for (int i = 0; i < 16; i++) {
        __mmask16 here = _mm512_cmp_ps_mask(_mm512_abs_ps(x[i]), _mm512_set1_ps(max), _CMP_EQ_OQ);
        if (here)
            return _mm512_cvtss_f32(_mm512_maskz_compress_ps(here, x[i]));
    }
    return 0;
}

TARGET void avx512_round_256(const float *x, size_t cols, const struct rounded *to, size_t row)
{
    uint8_t *q = to->q + row * to->steps * STEP;
    for (size_t step = row * to->steps; step < row * to->steps + cols / STEP; step++, x += STEP, q += STEP) {
        __m512 v[16];
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_loadu_ps(x + 16 * i);
        float max = farthest(v), inverse = max != 0 ? -127 / max : 0, d = max != 0 ? 1 / inverse : 0;
        int sum[16];
        for (int i = 0; i < 16; i++) {
            __m512i r = rounded_i32(v[i], _mm512_set1_ps(inverse));
            store_q(q + 16 * i, r, to->biased);
            sum[i] = _mm512_reduce_add_epi32(r);
        }
        to->d[step] = d;
        for (size_t i = 0; i < 16; i++) {
            to->s16[step * 16 + i] = d * (float)sum[i];
            to->less[step * 16 + i] = -sum[i];
        }
        for (size_t i = 0; i < 8; i++)
            to->s[step * 8 + i] = d * (float)(sum[2 * i] + sum[2 * i + 1]);
    }
}
#endif
