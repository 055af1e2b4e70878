/* UNROLL before a loop: loops over arrays of registers only keep them in registers when they are unrolled. */
#ifndef KERNELS_UNROLL_H
#define KERNELS_UNROLL_H

#if !defined(NDEBUG)
#define UNROLL /* with sanitizers it would only take minutes to compile */
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
