/* A mixture of experts on GGUF blocks, read straight from the mapped file: for each row of x
 *     y = sum over its k chosen experts of  weight * down(act(gate(x)) * up(x)).
 *
 * Pairs (row, expert) are sorted by expert, so that each expert's blocks are read once for all its rows. A
 * row of x is rounded once (linear_quantize) and copied to the experts that it goes to. The work is divided
 * into phases; within a phase pieces are independent and threads may take them in any order. One row of x
 * is spread as well as many: pieces are ranges of rows of all chosen experts. No function allocates or
 * locks. */
#ifndef KERNELS_EXPERTS_H
#define KERNELS_EXPERTS_H

#include "kernels/gate.h"
#include "kernels/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What acts on a product with a stack: y * scale[expert] + bias[expert][row]; NULL: nothing. */
struct experts_after {
    const float *scale, *bias;
};

struct experts {
    uint32_t n;            /* experts in a stack */
    uint64_t cols;         /* of x and y */
    uint64_t ff;           /* rows of gate and of up, columns of down */
    bool fused;            /* gate_up is one tensor: of each expert the gate's rows, then up's */
    bool single;           /* there is no gate: up is its own, so that GATE_RELU gives relu(up(x))^2 */
    enum gate act;         /* of gate and up */
    struct linear gate_up; /* cols -> the stacks' rows, gate's part first */
    struct linear down;    /* ff -> n * cols rows */
    struct experts_after after_gate, after_up, after_down;
};

enum experts_phase {
    EXPERTS_ROUND,   /* rows of x to 8 bits */
    EXPERTS_GATHER,  /* and to their experts */
    EXPERTS_GATE_UP, /* act(gate) * up */
    EXPERTS_ROUND_FF,
    EXPERTS_DOWN,
    EXPERTS_SUM,
    EXPERTS_N_PHASES
};

/* A step under way: pointers into the scratch, and what the caller gave. */
struct experts_run {
    const struct experts *e;
    size_t m, k, n_active, width[2]; /* steps of rows in a piece of GATE_UP, of DOWN */
    const float *x, *weights;
    float *y;
    uint32_t *active;                  /* [n_active] experts with rows */
    uint32_t *begin;                   /* [n + 1] place of an expert's first pair */
    uint32_t *row, *expert;            /* [m * k] of the pair at a place */
    uint32_t *place;                   /* [m][k] of a row's pairs */
    uint8_t *rounded, *gathered, *mid; /* rows of x; of each pair; of the pairs' act(gate) * up */
    float *gate, *up;                  /* [m * k][ff] */
    float *down;                       /* [m * k][cols] */
};

/* Bytes of scratch for m rows of x with k experts each; align it to 64. 0 when that is too much. */
size_t experts_scratch_size(const struct experts *e, size_t m, size_t k);
/* Sorts the pairs: x [m, cols], ids and weights [m, k], y [m, cols]. -1 when an id is no expert's. */
int experts_begin(struct experts_run *r, const struct experts *e, size_t m, size_t k, const float *x,
                  const int32_t *ids, const float *weights, float *y, void *scratch, size_t n_threads);
/* How many pieces a phase has, and how many of them are worth a thread's waking. */
size_t experts_pieces(const struct experts_run *r, enum experts_phase phase);
size_t experts_grain(enum experts_phase phase);
/* Pieces [first, last) of a phase; all pieces of the phases before must be done. */
void experts_do(const struct experts_run *r, enum experts_phase phase, size_t first, size_t last);

#ifdef __cplusplus
}
#endif

#endif
