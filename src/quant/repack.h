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
/* A build for AVX-512VL (the same kernels on 256 bits) was measured on one thread: within a fifth of this one
 * but for Q2_K, twice as fast. Fresh memory is slower than either, so it isn't kept. */
extern const struct repack_level repack_avx2;
#endif

enum { REPACK_MAX_LEVELS = 2 };
/* The levels that this processor can run, best first. Returns how many. */
size_t repack_levels(const struct repack_level *out[REPACK_MAX_LEVELS]);

#endif
