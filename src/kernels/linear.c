/* Which kernels run, how the scratch is laid out, and which part a row belongs to. */
#include "kernels/linear.h"
#include "base/mem.h"
#include "kernels/rows.h"

static const struct {
    enum rounding rounding;
    uint32_t block, bytes;
    bool known;
} types[LINEAR_N_TYPES] = {
#define X(TYPE, name, zero, group, rounding, min)                                                            \
    [GGML_##TYPE] = {rounding, BLOCK_##TYPE, BYTES_##TYPE, true},
    LINEAR_TYPES(X)
#undef X
};

static const struct linear_kernels *const levels[LINEAR_N_ISA] = {
    [LINEAR_PORTABLE] = &linear_portable,
#if defined(__x86_64__)
    [LINEAR_AVX2] = &linear_avx2,
    [LINEAR_AVX512] = &linear_avx512,
#endif
};

/* -1: not chosen yet. Threads that choose at the same time choose the same. */
static int chosen = -1;

bool linear_supports(uint32_t ggml_type)
{
    return ggml_type < LINEAR_N_TYPES && types[ggml_type].known;
}

bool linear_has_isa(enum linear_isa isa)
{
    if (isa == LINEAR_PORTABLE)
        return true;
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == LINEAR_AVX2)
        return avx2;
    if (isa == LINEAR_AVX512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni");
#endif
    return false;
}

enum linear_isa linear_isa(void)
{
    int isa = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (isa >= 0)
        return (enum linear_isa)isa;
    isa = LINEAR_N_ISA - 1;
    while (!linear_has_isa((enum linear_isa)isa))
        isa--;
    __atomic_store_n(&chosen, isa, __ATOMIC_RELAXED);
    return (enum linear_isa)isa;
}

void linear_set_isa(enum linear_isa isa)
{
    __atomic_store_n(&chosen, (int)isa, __ATOMIC_RELAXED);
}

size_t linear_step(void)
{
    return levels[linear_isa()]->step;
}

/* Divides the scratch among the roundings that the parts need, and says where it ends. */
static size_t lay_out(const struct linear *l, size_t m, uint8_t *scratch, struct rounded x[N_ROUNDINGS])
{
    const struct linear_kernels *kernels = levels[linear_isa()];
    bool used[N_ROUNDINGS] = {false};
    size_t at = 0, steps = (size_t)(l->cols + STEP - 1) / STEP;
    for (int i = 0; i < l->n_parts; i++)
        used[types[l->part[i].type].rounding] = true;
    memset(x, 0, N_ROUNDINGS * sizeof *x);
    for (int r = 0; r < N_ROUNDINGS; r++) {
        if (!used[r])
            continue;
        /* Offsets first: a size may be asked for without a scratch. */
        size_t q = at, d = q + m * steps * STEP;
        size_t s = d + align_up(m * steps * sizeof(float) * (r == ROUND_32 ? STEP_GROUPS : 1), 64);
        size_t s16 = s + align_up(m * steps * sizeof(float) * STEP_GROUPS, 64);
        size_t less = s16 + (r == ROUND_256 ? m * steps * sizeof(float) * STEP_MAX_GROUPS : 0);
        at = less + align_up(m * steps * sizeof(int32_t) * less_groups((enum rounding)r), 64);
        if (scratch)
            x[r] = (struct rounded){.steps = steps,
                                    .q = scratch + q,
                                    .d = (float *)(void *)(scratch + d),
                                    .s = (float *)(void *)(scratch + s),
                                    .s16 = (float *)(void *)(scratch + s16),
                                    .less = (int32_t *)(void *)(scratch + less),
                                    .biased = kernels->biased && m > kernels->max_few};
    }
    return at;
}

size_t linear_scratch_size(const struct linear *l, size_t m)
{
    struct rounded x[N_ROUNDINGS];
    return lay_out(l, m, NULL, x);
}

void linear_quantize(const struct linear *l, size_t m, const float *x, size_t first, size_t last,
                     void *scratch)
{
    const struct linear_kernels *kernels = levels[linear_isa()];
    struct rounded to[N_ROUNDINGS];
    lay_out(l, m, scratch, to);
    for (int r = 0; r < N_ROUNDINGS; r++)
        for (size_t i = first; to[r].q && i < last; i++)
            kernels->round[r](x + i * l->cols, l->cols, &to[r], i);
}

static void copy_part(void *to, size_t j, const void *from, size_t i, size_t bytes)
{
    memcpy((uint8_t *)to + j * bytes, (const uint8_t *)from + i * bytes, bytes);
}

void linear_copy_row(const struct linear *l, size_t m, const void *from, size_t i, size_t n, void *to,
                     size_t j)
{
    struct rounded x[N_ROUNDINGS], y[N_ROUNDINGS];
    lay_out(l, m, (uint8_t *)(uintptr_t)from, x);
    lay_out(l, n, to, y);
    for (int r = 0; r < N_ROUNDINGS; r++) {
        if (!x[r].q)
            continue;
        size_t steps = x[r].steps, bytes = steps * STEP;
        const uint8_t *q = x[r].q + i * bytes;
        if (x[r].biased == y[r].biased) {
            copy_part(y[r].q, j, x[r].q, i, bytes);
        } else {
            for (size_t b = 0; b < bytes; b++)
                y[r].q[j * bytes + b] = q[b] ^ 0x80; /* int8 to that + 128, or back */
        }
        copy_part(y[r].d, j, x[r].d, i, steps * sizeof(float) * (r == ROUND_32 ? STEP_GROUPS : 1));
        copy_part(y[r].s, j, x[r].s, i, steps * sizeof(float) * STEP_GROUPS);
        copy_part(y[r].less, j, x[r].less, i, steps * sizeof(int32_t) * less_groups((enum rounding)r));
        if (r == ROUND_256)
            copy_part(y[r].s16, j, x[r].s16, i, steps * sizeof(float) * STEP_MAX_GROUPS);
    }
}

void linear_multiply(const struct linear *l, size_t m, const void *scratch, size_t first, size_t last,
                     float *y)
{
    linear_multiply_to(l, m, scratch, first, last, y + first, l->rows);
}

void linear_multiply_to(const struct linear *l, size_t m, const void *scratch, size_t first, size_t last,
                        float *y, size_t stride)
{
    const struct linear_kernels *kernels = levels[linear_isa()];
    struct rounded x[N_ROUNDINGS];
    lay_out(l, m, (uint8_t *)(uintptr_t)scratch, x);
    size_t part_first = 0;
    for (int i = 0; i < l->n_parts; part_first += l->part[i].rows, i++) {
        const struct linear_part *part = &l->part[i];
        size_t from = first > part_first ? first - part_first : 0;
        size_t to = last > part_first ? last - part_first : 0;
        if (to > part->rows)
            to = part->rows;
        if (from >= to)
            continue;
        struct product p = {.data = part->data,
                            .row_map = part->row_map,
                            .cols = l->cols,
                            .row_bytes = l->cols / types[part->type].block * types[part->type].bytes,
                            .first = from,
                            .last = to,
                            .x = &x[types[part->type].rounding],
                            .m = m,
                            .y = y + ((ptrdiff_t)part_first - (ptrdiff_t)first),
                            .stride = stride};
        (m <= kernels->max_few ? kernels->few : kernels->many)[part->type](&p);
    }
}
