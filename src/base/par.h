/* Parallel loops for load-time work (repacking, reading). Not for the decode loop: that is OpenVINO's pool.
 */
#ifndef BASE_PAR_H
#define BASE_PAR_H

#include <stddef.h>

/* Calls fn(ctx, begin, end) over [0, n) in pieces of at most `grain`, on up to `threads` threads
 * (0: as many as the process may use). Returns when all is done. fn must not fail. */
void par_for(size_t n, size_t grain, int threads, void (*fn)(void *ctx, size_t begin, size_t end), void *ctx);

/* Processors this process may run on. */
int par_cpus(void);

#endif
