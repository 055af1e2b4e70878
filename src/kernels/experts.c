/* Mixtures of experts: pairs sorted by expert, then the phases of experts.h. An expert's products are row
 * ranges of the stacked tensors, so that the kernels of linear.h need not know of experts. */
#include "kernels/experts.h"

#include "base/mem.h"

#include <string.h>

/* Values of gate and up that a piece keeps in the cache between the products and the activation. */
enum { CACHED = 1 << 14, FEW = 4 };

/* ---- the scratch ---- */

struct layout {
    size_t at;
    bool overflow;
};

static size_t take(struct layout *l, size_t n, size_t size)
{
    size_t start = l->at, bytes;
    l->overflow |= __builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 4 ||
                   __builtin_add_overflow(start, align_up(bytes, 64), &l->at);
    return start;
}

/* A part of the scratch for several rows in one rounding is never larger than so many of one row: experts
 * find theirs by the place of their first pair. */
static size_t lay_out(struct experts_run *r, uint8_t *p)
{
    const struct experts *e = r->e;
    struct layout l = {0};
    size_t pairs = r->m * r->k;
    l.overflow = r->k != 0 && r->m > UINT32_MAX / r->k;
    size_t active = take(&l, e->n, sizeof *r->active), begin = take(&l, (size_t)e->n + 1, sizeof *r->begin);
    size_t row = take(&l, pairs, sizeof *r->row), expert = take(&l, pairs, sizeof *r->expert);
    size_t place = take(&l, pairs, sizeof *r->place);
    size_t rounded = take(&l, 1, linear_scratch_size(&e->gate_up, r->m));
    size_t gathered = take(&l, r->m == 1 ? 0 : pairs, linear_scratch_size(&e->gate_up, 1));
    size_t mid = take(&l, pairs, linear_scratch_size(&e->down, 1));
    size_t gate = take(&l, pairs, e->ff * sizeof(float)), up = take(&l, pairs, e->ff * sizeof(float));
    size_t down = take(&l, pairs, e->cols * sizeof(float));
    if (p) {
        r->active = (uint32_t *)(void *)(p + active);
        r->begin = (uint32_t *)(void *)(p + begin);
        r->row = (uint32_t *)(void *)(p + row);
        r->expert = (uint32_t *)(void *)(p + expert);
        r->place = (uint32_t *)(void *)(p + place);
        r->rounded = p + rounded;
        r->gathered = p + gathered;
        r->mid = p + mid;
        r->gate = (float *)(void *)(p + gate);
        r->up = (float *)(void *)(p + up);
        r->down = (float *)(void *)(p + down);
    }
    return l.overflow ? 0 : l.at;
}

size_t experts_scratch_size(const struct experts *e, size_t m, size_t k)
{
    struct experts_run r = {.e = e, .m = m, .k = k};
    return lay_out(&r, NULL);
}

/* ---- sorting ---- */

static int sort_pairs(struct experts_run *r, const int32_t *ids)
{
    size_t pairs = r->m * r->k;
    memset(r->begin, 0, ((size_t)r->e->n + 1) * sizeof *r->begin);
    for (size_t i = 0; i < pairs; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= r->e->n)
            return -1;
        r->begin[ids[i] + 1]++;
    }
    r->n_active = 0;
    for (uint32_t i = 0; i < r->e->n; i++) {
        if (r->begin[i + 1])
            r->active[r->n_active++] = i;
        r->begin[i + 1] += r->begin[i];
    }
    /* begin[i] moves through expert i's places and ends where the next begins. */
    for (size_t i = 0; i < pairs; i++) {
        uint32_t at = r->begin[ids[i]]++;
        r->row[at] = (uint32_t)(i / r->k);
        r->expert[at] = (uint32_t)ids[i];
        r->place[i] = at;
    }
    memmove(r->begin + 1, r->begin, r->e->n * sizeof *r->begin);
    r->begin[0] = 0;
    return 0;
}

static size_t steps_of(size_t rows)
{
    return (rows + linear_step() - 1) / linear_step();
}

/* Steps of rows in a piece. With few rows of x memory is what one waits for, and long pieces keep its
 * prefetchers going; with many, short ones keep an unlucky thread from being waited for. */
static size_t width_of(const struct experts_run *r, size_t rows, size_t n_threads)
{
    size_t pieces = n_threads * (r->m <= FEW ? 2 : 8), steps = steps_of(rows);
    size_t width = (r->n_active * steps + pieces - 1) / pieces;
    return width > steps ? steps : width ? width : 1;
}

int experts_begin(struct experts_run *r, const struct experts *e, size_t m, size_t k, const float *x,
                  const int32_t *ids, const float *weights, float *y, void *scratch, size_t n_threads)
{
    *r = (struct experts_run){.e = e, .m = m, .k = k, .x = x, .weights = weights, .y = y};
    lay_out(r, scratch);
    if (sort_pairs(r, ids) < 0)
        return -1;
    r->width[0] = width_of(r, e->ff, n_threads);
    r->width[1] = width_of(r, e->cols, n_threads);
    return 0;
}

/* ---- phases ---- */

static size_t rows_of(const struct experts_run *r, uint32_t expert)
{
    return r->begin[expert + 1] - r->begin[expert];
}

static void round_x(const struct experts_run *r, size_t first, size_t last)
{
    linear_quantize(&r->e->gate_up, r->m, r->x, first, last, r->rounded);
}

static uint8_t *gathered(const struct experts_run *r, uint32_t expert)
{
    /* A single row is the same for all its experts. */
    return r->m == 1 ? r->rounded : r->gathered + r->begin[expert] * linear_scratch_size(&r->e->gate_up, 1);
}

static void gather(const struct experts_run *r, size_t first, size_t last)
{
    for (size_t i = first; i < last; i++) {
        uint32_t e = r->expert[i];
        linear_copy_row(&r->e->gate_up, r->m, r->rounded, r->row[i], rows_of(r, e), gathered(r, e),
                        i - r->begin[e]);
    }
}

static void apply(const struct experts_after *a, uint32_t expert, size_t rows, size_t at, float *y, size_t n)
{
    if (a->scale) {
        float scale = a->scale[expert];
        for (size_t i = 0; i < n; i++)
            y[i] *= scale;
    }
    if (a->bias) {
        const float *bias = a->bias + expert * rows + at;
        for (size_t i = 0; i < n; i++)
            y[i] += bias[i];
    }
}

/* Rows [first, last) of an expert's gate and up, for all its rows of x, a few at a time. */
static void gate_up(const struct experts_run *r, uint32_t expert, size_t first, size_t last)
{
    const struct experts *e = r->e;
    size_t m = rows_of(r, expert), step = linear_step(), width = CACHED / m / step * step, ff = e->ff;
    const uint8_t *x = gathered(r, expert);
    size_t gate_at = expert * (e->fused ? 2 * ff : ff), up_at = e->fused ? gate_at + ff : e->n * ff + gate_at;
    float *gate = r->gate + r->begin[expert] * ff, *up = r->up + r->begin[expert] * ff;
    if (width == 0)
        width = step;
    for (size_t at = first; at < last; at += width) {
        size_t n = last - at < width ? last - at : width;
        linear_multiply_to(&e->gate_up, m, x, gate_at + at, gate_at + at + n, gate + at, ff);
        if (!e->single)
            linear_multiply_to(&e->gate_up, m, x, up_at + at, up_at + at + n, up + at, ff);
        for (size_t i = 0; i < m; i++) {
            float *g = gate + i * ff + at, *u = up + i * ff + at;
            apply(e->single ? &e->after_up : &e->after_gate, expert, ff, at, g, n);
            if (!e->single)
                apply(&e->after_up, expert, ff, at, u, n);
            gate_rows(e->act, g, e->single ? g : u, g, n);
        }
    }
}

static uint8_t *middle(const struct experts_run *r, uint32_t expert)
{
    return r->mid + r->begin[expert] * linear_scratch_size(&r->e->down, 1);
}

static void round_ff(const struct experts_run *r, size_t first, size_t last)
{
    for (size_t i = first; i < last; i++) {
        uint32_t e = r->expert[i];
        size_t begin = r->begin[e];
        linear_quantize(&r->e->down, rows_of(r, e), r->gate + begin * r->e->ff, i - begin, i - begin + 1,
                        middle(r, e));
    }
}

static void down(const struct experts_run *r, uint32_t expert, size_t first, size_t last)
{
    const struct experts *e = r->e;
    size_t m = rows_of(r, expert), at = expert * e->cols;
    float *y = r->down + r->begin[expert] * e->cols + first;
    linear_multiply_to(&e->down, m, middle(r, expert), at + first, at + last, y, e->cols);
    for (size_t i = 0; i < m; i++)
        apply(&e->after_down, expert, e->cols, first, y + i * e->cols, last - first);
}

static void sum(const struct experts_run *r, size_t first, size_t last)
{
    size_t n = r->e->cols;
    for (size_t row = first; row < last; row++) {
        float *y = r->y + row * n;
        for (size_t j = 0; j < r->k; j++) {
            float weight = r->weights[row * r->k + j];
            const float *part = r->down + r->place[row * r->k + j] * n;
            if (j == 0) {
                for (size_t i = 0; i < n; i++)
                    y[i] = weight * part[i];
            } else {
                for (size_t i = 0; i < n; i++)
                    y[i] += weight * part[i];
            }
        }
    }
}

/* A product's pieces: ranges of the rows of the first active expert, then of the second, … */
static size_t ranges(const struct experts_run *r, bool is_down)
{
    size_t steps = steps_of(is_down ? r->e->cols : r->e->ff), width = r->width[is_down];
    return (steps + width - 1) / width;
}

static void product(const struct experts_run *r, bool is_down, size_t first, size_t last)
{
    size_t each = ranges(r, is_down), width = r->width[is_down] * linear_step();
    size_t rows = is_down ? r->e->cols : r->e->ff;
    for (size_t i = first; i < last; i++) {
        size_t from = i % each * width, to = from + width < rows ? from + width : rows;
        (is_down ? down : gate_up)(r, r->active[i / each], from, to);
    }
}

size_t experts_pieces(const struct experts_run *r, enum experts_phase phase)
{
    switch (phase) {
    case EXPERTS_ROUND:
    case EXPERTS_SUM:
        return r->m;
    case EXPERTS_GATHER:
        return r->m == 1 ? 0 : r->m * r->k;
    case EXPERTS_ROUND_FF:
        return r->m * r->k;
    case EXPERTS_GATE_UP:
    case EXPERTS_DOWN:
        return r->n_active * ranges(r, phase == EXPERTS_DOWN);
    default:
        return 0;
    }
}

size_t experts_grain(enum experts_phase phase)
{
    static const size_t grains[] = {
        [EXPERTS_ROUND] = FEW,        [EXPERTS_GATHER] = 8 * FEW, [EXPERTS_GATE_UP] = 1,
        [EXPERTS_ROUND_FF] = 4 * FEW, [EXPERTS_DOWN] = 1,         [EXPERTS_SUM] = FEW,
    };
    return grains[phase];
}

void experts_do(const struct experts_run *r, enum experts_phase phase, size_t first, size_t last)
{
    switch (phase) {
    case EXPERTS_ROUND:
        round_x(r, first, last);
        break;
    case EXPERTS_GATHER:
        gather(r, first, last);
        break;
    case EXPERTS_GATE_UP:
    case EXPERTS_DOWN:
        product(r, phase == EXPERTS_DOWN, first, last);
        break;
    case EXPERTS_ROUND_FF:
        round_ff(r, first, last);
        break;
    case EXPERTS_SUM:
        sum(r, first, last);
        break;
    default:
        break;
    }
}
