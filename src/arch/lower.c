/* How blocks are expressed for a device: one table. Paged attention for the plugins that have it; its inputs
 * and attributes are those of OpenVINO's internal PagedAttentionExtension (28 inputs), RoPE,
 * PagedCausalConv1D, PagedGatedDeltaNet and PagedSelectiveSSM operations. */
#include "arch/net.h"

#include "base/mem.h"
#include "kernels/delta.h"

#include <stdio.h>

/* ---- paged: many sequences in a step, keys and values in blocks ---- */

enum { PAST_LENS, BLOCK_INDICES, BLOCK_INDICES_BEGINS, MAX_CONTEXT_LEN };

static ir_val list_input(struct net *n, const char *name)
{
    return ir_parameter(n->g, name, IR_I32, IR_SHAPE(IR_DYN));
}

static void paged_begin(struct net *n)
{
    n->subsequence_begins = IR_NONE;
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 4; i++)
            n->paged[kind][i] = IR_NONE;
    }
}

/* Made when the first layer of its kind asks for it: an input that nothing uses is none. */
static ir_val paged_input(struct net *n, bool swa, int which)
{
    static const char *const names[2][4] = {
        {"past_lens", "block_indices", "block_indices_begins", "max_context_len"},
        {"past_lens_swa", "block_indices_swa", "block_indices_begins_swa", "max_context_len_swa"}};
    ir_val *v = &n->paged[swa][which];
    if (*v == IR_NONE)
        *v = ir_parameter(n->g, names[swa][which], IR_I32,
                          which == MAX_CONTEXT_LEN ? IR_SCALAR : IR_SHAPE(IR_DYN));
    return *v;
}

static ir_val cache_parameter(struct net *n, const char *kind, uint32_t number, uint32_t heads, uint32_t size)
{
    char name[32];
    snprintf(name, sizeof name, "%s_cache.%u", kind, number);
    return ir_parameter(n->g, name, IR_DYNAMIC, IR_SHAPE(IR_DYN, heads, IR_DYN, size));
}

static ir_val empty(struct net *n, enum ir_type type, int rank)
{
    return ir_const(n->g, type, (struct ir_shape){rank, {0}}, "");
}

static ir_val i32(struct net *n, int32_t v)
{
    return ir_const(n->g, IR_I32, IR_SCALAR, &v);
}

static ir_val paged_attention(struct net *n, const struct attn_call *c)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    struct arch_model *m = n->model;
    uint32_t number = m->n_caches++;
    /* Distances are all that a window asks for, so its layers need no block behind it; a bias by position
     * would. */
    bool swa = c->window > 0 && c->slopes == IR_NONE;
    m->caches[number] = (struct arch_cache){c->n_head_kv, h->n_embd_head_k, h->n_embd_head_v, swa};

    if (n->subsequence_begins == IR_NONE)
        n->subsequence_begins = list_input(n, "subsequence_begins");
    ir_val none = empty(n, IR_I32, 1), none_f32 = empty(n, IR_F32, 1);
    ir_val in[28] = {
        c->q,
        c->k,
        c->v,
        cache_parameter(n, "key", number, c->n_head_kv, h->n_embd_head_k),
        cache_parameter(n, "value", number, c->n_head_kv, h->n_embd_head_v),
        paged_input(n, swa, PAST_LENS),
        n->subsequence_begins,
        paged_input(n, swa, BLOCK_INDICES),
        paged_input(n, swa, BLOCK_INDICES_BEGINS),
        ir_f32(g, c->scale),
        i32(n, (int32_t)c->window),
        c->slopes == IR_NONE ? none_f32 : c->slopes,
        paged_input(n, swa, MAX_CONTEXT_LEN),
        none,                /* score aggregation window */
        none,                /* rotated block indices */
        empty(n, IR_I32, 2), /* rotation deltas */
        none_f32,            /* rotation table */
        none_f32,            /* xattention threshold */
        i32(n, 0),           /* xattention block size */
        i32(n, 0),           /* xattention stride */
        c->sinks == IR_NONE ? empty(n, IR_F32, 4) : c->sinks,
        i32(n, 0), /* adaptive eviction: start size */
        none,      /* evictable sizes */
        none,
        none,
        none,               /* token types */
        empty(n, IR_U8, 1), /* query-query bias */
        none,
    };
    char heads[16], k_size[16], v_size[16];
    snprintf(heads, sizeof heads, "%u", c->n_head_kv);
    snprintf(k_size, sizeof k_size, "%u", h->n_embd_head_k);
    snprintf(v_size, sizeof v_size, "%u", h->n_embd_head_v);
    struct ir_attr info[] = {
        {"num_k_heads", heads}, {"k_head_size", k_size}, {"num_v_heads", heads}, {"v_head_size", v_size}};
    struct ir_attr attr[] = {{"write_kv_cache", "true"}};
    struct ir_out outs[] = {{IR_F32, IR_SHAPE(IR_DYN, (int64_t)c->n_head * h->n_embd_head_v)},
                            {IR_F32, IR_SHAPE(IR_DYN)},
                            {IR_F32, IR_SHAPE(IR_DYN)}};
    ir_val out[3];
    ir_name(g, "attention");
    ir_node(g, "PagedAttentionExtension", "extension", 28, in, 1, attr, 4, info, 3, outs, out);
    return out[0];
}

/* ---- states of recurrent layers, in slots ---- */

/* A new table of states and the five inputs that say which sequence's rows use which slot. */
static ir_val state_inputs(struct net *n, int rank, const int64_t *dims, ir_val which[5])
{
    static const char *const names[] = {"state_rows", "state_indices", "state_begins", "state_past",
                                        "state_interval"};
    struct arch_model *m = n->model;
    if (m->n_states == 0) {
        for (int i = 0; i < 5; i++)
            n->states[i] = list_input(n, names[i]);
    }
    memcpy(which, n->states, sizeof n->states);

    m->states = xrealloc(m->states, (m->n_states + 1) * sizeof *m->states);
    struct arch_state *s = &m->states[m->n_states];
    *s = (struct arch_state){.rank = rank};
    struct ir_shape shape = {rank + 1, {IR_DYN}};
    for (int i = 0; i < rank; i++)
        s->dims[i] = shape.d[i + 1] = dims[i];
    char name[32];
    snprintf(name, sizeof name, "state.%u", m->n_states++);
    return ir_parameter(n->g, name, IR_F32, shape);
}

static ir_val paged_conv(struct net *n, ir_val x, ir_val weight, ir_val bias)
{
    struct ir *g = n->g;
    const int64_t dims[] = {ir_dim(g, x, 1), ir_dim(g, weight, 2)};
    ir_val in[9] = {x, IR_NONE, weight, bias == IR_NONE ? empty(n, IR_F32, 1) : bias}, out[1];
    in[1] = state_inputs(n, 2, dims, in + 4);
    struct ir_out outs[] = {{IR_F32, IR_SHAPE(IR_DYN, dims[0])}};
    ir_name(g, "conv");
    ir_node(g, "PagedCausalConv1D", "extension", 9, in, 0, NULL, 0, NULL, 1, outs, out);
    return out[0];
}

static ir_val paged_delta(struct net *n, const struct delta_call *c)
{
    struct ir *g = n->g;
    const int64_t dims[] = {ir_dim(g, c->v, 1), ir_dim(g, c->v, 2), ir_dim(g, c->k, 2)};
    ir_val in[11] = {c->q, c->k, c->v, IR_NONE, c->decay, c->beta}, out[1];
    in[3] = state_inputs(n, 3, dims, in + 6);
    char eps[32];
    snprintf(eps, sizeof eps, "%.9g", (double)c->norm_eps);
    struct ir_attr attr[] = {{"use_qk_l2norm", "true"}, {"q_l2_norm_eps", eps}, {"k_l2_norm_eps", eps}};
    struct ir_out outs[] = {{IR_F32, IR_SHAPE(IR_DYN, dims[0], dims[1])}};
    ir_name(g, "delta");
    ir_node(g, "PagedGatedDeltaNet", "extension", 11, in, 3, attr, 0, NULL, 1, outs, out);
    return out[0];
}

static ir_val paged_ssm(struct net *n, const struct ssm_call *c)
{
    struct ir *g = n->g;
    const int64_t dims[] = {ir_dim(g, c->x, 1), ir_dim(g, c->x, 2), ir_dim(g, c->b, 2)};
    ir_val in[11] = {c->a, c->dt, c->b, c->x, c->c}, out[1];
    in[5] = state_inputs(n, 3, dims, in + 6);
    struct ir_out outs[] = {{IR_F32, IR_SHAPE(IR_DYN, dims[0], dims[1])}};
    ir_name(g, "ssm");
    ir_node(g, "PagedSelectiveSSM", "extension", 11, in, 0, NULL, 0, NULL, 1, outs, out);
    return out[0];
}

/* ---- RoPE ---- */

static ir_val fused_rope(struct net *n, ir_val x, ir_val cos, ir_val sin, uint32_t n_rot)
{
    char dims[16];
    snprintf(dims, sizeof dims, "%u", n_rot);
    struct ir_attr attr[] = {
        {"config.slice_start", "0"},         {"config.slice_stop", "0"},
        {"config.input_trans0213", "true"},  {"config.output_trans0213", "false"},
        {"config.is_interleaved", "false"},  {"config.rotary_ndims", dims},
        {"config.cos_sin_ndims", dims},      {"config.is_chatglm", "false"},
        {"config.support_2d_rope", "false"}, {"config.support_3d_rope", "false"},
        {"config.use_rope_cache", "false"},  {"config.is_qwen", "false"},
        {"config.is_ltx_video", "false"},    {"config.head_cnt", "0"},
        {"config.head_size", "0"},           {"config.gather_position_arg_id", "0"},
    };
    struct ir_shape s = ir_shape_of(n->g, x);
    struct ir_out outs[] = {{IR_F32, IR_SHAPE(s.d[0], s.d[2], s.d[1], s.d[3])}};
    ir_val in[] = {x, cos, sin}, out[1];
    ir_name(n->g, "rope");
    ir_node(n->g, "RoPE", "ie_internal_opset", 3, in, sizeof attr / sizeof *attr, attr, 0, NULL, 1, outs,
            out);
    return out[0];
}

/* ---- CPU: blocks of the file, multiplied in place ---- */

static bool block_product(struct net *n, ir_val x, const char *form, int count,
                          const struct gguf_tensor *const *t, const uint32_t *const *row_maps, ir_val *out)
{
    int index = linear_isa() == LINEAR_PORTABLE ? -1 : weights_linear(n->w, count, t, row_maps);
    if (index < 0)
        return false;
    size_t all;
    const struct linear *l = &weights_linears(n->w, &all)[index];
    bool each = strcmp(form, "parts") == 0, joined = strcmp(form, "rows") == 0;
    struct ir_out outs[LINEAR_MAX_PARTS];
    int n_outs = each ? count : 1;
    for (int i = 0; i < n_outs; i++) {
        uint64_t rows = each ? l->part[i].rows : joined ? l->rows : l->rows / 2;
        outs[i] = (struct ir_out){IR_F32, IR_SHAPE(IR_DYN, (int64_t)rows)};
    }
    char number[16];
    snprintf(number, sizeof number, "%d", index);
    struct ir_attr attr[] = {{"index", number}, {"form", form}};
    weights_name(n->g, count, t);
    ir_node(n->g, "GgufLinear", "grappa", 1, &x, 2, attr, 0, NULL, n_outs, outs, out);
    return true;
}

static bool block_experts(struct net *n, const struct experts_call *c, ir_val *out)
{
    int index = linear_isa() == LINEAR_PORTABLE ? -1 : weights_experts(n->w, n->g, c->experts);
    if (index < 0)
        return false;
    struct ir_out outs[] = {{IR_F32, IR_SHAPE(IR_DYN, (int64_t)c->experts->cols)}};
    char number[16];
    snprintf(number, sizeof number, "%d", index);
    struct ir_attr attr[] = {{"index", number}};
    ir_name(n->g, "experts");
    ir_node(n->g, "GgufExperts", "grappa", 3, (ir_val[]){c->x, c->ids, c->weights}, 1, attr, 0, NULL, 1, outs,
            out);
    return true;
}

/* ---- CPU: what stands around the delta rule with it ---- */

static bool fused_deltanet(struct net *n, const struct deltanet_call *c, ir_val *out)
{
    struct ir *g = n->g;
    const struct delta sizes = {
        .key_heads = c->key_heads, .heads = c->heads, .key = c->key, .value = c->value, .taps = c->taps};
    if (!delta_supports(&sizes))
        return false;
    if (!out)
        return true;
    const int64_t kept[] = {sizes.taps - 1, ir_dim(g, c->qkv, 1)}, state[] = {c->heads, c->value, c->key};
    ir_val in[16] = {c->qkv,  c->z,    c->alpha,
                     c->beta, c->conv, c->bias == IR_NONE ? empty(n, IR_F32, 1) : c->bias,
                     c->dt,   c->a,    c->norm};
    in[9] = state_inputs(n, 2, kept, in + 11);
    in[10] = state_inputs(n, 3, state, in + 11);
    char key_heads[16], heads[16], eps[32];
    snprintf(key_heads, sizeof key_heads, "%u", c->key_heads);
    snprintf(heads, sizeof heads, "%u", c->heads);
    snprintf(eps, sizeof eps, "%.9g", (double)c->norm_eps);
    struct ir_attr attr[] = {{"key_heads", key_heads},
                             {"heads", heads},
                             {"tiled", c->tiled ? "true" : "false"},
                             {"norm_eps", eps}};
    struct ir_out outs[] = {{IR_F32, IR_SHAPE(IR_DYN, (int64_t)c->heads * c->value)}};
    ir_name(g, "net");
    ir_node(g, "DeltaNet", "grappa", 16, in, 4, attr, 0, NULL, 1, outs, out);
    return true;
}

/* What every row with paged attention has. */
#define PAGED                                                                                                \
    .begin = paged_begin, .attention = paged_attention, .rope = fused_rope, .conv = paged_conv,              \
    .delta = paged_delta, .ssm = paged_ssm

static const struct lowering paged = {.name = "paged", PAGED};
/* f32 and f16 are what llama.cpp computes and caches in; f32 also spares the conversions around our
 * operations. */
static const struct lowering paged_repacked = {
    .name = "paged, repacked",
    .precision = "f32",
    .cache_type = "f16",
    PAGED,
};
static const struct lowering paged_blocks = {
    .name = "paged, blocks in place",
    .precision = "f32",
    .cache_type = "f16",
    .blocks = block_product,
    .experts = block_experts,
    .deltanet = fused_deltanet,
    PAGED,
};

static const struct {
    const char *prefix; /* of the device's name */
    const struct lowering *lowering, *repacked;
} table[] = {
    {"CPU", &paged_blocks, &paged_repacked},
    {"GPU", &paged, &paged},
    {"AUTO", &paged, &paged},
    {"HETERO", &paged, &paged},
};

const struct lowering *lowering_for(const char *device, bool repack, struct err *err)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strncmp(device, table[i].prefix, strlen(table[i].prefix)) == 0)
            return repack ? table[i].repacked : table[i].lowering;
    }
    if (strncmp(device, "NPU", 3) == 0)
        err_set(err, ERR_UNSUPPORTED,
                "device %s: its plugin has no paged attention, and graphs without it aren't built yet",
                device);
    else
        err_set(err, ERR_DEVICE, "device %s is unknown; these can run models: CPU, GPU, AUTO, HETERO",
                device);
    return NULL;
}
