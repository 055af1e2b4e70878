/* Hyperparameters of a model: the keys of its file, checked, with llama.cpp's defaults. */
#ifndef ARCH_HPARAMS_H
#define ARCH_HPARAMS_H

#include "base/err.h"
#include "gguf/gguf.h"

#define HPARAMS_MAX_LAYERS 1024

enum rope_scaling { ROPE_SCALING_NONE, ROPE_SCALING_LINEAR, ROPE_SCALING_YARN, ROPE_SCALING_LONGROPE };

/* Values that may differ from layer to layer. */
struct hparams_layer {
    uint32_t n_head, n_head_kv, n_ff;
    bool swa; /* sees only the last n_swa positions */
};

struct hparams {
    char arch[64];
    uint32_t n_vocab; /* rows of the embedding matrix */
    uint32_t n_ctx_train, n_embd, n_layer;
    uint32_t n_embd_head_k, n_embd_head_v;
    uint32_t n_rot; /* dimensions of a head that are rotated */
    uint32_t n_expert;
    uint32_t
        n_swa; /* sliding window in tokens; 0: none. Like the next two, read by the families that have it */
    float norm_rms_eps;
    float attn_scale;          /* 0: 1 / sqrt(n_embd_head_k) */
    float final_logit_softcap; /* 0: none */

    float rope_freq_base, rope_freq_scale;
    float rope_freq_base_swa, rope_freq_scale_swa; /* of layers with a sliding window */
    enum rope_scaling rope_scaling;
    uint32_t n_ctx_orig; /* context before scaling */
    float rope_attn_factor;
    float yarn_ext_factor; /* negative: 1 for YaRN, else 0 */
    float yarn_attn_factor, yarn_beta_fast, yarn_beta_slow, yarn_log_mul;

    struct hparams_layer layer[HPARAMS_MAX_LAYERS];
};

/* Reads the keys that every family shares. Errors name the key. */
int hparams_read(struct hparams *h, const struct gguf *g, struct err *err);

/* Marks the layers with a sliding window (once n_swa is known) by the key attention.sliding_window_pattern:
 * an array with a flag for each layer, or a number: of so many layers all but the last (0: all). Without the
 * key the number is `pattern`. */
int hparams_swa_pattern(struct hparams *h, const struct gguf *g, uint32_t pattern, struct err *err);

/* A key of this architecture: "block_count" reads "llama.block_count". As gguf_u32 and gguf_f32. */
int hparams_u32(const struct hparams *h, const struct gguf *g, const char *key, uint32_t *out,
                struct err *err);
int hparams_f32(const struct hparams *h, const struct gguf *g, const char *key, float *out, struct err *err);

#endif
