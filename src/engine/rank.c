/* The head of a reranker: a few rows, one for each label, over what the output norm makes of the last token.
 * So small that the host computes it, once for each text. */
#include "engine/engine.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char TENSOR[] = "cls.output.weight";

/* Whose files have it, by general.architecture; elsewhere a tensor of that name is another thing. */
static const char *const WITH_HEAD[] = {"qwen3", "qwen3vl"};

static bool may_have_head(const char *arch)
{
    for (size_t i = 0; i < sizeof WITH_HEAD / sizeof *WITH_HEAD; i++) {
        if (strcmp(arch, WITH_HEAD[i]) == 0)
            return true;
    }
    return false;
}

/* As many as there are names; one where there are none. */
static uint64_t n_labels(const struct gguf *g, const char *arch)
{
    char key[128];
    snprintf(key, sizeof key, "%s.classifier.output_labels", arch);
    const struct gguf_kv *kv = gguf_find(g, key);
    return kv && kv->is_array && kv->n > 0 ? kv->n : 1;
}

int rank_init(struct rank_head *h, const struct gguf *g, const struct arch_model *a, struct err *err)
{
    enum { MOST = 4096 };
    const struct gguf_tensor *t = may_have_head(a->h.arch) ? gguf_find_tensor(g, TENSOR) : NULL;
    uint64_t n = n_labels(g, a->h.arch), width = a->h.n_embd;
    *h = (struct rank_head){0};
    if (!t)
        return 0;
    if (n > MOST)
        return err_set(err, ERR_UNSUPPORTED, "tensor %s: more than %d labels", TENSOR, MOST);
    if (t->n_dims > 2 || t->ne[0] != width || t->ne[1] != n)
        return err_set(err, ERR_FORMAT, "tensor %s is [%llu, %llu]; it must be [%llu, %llu]", TENSOR,
                       (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)width,
                       (unsigned long long)n);
    *h = (struct rank_head){.n_labels = (uint32_t)n, .width = (uint32_t)width};
    h->rows = xcalloc(n * width, sizeof *h->rows);
    if (!quant_dequantize(t->type, t->data, n * width, h->rows))
        return err_set(err, ERR_UNSUPPORTED, "tensor %s: type %s is not supported", TENSOR,
                       ggml_type_info(t->type)->name);
    return 0;
}

void rank_release(struct rank_head *h)
{
    free(h->rows);
    *h = (struct rank_head){0};
}

static float dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

void rank_scores(const struct rank_head *h, const float *row, float *scores)
{
    float max = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < h->n_labels; i++) {
        scores[i] = dot(h->rows + (size_t)i * h->width, row, h->width);
        max = scores[i] > max ? scores[i] : max;
    }
    for (uint32_t i = 0; i < h->n_labels; i++) {
        scores[i] = expf(scores[i] - max);
        sum += scores[i];
    }
    for (uint32_t i = 0; i < h->n_labels; i++)
        scores[i] /= sum;
}
