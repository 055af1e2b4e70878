/* An operation of our own for a layer of gated delta nets between its projections (kernels/delta.h). IR names
 * it
 *     <layer type="DeltaNet" version="grappa">
 *         <data key_heads="16" heads="32" tiled="1" norm_eps="1e-06"/>
 * Inputs: qkv f32 [T, channels], z f32 [T, heads * value], alpha and beta f32 [T, heads]; conv f32 [taps,
 * channels], its bias f32 [channels] or [0], dt and a f32 [heads], norm f32 [value]; the states f32 [slots,
 * taps - 1, channels] and [slots, heads, value, key]; state_rows i32 [S + 1], state_indices i32,
 * state_begins i32 [S + 1], state_past and state_interval i32 [S]. Output f32 [T, heads * value]; the slots
 * named by state_indices are written in place. CPU only. */
#ifndef OV_DELTA_OP_H
#define OV_DELTA_OP_H

#ifdef __cplusplus
extern "C" {
#endif

struct ov_core;

/* Makes the operation known to a core; -1 when it can't be. */
int ov_delta_op_register(struct ov_core *core);

#ifdef __cplusplus
}
#endif

#endif
