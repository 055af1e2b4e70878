/* Inside the room: the instruction sets that the repacking kernels are built for. */
#ifndef QUANT_REPACK_H
#define QUANT_REPACK_H

#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Repacks n consecutive blocks. Images have no padding, so rows that follow each other are one such run.
 * The pointers may have
 * any alignment; min is only written for types that have one. */
typedef void repack_fn(const void *restrict src, size_t n, uint8_t *restrict q, void *restrict scale,
                       void *restrict min);

enum { REPACK_TYPES = GGML_MXFP4 + 1 };

struct repack_level {
    const char *name;
    repack_fn *kernel[REPACK_TYPES]; /* by GGML type; NULL where there is none */
};

extern const struct repack_level repack_portable;
#if defined(__x86_64__)
extern const struct repack_level repack_avx2; /* 512-bit AVX was tried: no faster, memory is the limit */
#endif

enum { REPACK_MAX_LEVELS = 2 };
/* The levels that this processor can run, best first. Returns how many. */
size_t repack_levels(const struct repack_level *out[REPACK_MAX_LEVELS]);

#endif
