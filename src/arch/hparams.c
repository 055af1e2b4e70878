/* Hyperparameters: one table of keys, then the rules that llama.cpp applies to what is absent. */
#include "arch/hparams.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

enum kind { U32, F32 };

static const struct field {
    const char *key;
    enum kind kind;
    bool required;
    size_t offset;
} fields[] = {
    {"context_length", U32, true, offsetof(struct hparams, n_ctx_train)},
    {"embedding_length", U32, true, offsetof(struct hparams, n_embd)},
    {"block_count", U32, true, offsetof(struct hparams, n_layer)},
    {"expert_count", U32, false, offsetof(struct hparams, n_expert)},
    {"nextn_predict_layers", U32, false, offsetof(struct hparams, n_nextn)},
    {"rope.freq_base", F32, false, offsetof(struct hparams, rope_freq_base)},
    {"rope.scaling.original_context_length", U32, false, offsetof(struct hparams, n_ctx_orig)},
    {"rope.scaling.attn_factor", F32, false, offsetof(struct hparams, rope_attn_factor)},
    {"rope.scaling.yarn_ext_factor", F32, false, offsetof(struct hparams, yarn_ext_factor)},
    {"rope.scaling.yarn_attn_factor", F32, false, offsetof(struct hparams, yarn_attn_factor)},
    {"rope.scaling.yarn_beta_fast", F32, false, offsetof(struct hparams, yarn_beta_fast)},
    {"rope.scaling.yarn_beta_slow", F32, false, offsetof(struct hparams, yarn_beta_slow)},
    {"rope.scaling.yarn_log_multiplier", F32, false, offsetof(struct hparams, yarn_log_mul)},
};

static const char *const scaling_names[] = {
    [ROPE_SCALING_NONE] = "none",
    [ROPE_SCALING_LINEAR] = "linear",
    [ROPE_SCALING_YARN] = "yarn",
    [ROPE_SCALING_LONGROPE] = "longrope",
};

static const char *full_key(const struct hparams *h, const char *key, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", h->arch, key);
    return out;
}

int hparams_u32(const struct hparams *h, const struct gguf *g, const char *key, uint32_t *out,
                struct err *err)
{
    char k[128];
    return gguf_u32(g, full_key(h, key, k, sizeof k), out, err);
}

int hparams_f32(const struct hparams *h, const struct gguf *g, const char *key, float *out, struct err *err)
{
    char k[128];
    return gguf_f32(g, full_key(h, key, k, sizeof k), out, err);
}

int hparams_bool(const struct hparams *h, const struct gguf *g, const char *key, bool *out, struct err *err)
{
    char k[128];
    return gguf_bool(g, full_key(h, key, k, sizeof k), out, err);
}

static const char *eps_key(const struct hparams *h)
{
    return h->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
}

static int read_fields(struct hparams *h, const struct gguf *g, struct err *err)
{
    int has_eps = hparams_f32(h, g, eps_key(h), &h->norm_eps, err);
    if (has_eps == 0 && !h->layer_norm) /* some files have it under the other name */
        has_eps = hparams_f32(h, g, "attention.layer_norm_epsilon", &h->norm_eps, err);
    if (has_eps < 0)
        return -1;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *f = &fields[i];
        void *at = (char *)h + f->offset;
        int found = f->kind == U32 ? hparams_u32(h, g, f->key, at, err) : hparams_f32(h, g, f->key, at, err);
        if (found < 0)
            return -1;
        if (!found && f->required)
            return err_set(err, ERR_FORMAT, "key %s.%s is missing", h->arch, f->key);
    }
    if (!has_eps)
        return err_set(err, ERR_FORMAT, "key %s.%s is missing", h->arch, eps_key(h));
    return 0;
}

/* A key that holds one number for all layers or an array with one for each. Absent: `missing` for all. */
static int read_per_layer(struct hparams *h, const struct gguf *g, const char *key, size_t offset,
                          bool required, struct err *err)
{
    char name[128];
    const struct gguf_kv *kv = gguf_find(g, full_key(h, key, name, sizeof name));
    if (!kv) {
        if (required)
            return err_set(err, ERR_FORMAT, "key %s is missing", name);
        return 0;
    }
    uint32_t one = 0;
    if (!kv->is_array && gguf_u32(g, name, &one, err) < 0)
        return -1;
    if (kv->is_array && (kv->n < h->n_layer || kv->type == GGUF_STRING))
        return err_set(err, ERR_FORMAT, "key %s has %llu numbers for %u layers", name,
                       (unsigned long long)kv->n, h->n_layer);
    for (uint32_t il = 0; il < h->n_layer + h->n_nextn; il++) {
        int64_t v = !kv->is_array ? one : gguf_i64_at(kv, il < kv->n ? il : kv->n - 1);
        if (v < 0 || v > INT32_MAX)
            return err_set(err, ERR_FORMAT, "key %s: %lld is out of range", name, (long long)v);
        *(uint32_t *)((char *)&h->layer[il] + offset) = (uint32_t)v;
    }
    return 0;
}

static int read_heads(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (read_per_layer(h, g, "attention.head_count", offsetof(struct hparams_layer, n_head), true, err) < 0)
        return -1;
    for (uint32_t il = 0; il < h->n_layer + h->n_nextn; il++)
        h->layer[il].n_head_kv = h->layer[il].n_head;
    if (read_per_layer(h, g, "attention.head_count_kv", offsetof(struct hparams_layer, n_head_kv), false,
                       err) < 0 ||
        read_per_layer(h, g, "feed_forward_length", offsetof(struct hparams_layer, n_ff), false, err) < 0)
        return -1;
    uint32_t heads = 0;
    for (uint32_t il = 0; il < h->n_layer + h->n_nextn; il++) {
        const struct hparams_layer *l = &h->layer[il];
        /* A layer without heads is no error here: block_attention complains. */
        if (l->n_head && l->n_head_kv && l->n_head % l->n_head_kv != 0)
            return err_set(err, ERR_FORMAT, "layer %u: %u heads can't share %u key/value heads", il,
                           l->n_head, l->n_head_kv);
        if (heads == 0)
            heads = l->n_head;
    }
    h->n_embd_head_k = h->n_embd_head_v = heads ? h->n_embd / heads : h->n_embd;
    if (hparams_u32(h, g, "attention.key_length", &h->n_embd_head_k, err) < 0 ||
        hparams_u32(h, g, "attention.value_length", &h->n_embd_head_v, err) < 0)
        return -1;
    h->n_rot = h->n_embd_head_k;
    if (hparams_u32(h, g, "rope.dimension_count", &h->n_rot, err) < 0)
        return -1;
    if (h->n_embd_head_k == 0 || h->n_embd_head_k > 4096 || h->n_embd_head_v == 0 || h->n_embd_head_v > 4096)
        return err_set(err, ERR_FORMAT, "head sizes %u and %u are out of range", h->n_embd_head_k,
                       h->n_embd_head_v);
    if (h->n_rot % 2 != 0 || h->n_rot > h->n_embd_head_k)
        return err_set(err, ERR_FORMAT, "key %s.rope.dimension_count: %u is odd or larger than a head (%u)",
                       h->arch, h->n_rot, h->n_embd_head_k);
    return 0;
}

static int read_rope(struct hparams *h, const struct gguf *g, struct err *err)
{
    float factor = 0;
    int found = hparams_f32(h, g, "rope.scaling.factor", &factor, err);
    if (found == 0)
        found = hparams_f32(h, g, "rope.scale_linear", &factor, err);
    if (found < 0)
        return -1;
    h->rope_freq_scale = factor == 0 ? 1.0f : 1.0f / factor;

    char key[128];
    struct str name = str_of("linear");
    if (gguf_string(g, full_key(h, "rope.scaling.type", key, sizeof key), &name, err) < 0)
        return -1;
    for (int s = 0; s < (int)(sizeof scaling_names / sizeof *scaling_names); s++) {
        if (str_is(name, scaling_names[s])) {
            h->rope_scaling = (enum rope_scaling)s;
            return 0;
        }
    }
    return err_set(err, ERR_UNSUPPORTED, "key %s: unknown scaling \"%.*s\"", key, STR_ARG(name));
}

/* Numbers that everything else is computed from. */
static int check_numbers(const struct hparams *h, struct err *err)
{
    const struct {
        const char *key;
        float value;
        bool may_be_zero;
    } numbers[] = {
        {"rope.freq_base", h->rope_freq_base, false},
        {"rope.scaling.factor", 1.0f / h->rope_freq_scale, false},
        {eps_key(h), h->norm_eps, true},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        float v = numbers[i].value;
        if (!isfinite(v) || v < 0 || (v == 0 && !numbers[i].may_be_zero))
            return err_set(err, ERR_FORMAT, "key %s.%s: %g is out of range", h->arch, numbers[i].key,
                           (double)v);
    }
    return 0;
}

int hparams_read(struct hparams *h, const struct gguf *g, bool layer_norm, struct err *err)
{
    *h = (struct hparams){
        .layer_norm = layer_norm,
        .rope_freq_base = 10000.0f,
        .rope_freq_base_swa = 10000.0f,
        .rope_freq_scale_swa = 1.0f,
        .rope_attn_factor = 1.0f,
        .embedding_scale = 1.0f,
        .residual_scale = 1.0f,
        .logit_scale = 1.0f,
        .moe_gating = MOE_SOFTMAX,
        .moe_step = 1,
        .yarn_ext_factor = -1.0f,
        .yarn_attn_factor = 1.0f,
        .yarn_beta_fast = 32.0f,
        .yarn_beta_slow = 1.0f,
    };
    struct str arch = {0};
    int found = gguf_string(g, "general.architecture", &arch, err);
    if (found <= 0)
        return found < 0 ? -1 : err_set(err, ERR_FORMAT, "key general.architecture is missing");
    snprintf(h->arch, sizeof h->arch, "%.*s", STR_ARG(arch));

    if (read_fields(h, g, err) < 0)
        return -1;
    if (h->n_layer == 0 || h->n_layer > HPARAMS_MAX_LAYERS)
        return err_set(err, ERR_FORMAT, "key %s.block_count: %u layers is out of range", h->arch, h->n_layer);
    if (h->n_nextn >= h->n_layer)
        return err_set(err, ERR_FORMAT, "key %s.nextn_predict_layers: %u of %u layers leave none", h->arch,
                       h->n_nextn, h->n_layer);
    h->n_layer -= h->n_nextn;
    if (h->n_embd == 0 || h->n_embd > 1 << 20)
        return err_set(err, ERR_FORMAT, "key %s.embedding_length: %u is out of range", h->arch, h->n_embd);
    if (h->n_ctx_train == 0 || h->n_ctx_train > INT32_MAX)
        return err_set(err, ERR_FORMAT, "key %s.context_length: %u is out of range", h->arch, h->n_ctx_train);
    if (read_heads(h, g, err) < 0 || read_rope(h, g, err) < 0 || check_numbers(h, err) < 0)
        return -1;
    if (h->n_ctx_orig == 0)
        h->n_ctx_orig = h->n_ctx_train;

    const struct gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    if (!embd)
        return err_set(err, ERR_FORMAT, "tensor token_embd.weight is missing");
    if (embd->ne[1] > INT32_MAX)
        return err_set(err, ERR_FORMAT, "tensor token_embd.weight has too many rows");
    h->n_vocab = (uint32_t)embd->ne[1];
    return 0;
}

int hparams_swa_pattern(struct hparams *h, const struct gguf *g, uint32_t pattern, struct err *err)
{
    static const char key[] = "attention.sliding_window_pattern";
    char name[128];
    const struct gguf_kv *kv = gguf_find(g, full_key(h, key, name, sizeof name));
    if (kv && kv->is_array) {
        if (kv->n < h->n_layer || kv->type == GGUF_STRING)
            return err_set(err, ERR_FORMAT, "key %s has %llu flags for %u layers", name,
                           (unsigned long long)kv->n, h->n_layer);
        for (uint32_t il = 0; il < h->n_layer; il++)
            h->layer[il].swa = h->n_swa > 0 && gguf_i64_at(kv, il) != 0;
        return 0;
    }
    if (hparams_u32(h, g, key, &pattern, err) < 0)
        return -1;
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].swa = h->n_swa > 0 && (pattern == 0 || il % pattern < pattern - 1);
    return 0;
}

static int read_ssm(struct hparams *h, const struct gguf *g, size_t n, struct err *err)
{
    const struct {
        const char *key;
        uint32_t *out, most;
    } sizes[] = {
        {"ssm.conv_kernel", &h->ssm_conv, 64},        {"ssm.inner_size", &h->ssm_inner, 1 << 20},
        {"ssm.state_size", &h->ssm_state, 4096},      {"ssm.time_step_rank", &h->ssm_heads, 1 << 16},
        {"ssm.group_count", &h->ssm_groups, 1 << 16},
    };
    for (size_t i = 0; i < n; i++) {
        int found = hparams_u32(h, g, sizes[i].key, sizes[i].out, err);
        if (found < 0)
            return -1;
        if (!found)
            return err_set(err, ERR_FORMAT, "key %s.%s is missing", h->arch, sizes[i].key);
        if (*sizes[i].out == 0 || *sizes[i].out > sizes[i].most)
            return err_set(err, ERR_FORMAT, "key %s.%s: %u is out of range", h->arch, sizes[i].key,
                           *sizes[i].out);
    }
    return 0;
}

int hparams_window(struct hparams *h, const struct gguf *g, uint32_t pattern, struct err *err)
{
    h->rope_freq_base_swa = h->rope_freq_base;
    h->rope_freq_scale_swa = h->rope_freq_scale;
    if (hparams_u32(h, g, "attention.sliding_window", &h->n_swa, err) < 0 ||
        hparams_f32(h, g, "rope.freq_base_swa", &h->rope_freq_base_swa, err) < 0)
        return -1;
    return hparams_swa_pattern(h, g, pattern, err);
}

int hparams_recurrent1(struct hparams *h, const struct gguf *g, struct err *err)
{
    return read_ssm(h, g, 4, err);
}

int hparams_recurrent(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (read_ssm(h, g, 5, err) < 0)
        return -1;
    if (h->ssm_inner % h->ssm_heads != 0 || h->ssm_heads % h->ssm_groups != 0)
        return err_set(err, ERR_FORMAT, "%u channels can't be split over %u heads in %u groups", h->ssm_inner,
                       h->ssm_heads, h->ssm_groups);
    return 0;
}

int hparams_recurrent_pattern(struct hparams *h, const struct gguf *g, struct err *err)
{
    char name[128];
    const struct gguf_kv *kv = gguf_find(g, full_key(h, "attention.recurrent_layers", name, sizeof name));
    uint32_t interval = 4;
    if (hparams_u32(h, g, "full_attention_interval", &interval, err) < 0)
        return -1;
    if (interval == 0)
        return err_set(err, ERR_FORMAT, "key %s.full_attention_interval is 0", h->arch);
    if (kv && (!kv->is_array || kv->n < h->n_layer || kv->type == GGUF_STRING))
        return err_set(err, ERR_FORMAT, "key %s has no flag for each of %u layers", name, h->n_layer);
    for (uint32_t il = 0; il < h->n_layer; il++)
        h->layer[il].recurrent = kv ? gguf_i64_at(kv, il) != 0 : (il + 1) % interval != 0;
    return 0;
}

int hparams_q_growth(struct hparams *h, const struct gguf *g, bool by_key, struct err *err)
{
    if (hparams_f32(h, g, "attention.temperature_scale", &h->q_growth, err) < 0)
        return -1;
    if (!isfinite(h->q_growth))
        return err_set(err, ERR_FORMAT, "key %s.attention.temperature_scale: %g is out of range", h->arch,
                       (double)h->q_growth);
    h->q_growth_from = by_key ? 0 : h->n_ctx_orig;
    if (by_key && hparams_u32(h, g, "attention.temperature_length", &h->q_growth_from, err) < 0)
        return -1;
    if (h->q_growth != 0 && h->q_growth_from == 0)
        return err_set(err, ERR_FORMAT, "key %s.attention.temperature_length is missing", h->arch);
    return 0;
}

int hparams_moe(struct hparams *h, const struct gguf *g, struct err *err)
{
    if (hparams_u32(h, g, "expert_used_count", &h->n_expert_used, err) < 0 ||
        hparams_u32(h, g, "expert_group_count", &h->n_expert_groups, err) < 0 ||
        hparams_u32(h, g, "expert_group_used_count", &h->n_expert_groups_used, err) < 0)
        return -1;
    if (h->n_expert == 0 || h->n_expert > 65536)
        return err_set(err, ERR_FORMAT, "key %s.expert_count: %u is out of range", h->arch, h->n_expert);
    if (h->n_expert_used == 0 || h->n_expert_used > h->n_expert)
        return err_set(err, ERR_FORMAT, "key %s.expert_used_count: %u of %u experts", h->arch,
                       h->n_expert_used, h->n_expert);
    uint32_t groups = h->n_expert_groups, used = h->n_expert_groups_used;
    if (groups <= 1)
        return 0;
    /* The two best of a group speak for it. */
    if (h->n_expert % groups != 0 || h->n_expert / groups < 2)
        return err_set(err, ERR_FORMAT, "key %s.expert_group_count: %u experts don't make %u groups", h->arch,
                       h->n_expert, groups);
    if (used == 0 || used > groups || (uint64_t)used * (h->n_expert / groups) < h->n_expert_used)
        return err_set(err, ERR_FORMAT, "key %s.expert_group_used_count: %u of %u groups for %u experts",
                       h->arch, used, groups, h->n_expert_used);
    return 0;
}

int hparams_moe_router(struct hparams *h, const struct gguf *g, enum moe_gating gating, struct err *err)
{
    uint32_t number = 0;
    if (hparams_f32(h, g, "expert_weights_scale", &h->moe_scale, err) < 0 ||
        hparams_bool(h, g, "expert_weights_norm", &h->moe_norm, err) < 0 ||
        hparams_u32(h, g, "expert_gating_func", &number, err) < 0 ||
        hparams_u32(h, g, "leading_dense_block_count", &h->n_layer_dense, err) < 0)
        return -1;
    h->moe_gating = number == 0 ? gating : (enum moe_gating)number;
    if (number > MOE_SOFTMAX_OF_CHOSEN)
        return err_set(err, ERR_UNSUPPORTED, "key %s.expert_gating_func: %u is unknown", h->arch, number);
    if (h->moe_gating == 0)
        return err_set(err, ERR_FORMAT, "key %s.expert_gating_func is missing", h->arch);
    return 0;
}
