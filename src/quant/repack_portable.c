/* The repacking kernels for any processor. */
#define LEVEL      repack_portable
#define LEVEL_NAME "portable"
#define TARGET
#define WIDTH 16
#include "quant/repack_kernels.h"
