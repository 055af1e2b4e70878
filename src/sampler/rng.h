/* The random numbers of the C++ standard library, so that a seed gives the tokens that llama.cpp gives:
 * std::mt19937, and the way libstdc++ turns its words into numbers of [0, 1).
 *
 * M. Matsumoto, T. Nishimura: Mersenne Twister. ACM TOMACS 8(1), 1998; seeding as in the authors' 2002 code.
 */
#ifndef SAMPLER_RNG_H
#define SAMPLER_RNG_H

#include <stdint.h>

#define RNG_WORDS 624

struct rng {
    uint32_t word[RNG_WORDS];
    int next; /* RNG_WORDS: all are used up */
};

void rng_seed(struct rng *r, uint32_t seed);
uint32_t rng_next(struct rng *r);
double rng_double(
    struct rng *r); /* std::uniform_real_distribution<double>: two words, the first is the low one */
float rng_float(struct rng *r); /* std::uniform_real_distribution<float>: one word */

#endif
