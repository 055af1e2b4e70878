/* Hyperparameters of a model: the keys of its file, checked, with llama.cpp's defaults. */
#ifndef ARCH_HPARAMS_H
#define ARCH_HPARAMS_H

#include "base/err.h"
#include "gguf/gguf.h"

#define HPARAMS_MAX_LAYERS 1024

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONGROPE };

/* How a router's numbers become weights; numbered as in the key expert_gating_func. */
enum moe_gating { MOE_SOFTMAX = 1, MOE_SIGMOID, MOE_SOFTMAX_OF_CHOSEN };

/* Values that may differ from layer to layer. */
struct hparams_layer {
    uint32_t n_head, n_head_kv, n_ff; /* no heads, or none of keys: no attention */
    bool swa;                         /* sees only the last n_swa positions */
    bool recurrent;                   /* keeps a state of a fixed size, not keys and values */
};

struct hparams {
    char arch[64];
    uint32_t n_vocab; /* rows of the embedding matrix */
    uint32_t n_ctx_train, n_embd;
    uint32_t n_layer; /* of the trunk … */
    uint32_t n_nextn; /* … and those behind it that guess further tokens: see enum arch_part */
    uint32_t n_embd_head_k, n_embd_head_v;
    uint32_t n_rot; /* dimensions of a head that are rotated */
    uint32_t n_expert;
    uint32_t
        n_swa; /* sliding window in tokens; 0: none. Like the next two, read by the families that have it */
    uint32_t n_latent; /* width of what all keys and values come out of; deepseek2 */
    bool layer_norm;   /* norms are LayerNorms, not RMS norms */
    float norm_eps;
    /* Recurrent layers: taps of the convolution, channels, width of a state's row, heads, groups of heads
     * that share keys (see hparams_recurrent). */
    uint32_t ssm_conv, ssm_inner, ssm_state, ssm_heads, ssm_groups;
    float attn_scale; /* 0: 1 / sqrt(n_embd_head_k) */
    /* Queries grow with the logarithm of how many times over so many positions they are; scale 0: they don't.
     */
    float q_growth;
    uint32_t q_growth_from;
    float clamp_qkv;           /* Q, K and V stay within plus and minus this; 0: all numbers */
    float max_alibi_bias;      /* 0: attention has no bias by distance */
    float final_logit_softcap; /* 0: none */
    uint32_t n_shortconv;      /* taps of a short convolution */

    float embedding_scale, residual_scale,
        logit_scale; /* 1: as they are. Read by the families that have them */

    /* Mixtures of experts: hparams_moe reads the first, hparams_moe_router the others where a family has
     * them. */
    uint32_t n_expert_used, n_expert_groups, n_expert_groups_used; /* groups 0 or 1: none */
    enum moe_gating moe_gating;
    bool moe_norm;          /* the chosen weights are made to sum to 1 … */
    float moe_scale;        /* … and multiplied by this; 0: not */
    uint32_t n_layer_dense; /* leading layers without experts */
    uint32_t moe_step;      /* of so many of the others the last has experts */

    float rope_freq_base, rope_freq_scale;
    float rope_freq_base_swa, rope_freq_scale_swa; /* of layers with a sliding window */
    bool rope_swa_unscaled;                        /* which don't take part in YaRN */
    enum rope_scaling rope_scaling;
    bool no_rope, no_rope_factors; /* no rotation at all; no tensor of factors counts */
    uint32_t n_ctx_orig;           /* context before scaling */
    float rope_attn_factor;
    float yarn_ext_factor; /* negative: 1 for YaRN, else 0 */
    float yarn_attn_factor, yarn_beta_fast, yarn_beta_slow, yarn_log_mul;
    float yarn_mul; /* of the magnitude above yarn_log_mul's; 0: 1 */

    struct hparams_layer layer[HPARAMS_MAX_LAYERS];
};

/* Reads the keys that every family shares; `layer_norm` decides which eps it asks for. Errors name the key.
 */
int hparams_read(struct hparams *h, const struct gguf *g, bool layer_norm, struct err *err);

/* Marks the layers with a sliding window (once n_swa is known) by the key attention.sliding_window_pattern:
 * an array with a flag for each layer, or a number: of so many layers all but the last (0: all). Without the
 * key the number is `pattern`. */
int hparams_swa_pattern(struct hparams *h, const struct gguf *g, uint32_t pattern, struct err *err);

/* The sliding window's keys: attention.sliding_window (absent: n_swa as it is), the pattern as above, and the
 * RoPE base of its layers (absent: that of the others). */
int hparams_window(struct hparams *h, const struct gguf *g, uint32_t pattern, struct err *err);

/* Reads the sizes of recurrent layers and checks them; of Mamba 1, ssm_heads is the width that steps come out
 * of, and there are no groups. */
int hparams_recurrent1(struct hparams *h, const struct gguf *g, struct err *err);
int hparams_recurrent(struct hparams *h, const struct gguf *g, struct err *err);
/* Marks the recurrent layers: by the key attention.recurrent_layers (a flag for each), or all but every n-th
 * layer, n by the key full_attention_interval, else 4. */
int hparams_recurrent_pattern(struct hparams *h, const struct gguf *g, struct err *err);
/* Reads attention.temperature_scale: queries grow from the original context on or, with `by_key`, from
 * attention.temperature_length. */
int hparams_q_growth(struct hparams *h, const struct gguf *g, bool by_key, struct err *err);
/* How many experts there are, are used, and their groups; refuses numbers that don't fit each other. */
int hparams_moe(struct hparams *h, const struct gguf *g, struct err *err);
/* Keys of the router: expert_weights_scale, expert_weights_norm, expert_gating_func (0 or absent: `gating`),
 * leading_dense_block_count. */
int hparams_moe_router(struct hparams *h, const struct gguf *g, enum moe_gating gating, struct err *err);

/* A key of this architecture: "block_count" reads "llama.block_count". As gguf_u32 and gguf_f32. */
int hparams_u32(const struct hparams *h, const struct gguf *g, const char *key, uint32_t *out,
                struct err *err);
int hparams_f32(const struct hparams *h, const struct gguf *g, const char *key, float *out, struct err *err);
int hparams_bool(const struct hparams *h, const struct gguf *g, const char *key, bool *out, struct err *err);

#endif
