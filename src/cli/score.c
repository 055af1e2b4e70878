/* Arithmetic on rows of logits. A row of a logits file maps the log-probabilities from the greatest down to
 * 16 below it linearly to 65535 … 0. */
#include "cli/score.h"

#include <math.h>
#include <string.h>

struct row_stats {
    float max, min;
    int32_t top;
    double log_sum; /* of exp(logit - max) */
};

static struct row_stats row_stats(const float *logits, int32_t n)
{
    struct row_stats s = {logits[0], logits[0], 0, 0};
    for (int32_t i = 1; i < n; i++) {
        if (logits[i] > s.max) {
            s.max = logits[i];
            s.top = i;
        }
        if (logits[i] < s.min)
            s.min = logits[i];
    }
    double sum = (double)expf(logits[0] - s.max);
    for (int32_t i = 1; i < n; i++)
        sum += (double)expf(logits[i] - s.max);
    s.log_sum = log(sum);
    return s;
}

double score_nll(const float *logits, int32_t n_vocab, int32_t token)
{
    struct row_stats s = row_stats(logits, n_vocab);
    return (double)s.max + s.log_sum - (double)logits[token];
}

double score_nll_packed(const float *logits, int32_t n_vocab, int32_t token, uint16_t *row)
{
    struct row_stats s = row_stats(logits, n_vocab);
    float least = fmaxf(s.min, s.max - 16);
    float head[2] = {(s.max - least) / 65535.0f, (float)((double)(least - s.max) - s.log_sum)};
    memset(row, 0, score_row_u16(n_vocab) * sizeof *row);
    memcpy(row, head, sizeof head);
    for (int32_t i = 0; i < n_vocab && head[0] > 0; i++) {
        if (logits[i] > least)
            row[4 + i] = (uint16_t)lrintf((logits[i] - least) / head[0]);
    }
    return (double)s.max + s.log_sum - (double)logits[token];
}

void score_compare(const float *logits, const uint16_t *base, int32_t n_vocab, int32_t token,
                   struct score_pair *out)
{
    struct row_stats s = row_stats(logits, n_vocab);
    float head[2]; /* scale, least */
    memcpy(head, base, sizeof head);
    base += 4;
    double log_norm = (double)s.max + s.log_sum, kld = 0;
    int32_t top_base = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (base[i] > base[top_base])
            top_base = i;
        float log_p_base = head[0] * (float)base[i] + head[1];
        if (log_p_base > -16) /* below that it adds nothing that a float shows */
            kld += (double)expf(log_p_base) * ((double)log_p_base - (double)logits[i] + log_norm);
    }
    out->nll = log_norm - (double)logits[token];
    out->nll_base = -(double)(head[0] * (float)base[token] + head[1]);
    out->kld = kld;
    out->p_diff = exp(-out->nll) - exp(-out->nll_base);
    out->same_top = top_base == s.top;
}

void score_sum_add(struct score_sum *s, double v)
{
    s->sum += v;
    s->squares += v * v;
    s->n++;
}

double score_mean(const struct score_sum *s)
{
    return s->n ? s->sum / (double)s->n : 0;
}

double score_uncertainty(const struct score_sum *s)
{
    double mean = score_mean(s);
    double variance = s->n > 1 ? s->squares / (double)s->n - mean * mean : 0;
    return variance > 0 ? sqrt(variance / (double)(s->n - 1)) : 0;
}

float score_percentile(const float *sorted, size_t n, float fraction)
{
    float at = fraction * (float)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n)
        return sorted[n - 1];
    float part = at - (float)i;
    return (1 - part) * sorted[i] + part * sorted[i + 1];
}
