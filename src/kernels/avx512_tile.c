/* Some rows of x, up to 32, with panels of 16 rows of W (avx512_panel.h). Sums stay in their lane: nothing is
 * added across lanes, and a row of x is added up in one order, that of the columns, however many others go
 * through with it: here, in avx512_many.c, and for one row as for thirty-two.
 *
 * A panel meets up to eight rows of x at a time, of which four bytes are spread over all lanes as they are
 * loaded. With up to four it would cost more to write it down than to multiply with it. */
#include "kernels/rows.h"

#if defined(__x86_64__)
#include "kernels/avx512_panel.h"

enum { MAX_X = 8, MAX_DIRECT = 4 };

/* ---- panels and some rows of x ---- */

/* Rows of x at a step. */
struct x_rows {
    const uint8_t *q;
    const float *d, *s;
    const int32_t *less;
    size_t q_row, d_row, s_row, less_row; /* from one row to the next */
    __m128i zero_shift;                   /* zero is 1 << zero_shift */
};

typedef void multiply_fn(const struct panel *w, const struct x_rows *x, __m512 *sum);

/* What x has for each group, side by side: many pointers at a time would not stay in registers. */
struct x_groups {
    int32_t start[MAX_X][STEP_MAX_GROUPS]; /* -zero times the sum of x */
    float d[MAX_X][STEP_GROUPS];           /* ROUND_32 */
};

INLINE void groups_of_x(const struct kind *k, const struct x_rows *x, int n_x, struct x_groups *to)
{
    UNROLL for (int c = 0; c < n_x; c++)
    {
        const int32_t *less = x->less + (size_t)c * x->less_row;
        if (k->rounding == ROUND_32) {
            _mm256_storeu_ps(to->d[c], _mm256_loadu_ps(x->d + (size_t)c * x->d_row));
            __m256i sums = _mm256_loadu_si256((const void *)less);
            _mm256_storeu_si256((void *)to->start[c], _mm256_sll_epi32(sums, x->zero_shift));
        } else if (k->zero) {
            __m512i sums = _mm512_loadu_si512(less);
            if (k->group == 32) { /* of two groups of 16 each, in the lower half */
                const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
                const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
                sums = _mm512_add_epi32(_mm512_permutexvar_epi32(even, sums),
                                        _mm512_permutexvar_epi32(odd, sums));
            }
            _mm512_storeu_si512(to->start[c], _mm512_sll_epi32(sums, x->zero_shift));
        }
    }
}

/* A panel with n_x rows of x. */
INLINE void multiply(const struct kind *k, const struct panel *w, const struct x_rows *x, int n_x, __m512 *to)
{
    const int groups = STEP / k->group, quads = k->group / 4;
    struct x_groups of_x;
    groups_of_x(k, x, n_x, &of_x);
    __m512 sum[MAX_X];
    UNROLL for (int c = 0; c < n_x; c++) sum[c] = _mm512_setzero_ps();
    for (int g = 0; g < groups; g++) {
        __m512i dot[MAX_X];
        UNROLL for (int c = 0; c < n_x; c++) dot[c] =
            k->zero ? _mm512_set1_epi32(of_x.start[c][g]) : _mm512_setzero_si512();
        UNROLL for (int j = 0; j < quads; j++) UNROLL for (int c = 0; c < n_x; c++)
        {
            const uint8_t *from = x->q + (size_t)c * x->q_row + 4 * (g * quads + j);
            dot[c] = _mm512_dpbusd_epi32(dot[c], w->q[g * quads + j], _mm512_set1_epi32((int)load_u32(from)));
        }
        UNROLL for (int c = 0; c < n_x; c++)
        {
            __m512 scale = w->scale[g];
            if (k->rounding == ROUND_32)
                scale = _mm512_mul_ps(scale, _mm512_set1_ps(of_x.d[c][g]));
            sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[c]), scale, sum[c]);
        }
    }
    UNROLL for (int c = 0; c < n_x; c++)
    {
        __m512 d = _mm512_set1_ps(k->rounding == ROUND_32 ? 1 : x->d[(size_t)c * x->d_row]);
        to[c] = _mm512_fmadd_ps(sum[c], d, to[c]);
    }
    if (!k->min)
        return;
    UNROLL for (int c = 0; c < n_x; c++) sum[c] = to[c];
    for (int g = 0; g < groups; g++)
        UNROLL for (int c = 0; c < n_x; c++) sum[c] =
            _mm512_fmadd_ps(w->min[g], _mm512_set1_ps(x->s[(size_t)c * x->s_row + (size_t)g]), sum[c]);
    UNROLL for (int c = 0; c < n_x; c++) to[c] = sum[c];
}

#define KIND_NAME(group, rounding, zero, min) multiply_##group##_##rounding##_##zero##_##min
#define KIND_OF(group, rounding, zero, min, n)                                                               \
    static TARGET void KIND_NAME(group, rounding, zero, min##_##n)(const struct panel *w,                    \
                                                                   const struct x_rows *x, __m512 *sum)      \
    {                                                                                                        \
        const struct kind k = {group, zero, rounding, min};                                                  \
        multiply(&k, w, x, n, sum);                                                                          \
    }
#define KIND(group, rounding, zero, min)                                                                     \
    KIND_OF(group, rounding, zero, min, 1)                                                                   \
    KIND_OF(group, rounding, zero, min, 2)                                                                   \
    KIND_OF(group, rounding, zero, min, 3)                                                                   \
    KIND_OF(group, rounding, zero, min, 4)                                                                   \
    KIND_OF(group, rounding, zero, min, 5)                                                                   \
    KIND_OF(group, rounding, zero, min, 6)                                                                   \
    KIND_OF(group, rounding, zero, min, 7)                                                                   \
    KIND_OF(group, rounding, zero, min, 8)                                                                   \
    static multiply_fn *const KIND_NAME(group, rounding, zero, min)[MAX_X + 1] = {                           \
        NULL,                                                                                                \
        KIND_NAME(group, rounding, zero, min##_1),                                                           \
        KIND_NAME(group, rounding, zero, min##_2),                                                           \
        KIND_NAME(group, rounding, zero, min##_3),                                                           \
        KIND_NAME(group, rounding, zero, min##_4),                                                           \
        KIND_NAME(group, rounding, zero, min##_5),                                                           \
        KIND_NAME(group, rounding, zero, min##_6),                                                           \
        KIND_NAME(group, rounding, zero, min##_7),                                                           \
        KIND_NAME(group, rounding, zero, min##_8),                                                           \
    };
KIND(32, ROUND_32, 1, 0)
KIND(32, ROUND_32, 0, 1)
KIND(32, ROUND_256, 0, 1)
KIND(32, ROUND_256, 1, 0)
KIND(16, ROUND_256, 1, 0)
KIND(16, ROUND_256, 0, 1)

/* What a type is made of, for the loop over panels. */
struct type {
    void (*fill)(const struct rows *r, struct panel *to);
    multiply_fn *const *multiply; /* by rows of x */
    size_t step_bytes;
    struct kind k;
};

static void rows_of(const struct product *p, const struct type *t, size_t first,
                    uint8_t (*tail)[STEP_MAX_BYTES], struct rows *r)
{
    for (size_t n = 0; n < ROWS; n++) {
        r->w[n] = product_row(p, first + n < p->last ? first + n : p->last - 1);
        if (p->cols % STEP)
            product_tail(p, r->w[n], t->step_bytes, tail[n]);
    }
}

/* The rows of the next panel, as far as they follow these: row by row, as they will be read. Not inlined,
 * since the pointers to sixteen rows would take registers that the products need. */
static TARGET __attribute__((noinline)) void prefetch(const struct product *p, const struct type *t,
                                                      const struct rows *r)
{
    __asm__ volatile(""); /* or the compiler finds that nothing comes of calling this */
    for (size_t n = 0; n < ROWS; n++)
        for (size_t line = 0; line < t->step_bytes; line += 64)
            _mm_prefetch((const char *)r->w[n] + ROWS * p->row_bytes + line, _MM_HINT_T1);
}

static void at_tail(uint8_t (*tail)[STEP_MAX_BYTES], struct rows *r)
{
    for (size_t n = 0; n < ROWS; n++)
        r->w[n] = tail[n];
}

static void next_step(const struct type *t, struct rows *r)
{
    for (size_t n = 0; n < ROWS; n++)
        r->w[n] += t->step_bytes;
}

/* y of 16 rows of W from `first` on, as far as there are so many. */
static TARGET void store(const struct product *p, size_t first, size_t m, const __m512 *sum)
{
    size_t rows = p->last - first < ROWS ? p->last - first : ROWS;
    __mmask16 mask = (__mmask16)((1u << rows) - 1);
    for (size_t i = 0; i < m; i++)
        _mm512_mask_storeu_ps(p->y + i * p->stride + first, mask, sum[i]);
}

INLINE void multiply_all(const struct product *p, const struct type *t, const struct panel *w, size_t step,
                         __m512 *sum)
{
    const struct rounded *x = p->x;
    size_t n_d = t->k.rounding == ROUND_32 ? STEP_GROUPS : 1, n_less = less_groups(t->k.rounding);
    size_t groups = (size_t)(STEP / t->k.group);
    const float *s = t->k.group == 32 ? x->s : x->s16;
    for (size_t i = 0; i < p->m; i += MAX_X) {
        size_t at = i * x->steps + step, n = p->m - i < MAX_X ? p->m - i : MAX_X;
        struct x_rows rows = {.q = x->q + at * STEP,
                              .d = x->d + at * n_d,
                              .s = s + at * groups,
                              .less = x->less + at * n_less,
                              .q_row = x->steps * STEP,
                              .d_row = x->steps * n_d,
                              .s_row = x->steps * groups,
                              .less_row = x->steps * n_less,
                              .zero_shift =
                                  _mm_cvtsi32_si128(t->k.zero ? __builtin_ctz((unsigned)t->k.zero) : 0)};
        t->multiply[n](w, &rows, sum + i);
    }
}

static TARGET void tile(const struct product *p, const struct type *t)
{
    uint8_t tail[ROWS][STEP_MAX_BYTES];
    __m512 sum[AVX512_MAX_FEW];
    struct panel w;
    struct rows r;
    for (size_t first = p->first; first < p->last; first += ROWS) {
        rows_of(p, t, first, tail, &r);
        for (size_t i = 0; i < p->m; i++)
            sum[i] = _mm512_setzero_ps();
        for (size_t step = 0; step < p->x->steps; step++) {
            if (step == p->cols / STEP)
                at_tail(tail, &r);
            else
                prefetch(p, t, &r);
            t->fill(&r, &w);
            multiply_all(p, t, &w, step, sum);
            next_step(t, &r);
        }
        store(p, first, p->m, sum);
    }
}

/* ---- up to four rows of x ---- */

typedef void panel_fn(const struct rows *r, const struct sink *s);

/* A step of 16 rows of W with rows of x, in the order of `multiply`. */
INLINE void multiply_step(const struct product *p, const struct type *t, panel_fn *fill, const struct rows *r,
                          int n_x, size_t step, __m512 *sum)
{
    const struct rounded *x = p->x;
    const struct kind *k = &t->k;
    struct panel w;
    __m512i dot[MAX_DIRECT * STEP_MAX_GROUPS];
    __m512 part[MAX_DIRECT];
    const struct sink s = {&w, n_x, *k, x, step, r, t->step_bytes, ROWS * p->row_bytes, dot, part};
    UNROLL for (int c = 0; c < n_x; c++) part[c] = _mm512_setzero_ps();
    fill(r, &s);
    UNROLL for (int c = 0; c < n_x; c++)
    {
        size_t at = (size_t)c * x->steps + step, groups = (size_t)(STEP / k->group);
        __m512 d = _mm512_set1_ps(k->rounding == ROUND_32 ? 1 : x->d[at]);
        const float *mean = (k->group == 32 ? x->s : x->s16) + at * groups;
        sum[c] = _mm512_fmadd_ps(part[c], d, sum[c]);
        if (k->min)
            UNROLL for (size_t g = 0; g < groups; g++) sum[c] =
                _mm512_fmadd_ps(w.min[g], _mm512_set1_ps(mean[g]), sum[c]);
    }
}

INLINE void direct(const struct product *p, const struct type *t, panel_fn *fill, int n_x)
{
    uint8_t tail[ROWS][STEP_MAX_BYTES];
    struct rows r;
    for (size_t first = p->first; first < p->last; first += ROWS) {
        __m512 sum[MAX_DIRECT];
        rows_of(p, t, first, tail, &r);
        UNROLL for (int c = 0; c < n_x; c++) sum[c] = _mm512_setzero_ps();
        for (size_t step = 0; step < p->x->steps; step++) {
            if (step == p->cols / STEP)
                at_tail(tail, &r);
            multiply_step(p, t, fill, &r, n_x, step, sum);
            next_step(t, &r);
        }
        store(p, first, (size_t)n_x, sum);
    }
}

#define TILE(TYPE, name, zero, group, rounding, has_zero, min)                                               \
    static TARGET void fill_##name(const struct rows *r, struct panel *to)                                   \
    {                                                                                                        \
        const struct sink s = {.w = to, .n_x = 0};                                                           \
        panel_##name(r, &s);                                                                                 \
    }                                                                                                        \
    TARGET void avx512_few_##TYPE(const struct product *p)                                                   \
    {                                                                                                        \
        const struct type t = {fill_##name,                                                                  \
                               KIND_NAME(group, rounding, has_zero, min),                                    \
                               STEP_BYTES(TYPE),                                                             \
                               {group, zero, rounding, min}};                                                \
        if (p->m == 1)                                                                                       \
            direct(p, &t, panel_##name, 1);                                                                  \
        else if (p->m == 2)                                                                                  \
            direct(p, &t, panel_##name, 2);                                                                  \
        else if (p->m == 3)                                                                                  \
            direct(p, &t, panel_##name, 3);                                                                  \
        else if (p->m == 4)                                                                                  \
            direct(p, &t, panel_##name, 4);                                                                  \
        else                                                                                                 \
            tile(p, &t);                                                                                     \
    }
TILE(Q4_0, q4_0, 8, 32, ROUND_32, 1, 0)
TILE(Q4_1, q4_1, 0, 32, ROUND_32, 0, 1)
TILE(Q5_0, q5_0, 16, 32, ROUND_32, 1, 0)
TILE(Q5_1, q5_1, 0, 32, ROUND_32, 0, 1)
TILE(Q8_0, q8_0, 128, 32, ROUND_32, 1, 0)
TILE(IQ4_NL, iq4_nl, 128, 32, ROUND_32, 1, 0)
TILE(MXFP4, mxfp4, 128, 32, ROUND_32, 1, 0)
TILE(Q2_K, q2_k, 0, 16, ROUND_256, 0, 1)
TILE(Q3_K, q3_k, 4, 16, ROUND_256, 1, 0)
TILE(Q4_K, q4_k, 0, 32, ROUND_256, 0, 1)
TILE(Q5_K, q5_k, 0, 32, ROUND_256, 0, 1)
TILE(Q6_K, q6_k, 32, 16, ROUND_256, 1, 0)
TILE(IQ4_XS, iq4_xs, 128, 32, ROUND_256, 1, 0)
#endif
