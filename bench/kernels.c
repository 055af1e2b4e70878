/* How fast rows of x are multiplied with GGUF blocks: src/kernels by itself, without OpenVINO.
 *
 *   make && cc -O2 -D_GNU_SOURCE -std=c11 -Isrc -o /tmp/kernels bench/kernels.c \
 *       build/lib{kernels,quant,gguf,base}.a -lpthread -lm
 *   /tmp/kernels [-t THREADS] [-i portable|avx2|avx512] [-k COLS] [-s SECONDS] [TYPE…]
 *
 * First the speed of reading memory. Then per type: decode (m = 1, 2 rows of x, matrices that together are
 * larger than any cache) in GB/s of W and as a part of the reading speed; several sequences (m = 4 … 32) and
 * prefill (m = 512) in GFLOP/s.
 * Two figures each: by the wall clock, and by the processor time of the busiest thread, which on a machine
 * that is shared says what it would be alone (for decode only as far as others leave the memory alone). The
 * best of several runs. Last, for Q4_0 and Q4_K, a mixture of 64 experts of which each row takes 8 (1024
 * wide, 512 inside): several layers with other experts each time, so that blocks come from memory. */
#include "gguf/gguf.h"
#include "kernels/experts.h"
#include "kernels/linear.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64, DECODE_BYTES = 256 << 20 };

static int n_threads = 2;
static double seconds = 0.5;

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* fn(ctx, thread) on all threads at the same time; the time from the first start to the last end. */
struct work {
    void (*fn)(void *ctx, int thread);
    void *ctx;
    int thread;
    double start, end, cpu;
    pthread_barrier_t *barrier;
};

static void *run(void *arg)
{
    struct work *w = arg;
    pthread_barrier_wait(w->barrier);
    w->start = now(CLOCK_MONOTONIC);
    double cpu = now(CLOCK_THREAD_CPUTIME_ID);
    w->fn(w->ctx, w->thread);
    w->cpu = now(CLOCK_THREAD_CPUTIME_ID) - cpu;
    w->end = now(CLOCK_MONOTONIC);
    return NULL;
}

struct times {
    double wall, cpu;
};

static struct times on_threads(void (*fn)(void *ctx, int thread), void *ctx)
{
    pthread_t threads[MAX_THREADS];
    struct work work[MAX_THREADS];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)n_threads);
    for (int i = 0; i < n_threads; i++) {
        work[i] = (struct work){.fn = fn, .ctx = ctx, .thread = i, .barrier = &barrier};
        pthread_create(&threads[i], NULL, run, &work[i]);
    }
    struct times t = {0, 0};
    double start = 1e300, end = 0;
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        t.cpu = work[i].cpu > t.cpu ? work[i].cpu : t.cpu;
        start = work[i].start < start ? work[i].start : start;
        end = work[i].end > end ? work[i].end : end;
    }
    t.wall = end - start;
    pthread_barrier_destroy(&barrier);
    return t;
}

static struct times best(void (*fn)(void *ctx, int thread), void *ctx)
{
    struct times least = {1e9, 1e9};
    double end = now(CLOCK_MONOTONIC) + seconds;
    do {
        struct times t = on_threads(fn, ctx);
        least.wall = t.wall < least.wall ? t.wall : least.wall;
        least.cpu = t.cpu < least.cpu ? t.cpu : least.cpu;
    } while (now(CLOCK_MONOTONIC) < end);
    return least;
}

struct bytes {
    const uint8_t *p;
    size_t n;
};

static volatile uint64_t sink;

static void read_all(void *ctx, int thread)
{
    const struct bytes *b = ctx;
    size_t part = b->n / (size_t)n_threads / 256 * 256;
    const uint8_t *p = b->p + part * (size_t)thread;
    uint64_t sum[4] = {0};
    for (size_t i = 0; i < part; i += 256)
        for (size_t j = 0; j < 4; j++) {
            __builtin_prefetch(p + i + 64 * j + 4096, 0, 2);
            uint64_t v;
            memcpy(&v, p + i + 64 * j, sizeof v);
            sum[j] += v;
        }
    sink = sum[0] + sum[1] + sum[2] + sum[3];
}

/* Several matrices, so that many bytes pass even where one would stay in the cache. */
struct products {
    struct linear l;
    size_t m, n, matrix_bytes;
    const uint8_t *data;
    float *x, *y;
    void *scratch;
};

static void multiply_all(void *ctx, int thread)
{
    const struct products *p = ctx;
    size_t step = linear_step(), pieces = p->l.rows / step;
    size_t first = pieces * (size_t)thread / (size_t)n_threads * step;
    size_t last = pieces * (size_t)(thread + 1) / (size_t)n_threads * step;
    struct linear l = p->l;
    for (size_t i = 0; i < p->n; i++) {
        l.part[0].data = p->data + i * p->matrix_bytes;
        linear_multiply(&l, p->m, p->scratch, first, last, p->y);
    }
}

static void quantize_all(void *ctx, int thread)
{
    const struct products *p = ctx;
    size_t n = (size_t)n_threads, t = (size_t)thread;
    linear_quantize(&p->l, p->m, p->x, p->m * t / n, p->m * (t + 1) / n, p->scratch);
}

static struct products products(uint32_t type, size_t rows, size_t cols, size_t m, const uint8_t *data,
                                size_t limit)
{
    const struct ggml_type_info *info = ggml_type_info(type);
    struct products p = {.l = {cols, rows, 1, {{type, rows, data, NULL}}}, .m = m, .data = data};
    p.matrix_bytes = rows * (cols / info->block) * info->bytes;
    p.n = limit / p.matrix_bytes;
    p.x = calloc(m * cols, sizeof *p.x);
    p.y = calloc(m * rows, sizeof *p.y);
    for (size_t i = 0; i < m * cols; i++)
        p.x[i] = (float)(rand() % 2001 - 1000) / 1000;
    size_t size = (linear_scratch_size(&p.l, m) + 63) / 64 * 64;
    p.scratch = aligned_alloc(64, size);
    linear_quantize(&p.l, m, p.x, 0, m, p.scratch);
    return p;
}

static void products_release(struct products *p)
{
    free(p->x);
    free(p->y);
    free(p->scratch);
}

static void bench_type(const struct ggml_type_info *info, uint32_t type, size_t cols, const uint8_t *data,
                       struct times mem)
{
    static const size_t few[] = {1, 2, 4, 8, 16, 32};
    double read_wall = DECODE_BYTES / mem.wall, read_cpu = DECODE_BYTES / mem.cpu;
    printf("%-7s", info->name);
    for (int i = 0; i < 6; i++) {
        struct products p = products(type, cols, cols, few[i], data, DECODE_BYTES);
        struct times t = best(multiply_all, &p);
        double bytes = (double)(p.n * p.matrix_bytes);
        double ops = 2.0 * (double)few[i] * (double)(p.n * cols * cols);
        if (few[i] < 4)
            printf(" | %5.1f %4.2f %5.1f %4.2f", bytes / t.wall * 1e-9, bytes / t.wall / read_wall,
                   bytes / t.cpu * 1e-9, bytes / t.cpu / read_cpu);
        else
            printf(" | %5.0f %5.0f", ops / t.wall * 1e-9, ops / t.cpu * 1e-9);
        fflush(stdout);
        products_release(&p);
    }
    struct products p = products(type, 2048, cols, 512, data, 0);
    p.n = 1;
    struct times t = best(multiply_all, &p);
    double ops = 2.0 * 512 * 2048 * (double)cols;
    printf(" | %5.0f %5.0f", ops / t.wall * 1e-9, ops / t.cpu * 1e-9);
    t = best(quantize_all, &p);
    printf(" | %5.2f\n", (double)(512 * cols * sizeof(float)) / t.cpu * 1e-9);
    fflush(stdout);
    products_release(&p);
}

/* ---- experts ---- */

enum { EXPERTS = 64, USED = 8, WIDTH = 1024, INSIDE = 512, MAX_CALLS = 64 };

struct mixtures {
    struct experts e[MAX_CALLS];
    size_t m, n;
    float *x, *y, *weights;
    int32_t *ids; /* [n][m][USED] */
    void *scratch;
    struct experts_run run;
    atomic_size_t next[EXPERTS_N_PHASES];
    atomic_uint waiting, round;
};

/* Threads wait here without sleeping, as a pool's do between pieces; their processor time has that in it. */
static void meet(struct mixtures *p)
{
    unsigned round = atomic_load(&p->round);
    if (atomic_fetch_add(&p->waiting, 1) + 1 == (unsigned)n_threads) {
        atomic_store(&p->waiting, 0);
        atomic_fetch_add(&p->round, 1);
    }
    while (atomic_load(&p->round) == round)
        ;
}

static void mix_all(void *ctx, int thread)
{
    struct mixtures *p = ctx;
    for (size_t i = 0; i < p->n; i++) {
        if (thread == 0) {
            for (int phase = 0; phase < EXPERTS_N_PHASES; phase++)
                atomic_store(&p->next[phase], 0);
            if (experts_begin(&p->run, &p->e[i], p->m, USED, p->x, p->ids + i * p->m * USED, p->weights, p->y,
                              p->scratch, (size_t)n_threads) < 0)
                abort();
        }
        meet(p);
        for (int f = 0; f < EXPERTS_N_PHASES; f++) {
            enum experts_phase phase = (enum experts_phase)f;
            size_t pieces = experts_pieces(&p->run, phase), grain = experts_grain(phase), at;
            while ((at = atomic_fetch_add(&p->next[phase], grain)) < pieces)
                experts_do(&p->run, phase, at, at + grain < pieces ? at + grain : pieces);
            meet(p);
        }
    }
}

static struct experts experts_at(uint32_t type, const uint8_t *data, size_t stack)
{
    struct experts e = {.n = EXPERTS, .cols = WIDTH, .ff = INSIDE, .act = GATE_SILU};
    size_t rows = (size_t)EXPERTS * INSIDE;
    e.gate_up =
        (struct linear){WIDTH, 2 * rows, 2, {{type, rows, data, NULL}, {type, rows, data + stack, NULL}}};
    e.down = (struct linear){INSIDE, EXPERTS * WIDTH, 1, {{type, EXPERTS * WIDTH, data + 2 * stack, NULL}}};
    return e;
}

static void bench_experts(uint32_t type, const uint8_t *data, size_t m, size_t calls)
{
    const struct ggml_type_info *info = ggml_type_info(type);
    static struct mixtures p;
    size_t stack = (size_t)EXPERTS * INSIDE * WIDTH / info->block * info->bytes;
    size_t layers = DECODE_BYTES / (3 * stack);
    p.m = m;
    p.n = calls;
    p.x = calloc(m * WIDTH, sizeof *p.x);
    p.y = calloc(m * WIDTH, sizeof *p.y);
    p.weights = calloc(m * USED, sizeof *p.weights);
    p.ids = calloc(calls * m * USED, sizeof *p.ids);
    for (size_t i = 0; i < m * WIDTH; i++)
        p.x[i] = (float)(rand() % 2001 - 1000) / 1000;
    for (size_t i = 0; i < calls; i++)
        p.e[i] = experts_at(type, data + i % layers * 3 * stack, stack);
    for (size_t i = 0; i < calls * m; i++) {
        int first = rand() % EXPERTS, step = 2 * (rand() % 4) + 1;
        for (int j = 0; j < USED; j++)
            p.ids[i * USED + (size_t)j] = (first + j * step) % EXPERTS;
    }
    size_t size = (experts_scratch_size(&p.e[0], m, USED) + 63) / 64 * 64;
    p.scratch = aligned_alloc(64, size);
    memset(p.scratch, 0, size);
    struct times t = best(mix_all, &p);
    double elements = 3.0 * (double)m * USED * WIDTH * INSIDE * (double)calls;
    if (m == 1)
        printf("%-7s experts, 1 row: %.3f ms, %.1f GB/s (by processor time %.1f)\n", info->name,
               t.wall / (double)calls * 1e3, elements / info->block * info->bytes / t.wall * 1e-9,
               elements / info->block * info->bytes / t.cpu * 1e-9);
    else
        printf("%-7s experts, %zu rows: %.1f ms, %.0f GFLOP/s (by processor time %.0f)\n", info->name, m,
               t.wall / (double)calls * 1e3, 2 * elements / t.wall * 1e-9, 2 * elements / t.cpu * 1e-9);
    free(p.x);
    free(p.y);
    free(p.weights);
    free(p.ids);
    free(p.scratch);
}

int main(int argc, char **argv)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    size_t cols = 4096;
    for (int c; (c = getopt(argc, argv, "t:i:k:s:")) != -1;) {
        if (c == 't')
            n_threads = atoi(optarg);
        else if (c == 'k')
            cols = (size_t)atoi(optarg);
        else if (c == 's')
            seconds = atof(optarg);
        else if (c == 'i') {
            for (int i = 0; i < LINEAR_N_ISA; i++)
                if (!strcmp(optarg, isas[i]) && linear_has_isa((enum linear_isa)i))
                    linear_set_isa((enum linear_isa)i);
        } else
            return 2;
    }
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return 2;
    uint8_t *data = aligned_alloc(4096, DECODE_BYTES);
    /* Small numbers in every field, so that no sum is NaN or infinite. */
    for (size_t i = 0; i < DECODE_BYTES; i++)
        data[i] = (uint8_t)(rand() & 0x2f);
    struct bytes all = {data, DECODE_BYTES};
    struct times mem = best(read_all, &all);
    printf("%s, %d threads, reading memory: %.1f GB/s (by processor time %.1f)\n", isas[linear_isa()],
           n_threads, DECODE_BYTES / mem.wall * 1e-9, DECODE_BYTES / mem.cpu * 1e-9);
    printf("m = 1, 2: GB/s, part of reading speed, the same by processor time; more: GFLOP/s wall and "
           "processor time; "
           "rounding x: GB/s\n");
    printf("type    | %-21s | %-21s | %-11s | %-11s | %-11s | %-11s | %-11s | round\n", "m = 1", "m = 2",
           "m = 4", "m = 8", "m = 16", "m = 32", "m = 512");
    for (uint32_t type = 0; type < 64; type++) {
        bool wanted = optind == argc;
        const struct ggml_type_info *info = ggml_type_info(type);
        for (int i = optind; info && i < argc; i++)
            wanted |= !strcmp(argv[i], info->name);
        if (info && wanted && linear_supports(type))
            bench_type(info, type, cols, data, mem);
    }
    static const uint32_t mixed[] = {GGML_Q4_0, GGML_Q4_K};
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed && optind == argc; i++) {
        bench_experts(mixed[i], data, 1, MAX_CALLS);
        bench_experts(mixed[i], data, 512, 1);
    }
    free(data);
    return 0;
}
