/* Statistics of one model against another, gathered position by position and printed as llama-perplexity
 * does. */
#ifndef CLI_KLD_H
#define CLI_KLD_H

#include "cli/score.h"

struct kld {
    struct score_sum nll, nll_base, kld, p_diff, p_diff2;
    double sum_nll_nll_base;
    size_t n, n_same_top;
    float *klds, *p_diffs; /* [size], one for each position */
    size_t size;
};

/* Room for `size` positions; false when memory is out. kld_release is due either way. */
bool kld_init(struct kld *k, size_t size);
void kld_release(struct kld *k);
void kld_add(struct kld *k, const struct score_pair *p);

/* The table's head, and its line for a chunk (counted from 1): the values up to there. */
void kld_print_head(void);
void kld_print_chunk(const struct kld *k, int chunk);
/* The final statistics; nothing for fewer than 100 positions. Sorts klds and p_diffs. */
void kld_print(struct kld *k);

#endif
