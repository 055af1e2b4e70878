/* Finds the family of a file and builds its graph. */
#include "arch/arch.h"

#include "arch/family/family.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct arch {
    const char *name;
    const struct family *family;
    enum rope_order rope_order;
} archs[] = {
#define ARCH(name, symbol, rope_order) {name, &symbol, rope_order},
#include "arch/arch.def"
#undef ARCH
};

enum { N_ARCHS = sizeof archs / sizeof *archs };

static const struct arch *find_arch(struct str name)
{
    for (int i = 0; i < N_ARCHS; i++) {
        if (str_is(name, archs[i].name))
            return &archs[i];
    }
    return NULL;
}

bool arch_supported(struct str name)
{
    return find_arch(name) != NULL;
}

const char *arch_names(void)
{
    return
#define ARCH(name, symbol, rope_order) " " name
#include "arch/arch.def"
#undef ARCH
        +1;
}

/* What the command line says counts more than the file. */
static int apply_options(struct hparams *h, const struct arch_options *o, struct err *err)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } scalings[] = {
        {"none", ROPE_SCALING_NONE}, {"linear", ROPE_SCALING_LINEAR}, {"yarn", ROPE_SCALING_YARN}};
    if (o->rope_scaling) {
        size_t i = 0;
        while (i < 3 && strcmp(o->rope_scaling, scalings[i].name) != 0)
            i++;
        if (i == 3)
            return err_set(err, ERR_USAGE, "RoPE scaling \"%s\" is not none, linear or yarn",
                           o->rope_scaling);
        h->rope_scaling = scalings[i].scaling;
    }
    if (o->rope_freq_base != 0)
        h->rope_freq_base = o->rope_freq_base;
    if (o->rope_scale != 0)
        h->rope_freq_scale = 1.0f / o->rope_scale;
    if (o->rope_freq_scale != 0)
        h->rope_freq_scale = o->rope_freq_scale;
    if (o->yarn_orig_ctx != 0)
        h->n_ctx_orig = o->yarn_orig_ctx;
    if (o->yarn_ext_factor > 0)
        h->yarn_ext_factor = o->yarn_ext_factor;
    if (o->yarn_attn_factor > 0)
        h->yarn_attn_factor = o->yarn_attn_factor;
    if (o->yarn_beta_slow > 0)
        h->yarn_beta_slow = o->yarn_beta_slow;
    if (o->yarn_beta_fast > 0)
        h->yarn_beta_fast = o->yarn_beta_fast;
    return 0;
}

static int read_factors(struct arch_model *m, const char *name, int slot, struct err *err)
{
    const struct gguf_tensor *t = weights_tensor(m->weights, false, err, "%s", name);
    if (!t)
        return 0;
    if (t->ne[0] != m->h.n_rot / 2 || t->ne[1] != 1)
        return err_set(err, ERR_FORMAT, "tensor %s has %llu factors, expected %u", name,
                       (unsigned long long)t->ne[0], m->h.n_rot / 2);
    free(m->rope_factors[slot]);
    m->rope_factors[slot] = weights_values(t, err);
    return m->rope_factors[slot] ? 0 : -1;
}

static int setup_rope(struct arch_model *m, struct err *err)
{
    rope_init(&m->rope[0], &m->h, false);
    rope_init(&m->rope[1], &m->h, true);
    if (m->h.no_rope_factors)
        return 0;
    if (read_factors(m, "rope_factors_short.weight", 0, err) < 0 ||
        read_factors(m, "rope_factors_long.weight", 1, err) < 0 ||
        read_factors(m, "rope_freqs.weight", 0, err) < 0)
        return -1;
    for (int swa = 0; swa < 2; swa++) {
        m->rope[swa].factors = m->rope_factors[0];
        m->rope[swa].factors_long = m->rope_factors[1];
    }
    return 0;
}

static int check_supported(const struct hparams *h, const struct family *f, enum arch_part part,
                           struct err *err)
{
    if (part != ARCH_TRUNK && h->n_nextn == 0)
        return err_set(err, ERR_UNSUPPORTED, "the file has no MTP layers: there is nothing to guess with");
    if (part != ARCH_TRUNK && !f->nextn)
        return err_set(err, ERR_UNSUPPORTED, "MTP layers of %s can't run yet", h->arch);
    if (h->n_expert > 0 && !f->experts)
        return err_set(err, ERR_UNSUPPORTED, "%s with %u experts is no family that is known", h->arch,
                       h->n_expert);
    return 0;
}

static enum rope_order rope_order(const struct arch *arch, const struct gguf *g)
{
    char key[96];
    if (arch->rope_order != ROPE_BY_SECTIONS)
        return arch->rope_order;
    snprintf(key, sizeof key, "%s.rope.dimension_sections", arch->name);
    const struct gguf_kv *kv = gguf_find(g, key);
    for (uint64_t i = 0; kv && kv->is_array && kv->type != GGUF_STRING && i < kv->n; i++) {
        if (gguf_i64_at(kv, i) != 0)
            return ROPE_NEOX;
    }
    return ROPE_NORMAL;
}

struct arch_model *arch_build(const struct gguf *g, const struct arch_options *o, struct err *err)
{
    struct str name = {0};
    int found = gguf_string(g, "general.architecture", &name, err);
    const struct arch *arch = found > 0 ? find_arch(name) : NULL;
    if (!arch) {
        if (found == 0)
            err_set(err, ERR_FORMAT, "key general.architecture is missing");
        else
            err_set(err, ERR_UNSUPPORTED, "architecture \"%.*s\" can't run yet; these can: %s", STR_ARG(name),
                    arch_names());
        return NULL;
    }
    const struct lowering *lower = lowering_for(o->device ? o->device : "CPU", o->repack, err);
    if (!lower)
        return NULL;

    struct arch_model *m = xcalloc(1, sizeof *m);
    m->weights = weights_new(g);
    m->graph = ir_new(arch->name);
    m->embeddings = o->embeddings;
    m->part = o->part;
    m->precision = lower->precision;
    m->cache_type = lower->cache_type;
    if (hparams_read(&m->h, g, arch->family->layer_norm, err) < 0 ||
        (arch->family->setup && arch->family->setup(&m->h, g, err) < 0) ||
        check_supported(&m->h, arch->family, o->part, err) < 0 || apply_options(&m->h, o, err) < 0 ||
        setup_rope(m, err) < 0)
        goto failed;
    struct net n = {
        .g = m->graph,
        .file = g,
        .h = &m->h,
        .w = m->weights,
        .lower = lower,
        .model = m,
        .rope_order = rope_order(arch, g),
        .first = o->part == ARCH_NEXTN ? m->h.n_layer : 0,
        .end = o->part == ARCH_NEXTN ? m->h.n_layer + 1 : m->h.n_layer,
        .q_growth = IR_NONE,
        .rope_cos = {IR_NONE, IR_NONE},
        .rope_sin = {IR_NONE, IR_NONE},
    };
    if (arch->family->decoder)
        decoder_build(&n, arch->family->decoder);
    else
        arch->family->build(&n);
    if (ir_failed(m->graph, err))
        goto failed;
    return m;
failed:
    arch_free(m);
    return NULL;
}

void arch_free(struct arch_model *m)
{
    if (!m)
        return;
    ir_free(m->graph);
    weights_free(m->weights);
    for (size_t i = 0; i < sizeof m->rope_factors / sizeof *m->rope_factors; i++)
        free(m->rope_factors[i]);
    free(m->states);
    free(m);
}

static const uint8_t *row_of(const struct gguf_tensor *t, int32_t i)
{
    return (const uint8_t *)t->data + (size_t)i * (t->size / t->ne[1]);
}

void arch_q_growth(const struct arch_model *m, const int32_t *pos, size_t n, float *factors)
{
    for (size_t i = 0; i < n; i++) {
        double times = floor((double)((float)pos[i] / (float)m->h.q_growth_from));
        factors[i] = (float)(log(times + 1.0) * (double)m->h.q_growth + 1.0);
    }
}

void arch_embed(const struct arch_model *m, int32_t token, int32_t pos, float *row)
{
    size_t width = m->h.n_embd;
    quant_dequantize(m->embd->type, row_of(m->embd, token), width, row);
    if (m->embd_scale != 1.0f) {
        for (size_t i = 0; i < width; i++)
            row[i] *= m->embd_scale;
    }
    if (!m->positions)
        return;
    enum { PART = 256 }; /* a multiple of every type's block */
    float part[PART];
    const uint8_t *from = row_of(m->positions, pos);
    size_t bytes = m->positions->size / m->positions->ne[1];
    for (size_t i = 0; i < width; i += PART) {
        size_t n = width - i < PART ? width - i : PART;
        quant_dequantize(m->positions->type, from + bytes * i / width, n, part);
        for (size_t j = 0; j < n; j++)
            row[i + j] += part[j];
    }
}
