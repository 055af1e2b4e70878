/* The families of arch.def: each composes blocks into a graph. A family may first adjust the hyperparameters
 * that only it reads. */
#ifndef ARCH_FAMILY_H
#define ARCH_FAMILY_H

#include "arch/block/block.h"

struct family {
    /* Reads and checks what the shared table does not; may be NULL. */
    int (*setup)(struct hparams *h, const struct gguf *g, struct err *err);
    void (*build)(struct net *n);
    bool experts; /* it may have experts; `setup` reads how many */
};

#define ARCH(name, symbol, rope_order) extern const struct family symbol;
#include "arch/arch.def"
#undef ARCH

#endif
