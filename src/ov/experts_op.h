/* An operation of our own for a mixture of experts whose weights are GGUF blocks: IR names it
 *     <layer type="GgufExperts" version="grappa"><data index="7"/>
 * where index is the place of its `struct experts` in the table that was in use when the graph was read.
 * Inputs: x f32 [T, cols], ids i32 [T, k], weights f32 [T, k]; output f32 [T, cols]. CPU only. */
#ifndef OV_EXPERTS_OP_H
#define OV_EXPERTS_OP_H

#include "kernels/experts.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ov_core;

/* Makes the operation known to a core; -1 when it can't be. */
int ov_experts_op_register(struct ov_core *core);
/* As ov_linear_table_use. */
void ov_experts_table_use(const struct experts *experts, size_t n);

#ifdef __cplusplus
}
#endif

#endif
