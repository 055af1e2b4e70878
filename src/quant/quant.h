/* From GGUF blocks to integer images that OpenVINO multiplies without unpacking.
 *
 * An image of a matrix of `rows` x `cols` (cols = ne[0]) is up to three arrays:
 *     w[r][c] = scale[r][c / group] * (q[r][c] - zero) + min[r][c / group]
 * q has the element type `elem` (u4: two neighbours in a byte, the lower nibble first), scale is f16 or f32,
 * min is f32 and only there for types with an offset of their own. F32, F16 and BF16 have no scale: the image
 * is the tensor's bytes in the file (QUANT_PLAIN).
 *
 * Exact: the formula above, evaluated in f32, gives ggml's dequantised value; `exact` in the table says where
 * that holds bit for bit. Types whose offset is not a whole number of steps carry it as `min`, which costs
 * one small product with the group sums of x instead of fractional zero points (see ARCHITECTURE.md). */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include "base/err.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum quant_elem { QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_U4, QUANT_I8, QUANT_U8 };

struct quant_image {
    enum quant_elem elem;  /* of q */
    uint32_t group;        /* columns that share a scale; 0: plain, no scale */
    int zero;              /* whole-number zero point of all of q (8 for centred u4), 0: none */
    enum quant_elem scale; /* QUANT_F16 or QUANT_F32 */
    bool has_min;          /* an f32 min per group */
    bool exact;            /* bit for bit ggml's values */
};

/* The image of a GGML type; NULL when the type has none yet. */
const struct quant_image *quant_image_of(uint32_t ggml_type);

/* Bytes of the three parts for rows x cols. -1 on overflow, when cols is no multiple of the type's
 * block, or for a type without an image. */
struct quant_sizes {
    size_t q, scale, min;
};
int quant_sizes(uint32_t ggml_type, uint64_t rows, uint64_t cols, struct quant_sizes *out, struct err *err);

/* Repacks rows [first, first + rows) of blocks (contiguous rows, `cols` each) into the image parts, which
 * start at these very rows. `row_map` (NULL: identity) gives for each output row the row of `src` it is made
 * from; used to put heads and rotary pairs in another order. Rows are independent, so callers split them over
 * threads. Any part pointer may be NULL where its size is 0. Not for plain types. */
void quant_repack(uint32_t ggml_type, const void *src, uint64_t cols, const uint32_t *row_map, uint64_t first,
                  uint64_t rows, void *q, void *scale, void *min);

/* The same for a whole matrix over all threads. For plain types too (rows are copied). */
void quant_repack_all(uint32_t ggml_type, const void *src, uint64_t rows, uint64_t cols,
                      const uint32_t *row_map, void *q, void *scale, void *min);

/* f32 values of `n` elements (a multiple of the block). False when the type is not known to it. */
bool quant_dequantize(uint32_t ggml_type, const void *src, uint64_t n, float *out);

/* The formula above over one row of an image: for tests and for `inspect`. */
void quant_image_row(const struct quant_image *image, const void *q, const void *scale, const void *min,
                     uint64_t cols, uint64_t row, float *out);

/* Exact, subnormals and infinities too. In integers, because not every compiler in use has _Float16, and so
 * that a thread that flushes subnormals gets the same. */
static inline float quant_f16_to_f32(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    uint32_t bits = (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13;
    float f, subnormal = (float)mantissa * 0x1p-24f;
    if (exponent == 0)
        __builtin_memcpy(&bits, &subnormal, sizeof bits);
    bits |= (uint32_t)(h & 0x8000) << 16;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}

static inline float quant_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}

#endif
