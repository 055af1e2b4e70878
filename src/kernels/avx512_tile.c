/* Some rows of x, up to 32. Sixteen rows of W stand in the lanes of a register, four neighbouring columns in
 * each lane: they are brought there as they lie in the file, packed, by the shuffles of 4 by 4
 * transpositions, and taken apart afterwards. A panel, a step of these rows, meets up to eight rows of x at a
 * time, of which four bytes are spread over all lanes as they are loaded. Sums stay in their lane: nothing is
 * added across lanes.
 *
 * Bytes of W are unsigned, bytes of x signed. What the zero of W adds to a sum depends on x alone: rounding
 * has left the sums of x. */
#include "kernels/rows.h"

#if defined(__x86_64__)
#include "kernels/avx512.h"

enum { ROWS = 16, MAX_X = 8 };

/* Rows of W, a step of them at a time. */
struct rows {
    const uint8_t *w[ROWS];
};

/* A step of 16 rows: q[j] has columns 4 j … 4 j + 3. */
struct panel {
    __m512i q[STEP / 4];
    __m512 scale[STEP_MAX_GROUPS], min[STEP_MAX_GROUPS];
};

typedef void panel_fn(const struct rows *r, struct panel *to);

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

INLINE __m512i low4(__m512i v)
{
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

INLINE __m512i high4(__m512i v)
{
    return low4(_mm512_srli_epi32(v, 4));
}

/* Eight f16 of each row, in the lower half of `of`, to eight registers. */
INLINE void spread_f16(const __m128i of[ROWS], __m512 to[8])
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
        to[2 * i] = _mm512_cvtph_ps(_mm512_castsi512_si256(v));
        to[2 * i + 1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1));
    }
}

/* d of eight blocks of 18 bytes, see pick_d18. */
INLINE void scales_of_18(const struct rows *r, struct panel *to)
{
    const __m512i words =
        _mm512_castsi256_si512(_mm256_setr_epi16(0, 9, 18, 27, 36, 45, 54, 63, 0, 0, 0, 0, 0, 0, 0, 0));
    __m128i d[ROWS];
    UNROLL for (int i = 0; i < ROWS; i++) d[i] = _mm512_castsi512_si128(
        _mm512_permutex2var_epi16(_mm512_loadu_si512(r->w[i]), words, _mm512_loadu_si512(r->w[i] + 64)));
    spread_f16(d, to->scale);
}

/* ---- types: a panel of each ---- */

INLINE void nibbles_of_18(const struct rows *r, struct panel *to)
{
    for (int b = 0; b < 8; b++) {
        __m512i packed[4], *q = to->q + 8 * b;
        columns(r, (size_t)b * sizeof(struct block_q4_0) + 2, packed);
        UNROLL for (int j = 0; j < 4; j++)
        {
            q[j] = low4(packed[j]);
            q[4 + j] = high4(packed[j]);
        }
    }
}

static TARGET void panel_q4_0(const struct rows *r, struct panel *to)
{
    scales_of_18(r, to);
    nibbles_of_18(r, to);
}

static TARGET void panel_iq4_nl(const struct rows *r, struct panel *to)
{
    scales_of_18(r, to);
    nibbles_of_18(r, to);
    for (int j = 0; j < STEP / 4; j++)
        to->q[j] = look_up(quant_codes_nl, to->q[j]);
}

static TARGET void panel_q8_0(const struct rows *r, struct panel *to)
{
    __m128i d[ROWS];
    for (int i = 0; i < ROWS; i++) {
        uint16_t of[8];
        for (size_t b = 0; b < 8; b++)
            of[b] = load_u16(r->w[i] + b * sizeof(struct block_q8_0));
        memcpy(&d[i], of, sizeof of);
    }
    spread_f16(d, to->scale);
    for (size_t b = 0; b < 16; b++) {
        __m512i *q = to->q + 4 * b;
        columns(r, b / 2 * sizeof(struct block_q8_0) + 2 + b % 2 * 16, q);
        UNROLL for (int j = 0; j < 4; j++) q[j] = _mm512_xor_si512(q[j], _mm512_set1_epi8((char)0x80));
    }
}

/* The block's first 16 bytes: d, dmin, scales and mins as q4_k_scales has them. */
INLINE void k_scales(const struct rows *r, struct panel *to)
{
    const __m512i six = _mm512_set1_epi8(0x3f), two = _mm512_set1_epi8(0x30), byte = _mm512_set1_epi32(0xff);
    __m512i word[4];
    columns(r, 0, word);
    __m512 d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(word[0]));
    __m512 dmin = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(word[0], 16)));
    dmin = _mm512_sub_ps(_mm512_setzero_ps(), dmin);
    __m512i a = word[1], b = word[2], c = word[3];
    __m512i scale[2] = {_mm512_and_si512(a, six),
                        _mm512_or_si512(low4(c), _mm512_and_si512(_mm512_srli_epi32(a, 2), two))};
    __m512i min[2] = {_mm512_and_si512(b, six),
                      _mm512_or_si512(high4(c), _mm512_and_si512(_mm512_srli_epi32(b, 2), two))};
    UNROLL for (int g = 0; g < 8; g++)
    {
        __m512i s = _mm512_and_si512(_mm512_srli_epi32(scale[g / 4], (unsigned)(g % 4 * 8)), byte);
        __m512i m = _mm512_and_si512(_mm512_srli_epi32(min[g / 4], (unsigned)(g % 4 * 8)), byte);
        to->scale[g] = _mm512_mul_ps(_mm512_cvtepi32_ps(s), d);
        to->min[g] = _mm512_mul_ps(_mm512_cvtepi32_ps(m), dmin);
    }
}

/* 128 bytes of split nibbles, 32 bytes to 64 elements. */
INLINE void k_nibbles(const struct rows *r, size_t at, struct panel *to)
{
    for (size_t i = 0; i < 4; i++)
        for (size_t b = 0; b < 2; b++) {
            __m512i packed[4], *q = to->q + 16 * i + 4 * b;
            columns(r, at + 32 * i + 16 * b, packed);
            UNROLL for (int j = 0; j < 4; j++)
            {
                q[j] = low4(packed[j]);
                q[8 + j] = high4(packed[j]);
            }
        }
}

static TARGET void panel_q4_k(const struct rows *r, struct panel *to)
{
    k_scales(r, to);
    k_nibbles(r, offsetof(struct block_q4_k, qs), to);
}

static TARGET void panel_q5_k(const struct rows *r, struct panel *to)
{
    const __m512i fifth = _mm512_set1_epi8(16);
    k_scales(r, to);
    k_nibbles(r, offsetof(struct block_q5_k, qs), to);
    for (size_t b = 0; b < 2; b++) {
        __m512i bits[4], *q = to->q + 4 * b;
        columns(r, offsetof(struct block_q5_k, qh) + 16 * b, bits);
        UNROLL for (int j = 0; j < 4; j++) UNROLL for (int g = 0; g < 8; g++)
        {
            __m512i bit = g < 4 ? _mm512_slli_epi32(bits[j], (unsigned)(4 - g))
                                : _mm512_srli_epi32(bits[j], (unsigned)(g - 4));
            q[8 * g + j] = _mm512_ternarylogic_epi32(q[8 * g + j], bit, fifth, 0xf8); /* a | (b & c) */
        }
    }
}

static TARGET void panel_q6_k(const struct rows *r, struct panel *to)
{
    const __m512i upper = _mm512_set1_epi8(0x30);
    __m512i word[4], end[4];
    columns(r, offsetof(struct block_q6_k, scales), word);
    columns(r, sizeof(struct block_q6_k) - 16, end); /* d is in the last two bytes */
    __m512 d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(end[3], 16)));
    UNROLL for (int g = 0; g < 16; g++)
    {
        __m512i s = _mm512_slli_epi32(word[g / 4], (unsigned)(24 - g % 4 * 8));
        to->scale[g] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(s, 24)), d);
    }
    for (size_t half = 0; half < 2; half++)
        for (size_t b = 0; b < 2; b++) { /* 16 bytes of qh: elements 16 b + 32 pair */
            __m512i h[4], l[2][4], *q = to->q + 32 * half + 4 * b;
            columns(r, offsetof(struct block_q6_k, qh) + 32 * half + 16 * b, h);
            columns(r, 64 * half + 16 * b, l[0]);
            columns(r, 64 * half + 16 * b + 32, l[1]);
            UNROLL for (int j = 0; j < 4; j++)
            {
                const __m512i pair[4] = {_mm512_slli_epi32(h[j], 4), _mm512_slli_epi32(h[j], 2), h[j],
                                         _mm512_srli_epi32(h[j], 2)};
                const __m512i low[4] = {low4(l[0][j]), low4(l[1][j]), high4(l[0][j]), high4(l[1][j])};
                UNROLL for (int i = 0; i < 4; i++) q[8 * i + j] =
                    _mm512_ternarylogic_epi32(low[i], pair[i], upper, 0xf8); /* a | (b & c) */
            }
        }
}

/* Types without a way of their own: row by row, in the order of the columns. */
INLINE void panel_by_rows(const struct rows *r, unpack_fn *unpack, bool min, struct panel *to)
{
    __m512i q[ROWS][4];
    struct rows unpacked;
    struct step s;
    for (int n = 0; n < ROWS; n++) {
        unpack(r->w[n], &s);
        UNROLL for (int i = 0; i < 4; i++) q[n][i] = s.q[i];
        to->scale[n] = s.scale;
        if (min)
            to->min[n] = s.min;
        unpacked.w[n] = (const uint8_t *)q[n];
    }
    transpose((__m512i *)to->scale);
    if (min)
        transpose((__m512i *)to->min);
    for (size_t i = 0; i < STEP / 16; i++)
        columns(&unpacked, 16 * i, to->q + 4 * i);
}

#define PANEL(name, min)                                                                                     \
    static TARGET void panel_##name(const struct rows *r, struct panel *to)                                  \
    {                                                                                                        \
        panel_by_rows(r, unpack_##name, min, to);                                                            \
    }
PANEL(q4_1, true)
PANEL(q5_0, false)
PANEL(q5_1, true)
PANEL(q2_k, true)
PANEL(q3_k, false)
PANEL(iq4_xs, false)
PANEL(mxfp4, false)

/* ---- multiplying ---- */

/* What the multiplying loops need to know of a type. Types with the same kind share them. */
struct kind {
    int group;
    enum rounding rounding;
    bool zero, min; /* whether there is one */
};

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
        const struct kind k = {group, rounding, zero, min};                                                  \
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
    panel_fn *fill;
    multiply_fn *const *multiply; /* by rows of x */
    size_t step_bytes;
    int zero;
    size_t groups;
    enum rounding rounding;
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

/* The rows of the next panel, as far as they follow these. */
static TARGET void prefetch(const struct product *p, const struct type *t, const struct rows *r)
{
    for (size_t n = 0; n < ROWS; n++)
        for (size_t line = 0; line < t->step_bytes; line += 64)
            _mm_prefetch((const char *)r->w[n] + ROWS * p->row_bytes + line, _MM_HINT_T1);
}

static TARGET void multiply_all(const struct product *p, const struct type *t, const struct panel *w,
                                size_t step, __m512 *sum)
{
    const struct rounded *x = p->x;
    size_t n_d = t->rounding == ROUND_32 ? STEP_GROUPS : 1, n_less = less_groups(t->rounding);
    const float *s = t->groups == STEP_GROUPS ? x->s : x->s16;
    for (size_t i = 0; i < p->m; i += MAX_X) {
        size_t at = i * x->steps + step, n = p->m - i < MAX_X ? p->m - i : MAX_X;
        struct x_rows rows = {.q = x->q + at * STEP,
                              .d = x->d + at * n_d,
                              .s = s + at * t->groups,
                              .less = x->less + at * n_less,
                              .q_row = x->steps * STEP,
                              .d_row = x->steps * n_d,
                              .s_row = x->steps * t->groups,
                              .less_row = x->steps * n_less,
                              .zero_shift =
                                  _mm_cvtsi32_si128(t->zero ? __builtin_ctz((unsigned)t->zero) : 0)};
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
                for (size_t n = 0; n < ROWS; n++)
                    r.w[n] = tail[n];
            else
                prefetch(p, t, &r);
            t->fill(&r, &w);
            multiply_all(p, t, &w, step, sum);
            for (size_t n = 0; n < ROWS; n++)
                r.w[n] += t->step_bytes;
        }
        size_t rows = p->last - first < ROWS ? p->last - first : ROWS;
        __mmask16 mask = (__mmask16)((1u << rows) - 1);
        for (size_t i = 0; i < p->m; i++)
            _mm512_mask_storeu_ps(p->y + i * p->stride + first, mask, sum[i]);
    }
}

#define TILE(TYPE, name, zero, group, rounding, has_zero, min)                                               \
    TARGET void avx512_tile_##TYPE(const struct product *p)                                                  \
    {                                                                                                        \
        const struct type t = {panel_##name,     KIND_NAME(group, rounding, has_zero, min),                  \
                               STEP_BYTES(TYPE), zero,                                                       \
                               STEP / group,     rounding};                                                  \
        tile(p, &t);                                                                                         \
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
