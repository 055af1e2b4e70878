/* Rotary position embeddings: the angles, computed on the host and fed to the graph as two small tables a
 * step.
 *
 * Every kind that GGUF knows is here: plain, linear, YaRN, Llama 3 factors (rope_freqs.weight) and longrope
 * (short and long factors). The arithmetic is that of ggml's rope (ggml_rope_ext): angles in f32, multiplied
 * up from pair to pair. Sources: Su et al., arXiv:2104.09864; YaRN, arXiv:2309.00071. */
#ifndef ARCH_ROPE_H
#define ARCH_ROPE_H

#include "arch/hparams.h"

struct rope {
    uint32_t n_rot; /* dimensions rotated; of each head, an even number */
    float freq_base, freq_scale;
    float ext_factor, attn_factor;
    float ramp_low, ramp_high; /* pairs between which YaRN goes from extrapolation to interpolation */
    uint32_t n_ctx_orig;
    const float *factors; /* [n_rot / 2] or NULL; for contexts up to n_ctx_orig where there are long ones */
    const float *factors_long; /* [n_rot / 2] or NULL */
};

/* The RoPE of the model's full (swa false) or sliding-window layers. Factors are set by the caller. */
void rope_init(struct rope *r, const struct hparams *h, bool swa);

/* cos and sin [n, n_rot] for n positions, in a context of n_ctx positions. The second half of a row repeats
 * the first: one column for each rotated dimension, as the plugins' RoPE reads them. */
void rope_fill(const struct rope *r, uint32_t n_ctx, const int32_t *pos, size_t n, float *cos, float *sin);

#endif
