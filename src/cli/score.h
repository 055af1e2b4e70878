/* How a row of logits judges a token, and how it compares with another model's row: the arithmetic of
 * perplexity, and the 16-bit log-probabilities of llama-perplexity's logits files. */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of one row in a logits file: scale and least log-probability as two floats, then a number for each
 * token, filled up to an even count. */
static inline size_t score_row_u16(int32_t n_vocab)
{
    return 4 + 2 * (((size_t)n_vocab + 1) / 2);
}

/* Minus the log-probability of the token. */
double score_nll(const float *logits, int32_t n_vocab, int32_t token);
/* The same, and the row for a logits file. */
double score_nll_packed(const float *logits, int32_t n_vocab, int32_t token, uint16_t *row);

struct score_pair {
    double nll, nll_base; /* of the token, by these logits and by the base */
    double kld;           /* Kullback-Leibler divergence from the base */
    double p_diff;        /* probability of the token minus that of the base */
    bool same_top;        /* both find the same token likeliest */
};
void score_compare(const float *logits, const uint16_t *base, int32_t n_vocab, int32_t token,
                   struct score_pair *out);

/* Sums of a series, for its mean and the uncertainty of that. */
struct score_sum {
    double sum, squares;
    size_t n;
};
void score_sum_add(struct score_sum *s, double v);
double score_mean(const struct score_sum *s);
double score_uncertainty(const struct score_sum *s);

/* The value at a fraction of sorted ones, between two neighbours if it falls there. */
float score_percentile(const float *sorted, size_t n, float fraction);

#endif
