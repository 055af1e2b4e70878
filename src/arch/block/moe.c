/* Mixture of experts: a router chooses some of many small MLPs for each row. They may work on rows that are
 * narrower than the stream (Nemotron 3's latent experts). */
#include "arch/block/block.h"

#include <float.h>
#include <stdio.h>

bool moe_layer(const struct hparams *h, uint32_t il)
{
    return h->n_expert > 0 && il >= h->n_layer_dense && (il + 1) % h->moe_step == 0;
}

/* ---- tensors ---- */

/* "blk.3.ffn_NAME_exps.weight", rows x cols for each expert; rows 0: any, as the file has it. */
static const struct gguf_tensor *stack(struct net *n, bool required, uint64_t rows, uint64_t cols,
                                       const char *name, uint32_t il)
{
    struct err err = ERR_INIT;
    const struct gguf_tensor *t = weights_tensor(n->w, required, &err, "blk.%u.ffn_%s_exps.weight", il, name);
    if (!t) {
        if (required)
            ir_fail(n->g, "%s", err.text);
        return NULL;
    }
    uint64_t wanted = rows ? rows : t->ne[1];
    if (t->ne[0] != cols || t->ne[1] != wanted || wanted == 0 || t->ne[2] != n->h->n_expert ||
        t->ne[3] != 1) {
        ir_fail(n->g, "tensor %.*s is %llu x %llu x %llu, expected %llu x %llu x %u", STR_ARG(t->name),
                (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                (unsigned long long)cols, (unsigned long long)wanted, n->h->n_expert);
        return NULL;
    }
    return t;
}

static bool find_experts(struct net *n, uint32_t il, const struct moe *m, uint64_t cols,
                         struct weights_experts *e)
{
    static const char *const names[] = {"gate", "up", "down"};
    uint64_t rows;
    *e = (struct weights_experts){
        .n = n->h->n_expert, .cols = cols, .act = m->no_gate ? GATE_RELU : m->act, .single = m->no_gate};
    const struct gguf_tensor *both = m->no_gate ? NULL : stack(n, false, 0, cols, "gate_up", il);
    const struct gguf_tensor *up = both ? both : stack(n, true, 0, cols, "up", il);
    if (!up)
        return false;
    if (both && both->ne[1] % 2 != 0) {
        ir_fail(n->g, "tensor %.*s has an odd number of rows", STR_ARG(both->name));
        return false;
    }
    if (both && m->biases) {
        ir_fail(n->g, "tensor %.*s: a fused stack with biases isn't known", STR_ARG(both->name));
        return false;
    }
    e->ff = both ? both->ne[1] / 2 : up->ne[1];
    e->stack[WEIGHTS_UP] = up;
    e->stack[WEIGHTS_GATE] = both || m->no_gate ? NULL : stack(n, true, e->ff, cols, "gate", il);
    e->stack[WEIGHTS_DOWN] = stack(n, true, cols, e->ff, "down", il);
    for (int i = m->no_gate ? WEIGHTS_UP : WEIGHTS_GATE; i < WEIGHTS_N_STACKS; i++) {
        rows = i == WEIGHTS_DOWN ? cols : e->ff;
        if (m->scales)
            e->scale[i] = net_matrix(n, false, 1, e->n, "blk.%u.ffn_%s_exps.scale", il,
                                     both && i == WEIGHTS_GATE ? "up" : names[i]);
        if (m->biases)
            e->bias[i] = net_matrix(n, false, e->n, rows, "blk.%u.ffn_%s_exps.bias", il, names[i]);
    }
    return (both || m->no_gate || e->stack[WEIGHTS_GATE]) && e->stack[WEIGHTS_DOWN];
}

/* ---- router ---- */

/* Scores of the experts outside the best groups become the least number there is. A group is as good as its
 * two best experts together (DeepSeek-V3, arXiv:2412.19437). */
static ir_val within_groups(struct net *n, ir_val scores)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    int64_t groups = h->n_expert_groups, each = h->n_expert / h->n_expert_groups;
    ir_val grouped = ir_reshape(g, scores, 3, (int64_t[]){-1, groups, each}, false), best, which, unused;
    ir_topk(g, grouped, 2, 2, &best, &unused);
    ir_val sums = ir_reduce(g, IR_REDUCE_SUM, best, 2, false);
    ir_topk(g, sums, h->n_expert_groups_used, 1, &best, &which);
    /* The chosen groups' places get a 1, so that one comparison tells. */
    ir_val zeros = ir_mul(g, sums, ir_f32(g, 0.0f));
    ir_val ones = ir_add(g, ir_mul(g, best, ir_f32(g, 0.0f)), ir_f32(g, 1.0f));
    ir_val chosen = ir_unsqueeze(g, ir_scatter_elements(g, zeros, which, ones, 1), 1, (int64_t[]){2});
    ir_val masked =
        ir_select(g, ir_binary(g, IR_GREATER, chosen, ir_f32(g, 0.5f)), grouped, ir_f32(g, -FLT_MAX));
    return ir_reshape(g, masked, 2, (int64_t[]){-1, h->n_expert}, false);
}

static ir_val gather_elements(struct net *n, ir_val data, ir_val ids)
{
    struct ir_out outs[] = {{IR_F32, ir_shape_of(n->g, ids)}};
    struct ir_attr attr[] = {{"axis", "1"}};
    ir_val out = IR_NONE;
    ir_node(n->g, "GatherElements", "opset6", 2, (ir_val[]){data, ids}, 1, attr, 0, NULL, 1, outs, &out);
    return out;
}

static ir_val scores_of(struct net *n, ir_val logits)
{
    switch (n->h->moe_gating) {
    case MOE_SOFTMAX:
        return ir_softmax(n->g, logits, 1);
    case MOE_SIGMOID:
        return ir_unary(n->g, IR_SIGMOID, logits);
    default:
        return logits;
    }
}

/* ids i32 and weights f32 [T, n_expert_used]. */
static void route(struct net *n, ir_val x, uint32_t il, const struct moe *m, ir_val *ids, ir_val *weights)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    ir_val logits = net_linear_named(n, x, m->biases ? NET_SCALE_BIAS : NET_SCALE, h->n_expert, h->n_embd,
                                     "blk.%u.ffn_gate_inp", il);
    ir_val scores = scores_of(n, logits), choice = scores, w;
    const struct gguf_tensor *bias =
        m->selection_bias ? net_matrix(n, false, 1, h->n_expert, "blk.%u.exp_probs_b.bias", il) : NULL;
    if (bias)
        choice = ir_add(g, choice, weights_small(n->w, g, bias, NULL));
    if (h->n_expert_groups > 1)
        choice = within_groups(n, choice);
    ir_topk(g, choice, h->n_expert_used, 1, &w, ids);
    if (choice != scores)
        w = gather_elements(n, scores, *ids);
    if (h->moe_gating == MOE_SOFTMAX_OF_CHOSEN)
        w = ir_softmax(g, w, 1);
    if (m->normed || h->moe_norm) {
        /* Not below the least normal number of f16, as llama.cpp has it. */
        ir_val sum = ir_reduce(g, IR_REDUCE_SUM, w, 1, true);
        w = ir_binary(g, IR_DIV, w, ir_binary(g, IR_MAX, sum, ir_f32(g, 0x1p-14f)));
    }
    if (h->moe_scale != 0 && h->moe_scale != 1)
        w = ir_mul(g, w, ir_f32(g, h->moe_scale));
    *weights = w;
}

/* ---- the plugin's own products ---- */

/* Sizes with some from a running graph: [T] and constants. */
static ir_val sizes(struct net *n, ir_val rows, int count, const int64_t *dims)
{
    ir_val part[IR_MAX_RANK];
    for (int i = 0; i < count; i++)
        part[i] = dims[i] == IR_DYN ? rows : ir_i64s(n->g, 1, &dims[i]);
    return ir_concat(n->g, count, part, 0);
}

/* x [n, T, cols] times each expert's matrix, and what acts on that: [n, T, rows]. */
static ir_val batched(struct net *n, ir_val x, const struct weights_experts *e, int which)
{
    struct ir *g = n->g;
    struct weights_matrix m = weights_stack(n->w, g, e->stack[which]);
    ir_val y = ir_matmul(g, x, m.w, false, true);
    if (m.min != IR_NONE) {
        ir_val groups =
            ir_reshape(g, x, 4, (int64_t[]){e->n, -1, (int64_t)m.cols / m.group, (int64_t)m.group}, false);
        ir_val sums = ir_reduce(g, IR_REDUCE_SUM, groups, 3, false);
        y = ir_add(g, y, ir_matmul(g, sums, m.min, false, true));
    }
    if (e->scale[which])
        y = ir_mul(
            g, y,
            ir_reshape(g, weights_small(n->w, g, e->scale[which], NULL), 3, (int64_t[]){e->n, 1, 1}, false));
    if (e->bias[which])
        y = ir_add(g, y,
                   ir_reshape(g, weights_small(n->w, g, e->bias[which], NULL), 3,
                              (int64_t[]){e->n, 1, (int64_t)e->bias[which]->ne[0]}, false));
    return y;
}

static ir_val gated(struct net *n, enum gate act, ir_val gate, ir_val up)
{
    struct ir *g = n->g;
    switch (act) {
    case GATE_GELU_TANH:
        return ir_mul(g, ir_unary(g, IR_GELU_TANH, gate), up);
    case GATE_RELU:
        return ir_mul(g, ir_unary(g, IR_RELU, gate), up);
    case GATE_SWIGLU_OAI: {
        ir_val x = ir_binary(g, IR_MIN, gate, ir_f32(g, 7.0f));
        ir_val s = ir_mul(g, x, ir_unary(g, IR_SIGMOID, ir_mul(g, x, ir_f32(g, 1.702f))));
        return ir_mul(g, s, ir_add(g, ir_clamp(g, up, -7.0, 7.0), ir_f32(g, 1.0f)));
    }
    default:
        return ir_mul(g, ir_unary(g, IR_SWISH, gate), up);
    }
}

/* All experts for all rows, the unwanted times 0: in the form that the plugins turn into products of the
 * chosen ones only. */
static ir_val all_experts(struct net *n, const struct experts_call *c)
{
    struct ir *g = n->g;
    const struct weights_experts *e = c->experts;
    int64_t count = e->n, cols = (int64_t)e->cols, zero = 0;
    ir_val rows = ir_gather(g, ir_shape(g, c->x), ir_i64s(g, 1, &zero), 0);

    ir_val x = ir_reshape(g, ir_unsqueeze(g, c->x, 1, (int64_t[]){1}), 2, (int64_t[]){-1, cols}, false);
    x = ir_reshape(g, ir_tile(g, x, 2, (int64_t[]){count, 1}), 3, (int64_t[]){count, -1, cols}, false);
    ir_val gate, up;
    if (e->stack[WEIGHTS_GATE]) {
        gate = batched(n, x, e, WEIGHTS_GATE);
        up = batched(n, x, e, WEIGHTS_UP);
    } else if (e->single) {
        gate = up = batched(n, x, e, WEIGHTS_UP);
    } else {
        ir_val both[2];
        ir_split(g, batched(n, x, e, WEIGHTS_UP), 2, 2, NULL, both);
        gate = both[0];
        up = both[1];
    }
    ir_val y = batched(n, gated(n, e->act, gate, up), e, WEIGHTS_DOWN);
    y = ir_reshape_dyn(g, y, sizes(n, rows, 4, (int64_t[]){count, IR_DYN, 1, cols}),
                       IR_SHAPE(count, IR_DYN, 1, cols));

    ir_val none = ir_broadcast(g, ir_f32(g, 0.0f), sizes(n, rows, 2, (int64_t[]){IR_DYN, count}), false,
                               IR_SHAPE(IR_DYN, count));
    ir_val w = ir_transpose(g, ir_scatter_elements(g, none, c->ids, c->weights, 1), 2, (int64_t[]){1, 0});
    w = ir_reshape_dyn(g, w, sizes(n, rows, 3, (int64_t[]){count, IR_DYN, 1}), IR_SHAPE(count, IR_DYN, 1));
    y = ir_mul(g, y, ir_unsqueeze(g, w, 1, (int64_t[]){3}));
    return ir_reshape(g, ir_reduce(g, IR_REDUCE_SUM, y, 0, false), 2, (int64_t[]){-1, cols}, false);
}

/* ---- */

static ir_val shared(struct net *n, ir_val x, uint32_t il, const struct moe *m)
{
    ir_val y = block_mlp_shared(n, x, il,
                                &(struct mlp){.act = m->no_gate ? IR_RELU : IR_SWISH,
                                              .scale = m->shared_scales,
                                              .no_gate = m->no_gate,
                                              .squared = m->no_gate});
    if (m->shared != MOE_SHARED_GATED)
        return y;
    ir_val gate = net_linear_named(n, x, NET_SCALE, 1, n->h->n_embd, "blk.%u.ffn_gate_inp_shexp", il);
    return ir_mul(n->g, y, ir_unary(n->g, IR_SIGMOID, gate));
}

/* Each row once for each of its experts, times the weight: [T * used, cols], with an expert of weight 1. */
static void weigh_input(struct net *n, struct experts_call *c)
{
    struct ir *g = n->g;
    ir_val w = ir_unsqueeze(g, c->weights, 1, (int64_t[]){2});
    ir_val x = ir_mul(g, ir_unsqueeze(g, c->x, 1, (int64_t[]){1}), w);
    c->x = ir_reshape(g, x, 2, (int64_t[]){-1, n->h->n_embd}, false);
    c->ids = ir_reshape(g, c->ids, 2, (int64_t[]){-1, 1}, false);
    c->weights = ir_reshape(g, c->weights, 2, (int64_t[]){-1, 1}, false);
    c->weights = ir_add(g, ir_mul(g, c->weights, ir_f32(g, 0.0f)), ir_f32(g, 1.0f));
}

ir_val block_moe(struct net *n, ir_val x, uint32_t il, const struct moe *m)
{
    struct weights_experts e;
    ir_scope(n->g, "moe");
    const struct gguf_tensor *latent = weights_tensor(n->w, false, NULL, "blk.%u.ffn_latent_down.weight", il);
    uint64_t width = n->h->n_embd, cols = latent ? latent->ne[1] : width;
    if (!find_experts(n, il, m, cols, &e)) {
        ir_leave(n->g);
        return IR_NONE;
    }
    struct experts_call c = {.x = x, .experts = &e};
    ir_val y;
    if (latent)
        c.x = net_linear_named(n, x, NET_SCALE, cols, width, "blk.%u.ffn_latent_down", il);
    route(n, x, il, m, &c.ids, &c.weights);
    if (m->weighs_input)
        weigh_input(n, &c);
    if (!n->lower->experts || !n->lower->experts(n, &c, &y))
        y = all_experts(n, &c);
    if (m->weighs_input) {
        ir_val each = ir_reshape(n->g, y, 3, (int64_t[]){-1, n->h->n_expert_used, n->h->n_embd}, false);
        y = ir_reduce(n->g, IR_REDUCE_SUM, each, 1, false);
    }
    if (latent)
        y = net_linear_named(n, y, NET_SCALE, width, cols, "blk.%u.ffn_latent_up", il);
    bool optional = m->shared == MOE_SHARED_OPTIONAL;
    if (m->shared && (!optional || weights_tensor(n->w, false, NULL, "blk.%u.ffn_up_shexp.weight", il)))
        y = ir_add(n->g, y, shared(n, x, il, m));
    ir_leave(n->g);
    return y;
}
