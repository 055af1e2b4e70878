/* The inner loops of kernels/delta.c, built once for each instruction set: the including file defines
 * NAME(x), TARGET (a function attribute), VEC (a vector of floats), FMA(a, b, c), SET1(f) and SUM(v), the sum
 * of a vector's lanes. */
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { NAME(LANES) = sizeof(VEC) / sizeof(float), NAME(MAX_VECS) = DELTA_MAX_KEY / NAME(LANES) };

INLINE VEC NAME(load)(const float *p)
{
    VEC v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* n_w rows of a state through the rows of a block: `vecs` vectors each. With S the state before a row,
 *     (g S + d k^T) q = g (S q) + d (k q),
 * so both products are with the old state, and k q is the same for all rows of the state. */
INLINE void NAME(state_rows)(const struct block *b, size_t row, size_t n_w, size_t vecs)
{
    VEC s[2][NAME(MAX_VECS)];
    size_t key = vecs * NAME(LANES);
    UNROLL for (size_t w = 0; w < n_w; w++) UNROLL for (size_t i = 0; i < vecs; i++) s[w][i] =
        NAME(load)(b->from + (row + w) * key + i * NAME(LANES));
    for (size_t t = 0; t < b->n; t++) {
        const float *k = b->k + t * key, *q = b->q + t * key;
        VEC sk[2][2], sq[2][2];
        UNROLL for (size_t w = 0; w < n_w; w++) sk[w][0] = sk[w][1] = sq[w][0] = sq[w][1] = SET1(0);
        UNROLL for (size_t i = 0; i < vecs; i++)
        {
            VEC kv = NAME(load)(k + i * NAME(LANES)), qv = NAME(load)(q + i * NAME(LANES));
            UNROLL for (size_t w = 0; w < n_w; w++)
            {
                sk[w][i % 2] = FMA(s[w][i], kv, sk[w][i % 2]);
                sq[w][i % 2] = FMA(s[w][i], qv, sq[w][i % 2]);
            }
        }
        float g = b->decay[t];
        UNROLL for (size_t w = 0; w < n_w; w++)
        {
            float d = b->beta[t] * (b->v[t * b->value + row + w] - g * SUM(sk[w][0] + sk[w][1]));
            b->y[t * b->value + row + w] = g * SUM(sq[w][0] + sq[w][1]) + d * b->kq[t];
            VEC dv = SET1(d), gv = SET1(g);
            UNROLL for (size_t i = 0; i < vecs; i++) s[w][i] =
                FMA(dv, NAME(load)(k + i * NAME(LANES)), s[w][i] * gv);
        }
    }
    UNROLL for (size_t w = 0; w < n_w; w++) UNROLL for (size_t i = 0; i < vecs; i++)
        memcpy(b->to + (row + w) * key + i * NAME(LANES), &s[w][i], sizeof(VEC));
}

INLINE void NAME(state_of)(const struct block *b, size_t vecs)
{
    size_t row = 0;
    for (; row + 2 <= b->value; row += 2)
        NAME(state_rows)(b, row, 2, vecs);
    if (row < b->value)
        NAME(state_rows)(b, row, 1, vecs);
}

static TARGET void NAME(state)(const struct block *b)
{
    switch (b->key) { /* sizes that there are, so that loops are unrolled */
    case 64:
        NAME(state_of)(b, 64 / NAME(LANES));
        break;
    case 128:
        NAME(state_of)(b, 128 / NAME(LANES));
        break;
    default:
        NAME(state_of)(b, b->key / NAME(LANES));
    }
}

/* y[c] = bias + sum over the taps of w[j][c] * x[j][c] */
static TARGET void NAME(convolve)(const float *const *x, const float *w, size_t stride, size_t taps,
                                  const float *bias, size_t n, float *y)
{
    if (bias)
        memcpy(y, bias, n * sizeof *y);
    else
        memset(y, 0, n * sizeof *y);
    for (size_t j = 0; j < taps; j++) {
        const float *xj = x[j], *wj = w + j * stride;
        for (size_t c = 0; c < n; c++)
            y[c] += wj[c] * xj[c];
    }
}

#undef INLINE
#undef NAME
#undef TARGET
#undef VEC
#undef FMA
#undef SET1
#undef SUM
