/* Gemma: scaled embeddings and GELU. Gemma 3 has norms before and after each block, a norm on the heads of Q
 * and K, and five layers with a sliding window and a RoPE base of their own to each with full attention. */
#include "arch/family/family.h"

#include <math.h>

static int setup(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_u32(h, g, "attention.sliding_window", &h->n_swa, err) < 0 ||
        hparams_swa_pattern(h, g, 6, err) < 0 ||
        hparams_f32(h, g, "rope.freq_base_swa", &h->rope_freq_base_swa, err) < 0 ||
        hparams_f32(h, g, "final_logit_softcapping", &h->final_logit_softcap, err) < 0)
        return -1;
    h->embedding_scale = sqrtf((float)h->n_embd);
    /* The 27B model scales by its width per head, which is not the size of a head. */
    uint32_t size = h->n_layer == 62 ? h->n_embd / h->layer[0].n_head : h->n_embd_head_k;
    h->attn_scale = 1.0f / sqrtf((float)size);
    return 0;
}

static const struct decoder gemma3 = {
    .attention = {.rope = true, .qk_norm = QK_NORM_HEADS}, .mlp = {.act = IR_GELU_TANH}, .post_norms = true};

const struct family family_gemma3 = {.setup = setup, .decoder = &gemma3};

/* ---- Gemma ---- */

static int setup_gemma(struct hparams *h, const struct gguf *g, struct err *err)
{
    (void)g;
    (void)err;
    h->embedding_scale = sqrtf((float)h->n_embd);
    return 0;
}

static const struct decoder gemma = {.attention = {.rope = true}, .mlp = {.act = IR_GELU_TANH}};

const struct family family_gemma = {.setup = setup_gemma, .decoder = &gemma};
