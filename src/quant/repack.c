/* Which kernel, which rows, which threads. */
#include "quant/repack.h"

#include "base/par.h"
#include "quant/quant.h"

#include <string.h>

size_t repack_levels(const struct repack_level *out[REPACK_MAX_LEVELS])
{
    size_t n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        out[n++] = &repack_avx2;
#endif
    out[n++] = &repack_portable;
    return n;
}

/* One matrix to be repacked, and the bytes of a row of each of its parts. */
struct job {
    repack_fn *kernel; /* NULL for plain types */
    const uint8_t *src;
    const uint32_t *row_map;
    size_t blocks; /* of a row */
    size_t src_row, q_row, scale_row, min_row;
    uint8_t *q, *scale, *min; /* of output row `first` */
    uint64_t first;
};

static void put_rows(const struct job *j, uint64_t out_row, uint64_t src_row, uint64_t rows)
{
    const uint8_t *src = j->src + src_row * j->src_row;
    uint8_t *q = j->q + (out_row - j->first) * j->q_row;
    if (!j->kernel) {
        memcpy(q, src, rows * j->q_row);
        return;
    }
    uint8_t *scale = j->scale + (out_row - j->first) * j->scale_row;
    uint8_t *min = j->min ? j->min + (out_row - j->first) * j->min_row : NULL;
    j->kernel(src, rows * j->blocks, q, scale, min);
}

static void put(void *ctx, size_t begin, size_t end)
{
    const struct job *j = ctx;
    if (!j->row_map) {
        put_rows(j, begin, begin, end - begin);
        return;
    }
    for (uint64_t r = begin; r < end; r++)
        put_rows(j, r, j->row_map[r], 1);
}

/* False for a type without an image, or cols that the type cannot have: nothing is written then. */
static bool init(struct job *j, uint32_t type, const void *src, uint64_t cols, const uint32_t *row_map,
                 void *q, void *scale, void *min)
{
    struct quant_sizes row;
    const struct ggml_type_info *info = ggml_type_info(type);
    if (!info || quant_sizes(type, 1, cols, &row, NULL) != 0)
        return false;
    const struct repack_level *levels[REPACK_MAX_LEVELS];
    repack_levels(levels);
    size_t blocks = cols / info->block;
    *j = (struct job){
        .kernel = type < REPACK_TYPES ? levels[0]->kernel[type] : NULL,
        .src = src,
        .row_map = row_map,
        .blocks = blocks,
        .src_row = blocks * info->bytes,
        .q_row = row.q,
        .scale_row = row.scale,
        .min_row = row.min,
        .q = q,
        .scale = scale,
        .min = min,
    };
    return true;
}

void quant_repack(uint32_t ggml_type, const void *src, uint64_t cols, const uint32_t *row_map, uint64_t first,
                  uint64_t rows, void *q, void *scale, void *min)
{
    struct job j;
    if (rows == 0 || !init(&j, ggml_type, src, cols, row_map, q, scale, min))
        return;
    j.first = first;
    put(&j, first, first + rows);
}

void quant_repack_all(uint32_t ggml_type, const void *src, uint64_t rows, uint64_t cols,
                      const uint32_t *row_map, void *q, void *scale, void *min)
{
    enum { PIECE = 1 << 19 }; /* bytes of src: a good part of a millisecond's work */
    struct job j;
    if (!init(&j, ggml_type, src, cols, row_map, q, scale, min))
        return;
    par_for(rows, j.src_row < PIECE ? PIECE / (j.src_row + 1) + 1 : 1, 0, put, &j);
}
