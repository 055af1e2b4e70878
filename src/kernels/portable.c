/* The plain products for every machine. */
#define LEVEL linear_portable
#define TARGET
#include "kernels/plain.h"
