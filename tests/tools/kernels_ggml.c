/* Compares src/kernels with the functions of llama.cpp's CPU library, as a program of its own because the
 * library is not there in a bare clone:
 *
 *   cc -O2 -D_GNU_SOURCE -std=c11 -ffp-contract=off -Isrc -o /tmp/kernels_ggml tests/tools/kernels_ggml.c \
 *      src/kernels/?*.c src/gguf/types.c -ldl -lm
 *   LD_LIBRARY_PATH=… /tmp/kernels_ggml …/libggml-cpu.so.0
 *
 * Per type: how many rounded values and scales of x differ from what ggml's from_float makes, and the largest
 * difference between products and ggml's vec_dot, as a part of the sum of the absolute products. */
#include "kernels/rows.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* As in ggml-cpu.h. */
struct traits {
    void (*from_float)(const float *x, void *y, int64_t k);
    void (*vec_dot)(int n, float *s, size_t bs, const void *x, size_t bx, const void *y, size_t by, int nrc);
    int vec_dot_type;
    int64_t nrows;
};

enum { COLS = 2048, ROWS = 64, M = 32 };

static uint32_t random_u32(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* Rounded rows as they are in the scratch against ggml's blocks. */
static size_t differing(const struct linear_kernels *kernels, enum rounding rounding, const float *x,
                        const uint8_t *y, int type)
{
    uint8_t q[COLS];
    float d[COLS / 32], s[COLS / 32], s16[COLS / 16];
    const struct rounded to = {COLS / STEP, q, d, s, s16, false};
    size_t n = 0;
    kernels->round[rounding](x, COLS, &to, 0);
    if (rounding == ROUND_256) {
        for (int b = 0; b < COLS / 256; b++, y += 292) {
            n += memcmp(y, &d[b], 4) != 0;
            for (int i = 0; i < 256; i++)
                n += y[4 + i] != q[256 * b + i];
        }
        return n;
    }
    size_t head = type == GGML_Q8_1 ? 4 : 2;
    for (int b = 0; b < COLS / 32; b++, y += head + 32) {
        n += load_f16(y) != d[b];
        n += head == 4 && load_f16(y + 2) != s[b];
        for (int i = 0; i < 32; i++)
            n += y[head + (size_t)i] != q[32 * b + i];
    }
    return n;
}

int main(int argc, char **argv)
{
    void *lib = dlopen(argc > 1 ? argv[1] : "libggml-cpu.so.0", RTLD_NOW);
    if (!lib) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void (*init)(void) = (void (*)(void))dlsym(lib, "ggml_cpu_init");
    const struct traits *(*get)(int) = (const struct traits *(*)(int))dlsym(lib, "ggml_get_type_traits_cpu");
    init();
    static float x[M * COLS], y[M * ROWS];
    for (int i = 0; i < M * COLS; i++)
        x[i] = ((float)random_u32() * 0x1p-30f - 1) * (random_u32() % 64 ? 1 : 30);
    static const struct linear_kernels *const levels[] = {&linear_portable, &linear_avx2, &linear_avx512};
    static const char *const names[] = {"portable", "avx2", "avx512"};
    for (uint32_t type = 0; type < LINEAR_N_TYPES; type++) {
        if (!linear_supports(type))
            continue;
        const struct ggml_type_info *info = ggml_type_info(type);
        const struct traits *ggml = get((int)type), *of_x = get(ggml->vec_dot_type);
        size_t row_bytes = COLS / info->block * info->bytes;
        uint8_t *w = malloc(ROWS * row_bytes), rounded[COLS * 2];
        float *values = malloc(ROWS * COLS * sizeof *values);
        /* Bytes below 0x30 are sensible f16 values as upper bytes and keep codes of all sizes. */
        for (size_t i = 0; i < ROWS * row_bytes; i++)
            w[i] = (uint8_t)(random_u32() & (i % 2 ? 0x2f : 0xff));
        for (size_t i = 0; type == GGML_MXFP4 && i < ROWS * row_bytes; i += info->bytes)
            w[i] = (uint8_t)(120 + w[i] % 8);
        quant_dequantize(type, w, ROWS * COLS, values);
        for (int isa = 0; isa < LINEAR_N_ISA; isa++) {
            if (!linear_has_isa((enum linear_isa)isa))
                continue;
            linear_set_isa((enum linear_isa)isa);
            size_t wrong = 0;
            double worst[2] = {0, 0};
            for (int m = 1; m <= M; m += M - 1) {
                struct linear l = {COLS, ROWS, 1, {{type, ROWS, w, NULL}}};
                void *scratch = aligned_alloc(64, (linear_scratch_size(&l, (size_t)m) + 63) / 64 * 64);
                linear_quantize(&l, (size_t)m, x, 0, (size_t)m, scratch);
                linear_multiply(&l, (size_t)m, scratch, 0, ROWS, y);
                free(scratch);
                for (int i = 0; i < m; i++) {
                    of_x->from_float(x + i * COLS, rounded, COLS);
                    wrong += differing(levels[isa], info->block == 256 ? ROUND_256 : ROUND_32, x + i * COLS,
                                       rounded, ggml->vec_dot_type);
                    for (int n = 0; n < ROWS; n++) {
                        float expected;
                        double size = 0;
                        ggml->vec_dot(COLS, &expected, 0, w + (size_t)n * row_bytes, 0, rounded, 0, 1);
                        for (int k = 0; k < COLS; k++)
                            size += fabs((double)x[i * COLS + k] * (double)values[n * COLS + k]);
                        double error = fabs((double)y[i * ROWS + n] - (double)expected) / size;
                        if (!(error <= worst[m > 1]))
                            worst[m > 1] = error;
                    }
                }
            }
            printf("%-7s %-9s of %d values of x %zu differ; products differ by %.1e (one row), %.1e (many)\n",
                   info->name, names[isa], (M + 1) * COLS, wrong, worst[0], worst[1]);
        }
        free(w);
        free(values);
    }
    return 0;
}
