/* The KV cache: a pool of blocks for all sequences and for all layers of a kind. A block holds `block_size`
 * tokens in every layer; a sequence is a list of blocks. Blocks are counted, so that sequences may share a
 * beginning; a shared block is copied before it is written to.
 *
 * The pool of layers with a sliding window lets go of the blocks that lie behind it; a sequence's list then
 * begins later. */
#ifndef ENGINE_KV_H
#define ENGINE_KV_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* One tensor of the cache, key or value of a layer: [n_blocks, …]. */
struct kv_tensor {
    char *data;
    size_t block_bytes;
};

struct kv_seq {
    int32_t *blocks;            /* by place in the sequence, from `first` on */
    int32_t first;              /* blocks that were let go; without a window 0 */
    int32_t n_blocks, n_tokens; /* with those that were */
};

struct kv_shape {
    int32_t block_size, n_blocks, n_seqs;
    int32_t seq_blocks;    /* most of a sequence; 0: the whole pool */
    int32_t window, slack; /* tokens that one reads, itself among them; those behind that stay. 0: all */
};

struct kv {
    int32_t block_size, n_blocks, n_free, window, slack;
    int32_t *free_list;
    int32_t *refs; /* by block */
    struct kv_seq *seqs;
    int32_t n_seqs;
    struct kv_tensor *tensors;
    size_t n_tensors;
};

/* n_tensors entries of block_bytes are given; their memory is mapped here and touched only when used. */
int kv_init(struct kv *kv, const struct kv_shape *shape, const size_t *block_bytes, size_t n_tensors,
            struct err *err);
void kv_release(struct kv *kv);

/* Blocks that n more tokens of a sequence would take from the pool, a copy of a shared last block included.
 */
int32_t kv_blocks_for(const struct kv *kv, int32_t seq, int32_t n);
/* Makes room for n more tokens and counts them as held. -1 when the pool is empty; then nothing has changed.
 */
int kv_extend(struct kv *kv, int32_t seq, int32_t n);
/* The largest length up to n that the sequence can be cut to: n, or 0 when blocks that the next token would
 * read are gone. */
int32_t kv_trim_point(const struct kv *kv, int32_t seq, int32_t n);
void kv_trim(struct kv *kv, int32_t seq, int32_t n_tokens);
void kv_copy(struct kv *kv, int32_t src, int32_t dst);

/* The first block that a token with so many before it reads through a window (0: none). */
int32_t kv_first_read(int32_t window, int32_t block_size, int32_t past);
/* All sequences let go of what lies behind the window and the slack. */
void kv_slide(struct kv *kv);
/* Most blocks that a sequence holds after that. */
int32_t kv_window_blocks(int32_t block_size, int32_t window, int32_t slack);

/* A holder beside the sequences: one more or one less for a block. */
void kv_hold(struct kv *kv, int32_t block);
void kv_give(struct kv *kv, int32_t block);
/* An empty sequence becomes n full blocks, which it shares with who holds them: those from `first` on. */
void kv_adopt(struct kv *kv, int32_t seq, const int32_t *blocks, int32_t first, int32_t n);
/* Puts a block of the same content in the place of the sequence's i-th. */
void kv_replace(struct kv *kv, int32_t seq, int32_t i, int32_t block);

#endif
