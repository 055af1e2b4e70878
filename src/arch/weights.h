/* The plan of a model's constants: which tensors the graph uses, as what image, at which place of the one
 * blob.
 *
 * While the graph is built nothing is read from the file but small vectors; each matrix gets its place in the
 * blob and the graph refers to it. Afterwards the engine makes the blob and fills it by the plan: repacked by
 * quant, or, for tensors whose bytes OpenVINO reads as they are, mapped straight from the file. */
#ifndef ARCH_WEIGHTS_H
#define ARCH_WEIGHTS_H

#include "base/err.h"
#include "gguf/gguf.h"
#include "ir/ir.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "quant/quant.h"

/* Rows of one tensor that go into an image. */
struct weights_entry {
    const struct gguf_tensor *tensor;
    const uint32_t *row_map; /* order of rows, NULL: as in the file */
    uint64_t rows, cols;
    uint64_t q, scale, min; /* offsets in the blob; scale and min only where the image has them */
    bool map; /* q may be mapped from the file: its offset is congruent with the file's, to a page */
};

struct weights;

struct weights *weights_new(const struct gguf *g);
void weights_free(struct weights *w);

/* The tensor, marked as used. NULL with an error when it is missing and `required`. */
const struct gguf_tensor *weights_tensor(struct weights *w, bool required, struct err *err, const char *fmt,
                                         ...) __attribute__((format(printf, 4, 5)));
bool weights_used(const struct weights *w, const struct gguf_tensor *t);

/* A vector or small matrix as f32, copied into the graph, with its dimensions reversed (slowest first); `add`
 * is added to each element, row_map reorders the elements of a vector. */
ir_val weights_small(struct weights *w, struct ir *g, const struct gguf_tensor *t, const uint32_t *row_map);

/* Values of a small tensor; NULL with an error when its type can't be read. Freed with free(). */
float *weights_values(const struct gguf_tensor *t, struct err *err);

/* A planned matrix, ready for products: [rows, cols] in f32, and what has to be added because its groups have
 * an offset of their own. */
struct weights_matrix {
    ir_val w;       /* f32 [rows, cols] (decompression pattern) */
    ir_val min;     /* f32 [rows, cols / group] or IR_NONE */
    uint32_t group; /* of min */
    uint64_t rows, cols;
};

/* Plans one image for n tensors of the same type and width, stacked by rows. row_maps may be NULL, as may its
 * members. Fails through the graph with the tensor's name when the type has no image. */
struct weights_matrix weights_matrix(struct weights *w, struct ir *g, int n,
                                     const struct gguf_tensor *const *t, const uint32_t *const *row_maps);
/* Plans a product with the blocks of n stacked tensors as they lie in the file, of any types that the kernels
 * know; returns its index, or -1 when a type is not among them or there are too many tensors. */
int weights_linear(struct weights *w, int n, const struct gguf_tensor *const *t,
                   const uint32_t *const *row_maps);
const struct linear *weights_linears(const struct weights *w, size_t *n);
bool weights_in_place(const struct weights *w, const struct gguf_tensor *t); /* is multiplied in the file */

/* A mixture of experts as it lies in the file, each stack a tensor [n][rows][columns]. */
enum { WEIGHTS_GATE, WEIGHTS_UP, WEIGHTS_DOWN, WEIGHTS_N_STACKS };
struct weights_experts {
    uint32_t n;
    uint64_t cols, ff; /* gate and up: cols -> ff, down: ff -> cols */
    enum gate act;
    bool single; /* up is its own gate */
    /* Without gate, up holds both (of each expert the gate's rows first), unless it is its own. */
    const struct gguf_tensor *stack[WEIGHTS_N_STACKS];
    /* What acts on each product: a factor for an expert [n], a bias [n][rows]; NULL: nothing. */
    const struct gguf_tensor *scale[WEIGHTS_N_STACKS], *bias[WEIGHTS_N_STACKS];
};
/* A planned stack for the plugin's batched products: w f32 [n, rows, cols], min [n, rows, cols / group]. */
struct weights_matrix weights_stack(struct weights *w, struct ir *g, const struct gguf_tensor *t);
/* Plans experts with blocks as they lie in the file; the index of their `struct experts`, or -1 when the
 * kernels don't know a type. Fails through the graph when a companion can't be read. */
int weights_experts(struct weights *w, struct ir *g, const struct weights_experts *x);
const struct experts *weights_expert_stacks(const struct weights *w, size_t *n);

/* Names the next node after stacked tensors: "attn_q+attn_k" within the layer's scope. */
void weights_name(struct ir *g, int n, const struct gguf_tensor *const *t);

/* Keeps `n` numbers for as long as the plan lives: memory for row maps. */
uint32_t *weights_row_map(struct weights *w, size_t n);

uint64_t weights_blob_size(const struct weights *w);
size_t weights_n_entries(const struct weights *w);
const struct weights_entry *weights_entry_at(const struct weights *w, size_t i);

#endif
