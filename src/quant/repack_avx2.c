/* The repacking kernels for x86-64 since 2013. */
#if defined(__x86_64__)
#define LEVEL      repack_avx2
#define LEVEL_NAME "avx2"
#define TARGET     __attribute__((target("avx2")))
#define WIDTH      32
#include "quant/repack_kernels.h"
#else
typedef int repack_avx2_is_empty;
#endif
