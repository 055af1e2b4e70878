/* The families of arch.def: each composes blocks into a graph. A family may first adjust the hyperparameters
 * that only it reads. */
#ifndef ARCH_FAMILY_H
#define ARCH_FAMILY_H

#include "arch/block/block.h"

struct family {
    /* Reads and checks what the shared table does not; may be NULL. */
    int (*setup)(struct hparams *h, const struct gguf *g, struct err *err);
    void (*build)(struct net *n);
    bool experts;    /* it may have experts; `setup` reads how many */
    bool layer_norm; /* norms are LayerNorms */
    bool nextn;      /* layers behind the trunk that guess are built like the others, from net.first on */
    /* Instead of `build`. */
    const struct decoder *decoder;
};

/* Layers of attention, then a feed-forward block or experts: most families are that, and differ in the
 * following. */
struct decoder {
    struct attention attention; /* its `rope`: of the layers that rotate */
    struct mlp mlp;
    struct moe moe;       /* of the layers that have experts */
    const char *ffn_norm; /* NULL: "ffn_norm" */
    bool no_pre_norms;    /* blocks read the stream as it is */
    bool plain_norms;     /* LayerNorms without weights */
    bool post_norms;      /* what blocks give is normed: "post_attention_norm", "post_ffw_norm" */
    bool parallel; /* both blocks read the layer's input, by one norm or, if there is an ffn_norm, by two */
    bool rope_in_windows;  /* only layers with a sliding window rotate, if any has one */
    uint32_t no_rope_step; /* every so many layers one doesn't rotate; 0: all do */
    bool no_head_bias;     /* one in the file doesn't count */
    bool positions;        /* learned ones are added to the embeddings: "position_embd" */
};

void decoder_build(struct net *n, const struct decoder *d);

#define ARCH(name, symbol, rope_order) extern const struct family symbol;
#include "arch/arch.def"
#undef ARCH

#endif
