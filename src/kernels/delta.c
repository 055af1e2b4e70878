/* How a step is divided into blocks of rows, and what happens to them before and after the states. */
#include "kernels/delta.h"

#include "base/mem.h"
#include "kernels/gate.h"
#include "kernels/linear.h"
#include "kernels/unroll.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 16, MAX_TAPS = 16 };

/* Rows of a sequence for one value head. */
struct block {
    size_t n, key, value;
    const float *q, *k; /* [n][key] */
    const float *v;     /* [n][value] */
    float *y;
    float decay[BLOCK], beta[BLOCK], kq[BLOCK]; /* factors of S and of what is new; k q */
    const float *from;                          /* the state before and after */
    float *to;
};

typedef float vec4 __attribute__((vector_size(16)));
#define NAME(x) plain_##x
#define TARGET
#define VEC          vec4
#define FMA(a, b, c) ((a) * (b) + (c))
#define SET1(f)      ((vec4){f, f, f, f})
#define SUM(v)       sum4(v)
static inline float sum4(vec4 v)
{
    return (v[0] + v[2]) + (v[1] + v[3]);
}
#include "kernels/delta_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(x)      avx2_##x
#define TARGET       __attribute__((target("avx2,fma")))
#define VEC          __m256
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define SET1(f)      _mm256_set1_ps(f)
#define SUM(v)       sum8(v)
static inline __attribute__((always_inline, target("avx2,fma"))) float sum8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
#include "kernels/delta_rows.h"

#define NAME(x)      avx512_##x
#define TARGET       __attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma")))
#define VEC          __m512
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define SET1(f)      _mm512_set1_ps(f)
#define SUM(v)       _mm512_reduce_add_ps(v)
#include "kernels/delta_rows.h"
#endif

static const struct {
    void (*state)(const struct block *b);
    void (*convolve)(const float *const *x, const float *w, size_t stride, size_t taps, const float *bias,
                     size_t n, float *y);
} levels[LINEAR_N_ISA] = {
    [LINEAR_PORTABLE] = {plain_state, plain_convolve},
#if defined(__x86_64__)
    [LINEAR_AVX2] = {avx2_state, avx2_convolve},
    [LINEAR_AVX512] = {avx512_state, avx512_convolve},
#endif
};

bool delta_supports(const struct delta *d)
{
    return d->key_heads > 0 && d->heads % d->key_heads == 0 && d->key > 0 && d->key % DELTA_LANES == 0 &&
           d->key <= DELTA_MAX_KEY && d->value > 0 && d->taps >= 2 && d->taps <= MAX_TAPS;
}

static size_t share_of(const struct delta *d)
{
    return d->heads / d->key_heads;
}

static size_t n_channels(const struct delta *d)
{
    return 2 * (size_t)d->key_heads * d->key + (size_t)d->heads * d->value;
}

/* A thread's scratch. */
struct work {
    float *q, *k; /* [BLOCK][key] */
    float *v, *y; /* [BLOCK][value] */
    float *one;   /* [larger of key and value]: 1 */
    float *conv;  /* [taps - 1][2 * key + share * value]: the convolution's state before the step */
};

static size_t lay_out(const struct delta *d, float *at, struct work *w)
{
    size_t key = d->key, value = align_up(d->value, DELTA_LANES), wide = key > value ? key : value;
    size_t sizes[] = {BLOCK * key,   BLOCK * key, BLOCK * value,
                      BLOCK * value, wide,        (d->taps - 1) * (2 * key + share_of(d) * d->value)};
    float **to[] = {&w->q, &w->k, &w->v, &w->y, &w->one, &w->conv};
    size_t n = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (at)
            *to[i] = at + n;
        n += align_up(sizes[i], DELTA_LANES);
    }
    return n * sizeof(float);
}

size_t delta_scratch_size(const struct delta *d)
{
    struct work w;
    return lay_out(d, NULL, &w);
}

size_t delta_pieces(const struct delta *d, const struct delta_step *s)
{
    return s->n_seqs * d->key_heads;
}

/* ---- a piece: one sequence, one key head ---- */

struct piece {
    const struct delta *d;
    const struct delta_step *s;
    struct work w;
    size_t begin, n; /* rows of the sequence */
    uint32_t key_head;
    size_t from;          /* the slot that is read */
    const int32_t *slots; /* and those that are written */
    size_t n_slots;
    int32_t past, interval;
};

static uint32_t head_of(const struct piece *p, size_t i)
{
    return (uint32_t)(p->d->tiled ? p->key_head + i * p->d->key_heads : p->key_head * share_of(p->d) + i);
}

/* The channels of a piece in turn: q, k, then each of its value heads. */
static size_t channels_of(const struct piece *p, size_t i, size_t *width)
{
    const struct delta *d = p->d;
    *width = i < 2 ? d->key : d->value;
    if (i < 2)
        return (i * d->key_heads + p->key_head) * d->key;
    return 2 * (size_t)d->key_heads * d->key + (size_t)head_of(p, i - 2) * d->value;
}

/* Where channel range i of the piece begins in a row of work.conv, and how long that row is. */
static size_t kept_at(const struct delta *d, size_t i)
{
    return i < 2 ? i * d->key : 2 * d->key + (i - 2) * d->value;
}

static size_t kept_row(const struct delta *d)
{
    return kept_at(d, 2 + share_of(d));
}

/* What the convolution reads `back` rows before row t of the sequence, of the channel range i. */
static const float *input(const struct piece *p, size_t i, size_t channel, size_t t, size_t back)
{
    if (t >= back)
        return p->s->qkv + (p->begin + t - back) * n_channels(p->d) + channel;
    return p->w.conv + (p->d->taps - 1 + t - back) * kept_row(p->d) + kept_at(p->d, i);
}

static void keep_conv(const struct piece *p)
{
    const struct delta *d = p->d;
    for (size_t i = 0; i < 2 + share_of(d); i++) {
        size_t width, channel = channels_of(p, i, &width), all = n_channels(d);
        const float *from = p->s->conv_states + p->from * (d->taps - 1) * all + channel;
        for (size_t r = 0; r + 1 < d->taps; r++)
            memcpy(p->w.conv + r * kept_row(d) + kept_at(d, i), from + r * all, width * sizeof *from);
    }
}

/* The convolution's state after `done` rows. */
static void store_conv(const struct piece *p, size_t done, size_t slot)
{
    const struct delta *d = p->d;
    for (size_t i = 0; i < 2 + share_of(d); i++) {
        size_t width, channel = channels_of(p, i, &width), all = n_channels(d);
        float *to = p->s->conv_states + slot * (d->taps - 1) * all + channel;
        for (size_t r = 0; r + 1 < d->taps; r++)
            memcpy(to + r * all, input(p, i, channel, done, d->taps - 1 - r), width * sizeof *to);
    }
}

/* Channel range i of rows [t, t + n). */
static void convolve(const struct piece *p, size_t i, size_t t, size_t n, float *y)
{
    const struct delta *d = p->d;
    size_t width, channel = channels_of(p, i, &width);
    for (size_t r = 0; r < n; r++, y += width) {
        const float *x[MAX_TAPS];
        for (size_t j = 0; j < d->taps; j++)
            x[j] = input(p, i, channel, t + r, d->taps - 1 - j);
        levels[linear_isa()].convolve(x, d->conv + channel, n_channels(d), d->taps,
                                      d->conv_bias ? d->conv_bias + channel : NULL, width, y);
        gate_rows(GATE_SILU, y, p->w.one, y, width);
    }
}

/* In lanes, so that compilers may make vector code of it. */
static float dot(const float *a, const float *b, size_t n)
{
    float lane[DELTA_LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + DELTA_LANES <= n; i += DELTA_LANES)
        for (size_t l = 0; l < DELTA_LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (size_t l = 0; l < DELTA_LANES; l++)
        sum += lane[l];
    return sum;
}

static void to_length(float *x, size_t n, float length, float eps)
{
    float scale = length / fmaxf(sqrtf(dot(x, x, n)), eps);
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* q and k of rows [t, t + n), and their products. */
static void keys(const struct piece *p, size_t t, size_t n, struct block *b)
{
    const struct delta *d = p->d;
    convolve(p, 0, t, n, p->w.q);
    convolve(p, 1, t, n, p->w.k);
    for (size_t r = 0; r < n; r++) {
        float *q = p->w.q + r * d->key, *k = p->w.k + r * d->key;
        to_length(q, d->key, 1 / sqrtf((float)d->key), d->norm_eps);
        to_length(k, d->key, 1, d->norm_eps);
        b->kq[r] = dot(q, k, d->key);
    }
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* The norm and the gate of one head's row. */
static void finish(const struct delta *d, float *y, const float *z, float *out)
{
    float scale = 1 / sqrtf(dot(y, y, d->value) / (float)d->value + d->norm_eps);
    for (size_t i = 0; i < d->value; i++)
        y[i] *= scale * d->norm[i];
    gate_rows(GATE_SILU, z, y, out, d->value);
}

/* Rows [t, t + n) of a value head, i-th of the piece. */
static void value_head(const struct piece *p, size_t i, size_t t, size_t n, size_t from, size_t to,
                       struct block *b)
{
    const struct delta *d = p->d;
    const struct delta_step *s = p->s;
    uint32_t h = head_of(p, i);
    size_t state = (size_t)d->value * d->key;
    for (size_t r = 0; r < n; r++) {
        size_t at = (p->begin + t + r) * d->heads + h;
        b->decay[r] = expf(d->a[h] * softplus(s->alpha[at] + d->dt[h]));
        b->beta[r] = 1 / (1 + expf(-s->beta[at]));
    }
    convolve(p, 2 + i, t, n, p->w.v);
    b->from = s->states + (from * d->heads + h) * state;
    b->to = s->states + (to * d->heads + h) * state;
    levels[linear_isa()].state(b);
    for (size_t r = 0; r < n; r++) {
        size_t at = ((p->begin + t + r) * d->heads + h) * d->value;
        finish(d, b->y + r * d->value, s->z + at, s->y + at);
    }
}

/* How many rows from row t on until a state is to be written, and into which of the slots. */
static size_t until_state(const struct piece *p, size_t t, size_t *slot)
{
    size_t left = p->n - t;
    *slot = 0;
    if (p->interval > 0) {
        size_t interval = (size_t)p->interval, done = (size_t)p->past % interval + t;
        size_t next = interval - done % interval;
        left = next < left ? next : left;
        *slot = (done + left - 1) / interval;
    }
    *slot = (size_t)p->slots[*slot < p->n_slots ? *slot : p->n_slots - 1];
    return left;
}

static void run(const struct piece *p)
{
    const struct delta *d = p->d;
    struct block b = {.key = d->key, .value = d->value, .q = p->w.q, .k = p->w.k, .v = p->w.v, .y = p->w.y};
    size_t from = p->from, to, left;
    keep_conv(p);
    for (size_t t = 0; t < p->n; t += b.n, from = to) {
        left = until_state(p, t, &to);
        b.n = left < BLOCK ? left : BLOCK;
        keys(p, t, b.n, &b);
        for (size_t i = 0; i < share_of(d); i++)
            value_head(p, i, t, b.n, from, to, &b);
        if (b.n == left)
            store_conv(p, t + b.n, to);
    }
}

void delta_do(const struct delta *d, const struct delta_step *s, size_t first, size_t last, void *scratch)
{
    struct piece p = {.d = d, .s = s};
    lay_out(d, scratch, &p.w);
    for (size_t i = 0; i < d->key || i < d->value; i++)
        p.w.one[i] = 1;
    for (size_t i = first; i < last; i++) {
        size_t seq = i / d->key_heads, slots = (size_t)s->slot_begins[seq];
        p.key_head = (uint32_t)(i % d->key_heads);
        p.begin = (size_t)s->begins[seq];
        p.n = (size_t)s->begins[seq + 1] - p.begin;
        p.from = (size_t)s->slots[slots];
        p.slots = s->slots + slots + 1;
        p.n_slots = (size_t)s->slot_begins[seq + 1] - slots - 1;
        p.past = s->past[seq];
        p.interval = s->interval[seq];
        run(&p);
    }
}
