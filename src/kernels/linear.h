/* Products of rows with matrices in GGUF blocks, read straight from the mapped file: nothing is repacked,
 * nothing copied. y[m][n] = sum over k of x[m][k] * W[n][k].
 *
 * Rows of x are first rounded to 8 bits exactly as ggml does it for the type of W (vec_dot_type: Q8_0 for
 * Q4_0, Q5_0, Q8_0, IQ4_NL and MXFP4; Q8_1 for Q4_1 and Q5_1; Q8_K for the K types and IQ4_XS), so that a
 * result differs from llama.cpp's only by the order of f32 sums. That order is one for each instruction set:
 * a row of x has the same product to the last bit however many others there are. Every output row is
 * independent: callers split the work over threads by rows of x (linear_quantize) and by rows of W
 * (linear_multiply). No function allocates or locks.
 *
 * Instruction sets are chosen once, at run time: portable C, AVX2, AVX-512 with VNNI. */
#ifndef KERNELS_LINEAR_H
#define KERNELS_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor: rows of `cols` elements in blocks. */
struct linear_part {
    uint32_t type; /* enum ggml_type, one that linear_supports */
    uint64_t rows;
    const uint8_t *data;     /* blocks, row after row; any alignment */
    const uint32_t *row_map; /* row of `data` for each output row; NULL: in order */
};

enum { LINEAR_MAX_PARTS = 4 };

/* Tensors that read the same x, stacked: y has the rows of all parts, one part after the other. Types may
 * differ. */
struct linear {
    uint64_t cols; /* a multiple of each type's block */
    uint64_t rows; /* of all parts */
    int n_parts;
    struct linear_part part[LINEAR_MAX_PARTS];
};

enum linear_isa { LINEAR_PORTABLE, LINEAR_AVX2, LINEAR_AVX512, LINEAR_N_ISA };

bool linear_supports(uint32_t ggml_type);
/* The best instruction set of this machine, and whether it has a given one. */
enum linear_isa linear_isa(void);
bool linear_has_isa(enum linear_isa isa);
/* For tests and benchmarks: use this one from now on. Not while other threads multiply. */
void linear_set_isa(enum linear_isa isa);

/* Bytes of scratch for m rows of x, for all formats that the parts need; align it to 64. */
size_t linear_scratch_size(const struct linear *l, size_t m);
/* Rounds rows [first, last) of x [m, cols] into the scratch. Rows may be done by several threads. */
void linear_quantize(const struct linear *l, size_t m, const float *x, size_t first, size_t last,
                     void *scratch);
/* Row i of a scratch of m rows becomes row j of another one, of n rows, as if it had been rounded there. */
void linear_copy_row(const struct linear *l, size_t m, const void *from, size_t i, size_t n, void *to,
                     size_t j);
/* Output rows [first, last) of y [m, l->rows]: y[i * l->rows + n] for all m rows of x. Ranges may be done by
 * several threads; they run best when they begin at multiples of linear_step rows. */
void linear_multiply(const struct linear *l, size_t m, const void *scratch, size_t first, size_t last,
                     float *y);
/* The same rows into an array of their own: y[i * stride + n - first]. */
void linear_multiply_to(const struct linear *l, size_t m, const void *scratch, size_t first, size_t last,
                        float *y, size_t stride);
size_t linear_step(void);

#ifdef __cplusplus
}
#endif

#endif
