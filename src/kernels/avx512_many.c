/* Many rows of x: a panel of W, 32 rows by up to 512 columns, is unpacked once into the order that the
 * multiplying loop reads, [k / 4][row][4 bytes], and then meets every row of x, six at a time: 12 sums in
 * registers, two loads of W and six broadcast loads of x for each 12 multiplications.
 *
 * Bytes of W are signed here and bytes of x biased by 128. What that adds to a sum depends on W alone;
 * `start` takes it off beforehand. The panel and a few rows of x stay in the first-level cache. */
#include "kernels/rows.h"

#if defined(__x86_64__)
#include "kernels/avx512.h"

enum { ROWS = 32, LANES = 16, PANEL_STEPS = 2, MAX_X = 6 };

struct kind {
    unpack_fn *unpack;
    size_t step_bytes;
    int zero, group;
    enum rounding rounding;
    bool min;
};

/* One step of 32 rows; the second index is for 16 rows each. */
struct panel {
    __m512i q[STEP / 4][2];
    __m512i start[STEP_MAX_GROUPS][2];
    __m512 scale[STEP_MAX_GROUPS][2], min[STEP_MAX_GROUPS][2];
};

/* Columns become rows, 16 by 16 of 32 bits. */
INLINE void transpose(__m512i v[16])
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

INLINE void transpose_groups(const __m512 rows[LANES], int n, __m512 to[][2], int half)
{
    __m512i v[16];
    for (int i = 0; i < 16; i++)
        v[i] = _mm512_castps_si512(rows[i]);
    transpose(v);
    for (int g = 0; g < n; g++)
        to[g][half] = _mm512_castsi512_ps(v[g]);
}

/* Step `step` of 16 rows. */
INLINE void fill_half(const struct product *p, const struct kind *k, size_t first, size_t step,
                      struct panel *to, int half)
{
    __m512i q[4][LANES];
    __m512 scale[LANES], min[LANES];
    uint8_t tail[STEP_MAX_BYTES];
    for (size_t r = 0; r < LANES; r++) {
        size_t n = first + r < p->last ? first + r : p->last - 1;
        const uint8_t *row = product_row(p, n), *from = row + step * k->step_bytes;
        if (k->rounding == ROUND_32 && step == p->cols / STEP) {
            product_tail(p, row, k->step_bytes, tail);
            from = tail;
        }
        struct step s;
        k->unpack(from, &s);
        for (int i = 0; i < 4; i++)
            q[i][r] = _mm512_sub_epi8(s.q[i], _mm512_set1_epi8((char)k->zero));
        scale[r] = s.scale;
        if (k->min)
            min[r] = s.min;
    }
    for (int i = 0; i < 4; i++) {
        transpose(q[i]);
        for (int j = 0; j < 16; j++)
            to->q[16 * i + j][half] = q[i][j];
    }
    int groups = STEP / k->group, quads = k->group / 4;
    transpose_groups(scale, groups, to->scale, half);
    if (k->min)
        transpose_groups(min, groups, to->min, half);
    for (int g = 0; g < groups; g++) {
        __m512i sum = _mm512_setzero_si512(), bias = _mm512_set1_epi8((char)128);
        for (int j = 0; j < quads; j++)
            sum = _mm512_dpbusd_epi32(sum, bias, to->q[g * quads + j][half]);
        to->start[g][half] = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
    }
}

/* Where a tile's sums go: 32 columns of y, some of them missing at the end of a range. */
struct target {
    float *y;
    size_t stride;
    __mmask16 mask[2];
};

INLINE void flush(const struct target *to, int n_x, __m512 sum[MAX_X][2], bool first)
{
    for (int i = 0; i < n_x; i++)
        for (int h = 0; h < 2; h++) {
            float *y = to->y + (size_t)i * to->stride + h * LANES;
            if (!first)
                sum[i][h] = _mm512_add_ps(sum[i][h], _mm512_maskz_loadu_ps(to->mask[h], y));
            _mm512_mask_storeu_ps(y, to->mask[h], sum[i][h]);
        }
}

INLINE __m512i broadcast4(const uint8_t *p)
{
    return _mm512_set1_epi32((int)load_u32(p));
}

/* n_x rows of x from row i on times a panel, which is step `step`, added to y. */
INLINE void multiply(const struct rounded *x, const struct kind *k, const struct panel *w, size_t i, int n_x,
                     size_t step, size_t groups, const struct target *to)
{
    const size_t at = i * x->steps + step, per_step = (size_t)(STEP / k->group), quads = (size_t)k->group / 4;
    const uint8_t *q = x->q + at * STEP;
    const float *s = (k->group == 16 ? x->s16 : x->s) + at * per_step;
    const float *d = x->d + (k->rounding == ROUND_32 ? at * per_step : at);
    const size_t q_row = x->steps * STEP, s_row = x->steps * per_step;
    const size_t d_row = k->rounding == ROUND_32 ? s_row : x->steps;
    __m512 sum[MAX_X][2];
    for (int c = 0; c < n_x; c++)
        sum[c][0] = sum[c][1] = _mm512_setzero_ps();
    for (size_t g = 0; g < groups; g++) {
        __m512i dot[MAX_X][2];
        for (int c = 0; c < n_x; c++)
            for (int h = 0; h < 2; h++)
                dot[c][h] = w->start[g][h];
        for (size_t j = 0; j < quads; j++)
            for (int c = 0; c < n_x; c++) {
                __m512i xq = broadcast4(q + (size_t)c * q_row + (g * quads + j) * 4);
                for (int h = 0; h < 2; h++)
                    dot[c][h] = _mm512_dpbusd_epi32(dot[c][h], xq, w->q[g * quads + j][h]);
            }
        for (int c = 0; c < n_x; c++)
            for (int h = 0; h < 2; h++) {
                __m512 scale = w->scale[g][h];
                if (k->rounding == ROUND_32)
                    scale = _mm512_mul_ps(scale, _mm512_set1_ps(d[(size_t)c * d_row + g]));
                sum[c][h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[c][h]), scale, sum[c][h]);
            }
        if (k->rounding == ROUND_32 && k->min)
            for (int c = 0; c < n_x; c++)
                for (int h = 0; h < 2; h++)
                    sum[c][h] =
                        _mm512_fmadd_ps(w->min[g][h], _mm512_set1_ps(s[(size_t)c * s_row + g]), sum[c][h]);
    }
    if (k->rounding == ROUND_256) {
        for (int c = 0; c < n_x; c++)
            for (int h = 0; h < 2; h++)
                sum[c][h] = _mm512_mul_ps(sum[c][h], _mm512_set1_ps(d[(size_t)c * d_row]));
        if (k->min)
            for (size_t g = 0; g < groups; g++)
                for (int c = 0; c < n_x; c++)
                    for (int h = 0; h < 2; h++)
                        sum[c][h] = _mm512_fmadd_ps(w->min[g][h], _mm512_set1_ps(s[(size_t)c * s_row + g]),
                                                    sum[c][h]);
    }
    flush(to, n_x, sum, step == 0);
}

INLINE void multiply_all(const struct product *p, const struct kind *k, const struct panel *w, size_t step,
                         size_t n, struct target *to)
{
    size_t groups = (p->cols - step * STEP) / (size_t)k->group;
    if (groups > (size_t)(STEP / k->group))
        groups = (size_t)(STEP / k->group);
    for (size_t i = 0; i < p->m;) {
        size_t left = p->m - i;
        to->y = p->y + i * p->stride + n;
        if (left >= 6)
            multiply(p->x, k, w, i, 6, step, groups, to), i += 6;
        else if (left >= 4)
            multiply(p->x, k, w, i, 4, step, groups, to), i += 4;
        else if (left >= 2)
            multiply(p->x, k, w, i, 2, step, groups, to), i += 2;
        else
            multiply(p->x, k, w, i, 1, step, groups, to), i += 1;
    }
}

INLINE void many(const struct product *p, const struct kind *k)
{
    struct panel w;
    for (size_t n = p->first; n < p->last; n += ROWS) {
        size_t rows = p->last - n < ROWS ? p->last - n : ROWS;
        uint32_t mask = (uint32_t)((1ull << rows) - 1);
        struct target to = {.stride = p->stride, .mask = {(__mmask16)mask, (__mmask16)(mask >> LANES)}};
        for (size_t step = 0; step < p->x->steps; step++) {
            fill_half(p, k, n, step, &w, 0);
            fill_half(p, k, n + LANES, step, &w, 1);
            multiply_all(p, k, &w, step, n, &to);
        }
    }
}

#define X(TYPE, name, zero, group, rounding, min)                                                            \
    TARGET void avx512_many_##TYPE(const struct product *p)                                                  \
    {                                                                                                        \
        const struct kind k = {unpack_##name, STEP_BYTES(TYPE), zero, group, rounding, min};                 \
        many(p, &k);                                                                                         \
    }
LINEAR_TYPES(X)
#undef X

const struct linear_kernels linear_avx512 = {
    .max_few = 8,
    .step = ROWS,
    .biased = true,
    .round = {avx512_round_32, avx512_round_256},
#define X(TYPE, ...) [GGML_##TYPE] = avx512_few_##TYPE,
    .few = {LINEAR_TYPES(X)},
#undef X
#define X(TYPE, ...) [GGML_##TYPE] = avx512_many_##TYPE,
    .many = {LINEAR_TYPES(X)},
#undef X
};
#endif
