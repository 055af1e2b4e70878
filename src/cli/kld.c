/* Means with uncertainties, percentiles, and the three tables at the end. The figures and their layout are
 * those of llama-perplexity, so that its readers can read ours. */
#include "cli/kld.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool kld_init(struct kld *k, size_t size)
{
    *k = (struct kld){.size = size};
    k->klds = calloc(size ? size : 1, sizeof *k->klds);
    k->p_diffs = calloc(size ? size : 1, sizeof *k->p_diffs);
    return k->klds && k->p_diffs;
}

void kld_release(struct kld *k)
{
    free(k->klds);
    free(k->p_diffs);
}

void kld_add(struct kld *k, const struct score_pair *p)
{
    if (k->n == k->size)
        return;
    k->klds[k->n] = (float)p->kld;
    k->p_diffs[k->n] = (float)p->p_diff;
    k->n++;
    score_sum_add(&k->nll, p->nll);
    score_sum_add(&k->nll_base, p->nll_base);
    score_sum_add(&k->kld, p->kld);
    score_sum_add(&k->p_diff, p->p_diff);
    score_sum_add(&k->p_diff2, p->p_diff * p->p_diff);
    k->sum_nll_nll_base += p->nll * p->nll_base;
    k->n_same_top += p->same_top;
}

/* ---- derived figures ---- */

struct figure {
    double value, uncertainty;
};

static struct figure mean_of(const struct score_sum *s)
{
    return (struct figure){score_mean(s), score_uncertainty(s)};
}

/* Of the two means, ln PPL(Q) and ln PPL(base). */
static double covariance(const struct kld *k)
{
    double n = (double)k->n;
    if (k->n < 10)
        return 0;
    return (k->sum_nll_nll_base / n - score_mean(&k->nll) * score_mean(&k->nll_base)) / (n - 1);
}

static double uncertainty_of_difference(double a, double b, double cov)
{
    double variance = a * a + b * b - 2 * cov;
    return variance > 0 ? sqrt(variance) : 0;
}

static struct figure exp_of(struct figure f)
{
    double e = exp(f.value);
    return (struct figure){e, e * f.uncertainty};
}

static struct figure log_ratio(const struct kld *k)
{
    struct figure q = mean_of(&k->nll), base = mean_of(&k->nll_base);
    return (struct figure){q.value - base.value,
                           uncertainty_of_difference(q.uncertainty, base.uncertainty, covariance(k))};
}

static struct figure rms_p_diff(const struct kld *k)
{
    struct figure mse = mean_of(&k->p_diff2);
    double rms = sqrt(mse.value);
    return (struct figure){rms, rms > 0 ? 0.5 / rms * mse.uncertainty : 0};
}

static struct figure same_top(const struct kld *k)
{
    double p = (double)k->n_same_top / (double)k->n;
    return (struct figure){p, k->n > 1 ? sqrt(p * (1 - p) / (double)(k->n - 1)) : 0};
}

/* ---- printing ---- */

void kld_print_head(void)
{
    printf("\nchunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              "
           "Δp RMS    "
           "        Same top p\n");
}

void kld_print_chunk(const struct kld *k, int chunk)
{
    struct figure ppl = exp_of(mean_of(&k->nll)), ratio = log_ratio(k), kld = mean_of(&k->kld);
    struct figure rms = rms_p_diff(k), top = same_top(k);
    printf("%4d    %9.4f ± %9.4f    %10.5f ± %10.5f    %10.5f ± %10.5f    %6.3f ± %6.3f %%    %6.3f ± %6.3f "
           "%%\n",
           chunk, ppl.value, ppl.uncertainty, ratio.value, ratio.uncertainty, kld.value, kld.uncertainty,
           100 * rms.value, 100 * rms.uncertainty, 100 * top.value, 100 * top.uncertainty);
}

static void print_perplexity(const struct kld *k)
{
    struct figure log_q = mean_of(&k->nll), log_base = mean_of(&k->nll_base), ratio = log_ratio(k);
    struct figure q = exp_of(log_q), base = exp_of(log_base), factor = exp_of(ratio);
    double cov = covariance(k), both = log_q.uncertainty * log_base.uncertainty;
    printf("====== Perplexity statistics ======\n");
    printf("Mean PPL(Q)                   : %10.6f ± %10.6f\n", q.value, q.uncertainty);
    printf("Mean PPL(base)                : %10.6f ± %10.6f\n", base.value, base.uncertainty);
    printf("Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n", both > 0 ? 100 * cov / both : 0);
    printf("Mean ln(PPL(Q)/PPL(base))     : %10.6f ± %10.6f\n", ratio.value, ratio.uncertainty);
    printf("Mean PPL(Q)/PPL(base)         : %10.6f ± %10.6f\n", factor.value, factor.uncertainty);
    printf("Mean PPL(Q)-PPL(base)         : %10.6f ± %10.6f\n", q.value - base.value,
           uncertainty_of_difference(q.uncertainty, base.uncertainty, q.value * base.value * cov));
    printf("\n");
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static const struct {
    const char *title;
    float fraction;
    bool with_kld;
} percentiles[] = {
    {"Maximum", 1, true},    {"99.9%  ", 0.999f, true}, {"99.0%  ", 0.99f, true}, {"95.0%  ", 0.95f, true},
    {"90.0%  ", 0.9f, true}, {"75.0%  ", 0.75f, false}, {"Median ", 0.5f, true},  {"25.0%  ", 0.25f, false},
    {"10.0%  ", 0.1f, true}, {" 5.0%  ", 0.05f, true},  {" 1.0%  ", 0.01f, true}, {" 0.1%  ", 0.001f, true},
    {"Minimum", 0, true},
};
enum { N_PERCENTILES = sizeof percentiles / sizeof *percentiles };

static void print_kld(struct kld *k)
{
    struct figure mean = mean_of(&k->kld);
    printf("====== KL divergence statistics ======\n");
    printf("Mean    KLD: %10.6f ± %10.6f\n", mean.value, mean.uncertainty);
    qsort(k->klds, k->n, sizeof *k->klds, by_value);
    for (int i = 0; i < N_PERCENTILES; i++) {
        if (percentiles[i].with_kld)
            printf("%s KLD: %10.6f\n", percentiles[i].title,
                   (double)score_percentile(k->klds, k->n, percentiles[i].fraction));
    }
    printf("\n");
}

static void print_p_diff(struct kld *k)
{
    struct figure mean = mean_of(&k->p_diff), rms = rms_p_diff(k), top = same_top(k);
    printf("====== Token probability statistics ======\n");
    printf("Mean    Δp: %6.3f ± %5.3f %%\n", 100 * mean.value, 100 * mean.uncertainty);
    qsort(k->p_diffs, k->n, sizeof *k->p_diffs, by_value);
    for (int i = 0; i < N_PERCENTILES; i++)
        printf("%s Δp: %6.3f%%\n", percentiles[i].title,
               100 * (double)score_percentile(k->p_diffs, k->n, percentiles[i].fraction));
    printf("RMS Δp    : %6.3f ± %5.3f %%\n", 100 * rms.value, 100 * rms.uncertainty);
    printf("Same top p: %6.3f ± %5.3f %%\n", 100 * top.value, 100 * top.uncertainty);
}

void kld_print(struct kld *k)
{
    printf("\n");
    if (k->n < 100)
        return;
    print_perplexity(k);
    print_kld(k);
    print_p_diff(k);
}
