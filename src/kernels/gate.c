/* Gates: x * sigmoid(u) over rows, in loops that compilers turn into vector code; built for each instruction
 * set by the compiler, chosen at run time. */
#include "kernels/gate.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) &&                            \
    !defined(__SANITIZE_THREAD__)
#define EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_ISA /* target_clones resolve before a sanitizer is ready */
#endif

/* e^x to 2 ulp for |x| < 87, beyond that e^±87: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cody and
 * Waite's reduction, Taylor's coefficients). */
static inline __attribute__((always_inline)) float fast_exp(float x)
{
    const float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, magic = 12582912.0f;
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float n = x * log2e + magic; /* the nearest whole number in the lower bits */
    int32_t bits;
    memcpy(&bits, &n, sizeof bits);
    n -= magic;
    float f = x - n * ln2_high - n * ln2_low;
    float p = 1.0f / 720;
    p = p * f + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    uint32_t power = ((uint32_t)bits + 127) << 23;
    float scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

EACH_ISA static void silu(const float *gate, const float *up, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + fast_exp(-gate[i])) * up[i];
}

/* tanh(v) = 2 sigmoid(2 v) - 1, so that x / 2 * (1 + tanh(v)) = x * sigmoid(2 v). */
EACH_ISA static void gelu_tanh(const float *gate, const float *up, float *out, size_t n)
{
    const float two_root_2_over_pi = 1.59576912f;
    for (size_t i = 0; i < n; i++) {
        float x = gate[i], v = two_root_2_over_pi * (x + 0.044715f * x * x * x);
        out[i] = x / (1.0f + fast_exp(-v)) * up[i];
    }
}

EACH_ISA static void relu(const float *gate, const float *up, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (gate[i] > 0 ? gate[i] : 0) * up[i];
}

EACH_ISA static void swiglu_oai(const float *gate, const float *up, float *out, size_t n)
{
    const float alpha = 1.702f, limit = 7.0f;
    for (size_t i = 0; i < n; i++) {
        float x = gate[i] < limit ? gate[i] : limit, u = up[i] < limit ? up[i] : limit;
        u = u > -limit ? u : -limit;
        out[i] = x / (1.0f + fast_exp(-alpha * x)) * (u + 1.0f);
    }
}

void gate_rows(enum gate act, const float *gate, const float *up, float *out, size_t n)
{
    static void (*const acts[])(const float *, const float *, float *, size_t) = {
        [GATE_SILU] = silu,
        [GATE_GELU_TANH] = gelu_tanh,
        [GATE_RELU] = relu,
        [GATE_SWIGLU_OAI] = swiglu_oai,
    };
    acts[act](gate, up, out, n);
}
