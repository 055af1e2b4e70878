/* Linear attention by the gated delta rule (Qwen 3.5, Qwen 3 Next): Q, K and V through a short convolution, a
 * state for each value head instead of keys and values, a gated norm on what comes out.
 *
 * Value heads share key heads. The operation wants those of a key head side by side (value head h reads key
 * head h / (H / Hk)), and so do the files of qwen3next; those of qwen35 tile them (h mod Hk). Where the
 * device has no operation of ours that takes both, the rows that make value heads are reordered as the
 * matrices are read; the columns of the output matrix, whose blocks can't be reordered, get their rows of x
 * in the file's order by a transposition instead. */
#include "arch/block/block.h"

struct sizes {
    uint32_t key_heads, heads, key, value; /* counts, and sizes of a head */
    uint32_t keys, values;                 /* widths of all K (or Q) and of all V */
};

/* Rows [0, heads * size) of value heads in the operation's order; NULL when it is the file's. */
static uint32_t *value_rows(struct net *n, const struct sizes *s, bool tiled, uint32_t size)
{
    uint32_t share = s->heads / s->key_heads;
    if (!tiled || share == 1)
        return NULL;
    uint32_t *map = weights_row_map(n->w, (size_t)s->heads * size);
    for (uint32_t i = 0; i < s->heads * size; i++) {
        uint32_t head = i / size;
        map[i] = (head / share + head % share * s->key_heads) * size + i % size;
    }
    return map;
}

/* The same behind Q and K, which keep their place. */
static uint32_t *qkv_rows(struct net *n, const struct sizes *s, const uint32_t *values)
{
    if (!values)
        return NULL;
    uint32_t *map = weights_row_map(n->w, 2 * (size_t)s->keys + s->values);
    for (uint32_t i = 0; i < 2 * s->keys + s->values; i++)
        map[i] = i < 2 * s->keys ? i : 2 * s->keys + values[i - 2 * s->keys];
    return map;
}

/* The old tensor of qwen3next that holds everything by key head: [q, k, v …, z …] each. To Q, K, V, Z. */
static uint32_t *mixed_rows(struct net *n, const struct sizes *s)
{
    uint32_t share = s->heads / s->key_heads * s->value, each = 2 * s->key + 2 * share;
    uint32_t *map = weights_row_map(n->w, (size_t)each * s->key_heads), *to = map;
    const uint32_t begins[] = {0, s->key, 2 * s->key, 2 * s->key + share};
    const uint32_t sizes[] = {s->key, s->key, share, share};
    for (int part = 0; part < 4; part++) {
        for (uint32_t head = 0; head < s->key_heads; head++) {
            for (uint32_t i = 0; i < sizes[part]; i++)
                *to++ = head * each + begins[part] + i;
        }
    }
    return map;
}

/* "ssm_ba" holds beta and alpha by key head: to all beta, all alpha. */
static uint32_t *beta_alpha_rows(struct net *n, const struct sizes *s)
{
    uint32_t share = s->heads / s->key_heads;
    uint32_t *map = weights_row_map(n->w, 2 * (size_t)s->heads);
    for (uint32_t i = 0; i < 2 * s->heads; i++) {
        uint32_t head = i % s->heads;
        map[i] = head / share * 2 * share + i / s->heads * share + head % share;
    }
    return map;
}

struct projected {
    ir_val qkv, z, beta, alpha;
};

static struct projected project(struct net *n, ir_val x, uint32_t il, const struct sizes *s,
                                const struct deltanet *d, const uint32_t *qkv_map)
{
    uint64_t cols = n->h->n_embd;
    const struct gguf_tensor *t[4];
    const uint32_t *maps[4];
    int count = 0, joined = 0; /* matrices; of those before beta, whether one holds Z too */
    struct projected p = {IR_NONE, IR_NONE, IR_NONE, IR_NONE};
    ir_val out[4], pair[2];

    uint32_t width = 2 * s->keys + s->values;
    const struct gguf_tensor *mixed = NULL;
    t[0] = net_matrix(n, !d->mixed, width, cols, "blk.%u.attn_qkv.weight", il);
    if (!t[0] && d->mixed)
        mixed = net_matrix(n, true, width + s->values, cols, "blk.%u.ssm_in.weight", il);
    if (mixed) {
        t[0] = mixed;
        maps[0] = mixed_rows(n, s);
        count = joined = 1;
    } else {
        maps[0] = qkv_map;
        t[1] = net_matrix(n, true, s->values, cols, "blk.%u.attn_gate.weight", il);
        maps[1] = value_rows(n, s, d->tiled, s->value);
        count = 2;
    }
    int first = count;
    if (d->mixed) {
        t[count] = net_matrix(n, true, 2 * (uint64_t)s->heads, cols, "blk.%u.ssm_ba.weight", il);
        maps[count++] = beta_alpha_rows(n, s);
    } else {
        t[count] = net_matrix(n, true, s->heads, cols, "blk.%u.ssm_beta.weight", il);
        maps[count++] = value_rows(n, s, d->tiled, 1);
        t[count] = net_matrix(n, true, s->heads, cols, "blk.%u.ssm_alpha.weight", il);
        maps[count++] = value_rows(n, s, d->tiled, 1);
    }
    net_linear_each(n, x, d->scale ? NET_SCALE_BIAS : NET_BIAS, count, t, maps, out);

    if (joined) {
        ir_split(n->g, out[0], 1, 2, (int64_t[]){width, s->values}, pair);
        p.qkv = pair[0];
        p.z = pair[1];
    } else {
        p.qkv = out[0];
        p.z = out[1];
    }
    if (d->mixed)
        ir_split(n->g, out[first], 1, 2, NULL, out + first);
    p.beta = out[first];
    p.alpha = out[first + 1];
    return p;
}

/* Heads back in the order of the output matrix's columns: [T, H, size] -> [T, H * size]. */
static ir_val file_order(struct net *n, ir_val x, const struct sizes *s, bool tiled)
{
    struct ir *g = n->g;
    uint32_t share = s->heads / s->key_heads;
    if (tiled && share > 1) {
        x = ir_reshape(g, x, 4, (int64_t[]){-1, s->key_heads, share, s->value}, false);
        x = ir_transpose(g, x, 4, (int64_t[]){0, 2, 1, 3});
    }
    return ir_reshape(g, x, 2, (int64_t[]){-1, s->values}, false);
}

/* The convolution's weights tap by tap; the file has them channel by channel. */
static ir_val taps_first(struct net *n, uint32_t il, uint32_t channels, uint32_t taps)
{
    const struct gguf_tensor *t = net_matrix(n, true, channels, taps, "blk.%u.ssm_conv1d.weight", il);
    if (!t)
        return IR_NONE;
    uint32_t *map = weights_row_map(n->w, (size_t)channels * taps);
    for (uint32_t i = 0; i < channels * taps; i++)
        map[i] = i % channels * taps + i / channels;
    return ir_reshape(n->g, weights_small(n->w, n->g, t, map), 2, (int64_t[]){taps, channels}, false);
}

/* All between the projections as one operation, with heads in the file's order; false when the device has
 * none. */
static bool as_one(struct net *n, ir_val x, uint32_t il, const struct sizes *s, const struct deltanet *d,
                   ir_val *y)
{
    const struct hparams *h = n->h;
    struct deltanet_call c = {.key_heads = s->key_heads,
                              .heads = s->heads,
                              .key = s->key,
                              .value = s->value,
                              .taps = h->ssm_conv,
                              .tiled = d->tiled,
                              .norm_eps = h->norm_eps};
    if (!n->lower->deltanet || !n->lower->deltanet(n, &c, NULL))
        return false;
    uint32_t channels = 2 * s->keys + s->values;
    struct deltanet as_filed = *d;
    as_filed.tiled = false;
    struct projected p = project(n, x, il, s, &as_filed, NULL);
    c.qkv = p.qkv;
    c.z = p.z;
    c.alpha = p.alpha;
    c.beta = p.beta;
    c.conv = taps_first(n, il, channels, c.taps);
    c.bias = net_vector(n, false, 1, channels, NULL, "blk.%u.ssm_conv1d.bias", il);
    c.dt = net_vector(n, true, 1, s->heads, NULL, "blk.%u.ssm_dt.bias", il);
    c.a = net_vector(n, true, 1, s->heads, NULL, "blk.%u.ssm_a", il);
    c.norm = net_vector(n, true, 1, s->value, NULL, "blk.%u.ssm_norm.weight", il);
    n->lower->deltanet(n, &c, y);
    *y = net_wanted_rows(n, il, *y);
    return true;
}

/* The same in small operations around the delta rule. */
static ir_val apart(struct net *n, ir_val x, uint32_t il, const struct sizes *s, const struct deltanet *d)
{
    struct ir *g = n->g;
    const struct hparams *h = n->h;
    const uint32_t *by_head = value_rows(n, s, d->tiled, 1);
    const uint32_t *qkv_map = qkv_rows(n, s, value_rows(n, s, d->tiled, s->value));
    struct projected p = project(n, x, il, s, d, qkv_map);

    ir_val dt = net_vector(n, true, 1, s->heads, by_head, "blk.%u.ssm_dt.bias", il);
    ir_val a = net_vector(n, true, 1, s->heads, by_head, "blk.%u.ssm_a", il);
    ir_val decay = ir_mul(g, ir_unary(g, IR_SOFTPLUS, ir_add(g, p.alpha, dt)), a);
    ir_val qkv = ir_unary(g, IR_SWISH, block_conv(n, p.qkv, h->ssm_conv, qkv_map, "ssm_conv1d", il));
    ir_val part[3];
    ir_split(g, qkv, 1, 3, (int64_t[]){s->keys, s->keys, s->values}, part);
    struct delta_call call = {
        .q = ir_reshape(g, part[0], 3, (int64_t[]){-1, s->key_heads, s->key}, false),
        .k = ir_reshape(g, part[1], 3, (int64_t[]){-1, s->key_heads, s->key}, false),
        .v = ir_reshape(g, part[2], 3, (int64_t[]){-1, s->heads, s->value}, false),
        .decay = decay,
        .beta = ir_unary(g, IR_SIGMOID, p.beta),
        .norm_eps = h->norm_eps,
    };
    ir_val y = net_wanted_rows(n, il, n->lower->delta(n, &call));
    ir_val z = ir_unary(g, IR_SWISH, net_wanted_rows(n, il, p.z));
    y = net_rms_norm(n, y, true, "blk.%u.ssm_norm", il);
    y = ir_mul(g, y, ir_reshape(g, z, 3, (int64_t[]){-1, s->heads, s->value}, false));
    return file_order(n, y, s, d->tiled);
}

ir_val block_deltanet(struct net *n, ir_val x, uint32_t il, const struct deltanet *d)
{
    const struct hparams *h = n->h;
    struct sizes s = {h->ssm_groups, h->ssm_heads, h->ssm_state, h->ssm_inner / h->ssm_heads, 0,
                      h->ssm_inner};
    s.keys = s.key_heads * s.key;
    ir_val y;
    ir_scope(n->g, "delta");
    if (!as_one(n, x, il, &s, d, &y))
        y = apart(n, x, il, &s, d);
    y = net_linear_named(n, y, d->scale ? NET_SCALE_BIAS : NET_BIAS, h->n_embd, s.values, "blk.%u.ssm_out",
                         il);
    ir_leave(n->g);
    return y;
}
