/* Speed of repacking: gigabytes of image written per second, by type and instruction set on one thread, and
 * by quant_repack_all on all of them. The last line is memcpy, for scale. The best of several rounds counts:
 * the question is what the code can do, not what else the machine was doing.
 *
 *     cc -O3 -std=c11 -D_GNU_SOURCE -ffp-contract=off -Isrc bench/repack.c src/quant/[a-z]*.c
 * src/base/[a-z]*.c \ src/gguf/[a-z]*.c -lpthread -lm -o /tmp/repack && /tmp/repack [MiB of blocks, default
 * 64] */
#include "base/mem.h"
#include "base/par.h"
#include "quant/quant.h"
#include "quant/repack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLS = 4096, ROUNDS = 7 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct matrix {
    uint32_t type;
    size_t rows, blocks, bytes; /* bytes: of all image parts */
    const uint8_t *src;
    uint8_t *q, *scale, *min;
};

static void one_thread(const struct matrix *m, const void *kernel)
{
    const struct repack_level *level = kernel;
    level->kernel[m->type](m->src, m->blocks, m->q, m->scale, m->min);
}

static void all_threads(const struct matrix *m, const void *none)
{
    (void)none;
    quant_repack_all(m->type, m->src, m->rows, COLS, NULL, m->q, m->scale, m->min);
}

static void copy(const struct matrix *m, const void *none)
{
    (void)none;
    memcpy(m->q, m->src, m->bytes);
}

static void measure(const struct matrix *m, void (*fn)(const struct matrix *, const void *), const void *arg)
{
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        double start = now();
        fn(m, arg);
        double took = now() - start;
        best = took < best ? took : best;
    }
    printf(" %9.2f", (double)m->bytes / best * 1e-9);
    fflush(stdout);
}

/* Lays out the parts one after the other in `out`. False when the type has no image to repack. */
static bool matrix_of(struct matrix *m, uint32_t type, const uint8_t *src, size_t src_bytes, uint8_t *out)
{
    const struct quant_image *image = quant_image_of(type);
    const struct ggml_type_info *info = ggml_type_info(type);
    if (!image || !image->group)
        return false;
    size_t row = COLS / info->block * info->bytes, rows = src_bytes / row;
    struct quant_sizes size;
    if (quant_sizes(type, rows, COLS, &size, NULL) != 0)
        return false;
    *m = (struct matrix){.type = type,
                         .rows = rows,
                         .blocks = rows * (COLS / info->block),
                         .bytes = size.q + size.scale + size.min,
                         .src = src,
                         .q = out,
                         .scale = out + align_up(size.q, 64),
                         .min = out + align_up(size.q, 64) + align_up(size.scale, 64)};
    return true;
}

int main(int argc, char **argv)
{
    size_t n = (size_t)(argc > 1 ? atoi(argv[1]) : 64) << 20;
    uint8_t *src = aligned_alloc(64, n), *out = aligned_alloc(64, 4 * n);
    if (!src || !out || n == 0)
        return 1;
    for (size_t i = 0; i < n; i++)
        src[i] = (uint8_t)(i * 2654435761u >> 13 & 0x3f);
    memset(out, 1, 4 * n);

    const struct repack_level *levels[REPACK_MAX_LEVELS];
    size_t n_levels = repack_levels(levels);
    printf("GB/s     ");
    for (size_t l = 0; l < n_levels; l++)
        printf(" %9s", levels[l]->name);
    printf("  all (%d)\n", par_cpus());
    for (uint32_t type = 0; type < REPACK_TYPES; type++) {
        struct matrix m;
        if (!matrix_of(&m, type, src, n, out))
            continue;
        printf("%-9s", ggml_type_info(type)->name);
        for (size_t l = 0; l < n_levels; l++)
            measure(&m, one_thread, levels[l]);
        measure(&m, all_threads, NULL);
        printf("\n");
    }
    printf("%-9s", "memcpy");
    measure(&(struct matrix){.bytes = n, .src = src, .q = out}, copy, NULL);
    printf("\n");
    free(src);
    free(out);
    return 0;
}
