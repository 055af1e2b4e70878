/* Few rows of x: the bytes of W are used once or a few times each, so this runs as fast as memory delivers
 * them. Several rows of W go side by side, which hides latencies and shares what is computed of x. A lane of
 * a sum belongs to four neighbouring elements; lanes are added up at the end of a row. */
#include "kernels/rows.h"

#if defined(__x86_64__)
#include "kernels/avx512.h"

enum { MAX_W = 4, MAX_X = AVX512_MAX_ROWS };

struct kind {
    unpack_fn *unpack;
    size_t step_bytes;
    int zero, group;
    enum rounding rounding;
    bool min;
};

/* Lane l of 64 elements i belongs to this group of a step. */
INLINE __m512i groups_of(int group, int i)
{
    const __m512i l = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i of_16 = _mm512_add_epi32(l, _mm512_set1_epi32(4 * i));
    return group == 16 ? of_16 : _mm512_srli_epi32(of_16, 1);
}

/* What a step of a row of x brings to every row of W. */
struct x_step {
    const uint8_t *q;
    __m512i start[4]; /* -zero times the sum of each lane's elements */
    __m512 d, s;
};

INLINE void load_x(const struct rounded *x, size_t row, size_t step, const struct kind *k, struct x_step *to)
{
    size_t at = row * x->steps + step;
    to->q = x->q + at * STEP;
    UNROLL for (int i = 0; i < 4; i++)
    {
        __m512i none = _mm512_setzero_si512(), q = _mm512_loadu_si512(to->q + 64 * i);
        __m512i sum = _mm512_dpbusd_epi32(none, _mm512_set1_epi8((char)k->zero), q);
        to->start[i] = k->zero ? _mm512_sub_epi32(none, sum) : none;
    }
    to->d = k->rounding == ROUND_32 ? _mm512_zextps256_ps512(_mm256_loadu_ps(x->d + at * STEP_GROUPS))
                                    : _mm512_set1_ps(x->d[at]);
    if (k->min && k->group == 16)
        to->s = _mm512_loadu_ps(x->s16 + at * STEP_MAX_GROUPS);
    else if (k->min)
        to->s = _mm512_zextps256_ps512(_mm256_loadu_ps(x->s + at * STEP_GROUPS));
}

INLINE __m512 dot_64(const struct step *w, const struct x_step *x, int i)
{
    __m512i dot = _mm512_dpbusd_epi32(x->start[i], w->q[i], _mm512_loadu_si512(x->q + 64 * i));
    return _mm512_cvtepi32_ps(dot);
}

/* One step of a row of W with all rows of x. */
INLINE void add_step(const struct kind *k, const struct step *w, const struct x_step x[MAX_X], int n_x,
                     __m512 sum[MAX_X])
{
    __m512 lanes[4];
    UNROLL for (int i = 0; i < 4; i++) lanes[i] = _mm512_permutexvar_ps(groups_of(k->group, i), w->scale);
    UNROLL for (int c = 0; c < n_x; c++)
    {
        if (k->rounding == ROUND_32) {
            __m512 scale = _mm512_mul_ps(w->scale, x[c].d);
            UNROLL for (int i = 0; i < 4; i++) sum[c] = _mm512_fmadd_ps(
                dot_64(w, &x[c], i), _mm512_permutexvar_ps(groups_of(k->group, i), scale), sum[c]);
        } else {
            __m512 part = _mm512_mul_ps(dot_64(w, &x[c], 0), lanes[0]);
            UNROLL for (int i = 1; i < 4; i++) part = _mm512_fmadd_ps(dot_64(w, &x[c], i), lanes[i], part);
            sum[c] = _mm512_fmadd_ps(part, x[c].d, sum[c]);
        }
        if (k->min)
            sum[c] = _mm512_fmadd_ps(w->min, x[c].s, sum[c]);
    }
}

/* The sums of the lanes of four registers. */
INLINE __m128 add_lanes(const __m512 v[4])
{
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
    __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* y[c][r] for n_x rows of x and n_w rows of W. */
INLINE void multiply(const struct product *p, const struct kind *k, const uint8_t *const w[MAX_W],
                     const uint8_t *const next[MAX_W], int n_w, int n_x, float y[MAX_X][MAX_W])
{
    uint8_t tail[MAX_W][STEP_MAX_BYTES];
    size_t steps = p->x->steps, whole = p->cols / STEP;
    if (k->rounding == ROUND_32 && whole < steps)
        for (int r = 0; r < n_w; r++)
            product_tail(p, w[r], k->step_bytes, tail[r]);
    __m512 sum[MAX_W][MAX_X];
    UNROLL for (int r = 0; r < n_w; r++) UNROLL for (int c = 0; c < n_x; c++) sum[r][c] = _mm512_setzero_ps();
    for (size_t step = 0; step < steps; step++) {
        struct x_step x[MAX_X];
        UNROLL for (int c = 0; c < n_x; c++) load_x(p->x, (size_t)c, step, k, &x[c]);
        UNROLL for (int r = 0; r < n_w; r++)
        {
            struct step s;
            const uint8_t *from = w[r] + step * k->step_bytes;
            if (k->rounding == ROUND_32 && step == whole)
                from = tail[r];
            for (size_t line = 0; line < k->step_bytes; line += 64)
                _mm_prefetch((const char *)next[r] + step * k->step_bytes + line, _MM_HINT_T1);
            k->unpack(from, &s);
            add_step(k, &s, x, n_x, sum[r]);
        }
    }
    UNROLL for (int c = 0; c < n_x; c++)
    {
        const __m512 rows[MAX_W] = {sum[0][c], sum[1][c], sum[2][c], sum[3][c]};
        _mm_storeu_ps(y[c], add_lanes(rows));
    }
}

/* All rows of W, n_w at a time; the last ones are done with the last row again in the places that are left.
 */
INLINE void multiply_rows(const struct product *p, const struct kind *k, int n_w, int n_x)
{
    float y[MAX_X][MAX_W];
    const uint8_t *w[MAX_W], *next[MAX_W];
    for (size_t n = p->first; n < p->last; n += (size_t)n_w) {
        for (size_t r = 0; r < (size_t)n_w; r++) {
            size_t row = n + r, after = n + (size_t)n_w + r;
            w[r] = product_row(p, row < p->last ? row : p->last - 1);
            next[r] = product_row(p, after < p->last ? after : p->last - 1);
        }
        multiply(p, k, w, next, n_w, n_x, y);
        for (size_t c = 0; c < (size_t)n_x; c++)
            for (size_t r = 0; r < (size_t)n_w && n + r < p->last; r++)
                p->y[c * p->stride + n + r] = y[c][r];
    }
}

INLINE void few(const struct product *p, const struct kind *k)
{
    switch (p->m) {
    case 1:
        multiply_rows(p, k, 4, 1);
        break;
    case 2:
        multiply_rows(p, k, 4, 2);
        break;
    case 3:
        multiply_rows(p, k, 4, 3);
        break;
    default:
        multiply_rows(p, k, 4, 4);
    }
}

/* Up to so many rows of x this is faster than avx512_tile.c, as measured: one where W is taken apart in the
 * lanes there, more where rows are unpacked one by one as here or have little to unpack. */
enum {
    UP_TO_Q4_0 = 1,
    UP_TO_IQ4_NL = 1,
    UP_TO_Q4_K = 1,
    UP_TO_Q5_K = 1,
    UP_TO_Q6_K = 3,
    UP_TO_Q8_0 = 3,
    UP_TO_Q4_1 = 4,
    UP_TO_Q5_0 = 4,
    UP_TO_Q5_1 = 4,
    UP_TO_Q2_K = 4,
    UP_TO_Q3_K = 4,
    UP_TO_IQ4_XS = 4,
    UP_TO_MXFP4 = 4
};

#define X(TYPE, name, zero, group, rounding, min)                                                            \
    TARGET void avx512_few_##TYPE(const struct product *p)                                                   \
    {                                                                                                        \
        const struct kind k = {unpack_##name, STEP_BYTES(TYPE), zero, group, rounding, min};                 \
        if (p->m > UP_TO_##TYPE)                                                                             \
            avx512_tile_##TYPE(p);                                                                           \
        else                                                                                                 \
            few(p, &k);                                                                                      \
    }
LINEAR_TYPES(X)
#undef X
#endif
