/* The plain products for x86-64 since 2013. */
#if defined(__x86_64__)
#define LEVEL linear_avx2
#define LEVEL_IS_AVX2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#include "kernels/plain.h"
#else
typedef int linear_avx2_is_empty;
#endif
