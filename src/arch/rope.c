/* RoPE angles in ggml's order of operations, so that f32 comparisons hold at large positions too. */
#include "arch/rope.h"

#include <math.h>

/* The pair whose wavelength makes `turns` turns over the original context. */
static float correction_pair(const struct rope *r, float turns)
{
    return (float)r->n_rot * logf((float)r->n_ctx_orig / (turns * 2.0f * (float)M_PI)) /
           (2.0f * logf(r->freq_base));
}

/* YaRN's magnitude at a scale factor. */
static float yarn_magnitude(float factor, float mscale)
{
    return factor <= 1.0f ? 1.0f : 0.1f * mscale * logf(factor) + 1.0f;
}

/* With an extrapolation factor the magnitude correction is applied with the angles; here it is set so that
 * the product comes out as the file wants it. */
static float yarn_attention(const struct hparams *h, float freq_scale)
{
    float factor = 1.0f / freq_scale;
    float m = h->yarn_log_mul != 0.0f ? yarn_magnitude(factor, h->yarn_mul != 0 ? h->yarn_mul : 1.0f) /
                                            yarn_magnitude(factor, h->yarn_log_mul)
                                      : yarn_magnitude(factor, 1.0f);
    return m / (1.0f + 0.1f * logf(factor));
}

void rope_init(struct rope *r, const struct hparams *h, bool swa)
{
    *r = (struct rope){
        .n_rot = h->n_rot,
        .freq_base = swa ? h->rope_freq_base_swa : h->rope_freq_base,
        .freq_scale = swa ? h->rope_freq_scale_swa : h->rope_freq_scale,
        .ext_factor = h->yarn_ext_factor,
        .attn_factor = h->yarn_attn_factor,
        .n_ctx_orig = h->n_ctx_orig,
    };
    if (swa && h->rope_swa_unscaled) {
        r->ext_factor = 0;
        r->attn_factor = 1;
        return;
    }
    if (h->rope_scaling == ROPE_SCALING_NONE)
        r->freq_scale = 1.0f;
    if (r->ext_factor < 0)
        r->ext_factor = h->rope_scaling == ROPE_SCALING_YARN ? 1.0f : 0.0f;
    if (r->ext_factor != 0)
        r->attn_factor = yarn_attention(h, h->rope_scaling == ROPE_SCALING_NONE ? 1.0f : h->rope_freq_scale);
    r->attn_factor *= h->rope_attn_factor;

    float low = floorf(correction_pair(r, h->yarn_beta_fast));
    float high = ceilf(correction_pair(r, h->yarn_beta_slow));
    r->ramp_low = low > 0 ? low : 0;
    r->ramp_high = high < (float)h->n_rot - 1 ? high : (float)h->n_rot - 1;
}

/* 1 where a pair keeps its own frequency, 0 where it is interpolated. */
static float ramp(const struct rope *r, uint32_t pair)
{
    float width = r->ramp_high - r->ramp_low;
    float y = ((float)pair - r->ramp_low) / (width > 0.001f ? width : 0.001f);
    return 1.0f - (y < 0 ? 0.0f : y > 1 ? 1.0f : y);
}

void rope_fill(const struct rope *r, uint32_t n_ctx, const int32_t *pos, size_t n, float *cos, float *sin)
{
    const float *factors = r->factors_long && n_ctx > r->n_ctx_orig ? r->factors_long : r->factors;
    float step = powf(r->freq_base, -2.0f / (float)r->n_rot);
    float magnitude = r->attn_factor;
    if (r->ext_factor != 0)
        magnitude *= 1.0f + 0.1f * logf(1.0f / r->freq_scale);

    uint32_t pairs = r->n_rot / 2;
    for (size_t i = 0; i < n; i++) {
        float theta = (float)pos[i];
        for (uint32_t p = 0; p < pairs; p++, theta *= step) {
            float own = factors ? theta / factors[p] : theta;
            float angle = r->freq_scale * own;
            if (r->ext_factor != 0) {
                float mix = ramp(r, p) * r->ext_factor;
                angle = angle * (1 - mix) + own * mix;
            }
            float c = cosf(angle) * magnitude, s = sinf(angle) * magnitude;
            size_t at = i * r->n_rot + p;
            cos[at] = cos[at + pairs] = c;
            sin[at] = sin[at + pairs] = s;
        }
    }
}
