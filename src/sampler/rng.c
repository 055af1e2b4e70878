/* MT19937: a linear recurrence over 624 words, refilled all at once, tempered on the way out. */
#include "sampler/rng.h"

#include <math.h>

#define SHIFT 397

void rng_seed(struct rng *r, uint32_t seed)
{
    r->word[0] = seed;
    for (uint32_t i = 1; i < RNG_WORDS; i++)
        r->word[i] = 1812433253u * (r->word[i - 1] ^ (r->word[i - 1] >> 30)) + i;
    r->next = RNG_WORDS;
}

static void refill(struct rng *r)
{
    for (int i = 0; i < RNG_WORDS; i++) {
        uint32_t y = (r->word[i] & 0x80000000u) | (r->word[(i + 1) % RNG_WORDS] & 0x7FFFFFFFu);
        r->word[i] = r->word[(i + SHIFT) % RNG_WORDS] ^ (y >> 1) ^ (y & 1 ? 0x9908B0DFu : 0);
    }
    r->next = 0;
}

uint32_t rng_next(struct rng *r)
{
    if (r->next == RNG_WORDS)
        refill(r);
    uint32_t y = r->word[r->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680u;
    y ^= (y << 15) & 0xEFC60000u;
    return y ^ (y >> 18);
}

double rng_double(struct rng *r)
{
    double low = rng_next(r);
    double x = (low + rng_next(r) * 0x1p32) / 0x1p64;
    return x < 1 ? x : nextafter(1, 0); /* rounding can reach 1, which must not come out */
}

float rng_float(struct rng *r)
{
    float x = (float)rng_next(r) / 0x1p32f;
    return x < 1 ? x : nextafterf(1, 0);
}
