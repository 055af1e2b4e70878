/* Products for x86-64 since 2013. Bytes of W times bytes of x become pairs of products in 16 bits; for that
 * one of the two has to be unsigned. Types without a zero have W unsigned. Those with one either let x stand
 * for what the zero adds (it is the same for all rows of W), or W goes less its zero, and without its sign,
 * which x takes.
 *
 * Eight rows of W are added up in the lanes of a register, group by group in the order of the columns, so
 * that a row of x has the same sums however many others go through with it. Many rows of x: four neighbouring
 * columns of W stand in each lane, as in avx512_panel.h. Few: the products of a row of W stay in the order of
 * its columns, and the sums of its groups, whole numbers, are brought into the lanes. */
#include "kernels/rows.h"

#if defined(__x86_64__)
#include "kernels/avx2.h"

#include "kernels/round.h"

enum { MAX_FEW = 4, ROWS = 8, MAX_X = 4 };

struct kind {
    unpack_fn *unpack;
    size_t step_bytes;
    int zero, group;
    enum rounding rounding;
    bool min;
};

INLINE __m256i pairs_to_i32(__m256i pairs_of_products)
{
    return _mm256_madd_epi16(pairs_of_products, _mm256_set1_epi16(1));
}

/* Pairs of products of signed bytes; x is never -128 but where it was no number. */
INLINE __m256i signed_pairs(__m256i w, __m256i x)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

INLINE void unpack_signed(const struct kind *k, const uint8_t *from, struct step *to)
{
    k->unpack(from, to);
    if (k->zero)
        UNROLL for (int i = 0; i < STEP / 32; i++) to->q[i] =
            _mm256_sub_epi8(to->q[i], _mm256_set1_epi8((char)k->zero));
}

/* Where a row's step is: in the file, or at its end, with zeros behind. */
INLINE const uint8_t *step_of(const struct product *p, const struct kind *k, const uint8_t *row, size_t step,
                              uint8_t *tail)
{
    if (k->rounding == ROUND_256 || step < p->cols / STEP)
        return row + step * k->step_bytes;
    product_tail(p, row, k->step_bytes, tail);
    return tail;
}

/* ---- many rows of x ---- */

/* A step of eight rows of W: q[j] has columns 4 j … 4 j + 3. */
struct panel {
    __m256i q[STEP / 4];
    __m256 scale[STEP_MAX_GROUPS], min[STEP_MAX_GROUPS];
};

/* Columns become rows, 8 by 8 of 32 bits. */
INLINE void transpose(const __m256i v[8], __m256i to[8])
{
    __m256i t[8], u[8];
    UNROLL for (int i = 0; i < 8; i += 2)
    {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4)
    {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        to[i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x20);
        to[4 + i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x31);
    }
}

INLINE void transpose_groups(const struct step rows[ROWS], size_t offset, int groups, __m256 *to)
{
    for (int g = 0; g < groups; g += 8) {
        __m256i v[8];
        UNROLL for (int r = 0; r < ROWS; r++) v[r] =
            load32((const uint8_t *)&rows[r] + offset + (size_t)g * sizeof(float));
        transpose(v, (__m256i *)(to + g));
    }
}

/* With a zero of 128 bytes of W would be too large as they are. */
INLINE bool is_wide(const struct kind *k)
{
    return k->zero == 128;
}

/* Step `step` of row n; the last row stands in for those behind the range. */
INLINE void unpack_row(const struct product *p, const struct kind *k, size_t n, size_t step, struct step *to)
{
    uint8_t tail[STEP_MAX_BYTES];
    const uint8_t *row = product_row(p, n < p->last ? n : p->last - 1);
    const uint8_t *from = step_of(p, k, row, step, tail);
    for (size_t line = 0; line < k->step_bytes; line += 64)
        _mm_prefetch((const char *)row + ROWS * p->row_bytes + step * k->step_bytes + line, _MM_HINT_T1);
    if (is_wide(k))
        unpack_signed(k, from, to);
    else
        k->unpack(from, to);
}

INLINE void fill_scales(const struct kind *k, const struct step rows[ROWS], struct panel *to)
{
    transpose_groups(rows, offsetof(struct step, scale), STEP / k->group, to->scale);
    if (k->min)
        transpose_groups(rows, offsetof(struct step, min), STEP / k->group, to->min);
}

INLINE void fill(const struct product *p, const struct kind *k, size_t first, size_t step, struct panel *to)
{
    struct step rows[ROWS];
    for (size_t r = 0; r < ROWS; r++)
        unpack_row(p, k, first + r, step, &rows[r]);
    for (int i = 0; i < STEP / 32; i++) {
        __m256i v[8];
        UNROLL for (int r = 0; r < ROWS; r++) v[r] = rows[r].q[i];
        transpose(v, to->q + 8 * i);
    }
    fill_scales(k, rows, to);
}

/* Quads of columns whose pairs of products may be added up in 16 bits: bytes of W are below 2 zero or 64. */
INLINE int quads_at_once(const struct kind *k, int most)
{
    int products = 32767 / (2 * 127 * most), quads = k->group / 4, n = 1;
    while (2 * n <= products && 2 * n <= quads)
        n *= 2;
    return n;
}

INLINE __m256i start_of(const struct kind *k, const struct rounded *x, size_t at, int g)
{
    if (!k->zero || is_wide(k))
        return _mm256_setzero_si256();
    return _mm256_set1_epi32(k->zero * x->less[at * less_groups(k->rounding) + (size_t)g]);
}

INLINE __m256 add_group(const struct kind *k, const struct panel *w, const struct rounded *x, size_t at,
                        int g, __m256i dot, __m256 sum)
{
    __m256 scale = w->scale[g];
    if (k->rounding == ROUND_32)
        scale = _mm256_mul_ps(scale, _mm256_set1_ps(x->d[at * STEP_GROUPS + (size_t)g]));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

INLINE __m256 end_step(const struct kind *k, const struct panel *w, const struct rounded *x, size_t at,
                       __m256 sum)
{
    const int groups = STEP / k->group;
    const float *s = (k->group == 16 ? x->s16 : x->s) + at * (size_t)groups;
    if (k->rounding == ROUND_256)
        sum = _mm256_mul_ps(sum, _mm256_set1_ps(x->d[at]));
    for (int g = 0; k->min && g < groups; g++)
        sum = _mm256_fmadd_ps(w->min[g], _mm256_set1_ps(s[g]), sum);
    return sum;
}

/* A panel, which is step `step`, with rows [i, i + n_x) of x; `most` is the largest byte of W. */
INLINE void multiply(const struct kind *k, int most, const struct panel *w, const struct rounded *x, size_t i,
                     size_t n_x, size_t step, __m256 sum[MAX_X])
{
    const int groups = STEP / k->group, quads = k->group / 4, at_once = quads_at_once(k, most);
    const size_t at = i * x->steps + step;
    UNROLL for (size_t c = 0; c < n_x; c++) sum[c] = _mm256_setzero_ps();
    for (int g = 0; g < groups; g++) {
        __m256i dot[MAX_X];
        UNROLL for (size_t c = 0; c < n_x; c++) dot[c] = start_of(k, x, at + c * x->steps, g);
        for (int j = 0; j < quads; j += at_once) {
            __m256i two[MAX_X];
            UNROLL for (int h = 0; h < at_once; h++) UNROLL for (size_t c = 0; c < n_x; c++)
            {
                const __m256i wq = w->q[g * quads + j + h];
                const uint8_t *from = x->q + (at + c * x->steps) * STEP + 4 * (size_t)(g * quads + j + h);
                __m256i q = _mm256_set1_epi32((int)load_u32(from));
                __m256i products = is_wide(k) ? signed_pairs(wq, q) : _mm256_maddubs_epi16(wq, q);
                two[c] = h ? _mm256_add_epi16(two[c], products) : products;
            }
            UNROLL for (size_t c = 0; c < n_x; c++) dot[c] = _mm256_add_epi32(dot[c], pairs_to_i32(two[c]));
        }
        UNROLL for (size_t c = 0; c < n_x; c++) sum[c] =
            add_group(k, w, x, at + c * x->steps, g, dot[c], sum[c]);
    }
    UNROLL for (size_t c = 0; c < n_x; c++) sum[c] = end_step(k, w, x, at + c * x->steps, sum[c]);
}

INLINE void flush(const struct product *p, size_t first, size_t i, size_t n_x, bool add, __m256 sum[MAX_X])
{
    size_t rows = p->last - first < ROWS ? p->last - first : ROWS;
    __m256i mask =
        _mm256_cmpgt_epi32(_mm256_set1_epi32((int)rows), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    UNROLL for (size_t c = 0; c < n_x; c++)
    {
        float *y = p->y + (i + c) * p->stride + first;
        if (add)
            sum[c] = _mm256_add_ps(sum[c], _mm256_maskload_ps(y, mask));
        _mm256_maskstore_ps(y, mask, sum[c]);
    }
}

/* Halves of 128 bits added up in both, in 16 bits: they hold that as long as bytes of W are below 64. */
INLINE __m256i add_halves(__m256i a, __m256i b)
{
    return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

/* In each 128 bits: the sums of those of four registers of pairs. */
INLINE __m256i add_quads(const struct kind *k, const __m256i v[4])
{
    if (is_wide(k))
        return _mm256_hadd_epi32(_mm256_hadd_epi32(pairs_to_i32(v[0]), pairs_to_i32(v[1])),
                                 _mm256_hadd_epi32(pairs_to_i32(v[2]), pairs_to_i32(v[3])));
    return _mm256_hadd_epi32(pairs_to_i32(add_halves(v[0], v[1])), pairs_to_i32(add_halves(v[2], v[3])));
}

/* Sums of the products of a step of one row of W with one of x: of the groups in order where they have 32
 * elements, else of 0, 2, 4, 6, 1, 3, 5, 7 and from 8 on likewise. */
INLINE void group_sums(const struct kind *k, const struct step *w, const struct rounded *x, size_t at,
                       __m256i to[2])
{
    __m256i v[8], quads[2];
    UNROLL for (int i = 0; i < 8; i++)
    {
        __m256i q = load32(x->q + at * STEP + 32 * (size_t)i);
        v[i] = is_wide(k) ? signed_pairs(w->q[i], q) : _mm256_maddubs_epi16(w->q[i], q);
    }
    UNROLL for (int i = 0; i < 2; i++) quads[i] = add_quads(k, v + 4 * i);
    if (k->group == 16) {
        to[0] = quads[0], to[1] = quads[1];
        return;
    }
    to[0] = _mm256_add_epi32(_mm256_permute2x128_si256(quads[0], quads[1], 0x20),
                             _mm256_permute2x128_si256(quads[0], quads[1], 0x31));
}

/* From the sums of eight rows of W with one row of x to their step, as in `multiply`. */
INLINE __m256 add_step(const struct kind *k, const __m256i sums[2][ROWS], const struct panel *w,
                       const struct rounded *x, size_t at)
{
    static const int8_t order_32[8] = {0, 1, 2, 3, 4, 5, 6, 7}, order_16[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int8_t *order = k->group == 16 ? order_16 : order_32;
    __m256 sum = _mm256_setzero_ps();
    UNROLL for (int h = 0; h < 32 / k->group; h++)
    {
        __m256i dot[8];
        transpose(sums[h], dot);
        UNROLL for (int i = 0; i < 8; i++)
        {
            int g = 8 * h + i;
            __m256i all = dot[order[i]];
            if (k->zero && !is_wide(k))
                all = _mm256_add_epi32(all, start_of(k, x, at, g));
            sum = add_group(k, w, x, at, g, all, sum);
        }
    }
    return end_step(k, w, x, at, sum);
}

/* Eight rows of W at a time. */
INLINE void few(const struct product *p, const struct kind *k, size_t n_x)
{
    struct panel w;
    struct step rows[ROWS];
    __m256i sums[MAX_FEW][2][ROWS];
    for (size_t n = p->first; n < p->last; n += ROWS)
        for (size_t step = 0; step < p->x->steps; step++) {
            for (size_t r = 0; r < ROWS; r++) {
                __m256i of[2];
                unpack_row(p, k, n + r, step, &rows[r]);
                UNROLL for (size_t c = 0; c < n_x; c++)
                {
                    group_sums(k, &rows[r], p->x, c * p->x->steps + step, of);
                    sums[c][0][r] = of[0];
                    if (k->group == 16)
                        sums[c][1][r] = of[1];
                }
            }
            fill_scales(k, rows, &w);
            __m256 sum[MAX_X];
            UNROLL for (size_t c = 0; c < n_x; c++) sum[c] =
                add_step(k, sums[c], &w, p->x, c * p->x->steps + step);
            flush(p, n, 0, n_x, step > 0, sum);
        }
}

INLINE void many(const struct product *p, const struct kind *k, int most)
{
    struct panel w;
    for (size_t n = p->first; n < p->last; n += ROWS)
        for (size_t step = 0; step < p->x->steps; step++) {
            __m256 sum[MAX_X];
            size_t i = 0;
            fill(p, k, n, step, &w);
            for (; i + MAX_X <= p->m; i += MAX_X) {
                multiply(k, most, &w, p->x, i, MAX_X, step, sum);
                flush(p, n, i, MAX_X, step > 0, sum);
            }
            for (; i < p->m; i++) {
                multiply(k, most, &w, p->x, i, 1, step, sum);
                flush(p, n, i, 1, step > 0, sum);
            }
        }
}

/* ---- */

/* The largest byte of W as unpacked. */
#define MOST_Q4_0   15
#define MOST_Q4_1   15
#define MOST_Q5_0   31
#define MOST_Q5_1   31
#define MOST_Q8_0   128
#define MOST_IQ4_NL 128
#define MOST_MXFP4  128
#define MOST_Q2_K   3
#define MOST_Q3_K   7
#define MOST_Q4_K   15
#define MOST_Q5_K   31
#define MOST_Q6_K   63
#define MOST_IQ4_XS 128

#define X(TYPE, name, zero, group, rounding, min)                                                            \
    static const struct kind kind_##name = {unpack_##name, STEP_BYTES(TYPE), zero, group, rounding, min};    \
    static TARGET void few_##name(const struct product *p)                                                   \
    {                                                                                                        \
        switch (p->m) {                                                                                      \
        case 1:                                                                                              \
            few(p, &kind_##name, 1);                                                                         \
            break;                                                                                           \
        case 2:                                                                                              \
            few(p, &kind_##name, 2);                                                                         \
            break;                                                                                           \
        case 3:                                                                                              \
            few(p, &kind_##name, 3);                                                                         \
            break;                                                                                           \
        default:                                                                                             \
            few(p, &kind_##name, 4);                                                                         \
        }                                                                                                    \
    }                                                                                                        \
    static TARGET void many_##name(const struct product *p)                                                  \
    {                                                                                                        \
        many(p, &kind_##name, MOST_##TYPE);                                                                  \
    }
LINEAR_TYPES(X)
#undef X

const struct linear_kernels linear_avx2 = {
    .max_few = MAX_FEW,
    .step = ROWS,
    .round = {round_32, round_256},
#define X(TYPE, name, ...) [GGML_##TYPE] = few_##name,
    .few = {LINEAR_TYPES(X)},
#undef X
#define X(TYPE, name, ...) [GGML_##TYPE] = many_##name,
    .many = {LINEAR_TYPES(X)},
#undef X
};
#else
typedef int linear_avx2_is_empty;
#endif
