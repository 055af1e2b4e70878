/* Many rows of x: a panel of W, 32 rows by 256 columns, is unpacked once into the order that the
 * multiplying loop reads, [k / 4][row][4 bytes], and then meets every row of x, six at a time: 12 sums in
 * registers, two loads of W and six broadcast loads of x for each 12 multiplications.
 *
 * Bytes of W are signed here and bytes of x biased by 128. What that adds to a sum depends on W alone;
 * `start` takes it off beforehand. The panel and a few rows of x stay in the first-level cache. */
#include "kernels/rows.h"

#if defined(__x86_64__)
#include "kernels/avx512.h"

enum { ROWS = 32, LANES = 16, MAX_X = 6 };

/* One step of 32 rows; the second index is for 16 rows each. */
struct panel {
    __m512i q[STEP / 4][2];
    __m512i start[STEP_MAX_GROUPS][2];
    __m512 scale[STEP_MAX_GROUPS][2], min[STEP_MAX_GROUPS][2];
};

/* What the multiplying loops need to know of a type. Types with the same kind share them. */
struct kind {
    int group;
    enum rounding rounding;
    bool min;
};

typedef void multiply_fn(const struct product *p, const struct panel *w, size_t step, size_t first);

/* Row by row, in the order of the columns. */
struct unpacked {
    __m512i q[4][LANES];
    __m512 scale[LANES], min[LANES];
};

INLINE void unpack_row(unpack_fn *unpack, int zero, const uint8_t *from, size_t row, struct unpacked *to)
{
    struct step s;
    s.min = _mm512_setzero_ps();
    unpack(from, &s);
    for (int i = 0; i < 4; i++)
        to->q[i][row] = _mm512_sub_epi8(s.q[i], _mm512_set1_epi8((char)zero));
    to->scale[row] = s.scale;
    to->min[row] = s.min;
}

typedef void unpack_row_fn(const uint8_t *from, size_t row, struct unpacked *to);

static TARGET void transpose_groups(__m512 rows[LANES], int groups, __m512 to[][2], int half)
{
    transpose((__m512i *)rows);
    for (int g = 0; g < groups; g++)
        to[g][half] = rows[g];
}

/* Half a panel out of 16 unpacked rows. */
static TARGET void fill_half(struct unpacked *from, int group, struct panel *to, int half)
{
    for (int i = 0; i < 4; i++) {
        transpose(from->q[i]);
        for (int j = 0; j < LANES; j++)
            to->q[LANES * i + j][half] = from->q[i][j];
    }
    int groups = STEP / group, quads = group / 4;
    transpose_groups(from->scale, groups, to->scale, half);
    transpose_groups(from->min, groups, to->min, half);
    const __m512i bias = _mm512_set1_epi8((char)128);
    for (int g = 0; g < groups; g++) {
        __m512i sum = _mm512_setzero_si512();
        for (int j = 0; j < quads; j++)
            sum = _mm512_dpbusd_epi32(sum, bias, to->q[g * quads + j][half]);
        to->start[g][half] = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
    }
}

/* Step `step` of 32 rows from row `first` on; the last row stands in for those behind the range. */
static TARGET void fill(const struct product *p, unpack_row_fn *unpack, size_t step_bytes, int group,
                        size_t first, size_t step, struct panel *to)
{
    struct unpacked rows;
    uint8_t tail[STEP_MAX_BYTES];
    for (int half = 0; half < 2; half++) {
        for (size_t r = 0; r < LANES; r++) {
            size_t n = first + (size_t)half * LANES + r;
            const uint8_t *row = product_row(p, n < p->last ? n : p->last - 1),
                          *from = row + step * step_bytes;
            if (step == p->cols / STEP) {
                product_tail(p, row, step_bytes, tail);
                from = tail;
            }
            /* Two steps ahead; the hardware does not follow 32 streams. */
            for (size_t line = 0; line < step_bytes; line += 64)
                _mm_prefetch((const char *)row + (step + 2) * step_bytes + line, _MM_HINT_T1);
            unpack(from, r, &rows);
        }
        fill_half(&rows, group, to, half);
    }
}

/* Where a tile's sums go: 32 columns of y, some of them missing at the end of a range. */
struct target {
    float *y;
    size_t stride;
    __mmask16 mask[2];
};

/* What y has so far. */
INLINE void load_y(const struct target *to, int n_x, __m512 y[MAX_X][2], bool first)
{
    for (int i = 0; i < n_x; i++)
        for (int h = 0; h < 2; h++)
            y[i][h] = first ? _mm512_setzero_ps()
                            : _mm512_maskz_loadu_ps(to->mask[h], to->y + (size_t)i * to->stride + h * LANES);
}

INLINE void store_y(const struct target *to, int n_x, __m512 y[MAX_X][2])
{
    for (int i = 0; i < n_x; i++)
        for (int h = 0; h < 2; h++)
            _mm512_mask_storeu_ps(to->y + (size_t)i * to->stride + h * LANES, to->mask[h], y[i][h]);
}

INLINE __m512i broadcast4(const uint8_t *p)
{
    return _mm512_set1_epi32((int)load_u32(p));
}

/* n_x rows of x from row i on times a panel, which is step `step`, added to y in the order of avx512_tile.c.
 */
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
    }
    __m512 y[MAX_X][2];
    load_y(to, n_x, y, step == 0);
    for (int c = 0; c < n_x; c++)
        for (int h = 0; h < 2; h++) {
            __m512 one = _mm512_set1_ps(k->rounding == ROUND_32 ? 1 : d[(size_t)c * d_row]);
            y[c][h] = _mm512_fmadd_ps(sum[c][h], one, y[c][h]);
        }
    for (size_t g = 0; k->min && g < groups; g++)
        for (int c = 0; c < n_x; c++)
            for (int h = 0; h < 2; h++)
                y[c][h] = _mm512_fmadd_ps(w->min[g][h], _mm512_set1_ps(s[(size_t)c * s_row + g]), y[c][h]);
    store_y(to, n_x, y);
}

/* All rows of x times a panel: step `step` of 32 rows of W from row `first` on. */
INLINE void multiply_all(const struct product *p, const struct kind *k, const struct panel *w, size_t step,
                         size_t first)
{
    size_t rows = p->last - first < ROWS ? p->last - first : ROWS;
    uint32_t mask = (uint32_t)((1ull << rows) - 1);
    struct target to = {.stride = p->stride, .mask = {(__mmask16)mask, (__mmask16)(mask >> LANES)}};
    size_t most = (size_t)(STEP / k->group), groups = (p->cols - step * STEP) / (size_t)k->group;
    if (groups > most)
        groups = most;
    for (size_t i = 0; i < p->m;) {
        size_t left = p->m - i;
        to.y = p->y + i * p->stride + first;
        if (left >= 6)
            multiply(p->x, k, w, i, 6, step, groups, &to), i += 6;
        else if (left >= 4)
            multiply(p->x, k, w, i, 4, step, groups, &to), i += 4;
        else if (left >= 2)
            multiply(p->x, k, w, i, 2, step, groups, &to), i += 2;
        else
            multiply(p->x, k, w, i, 1, step, groups, &to), i += 1;
    }
}

#define MULTIPLY_NAME(group, rounding, min) multiply_##group##_##rounding##_##min
#define MULTIPLY(group, rounding, min)                                                                       \
    static TARGET void MULTIPLY_NAME(group, rounding, min)(const struct product *p, const struct panel *w,   \
                                                           size_t step, size_t first)                        \
    {                                                                                                        \
        const struct kind k = {group, rounding, min};                                                        \
        multiply_all(p, &k, w, step, first);                                                                 \
    }
MULTIPLY(32, ROUND_32, 0)
MULTIPLY(32, ROUND_32, 1)
MULTIPLY(32, ROUND_256, 0)
MULTIPLY(32, ROUND_256, 1)
MULTIPLY(16, ROUND_256, 0)
MULTIPLY(16, ROUND_256, 1)

static TARGET void many(const struct product *p, unpack_row_fn *unpack, size_t step_bytes, int group,
                        multiply_fn *multiply_panel)
{
    struct panel w;
    for (size_t n = p->first; n < p->last; n += ROWS)
        for (size_t step = 0; step < p->x->steps; step++) {
            fill(p, unpack, step_bytes, group, n, step, &w);
            multiply_panel(p, &w, step, n);
        }
}

#define X(TYPE, name, zero, group, rounding, min)                                                            \
    static TARGET void unpack_row_##name(const uint8_t *from, size_t row, struct unpacked *to)               \
    {                                                                                                        \
        unpack_row(unpack_##name, zero, from, row, to);                                                      \
    }                                                                                                        \
    static TARGET void many_##name(const struct product *p)                                                  \
    {                                                                                                        \
        many(p, unpack_row_##name, STEP_BYTES(TYPE), group, MULTIPLY_NAME(group, rounding, min));            \
    }
LINEAR_TYPES(X)
#undef X

const struct linear_kernels linear_avx512 = {
    .max_few = AVX512_MAX_FEW,
    .step = ROWS,
    .biased = true,
    .round = {avx512_round_32, avx512_round_256},
#define X(TYPE, ...) [GGML_##TYPE] = avx512_few_##TYPE,
    .few = {LINEAR_TYPES(X)},
#undef X
#define X(TYPE, name, ...) [GGML_##TYPE] = many_##name,
    .many = {LINEAR_TYPES(X)},
#undef X
};
#endif
