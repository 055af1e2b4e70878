/* Rounding rows of x to 8 bits as ggml does, in C that compilers make vector code of: the including file
 * defines TARGET (a function attribute) and INLINE. */
#include "kernels/rows.h"

/* To the nearest whole number, ties to even. Adding 1.5 * 2^23 leaves no bits for a fraction. */
INLINE int nearest(float f)
{
    float sum = f + 0x1.8p23f;
    return (int)(load_u32(&sum) & 0x7fffff) - 0x400000;
}

INLINE float farthest(const float *x, int n)
{
    float far = 0;
    for (int i = 0; i < n; i++)
        if (__builtin_fabsf(x[i]) > __builtin_fabsf(far))
            far = x[i];
    return far;
}

INLINE int round_group(const float *x, int n, float inverse, int8_t *q)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        q[i] = (int8_t)nearest(x[i] * inverse);
        sum += q[i];
    }
    return sum;
}

static TARGET void round_32(const float *x, size_t cols, const struct rounded *to, size_t row)
{
    size_t from = row * to->steps * STEP_GROUPS;
    for (size_t g = from; g < from + to->steps * STEP_GROUPS; g++, x += 32) {
        int8_t *q = (int8_t *)to->q + g * 32;
        float max = (g - from) * 32 < cols ? __builtin_fabsf(farthest(x, 32)) : 0, d = max / 127;
        int sum = 0;
        if (max != 0)
            sum = round_group(x, 32, 127 / max, q);
        else
            memset(q, 0, 32);
        to->s[g] = f16_rounded(d * (float)sum);
        to->less[g] = -sum;
        to->d[g] = f16_rounded(d);
    }
}

static TARGET void round_256(const float *x, size_t cols, const struct rounded *to, size_t row)
{
    size_t from = row * to->steps;
    for (size_t step = from; step < from + cols / STEP; step++, x += STEP) {
        int8_t *q = (int8_t *)to->q + step * STEP;
        float far = farthest(x, STEP), inverse = far != 0 ? -127 / far : 0, d = far != 0 ? 1 / inverse : 0;
        for (size_t i = 0; i < 8; i++) {
            int a = round_group(x + 32 * i, 16, inverse, q + 32 * i);
            int b = round_group(x + 32 * i + 16, 16, inverse, q + 32 * i + 16);
            to->s16[step * 16 + 2 * i] = d * (float)a;
            to->s16[step * 16 + 2 * i + 1] = d * (float)b;
            to->s[step * 8 + i] = d * (float)(a + b);
            to->less[step * 16 + 2 * i] = -a;
            to->less[step * 16 + 2 * i + 1] = -b;
        }
        to->d[step] = d;
    }
}
