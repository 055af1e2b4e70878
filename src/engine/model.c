/* Loading a model: file, vocabulary, graph, blob, compilation. */
#include "engine/engine.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

enum { NO_CACHE_BLOCK = 256 }; /* tokens in a block that holds nothing */
enum { PROPERTIES_MAX = 16, OWN_PROPERTIES_MAX = 8, PACKING_STEPS = 8 };

static const struct type_name {
    const char *name;
    enum grappa_type type;
} type_names[] = {
    {"f32", GRAPPA_TYPE_F32}, {"f16", GRAPPA_TYPE_F16}, {"bf16", GRAPPA_TYPE_BF16}, {"u8", GRAPPA_TYPE_U8},
    {"u4", GRAPPA_TYPE_U4},   {"q8_0", GRAPPA_TYPE_U8}, {"q4_0", GRAPPA_TYPE_U4},
};

int grappa_type_parse(const char *name, enum grappa_type *out)
{
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (strcmp(name, type_names[i].name) == 0) {
            *out = type_names[i].type;
            return 0;
        }
    }
    return -1;
}

static const char *type_text(enum grappa_type type)
{
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (type_names[i].type == type)
            return type_names[i].name;
    }
    return NULL;
}

static void add(struct ov_prop *out, size_t *n, const char *key, const char *value)
{
    if (value)
        out[(*n)++] = (struct ov_prop){key, value};
}

/* OpenVINO's properties: what the graph was made for, what the parameters say, and last the caller's own,
 * which win. Returns how many. */
static int properties(const struct arch_model *a, const struct grappa_model_params *o, struct ov_prop *out,
                      char *threads, size_t threads_size, struct err *err)
{
    size_t n = 0;
    snprintf(threads, threads_size, "%d", o->n_threads);
    add(out, &n, "PERFORMANCE_HINT", "LATENCY");
    add(out, &n, "INFERENCE_NUM_THREADS", o->n_threads > 0 ? threads : NULL);
    add(out, &n, "INFERENCE_PRECISION_HINT", o->precision ? type_text(o->precision) : a->precision);
    add(out, &n, "KEY_CACHE_PRECISION", o->type_k ? type_text(o->type_k) : a->cache_type);
    add(out, &n, "VALUE_CACHE_PRECISION", o->type_v ? type_text(o->type_v) : a->cache_type);
    add(out, &n, "PERF_COUNT", o->profile ? "YES" : NULL);
    for (size_t i = 0; i < o->n_properties; i++) {
        size_t at = 0;
        while (at < n && strcmp(out[at].key, o->properties[i].key) != 0)
            at++;
        if (at == PROPERTIES_MAX)
            return err_set(err, ERR_USAGE, "more than %d OpenVINO properties",
                           PROPERTIES_MAX - OWN_PROPERTIES_MAX);
        out[at] = (struct ov_prop){o->properties[i].key, o->properties[i].value};
        n = at == n ? n + 1 : n;
    }
    return (int)n;
}

static bool quantised(enum grappa_type t)
{
    return t == GRAPPA_TYPE_U8 || t == GRAPPA_TYPE_U4;
}

/* Combinations that the CPU's attention does not have, said before anything is loaded. Other devices answer
 * for themselves. */
static int check_types(const struct arch_model *a, const struct grappa_model_params *o, struct err *err)
{
    enum grappa_type precision = GRAPPA_TYPE_F32, cache = GRAPPA_TYPE_F16;
    if (quantised(o->precision))
        return err_set(err, ERR_USAGE, "precision %s: an inference is in f32, f16 or bf16",
                       type_text(o->precision));
    if (!a->cache_type || o->n_properties)
        return 0;
    precision = o->precision ? o->precision : precision;
    enum grappa_type types[] = {o->type_k ? o->type_k : cache, o->type_v ? o->type_v : cache};
    if (quantised(types[0]) != quantised(types[1]))
        return err_set(err, ERR_USAGE,
                       "cache types %s for keys and %s for values: on a CPU both are quantised or none",
                       type_text(types[0]), type_text(types[1]));
    for (int i = 0; i < 2; i++) {
        if ((types[i] == GRAPPA_TYPE_BF16 || types[i] == GRAPPA_TYPE_F32) && types[i] != precision)
            return err_set(err, ERR_USAGE, "cache type %s goes with --precision %s only", type_text(types[i]),
                           type_text(types[i]));
    }
    return 0;
}

/* The cache inputs' types and shapes, which the plugin has chosen, and with them the size of a block. */
static int ask_caches(struct grappa_model *m, struct err *err)
{
    m->n_caches = 2 * (size_t)m->arch->n_caches;
    m->caches = xcalloc(m->n_caches, sizeof *m->caches);
    for (size_t i = 0; i < m->n_caches; i++) {
        struct engine_cache *c = &m->caches[i];
        const struct arch_cache *a = &m->arch->caches[i / 2];
        snprintf(c->name, sizeof c->name, "%s_cache.%zu", i % 2 ? "value" : "key", i / 2);
        if (ov_input_port(m->program, c->name, &c->port, err) < 0)
            return -1;
        const int64_t *d = c->port.dims;
        if (c->port.rank != 4 || d[1] < 1 || d[2] < 1 || d[3] < 1 || ov_elem_bits(c->port.elem) == 0)
            return err_set(err, ERR_DEVICE, "the device leaves the shape of %s open", c->name);
        c->block_bytes = (size_t)(d[1] * d[2] * d[3]) * (size_t)ov_elem_bits(c->port.elem) / 8;
        /* Scales of a quantised cache may add rows to a block, never take tokens from it: the smaller of the
         * two middle dimensions over all caches is the number of tokens. On a GPU keys lie transposed. */
        int64_t tokens = d[2] == (int64_t)(i % 2 ? a->v_size : a->k_size) && d[3] < d[2] ? d[3] : d[2];
        if (m->block_size == 0 || tokens < m->block_size)
            m->block_size = (int32_t)tokens;
    }
    if (m->block_size == 0)
        m->block_size = NO_CACHE_BLOCK;
    return 0;
}

/* Rows for an embedding need no guesses. */
static bool guesses(const struct grappa_model_params *o)
{
    return o->mtp && !o->embeddings;
}

struct load_progress {
    const struct grappa_model_params *params;
    float from, to;
};

static bool report(float done, void *user)
{
    const struct load_progress *p = user;
    return !p->params->progress ||
           p->params->progress(p->from + (p->to - p->from) * done, p->params->progress_user);
}

static int build_graph(struct grappa_model *m, struct gguf *g, const struct grappa_model_params *o,
                       enum arch_part part, struct buf *tail, struct err *err)
{
    struct arch_options options = {
        .part = part,
        .device = o->device,
        .repack = o->repack,
        .embeddings = o->embeddings,
        .rope_scaling = o->rope_scaling,
        .rope_scale = o->rope_scale,
        .rope_freq_base = o->rope_freq_base,
        .rope_freq_scale = o->rope_freq_scale,
        .yarn_orig_ctx = o->yarn_orig_ctx,
        .yarn_ext_factor = o->yarn_ext_factor,
        .yarn_attn_factor = o->yarn_attn_factor,
        .yarn_beta_slow = o->yarn_beta_slow,
        .yarn_beta_fast = o->yarn_beta_fast,
    };
    m->arch = arch_build(g, &options, err);
    if (!m->arch || check_types(m->arch, o, err) < 0)
        return -1;
    return ir_write(m->arch->graph, weights_blob_size(m->arch->weights), &m->xml, tail, err);
}

static int build(struct grappa_model *m, struct gguf *g, const struct grappa_model_params *o,
                 struct buf *tail, struct err *err)
{
    for (size_t i = 0; i < o->n_override_kv; i++) {
        if (gguf_override(g, o->override_kv[i], err) < 0)
            return -1;
    }
    if (build_graph(m, g, o, guesses(o) ? ARCH_TRUNK_HIDDEN : ARCH_TRUNK, tail, err) < 0)
        return -1;
    if (o->embeddings && rank_init(&m->rank, g, m->arch, err) < 0)
        return -1;
    m->vocab.v = vocab_new(g, err);
    if (!m->vocab.v)
        return -1;
    m->vocab.g = g;
    m->vocab.n_rows = (int32_t)m->arch->h.n_vocab;
    if (vocab_n_tokens(m->vocab.v) > (int32_t)m->arch->h.n_vocab)
        return err_set(err, ERR_FORMAT, "%d tokens in the vocabulary, but %u rows in token_embd.weight",
                       vocab_n_tokens(m->vocab.v), m->arch->h.n_vocab);
    return 0;
}

static int compile(struct grappa_model *m, const struct grappa_model_params *o, struct err *err)
{
    struct ov_prop props[PROPERTIES_MAX + OWN_PROPERTIES_MAX];
    char threads[16];
    int n = properties(m->arch, o, props, threads, sizeof threads, err);
    struct ov_runtime *rt = n < 0 ? NULL : engine_runtime(err);
    if (!rt)
        return -1;
    size_t n_linears, n_experts;
    const struct linear *linears = weights_linears(m->arch->weights, &n_linears);
    const struct experts *experts = weights_expert_stacks(m->arch->weights, &n_experts);
    struct image_sweep sweep;
    image_sweep_start(&sweep, &m->image);
    m->program = ov_compile(rt, o->device ? o->device : "CPU", buf_str(&m->xml), m->image.p, m->image.size,
                            linears, n_linears, experts, n_experts, props, (size_t)n, err);
    image_sweep_stop(&sweep);
    m->unpacked_steps = PACKING_STEPS;
    return m->program ? ask_caches(m, err) : -1;
}

/* The layer that guesses: a graph and an image of its own over the same file. */
static int load_nextn(struct grappa_model *m, struct gguf *g, const struct grappa_model_params *o,
                      struct err *err)
{
    struct buf tail = {0};
    struct grappa_model *n = m->nextn = xcalloc(1, sizeof *n);
    struct load_progress filling = {o, 0.9f, 0.95f};
    n->file.g = g;
    n->profile = o->profile;
    int r = build_graph(n, g, o, ARCH_NEXTN, &tail, err);
    if (r == 0)
        r = image_make(&n->image, g, n->arch->weights, &tail, (struct image_progress){report, &filling}, err);
    if (r == 0)
        r = compile(n, o, err);
    buf_release(&tail);
    return r;
}

struct grappa_model *grappa_model_load(const char *path, const struct grappa_model_params *params,
                                       struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct grappa_model_params o = params ? *params : (struct grappa_model_params){0};
    struct grappa_model *m = xcalloc(1, sizeof *m);
    struct buf tail = {0};
    double start = engine_seconds();
    struct gguf *g = gguf_open(path, &e);
    if (!g)
        goto failed;
    if (gguf_file_size(g) < engine_memory_available())
        gguf_want_pages(g);
    if (build(m, g, &o, &tail, &e) < 0)
        goto failed;
    double built = engine_seconds();
    struct load_progress filling = {&o, 0.0f, 0.7f};
    if (image_make(&m->image, g, m->arch->weights, &tail, (struct image_progress){report, &filling}, &e) < 0)
        goto failed;
    double filled = engine_seconds();
    if (compile(m, &o, &e) < 0 || (guesses(&o) && load_nextn(m, g, &o, &e) < 0))
        goto failed;
    report(1.0f, &(struct load_progress){&o, 0.0f, 1.0f});
    buf_release(&tail);
    engine_file_init(&m->file, g, m->arch);
    m->profile = o.profile;
    m->stats =
        (struct grappa_model_stats){engine_seconds() - start, built - start, engine_seconds() - filled};
    log_info("%s: graph of %zu nodes in %.2f s, weights in %.2f s, compiled in %.2f s", path,
             ir_n_nodes(m->arch->graph), built - start, filled - built, m->stats.compile_s);
    return m;
failed:
    /* Errors of the file itself name it already; wrong parameters have nothing to do with it. */
    if (e.code != ERR_USAGE && strncmp(e.text, path, strlen(path)) != 0)
        err_prefix(&e, "%s", path);
    engine_fail(err, &e);
    buf_release(&tail);
    m->file.g = g;
    grappa_model_free(m);
    return NULL;
}

/* All but what a model shares with its layer that guesses. */
static void free_compiled(struct grappa_model *m)
{
    if (!m)
        return;
    ov_program_free(m->program);
    image_release(&m->image);
    arch_free(m->arch);
    buf_release(&m->xml);
    free(m->caches);
    free(m);
}

void grappa_model_free(struct grappa_model *m)
{
    if (!m)
        return;
    free_compiled(m->nextn);
    grammar_vocab_free(m->vocab.grammar);
    vocab_free(m->vocab.v);
    rank_release(&m->rank);
    struct grappa_file file = m->file;
    free_compiled(m);
    engine_file_release(&file);
}

const struct grappa_vocab *grappa_model_vocab(const struct grappa_model *m)
{
    return &m->vocab;
}

const struct grappa_file *grappa_model_file(const struct grappa_model *m)
{
    return &m->file;
}

uint32_t grappa_model_n_ctx_train(const struct grappa_model *m)
{
    return m->arch->h.n_ctx_train;
}

uint32_t grappa_model_n_embd(const struct grappa_model *m)
{
    return m->arch->h.n_embd;
}

uint32_t grappa_model_n_cls_out(const struct grappa_model *m)
{
    return m->rank.n_labels;
}

bool grappa_model_is_recurrent(const struct grappa_model *m)
{
    return m->arch->n_states > 0;
}

const char *grappa_model_ir(const struct grappa_model *m, size_t *len)
{
    *len = m->xml.n;
    return m->xml.p;
}

void grappa_model_stats(const struct grappa_model *m, struct grappa_model_stats *out)
{
    *out = m->stats;
}
