/* The gated activations of feed-forward blocks. */
#ifndef KERNELS_GATE_H
#define KERNELS_GATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gate {
    GATE_SILU,       /* x * sigmoid(x) */
    GATE_GELU_TANH,  /* x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))); Hendrycks and Gimpel,
                        arXiv:1606.08415 */
    GATE_RELU,       /* x or 0 */
    GATE_SWIGLU_OAI, /* x * sigmoid(1.702 x) with x at most 7, times 1 + up with up within -7 … 7: gpt-oss */
};

/* out[i] = act(gate[i]) * up[i] for n numbers, within 4 ulp of the activation. `out` may be `gate` or `up`.
 */
void gate_rows(enum gate act, const float *gate, const float *up, float *out, size_t n);

#ifdef __cplusplus
}
#endif

#endif
