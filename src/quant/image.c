/* The table: what becomes of each GGML type, and how much memory that takes. */
#include "quant/quant.h"

#include "base/mem.h"
#include "quant/blocks.h"

struct row {
    struct quant_image image;
    const char *name;
    uint32_t block; /* columns come in multiples of it; 0: no such row */
};

#define ROW(type, ...) [GGML_##type] = {.name = #type, .block = BLOCK_##type, .image = {__VA_ARGS__}}

/* Centred u4 (zero 8) and not zero 0 with a larger min, even where the type has a min: the integer products
 * stay small and lose less. K scales are products of an f16 and a small integer, which f16 cannot hold. */
static const struct row rows[] = {
    ROW(F32, .elem = QUANT_F32, .exact = true),
    ROW(F16, .elem = QUANT_F16, .exact = true),
    ROW(BF16, .elem = QUANT_BF16, .exact = true),
    ROW(Q4_0, .elem = QUANT_U4, .group = 32, .zero = 8, .scale = QUANT_F16, .exact = true),
    ROW(Q4_1, .elem = QUANT_U4, .group = 32, .zero = 8, .scale = QUANT_F16, .has_min = true),
    ROW(Q5_0, .elem = QUANT_I8, .group = 32, .scale = QUANT_F16, .exact = true),
    ROW(Q5_1, .elem = QUANT_I8, .group = 32, .scale = QUANT_F16, .has_min = true),
    ROW(Q8_0, .elem = QUANT_I8, .group = 32, .scale = QUANT_F16, .exact = true),
    ROW(Q2_K, .elem = QUANT_U4, .group = 16, .scale = QUANT_F32, .has_min = true, .exact = true),
    ROW(Q3_K, .elem = QUANT_U4, .group = 16, .zero = 8, .scale = QUANT_F32, .exact = true),
    ROW(Q4_K, .elem = QUANT_U4, .group = 32, .zero = 8, .scale = QUANT_F32, .has_min = true),
    ROW(Q5_K, .elem = QUANT_I8, .group = 32, .scale = QUANT_F32, .has_min = true),
    ROW(Q6_K, .elem = QUANT_I8, .group = 16, .scale = QUANT_F32, .exact = true),
    ROW(IQ4_NL, .elem = QUANT_I8, .group = 32, .scale = QUANT_F16, .exact = true),
    ROW(IQ4_XS, .elem = QUANT_I8, .group = 32, .scale = QUANT_F32, .exact = true),
    ROW(MXFP4, .elem = QUANT_I8, .group = 32, .scale = QUANT_F32, .exact = true),
};

static const uint8_t elem_bits[] = {
    [QUANT_F32] = 32, [QUANT_F16] = 16, [QUANT_BF16] = 16, [QUANT_U4] = 4, [QUANT_I8] = 8, [QUANT_U8] = 8,
};

static const struct row *find(uint32_t type)
{
    return type < sizeof rows / sizeof rows[0] && rows[type].block ? &rows[type] : NULL;
}

const struct quant_image *quant_image_of(uint32_t ggml_type)
{
    const struct row *row = find(ggml_type);
    return row ? &row->image : NULL;
}

int quant_sizes(uint32_t ggml_type, uint64_t n_rows, uint64_t cols, struct quant_sizes *out, struct err *err)
{
    const struct row *row = find(ggml_type);
    if (!row)
        return err_set(err, ERR_UNSUPPORTED, "no image for tensors of type %u", ggml_type);
    if (cols % row->block != 0)
        return err_set(err, ERR_FORMAT, "%s: rows of %llu elements, not a multiple of %u", row->name,
                       (unsigned long long)cols, row->block);

    const struct quant_image *im = &row->image;
    uint64_t groups = im->group ? cols / im->group : 0;
    size_t bits, q, scales, mins;
    /* cols * 32 bits is the largest of all, so the rest cannot overflow where this doesn't. */
    if (!mul_size(n_rows, cols, &q) || !mul_size(q, elem_bits[im->elem], &bits) ||
        !mul_size(n_rows, groups, &scales) || !mul_size(scales, elem_bits[im->scale] / 8, &scales) ||
        !mul_size(n_rows, groups, &mins) || !mul_size(mins, sizeof(float), &mins))
        return err_set(err, ERR_FORMAT, "%s: %llu rows of %llu elements are too many", row->name,
                       (unsigned long long)n_rows, (unsigned long long)cols);
    *out = (struct quant_sizes){bits / 8, scales, im->has_min ? mins : 0};
    return 0;
}

static float value(enum quant_elem elem, const void *base, size_t i)
{
    const uint8_t *bytes = base;
    float f;
    switch (elem) {
    case QUANT_F32:
        memcpy(&f, bytes + 4 * i, sizeof f);
        return f;
    case QUANT_F16:
        return load_f16(bytes + 2 * i);
    case QUANT_BF16:
        return quant_bf16_to_f32(load_u16(bytes + 2 * i));
    case QUANT_U4:
        return (float)(bytes[i / 2] >> 4 * (i % 2) & 15);
    case QUANT_I8:
        return (float)(int8_t)bytes[i];
    case QUANT_U8:
        return (float)bytes[i];
    }
    return 0;
}

void quant_image_row(const struct quant_image *image, const void *q, const void *scale, const void *min,
                     uint64_t cols, uint64_t row, float *out)
{
    for (uint64_t c = 0; c < cols; c++) {
        float w = value(image->elem, q, row * cols + c);
        if (image->group) {
            uint64_t g = (row * cols + c) / image->group;
            w = value(image->scale, scale, g) * (w - (float)image->zero);
            if (image->has_min)
                w += value(QUANT_F32, min, g);
        }
        out[c] = w;
    }
}
