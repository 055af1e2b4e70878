/* A parallel loop: threads take the next piece from one counter until none is left. */
#include "base/par.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct loop {
    atomic_size_t next;
    size_t n, grain;
    void (*fn)(void *, size_t, size_t);
    void *ctx;
};

int par_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

static void *work(void *arg)
{
    struct loop *l = arg;
    for (;;) {
        size_t begin = atomic_fetch_add(&l->next, l->grain);
        if (begin >= l->n)
            return NULL;
        size_t end = l->n - begin < l->grain ? l->n : begin + l->grain;
        l->fn(l->ctx, begin, end);
    }
}

void par_for(size_t n, size_t grain, int threads, void (*fn)(void *ctx, size_t begin, size_t end), void *ctx)
{
    enum { MAX = 256 };
    if (n == 0)
        return;
    struct loop l = {.n = n, .grain = grain ? grain : 1, .fn = fn, .ctx = ctx};
    size_t pieces = (n - 1) / l.grain + 1;
    size_t want = (size_t)(threads > 0 ? threads : par_cpus());
    if (want > pieces)
        want = pieces;
    if (want > MAX)
        want = MAX;
    pthread_t id[MAX];
    size_t started = 0;
    while (started + 1 < want && pthread_create(&id[started], NULL, work, &l) == 0)
        started++;
    work(&l);
    for (size_t i = 0; i < started; i++)
        pthread_join(id[i], NULL);
}
