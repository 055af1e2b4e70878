/* Sixteen rows of W stand in the lanes of a register, four neighbouring columns in each lane: they are
 * brought there as they lie in the file, packed, by the shuffles of 4 by 4 transpositions, and taken apart
 * afterwards. Where they go then is a sink's: into a panel in memory, which many rows of x meet, or straight
 * into the products with one or two rows of x.
 *
 * Bytes of W are unsigned, bytes of x signed. What the zero of W adds to a sum depends on x alone: rounding
 * has left the sums of x. */
#ifndef KERNELS_AVX512_PANEL_H
#define KERNELS_AVX512_PANEL_H

#include "kernels/avx512.h"

enum { ROWS = 16 };

/* Rows of W, a step of them at a time. */
struct rows {
    const uint8_t *w[ROWS];
};

/* A step of 16 rows: q[j] has columns 4 j … 4 j + 3. */
struct panel {
    __m512i q[STEP / 4];
    __m512 scale[STEP_MAX_GROUPS], min[STEP_MAX_GROUPS];
};

/* What the loops need to know of a type; all of it is constant where it is used. */
struct kind {
    int group, zero;
    enum rounding rounding;
    bool min;
};

/* Scales and mins go to `w` first, then quads of columns, then each group is said to be done, in the order of
 * groups. With rows of x the quads go no further than into their sums. */
struct sink {
    struct panel *w;
    int n_x; /* 0: into the panel */
    struct kind k;
    const struct rounded *x;
    size_t step;
    const struct rows *r;
    size_t step_bytes, ahead; /* from a row to the one 16 rows on */
    __m512i *dot;             /* [n_x][16]: of 16 columns each */
    __m512 *part;             /* [n_x]: of the groups that are done */
};

/* -zero times the sum of x in a group. */
INLINE int start_of(const struct kind *k, const int32_t *less, int g)
{
    if (k->rounding == ROUND_32 || k->group == 16)
        return less[g] * k->zero;
    return (less[2 * g] + less[2 * g + 1]) * k->zero;
}

INLINE void put(const struct sink *s, int quad, __m512i q)
{
    if (s->n_x == 0)
        s->w->q[quad] = q;
    UNROLL for (int c = 0; c < s->n_x; c++)
    {
        size_t at = (size_t)c * s->x->steps + s->step;
        __m512i *dot = s->dot + STEP_MAX_GROUPS * c + quad / 4;
        int quads = s->k.group / 4;
        if (quad % quads == 0 && s->k.zero)
            *dot = _mm512_set1_epi32(
                start_of(&s->k, s->x->less + at * less_groups(s->k.rounding), quad / quads));
        else if (quad % 4 == 0)
            *dot = _mm512_setzero_si512();
        int four = (int)load_u32(s->x->q + at * STEP + 4 * (size_t)quad);
        *dot = _mm512_dpbusd_epi32(*dot, q, _mm512_set1_epi32(four));
    }
}

/* Rows of the next panel, as far as they follow these: a few lines after each group, since many at a time
 * would hold up the loads behind them. */
INLINE void prefetch_part(const struct sink *s, int g)
{
    int n = ROWS * s->k.group / STEP;
    UNROLL for (int i = 0; i < n; i++)
    {
        const char *from = (const char *)s->r->w[n * g + i] + s->ahead;
        UNROLL for (size_t line = 0; line < s->step_bytes; line += 64) _mm_prefetch(from + line, _MM_HINT_T1);
    }
}

INLINE void done(const struct sink *s, int g)
{
    if (s->n_x)
        prefetch_part(s, g);
    UNROLL for (int c = 0; c < s->n_x; c++)
    {
        const __m512i *dot = s->dot + STEP_MAX_GROUPS * c;
        __m512i sum = s->k.group == 16 ? dot[g] : _mm512_add_epi32(dot[2 * g], dot[2 * g + 1]);
        __m512 scale = s->w->scale[g];
        if (s->k.rounding == ROUND_32) {
            const float *d = s->x->d + ((size_t)c * s->x->steps + s->step) * STEP_GROUPS;
            scale = _mm512_mul_ps(scale, _mm512_set1_ps(d[g]));
        }
        s->part[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, s->part[c]);
    }
}

/* 16 bytes at `at` of each row -> four registers of four bytes each. */
INLINE void columns(const struct rows *r, size_t at, __m512i to[4])
{
    __m512i z[4];
    UNROLL for (int a = 0; a < 4; a++)
    {
        z[a] = _mm512_castsi128_si512(load16(r->w[a] + at));
        z[a] = _mm512_inserti32x4(z[a], load16(r->w[a + 4] + at), 1);
        z[a] = _mm512_inserti32x4(z[a], load16(r->w[a + 8] + at), 2);
        z[a] = _mm512_inserti32x4(z[a], load16(r->w[a + 12] + at), 3);
    }
    __m512i t0 = _mm512_unpacklo_epi32(z[0], z[1]), t1 = _mm512_unpackhi_epi32(z[0], z[1]);
    __m512i t2 = _mm512_unpacklo_epi32(z[2], z[3]), t3 = _mm512_unpackhi_epi32(z[2], z[3]);
    to[0] = _mm512_unpacklo_epi64(t0, t2);
    to[1] = _mm512_unpackhi_epi64(t0, t2);
    to[2] = _mm512_unpacklo_epi64(t1, t3);
    to[3] = _mm512_unpackhi_epi64(t1, t3);
}

/* 32 bytes at `at` of each row -> eight registers. */
INLINE void columns32(const struct rows *r, size_t at, __m512i to[8])
{
    __m512i half[2][4];
    UNROLL for (int h = 0; h < 2; h++)
    {
        __m512i z[4];
        UNROLL for (int a = 0; a < 4; a++)
        {
            const void *low = r->w[8 * h + a] + at, *high = r->w[8 * h + a + 4] + at;
            z[a] = _mm512_castsi256_si512(_mm256_loadu_si256(low));
            z[a] = _mm512_inserti64x4(z[a], _mm256_loadu_si256(high), 1);
        }
        __m512i t0 = _mm512_unpacklo_epi32(z[0], z[1]), t1 = _mm512_unpackhi_epi32(z[0], z[1]);
        __m512i t2 = _mm512_unpacklo_epi32(z[2], z[3]), t3 = _mm512_unpackhi_epi32(z[2], z[3]);
        half[h][0] = _mm512_unpacklo_epi64(t0, t2);
        half[h][1] = _mm512_unpackhi_epi64(t0, t2);
        half[h][2] = _mm512_unpacklo_epi64(t1, t3);
        half[h][3] = _mm512_unpackhi_epi64(t1, t3);
    }
    UNROLL for (int j = 0; j < 4; j++)
    { /* of four rows: columns of the first 16 bytes, of the second */
        to[j] = _mm512_shuffle_i32x4(half[0][j], half[1][j], 0x88);
        to[4 + j] = _mm512_shuffle_i32x4(half[0][j], half[1][j], 0xdd);
    }
}

INLINE __m512i low4(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

INLINE __m512i high4(__m512i v)
{
    return low4(_mm512_srli_epi32(v, 4));
}

/* ---- scales ---- */

/* Eight 16-bit words of each row to eight registers. */
INLINE void spread_words(const __m128i of[ROWS], __m256i to[8])
{
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i z[4], t[4], u[4];
    UNROLL for (int a = 0; a < 4; a++)
    {
        z[a] = _mm512_castsi128_si512(of[a]);
        z[a] = _mm512_inserti32x4(z[a], of[a + 4], 1);
        z[a] = _mm512_inserti32x4(z[a], of[a + 8], 2);
        z[a] = _mm512_inserti32x4(z[a], of[a + 12], 3);
    }
    t[0] = _mm512_unpacklo_epi16(z[0], z[1]), t[1] = _mm512_unpackhi_epi16(z[0], z[1]);
    t[2] = _mm512_unpacklo_epi16(z[2], z[3]), t[3] = _mm512_unpackhi_epi16(z[2], z[3]);
    u[0] = _mm512_unpacklo_epi32(t[0], t[2]), u[1] = _mm512_unpackhi_epi32(t[0], t[2]);
    u[2] = _mm512_unpacklo_epi32(t[1], t[3]), u[3] = _mm512_unpackhi_epi32(t[1], t[3]);
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i v = _mm512_permutexvar_epi64(even, u[i]);
        to[2 * i] = _mm512_castsi512_si256(v);
        to[2 * i + 1] = _mm512_extracti64x4_epi64(v, 1);
    }
}

INLINE void spread_f16(const __m128i of[ROWS], __m512 to[8])
{
    __m256i words[8];
    spread_words(of, words);
    UNROLL for (int g = 0; g < 8; g++) to[g] = _mm512_cvtph_ps(words[g]);
}

/* Words of 128 bytes, the second 64 of them at `more`, of each row. */
INLINE __m512i pick_words(const uint8_t *p, size_t more, __m512i which)
{
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(p), which, _mm512_loadu_si512(p + more));
}

/* d of eight blocks of 18 bytes, see pick_d18. */
INLINE void scales_of_18(const struct rows *r, struct panel *to)
{
    const __m512i words =
        _mm512_castsi256_si512(_mm256_setr_epi16(0, 9, 18, 27, 36, 45, 54, 63, 0, 0, 0, 0, 0, 0, 0, 0));
    __m128i d[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++) d[i] = _mm512_castsi512_si128(pick_words(r->w[i], 64, words));
    spread_f16(d, to->scale);
}

/* d and m of eight blocks of 20 bytes, see unpack_q4_1. */
INLINE void scales_of_20(const struct rows *r, struct panel *to)
{
    const __m512i words = _mm512_castsi256_si512(
        _mm256_setr_epi16(0, 10, 20, 30, 32, 42, 52, 62, 1, 11, 21, 31, 33, 43, 53, 63));
    __m128i d[ROWS], m[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++)
    {
        __m512i both = pick_words(r->w[i], 80, words);
        d[i] = _mm512_castsi512_si128(both);
        m[i] = _mm512_extracti32x4_epi32(both, 1);
    }
    spread_f16(d, to->scale);
    spread_f16(m, to->min);
}

/* e of eight blocks of 17 bytes: bytes 17 b, all among the first 128. See e8m0_half. */
INLINE void scales_of_17(const struct rows *r, struct panel *to)
{
    const __m512i words =
        _mm512_castsi256_si512(_mm256_setr_epi16(0, 8, 17, 25, 34, 42, 51, 59, 0, 0, 0, 0, 0, 0, 0, 0));
    __m128i e[ROWS];
    __m256i of[8];
    UNROLL for (int i = 0; i < ROWS; i++) e[i] = _mm512_castsi512_si128(pick_words(r->w[i], 64, words));
    spread_words(e, of);
    UNROLL for (int g = 0; g < 8; g++)
    {
        const __m512i one = _mm512_set1_epi32(1);
        __m512i v = _mm512_cvtepu16_epi32(of[g]);
        v = g % 2 ? _mm512_srli_epi32(v, 8) : _mm512_and_si512(v, _mm512_set1_epi32(0xff));
        __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), v);
        __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(v, one), 23);
        bits = _mm512_mask_mov_epi32(bits, _mm512_cmple_epu32_mask(v, one), small);
        to->scale[g] = _mm512_castsi512_ps(bits);
    }
}

INLINE __m512 low_f16(__m512i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

INLINE __m512 high_f16(__m512i v)
{
    return low_f16(_mm512_srli_epi32(v, 16));
}

INLINE __m512i byte_of(__m512i v, int i)
{
    v = i ? _mm512_srli_epi32(v, (unsigned)(8 * i)) : v;
    return i == 3 ? v : _mm512_and_si512(v, _mm512_set1_epi32(0xff));
}

INLINE __m512 times(__m512i whole, __m512 d)
{
    return _mm512_mul_ps(_mm512_cvtepi32_ps(whole), d);
}

INLINE __m512 negative(__m512 v)
{
    return _mm512_sub_ps(_mm512_setzero_ps(), v);
}

/* The block's first 16 bytes: d, dmin, scales and mins as q4_k_scales has them. */
INLINE void k_scales(const struct rows *r, struct panel *to)
{
    const __m512i six = _mm512_set1_epi8(0x3f), two = _mm512_set1_epi8(0x30);
    __m512i word[4];
    columns(r, 0, word);
    __m512 d = low_f16(word[0]), dmin = negative(high_f16(word[0]));
    __m512i a = word[1], b = word[2], c = word[3];
    __m512i scale[2] = {_mm512_and_si512(a, six),
                        _mm512_or_si512(low4(c), _mm512_and_si512(_mm512_srli_epi32(a, 2), two))};
    __m512i min[2] = {_mm512_and_si512(b, six),
                      _mm512_or_si512(high4(c), _mm512_and_si512(_mm512_srli_epi32(b, 2), two))};
    UNROLL for (int g = 0; g < 8; g++)
    {
        to->scale[g] = times(byte_of(scale[g / 4], g % 4), d);
        to->min[g] = times(byte_of(min[g / 4], g % 4), dmin);
    }
}

/* ---- types ---- */

/* A block's split nibbles. */
INLINE void put_nibbles(const struct sink *s, const struct rows *r, size_t at, int g, const int8_t *codes)
{
    __m512i packed[4];
    columns(r, at, packed);
    UNROLL for (int j = 0; j < 4; j++)
    {
        __m512i low = low4(packed[j]), high = high4(packed[j]);
        put(s, 8 * g + j, codes ? look_up(codes, low) : low);
        put(s, 8 * g + 4 + j, codes ? look_up(codes, high) : high);
    }
    done(s, g);
}

INLINE void panel_q4_0(const struct rows *r, const struct sink *s)
{
    scales_of_18(r, s->w);
    UNROLL for (int g = 0; g < 8; g++) put_nibbles(s, r, (size_t)g * 18 + 2, g, NULL);
}

INLINE void panel_q4_1(const struct rows *r, const struct sink *s)
{
    scales_of_20(r, s->w);
    UNROLL for (int g = 0; g < 8; g++) put_nibbles(s, r, (size_t)g * 20 + 4, g, NULL);
}

INLINE void panel_iq4_nl(const struct rows *r, const struct sink *s)
{
    scales_of_18(r, s->w);
    UNROLL for (int g = 0; g < 8; g++) put_nibbles(s, r, (size_t)g * 18 + 2, g, quant_codes_nl);
}

INLINE void panel_mxfp4(const struct rows *r, const struct sink *s)
{
    scales_of_17(r, s->w);
    UNROLL for (int g = 0; g < 8; g++) put_nibbles(s, r, (size_t)g * 17 + 1, g, quant_codes_e2m1);
}

/* Nibbles with a fifth bit each in qh: bit i of a lane is worth 16 for its element i. */
INLINE void put_fives(const struct sink *s, const struct rows *r, size_t at, int g, __m512i qh)
{
    const __m512i bit[2] = {_mm512_set1_epi32(0x08040201), _mm512_set1_epi32((int)0x80402010)};
    __m512i packed[4];
    columns(r, at, packed);
    UNROLL for (int b = 0; b < 4; b++)
    {
        const __m512i copy = _mm512_broadcast_i32x4(_mm_add_epi8(
            _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12), _mm_set1_epi8((char)b)));
        __m512i byte = _mm512_shuffle_epi8(qh, copy);
        UNROLL for (int h = 0; h < 2; h++)
        {
            int j = 2 * b + h;
            __m512i q = j < 4 ? low4(packed[j]) : high4(packed[j - 4]);
            put(s, 8 * g + j,
                _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(byte, bit[h]), q, _mm512_set1_epi8(16)));
        }
    }
    done(s, g);
}

INLINE void panel_q5_0(const struct rows *r, const struct sink *s)
{
    __m512i head[8][2];
    UNROLL for (int g = 0; g < 8; g++)
    {
        __m512i word[4];
        columns(r, (size_t)g * sizeof(struct block_q5_0), word);
        head[g][0] = word[0], head[g][1] = word[1];
        s->w->scale[g] = low_f16(word[0]);
    }
    UNROLL for (int g = 0; g < 8; g++)
    {
        __m512i qh = _mm512_or_si512(_mm512_srli_epi32(head[g][0], 16), _mm512_slli_epi32(head[g][1], 16));
        put_fives(s, r, (size_t)g * sizeof(struct block_q5_0) + 6, g, qh);
    }
}

INLINE void panel_q5_1(const struct rows *r, const struct sink *s)
{
    UNROLL for (int g = 0; g < 8; g++)
    {
        __m512i word[4];
        columns(r, (size_t)g * sizeof(struct block_q5_1), word);
        s->w->scale[g] = low_f16(word[0]);
        s->w->min[g] = high_f16(word[0]);
        put_fives(s, r, (size_t)g * sizeof(struct block_q5_1) + 8, g, word[1]);
    }
}

INLINE void panel_q8_0(const struct rows *r, const struct sink *s)
{
    const __m512i words =
        _mm512_castsi256_si512(_mm256_setr_epi16(0, 17, 34, 51, 0, 17, 34, 51, 0, 0, 0, 0, 0, 0, 0, 0));
    __m128i d[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++)
    {
        __m512i low = pick_words(r->w[i], 64, words), high = pick_words(r->w[i] + 136, 64, words);
        d[i] = _mm_unpacklo_epi64(_mm512_castsi512_si128(low), _mm512_castsi512_si128(high));
    }
    spread_f16(d, s->w->scale);
    UNROLL for (int g = 0; g < 8; g++)
    {
        __m512i q[8];
        columns32(r, (size_t)g * sizeof(struct block_q8_0) + 2, q);
        UNROLL for (int j = 0; j < 8; j++)
            put(s, 8 * g + j, _mm512_xor_si512(q[j], _mm512_set1_epi8((char)0x80)));
        done(s, g);
    }
}

INLINE void panel_q4_k(const struct rows *r, const struct sink *s)
{
    k_scales(r, s->w);
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i packed[8];
        columns32(r, offsetof(struct block_q4_k, qs) + 32 * (size_t)i, packed);
        UNROLL for (int j = 0; j < 8; j++)
        {
            put(s, 16 * i + j, low4(packed[j]));
            put(s, 16 * i + 8 + j, high4(packed[j]));
        }
        done(s, 2 * i);
        done(s, 2 * i + 1);
    }
}

/* Bit g of each byte, as bit 4, over q. */
INLINE __m512i with_fifth(__m512i q, __m512i bits, int g)
{
    bits = g < 4 ? _mm512_slli_epi32(bits, (unsigned)(4 - g)) : _mm512_srli_epi32(bits, (unsigned)(g - 4));
    return _mm512_ternarylogic_epi32(q, bits, _mm512_set1_epi8(16), 0xf8); /* a | (b & c) */
}

INLINE void panel_q5_k(const struct rows *r, const struct sink *s)
{
    __m512i bits[8];
    k_scales(r, s->w);
    columns32(r, offsetof(struct block_q5_k, qh), bits);
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i packed[8];
        columns32(r, offsetof(struct block_q5_k, qs) + 32 * (size_t)i, packed);
        UNROLL for (int j = 0; j < 8; j++)
        {
            put(s, 16 * i + j, with_fifth(low4(packed[j]), bits[j], 2 * i));
            put(s, 16 * i + 8 + j, with_fifth(high4(packed[j]), bits[j], 2 * i + 1));
        }
        done(s, 2 * i);
        done(s, 2 * i + 1);
    }
}

INLINE void panel_q6_k(const struct rows *r, const struct sink *s)
{
    const __m512i upper = _mm512_set1_epi8(0x30);
    __m512i word[4], end[4];
    columns(r, offsetof(struct block_q6_k, scales), word);
    columns(r, sizeof(struct block_q6_k) - 16, end); /* d is in the last two bytes */
    __m512 d = high_f16(end[3]);
    UNROLL for (int g = 0; g < 16; g++)
    {
        __m512i scale = _mm512_slli_epi32(word[g / 4], (unsigned)(24 - g % 4 * 8));
        s->w->scale[g] = times(_mm512_srai_epi32(scale, 24), d);
    }
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m512i h[8]; /* element 32 pair + i: in byte i */
        columns32(r, offsetof(struct block_q6_k, qh) + 32 * (size_t)half, h);
        UNROLL for (int i = 0; i < 2; i++)
        {
            __m512i l[8];
            columns32(r, 64 * (size_t)half + 32 * (size_t)i, l);
            UNROLL for (int j = 0; j < 8; j++)
            {
                int quad = 32 * half + 8 * i + j;
                __m512i low_pair = _mm512_slli_epi32(h[j], (unsigned)(4 - 2 * i));
                __m512i high_pair = i ? _mm512_srli_epi32(h[j], 2) : h[j];
                /* a | (b & c) */
                put(s, quad, _mm512_ternarylogic_epi32(low4(l[j]), low_pair, upper, 0xf8));
                put(s, quad + 16, _mm512_ternarylogic_epi32(high4(l[j]), high_pair, upper, 0xf8));
            }
        }
        UNROLL for (int g = 0; g < 8; g++) done(s, 8 * half + g);
    }
}

INLINE void panel_q2_k(const struct rows *r, const struct sink *s)
{
    const __m512i three = _mm512_set1_epi8(3);
    __m512i word[4], end[4];
    columns(r, offsetof(struct block_q2_k, scales), word);
    columns(r, sizeof(struct block_q2_k) - 16, end); /* d and dmin are the last four bytes */
    __m512 d = low_f16(end[3]), dmin = negative(high_f16(end[3]));
    UNROLL for (int g = 0; g < 16; g++)
    {
        s->w->scale[g] = times(byte_of(low4(word[g / 4]), g % 4), d);
        s->w->min[g] = times(byte_of(high4(word[g / 4]), g % 4), dmin);
    }
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m512i v[8];
        columns32(r, offsetof(struct block_q2_k, qs) + 32 * (size_t)half, v);
        UNROLL for (int i = 0; i < 4; i++)
        {
            UNROLL for (int j = 0; j < 8; j++)
                put(s, 32 * half + 8 * i + j,
                    _mm512_and_si512(_mm512_srli_epi32(v[j], (unsigned)(2 * i)), three));
            done(s, 8 * half + 2 * i);
            done(s, 8 * half + 2 * i + 1);
        }
    }
}

/* The last 16 bytes of a block, from the second word on: scales as q3_k_scales has them, and d. */
INLINE void q3_k_scale(const struct rows *r, struct panel *to)
{
    const __m512i two = _mm512_set1_epi8(0x30);
    __m512i word[4], s[3];
    columns(r, sizeof(struct block_q3_k) - 16, word);
    UNROLL for (int i = 0; i < 3; i++) s[i] =
        _mm512_or_si512(_mm512_srli_epi32(word[i], 16), _mm512_slli_epi32(word[i + 1], 16));
    __m512 d = high_f16(word[3]);
    __m512i scale[4] = {low4(s[0]), low4(s[1]), high4(s[0]), high4(s[1])};
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i high = i < 2 ? _mm512_slli_epi32(s[2], (unsigned)(4 - 2 * i))
                             : _mm512_srli_epi32(s[2], (unsigned)(2 * i - 4));
        scale[i] = _mm512_ternarylogic_epi32(scale[i], high, two, 0xf8); /* a | (b & c) */
        UNROLL for (int b = 0; b < 4; b++) to->scale[4 * i + b] =
            times(_mm512_sub_epi32(byte_of(scale[i], b), _mm512_set1_epi32(32)), d);
    }
}

INLINE void panel_q3_k(const struct rows *r, const struct sink *s)
{
    const __m512i three = _mm512_set1_epi8(3), four = _mm512_set1_epi8(4);
    __m512i bits[8];
    q3_k_scale(r, s->w);
    columns32(r, 0, bits);
    UNROLL for (int half = 0; half < 2; half++)
    {
        __m512i v[8];
        columns32(r, offsetof(struct block_q3_k, qs) + 32 * (size_t)half, v);
        UNROLL for (int i = 0; i < 4; i++)
        {
            UNROLL for (int j = 0; j < 8; j++)
            {
                int bit = 4 * half + i;
                __m512i q = _mm512_and_si512(_mm512_srli_epi32(v[j], (unsigned)(2 * i)), three);
                __m512i high = bit < 2 ? _mm512_slli_epi32(bits[j], (unsigned)(2 - bit))
                                       : _mm512_srli_epi32(bits[j], (unsigned)(bit - 2));
                put(s, 32 * half + 8 * i + j,
                    _mm512_ternarylogic_epi32(q, high, four, 0xf8)); /* a | (b & c) */
            }
            done(s, 8 * half + 2 * i);
            done(s, 8 * half + 2 * i + 1);
        }
    }
}

INLINE void panel_iq4_xs(const struct rows *r, const struct sink *s)
{
    __m512i word[4];
    columns(r, 0, word);
    __m512 d = low_f16(word[0]);
    UNROLL for (int g = 0; g < 8; g++)
    {
        __m512i low = _mm512_and_si512(_mm512_srli_epi32(word[1], (unsigned)(4 * g)), _mm512_set1_epi32(15));
        __m512i high = _mm512_slli_epi32(_mm512_srli_epi32(word[0], (unsigned)(16 + 2 * g)), 4);
        high = _mm512_and_si512(high, _mm512_set1_epi32(0x30));
        s->w->scale[g] = times(_mm512_sub_epi32(_mm512_or_si512(low, high), _mm512_set1_epi32(32)), d);
    }
    UNROLL for (int g = 0; g < 8; g++)
        put_nibbles(s, r, offsetof(struct block_iq4_xs, qs) + 16 * (size_t)g, g, quant_codes_nl);
}

#endif
