/* The repacking kernels for x86-64 with byte shuffles of 512-bit AVX, used on 256-bit vectors. */
#if defined(__x86_64__)
#define LEVEL      repack_avx512
#define LEVEL_NAME "avx512"
#define TARGET     __attribute__((target("avx2,avx512f,avx512bw,avx512vl,avx512vbmi")))
#define WIDTH      32
#include "quant/repack_kernels.h"
#else
typedef int repack_avx512_is_empty;
#endif
