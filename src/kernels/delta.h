/* A layer of gated delta nets (Yang, Kautz, Hatamizadeh, arXiv:2412.06464, as Qwen 3 Next and 3.5 have them)
 * between its projections, in one go: for each row of a step
 *     q, k, v   silu of a causal convolution of each channel of qkv
 *     q, k      brought to length 1, q also divided by sqrt(key)
 *     S         state of a head, [value][key]:  g = exp(a * softplus(alpha + dt)), b = sigmoid(beta),
 *               S = g S,  S += b (v - S k) k^T
 *     y         (S q) / rms(S q) * norm * silu(z)
 *
 * A row of S meets nothing but q, k and its own element of v. So two of its rows at a time stay in registers
 * for several rows of the step, and a state is read and written once for these. Pieces of work are pairs of a
 * sequence and a key head, with the value heads that read it; threads may take them in any order. No function
 * allocates or locks. */
#ifndef KERNELS_DELTA_H
#define KERNELS_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DELTA_MAX_KEY = 256, DELTA_LANES = 16 };

/* Channels of qkv: [key_heads * key] of q, as many of k, [heads * value] of v. */
struct delta {
    uint32_t key_heads, heads; /* heads: of v, z and y; a multiple of key_heads */
    uint32_t key, value;       /* sizes of a head; key: see delta_supports */
    uint32_t taps;             /* of the convolution, at least 2 */
    bool tiled;                /* head h reads key head h mod key_heads, not h / (heads / key_heads) */
    float norm_eps;            /* of the norm and of the lengths */
    const float *conv;         /* [taps][channels] */
    const float *conv_bias;    /* [channels] or NULL */
    const float *dt, *a;       /* [heads] */
    const float *norm;         /* [value] */
};

/* The rows of a step and the states. Sequence s has rows [begins[s], begins[s + 1]) and slots
 * [slot_begins[s], slot_begins[s + 1]) of both tables: it reads its first slot. With interval 0 its last
 * state goes to the second one (which may be the first). With interval n a state goes to the next slot
 * whenever the sequence's length, past[s] and rows together, is a multiple of n, and the last one behind
 * these. */
struct delta_step {
    size_t n_seqs;
    const float *qkv, *z, *alpha, *beta; /* [T, channels], [T, heads * value], [T, heads] twice */
    float *y;                            /* [T, heads * value] */
    float *conv_states;                  /* [slots, taps - 1, channels] */
    float *states;                       /* [slots, heads, value, key] */
    const int32_t *begins, *slots, *slot_begins, *past, *interval;
};

/* Whether heads of these sizes can be computed. */
bool delta_supports(const struct delta *d);
/* Bytes of scratch for each thread; align it to 64. */
size_t delta_scratch_size(const struct delta *d);
size_t delta_pieces(const struct delta *d, const struct delta_step *s);
void delta_do(const struct delta *d, const struct delta_step *s, size_t first, size_t last, void *scratch);

#ifdef __cplusplus
}
#endif

#endif
