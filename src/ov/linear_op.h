/* An operation of our own for linear layers whose weights are GGUF blocks: IR names it
 *     <layer type="GgufLinear" version="grappa"><data index="7"/>
 * where index is the place of its `struct linear` in the table that was in use when the graph was read. CPU
 * only. */
#ifndef OV_LINEAR_OP_H
#define OV_LINEAR_OP_H

#include "kernels/linear.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ov_core;

/* Makes the operation known to a core; -1 when it can't be. */
int ov_linear_op_register(struct ov_core *core);
/* The table for graphs that this thread reads from now on; it outlives what is compiled of them. NULL, 0:
 * none. */
void ov_linear_table_use(const struct linear *linears, size_t n);

#ifdef __cplusplus
}
#endif

#endif
