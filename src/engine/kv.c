/* The block pool: a free list, reference counts, copy on write, and windows. */
#include "engine/kv.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int kv_init(struct kv *kv, const struct kv_shape *shape, const size_t *block_bytes, size_t n_tensors,
            struct err *err)
{
    int32_t n_blocks = shape->n_blocks, n_seqs = shape->n_seqs;
    size_t seq_blocks = (size_t)(shape->seq_blocks ? shape->seq_blocks : n_blocks);
    *kv = (struct kv){.block_size = shape->block_size,
                      .n_blocks = n_blocks,
                      .n_free = n_blocks,
                      .window = shape->window,
                      .slack = shape->slack,
                      .n_seqs = n_seqs,
                      .n_tensors = n_tensors};
    kv->free_list = xcalloc((size_t)n_blocks, sizeof *kv->free_list);
    kv->refs = xcalloc((size_t)n_blocks, sizeof *kv->refs);
    kv->seqs = xcalloc((size_t)n_seqs, sizeof *kv->seqs);
    kv->tensors = xcalloc(n_tensors, sizeof *kv->tensors);
    for (int32_t i = 0; i < n_blocks; i++)
        kv->free_list[i] = n_blocks - 1 - i; /* low numbers first */
    for (int32_t s = 0; s < n_seqs; s++)
        kv->seqs[s].blocks = xcalloc(seq_blocks, sizeof *kv->seqs[s].blocks);
    for (size_t t = 0; t < n_tensors; t++) {
        size_t size;
        void *p = MAP_FAILED;
        errno = ENOMEM;
        if (mul_size(block_bytes[t], (size_t)n_blocks, &size))
            p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            kv_release(kv);
            return err_set(err, ERR_MEMORY, "no memory for a KV cache of %d blocks: %s", n_blocks,
                           strerror(errno));
        }
        kv->tensors[t] = (struct kv_tensor){p, block_bytes[t]};
    }
    return 0;
}

void kv_release(struct kv *kv)
{
    for (size_t t = 0; t < kv->n_tensors; t++) {
        if (kv->tensors[t].data)
            munmap(kv->tensors[t].data, kv->tensors[t].block_bytes * (size_t)kv->n_blocks);
    }
    for (int32_t s = 0; s < kv->n_seqs; s++)
        free(kv->seqs[s].blocks);
    free(kv->tensors);
    free(kv->seqs);
    free(kv->refs);
    free(kv->free_list);
    *kv = (struct kv){0};
}

static int32_t take(struct kv *kv)
{
    int32_t b = kv->free_list[--kv->n_free];
    kv->refs[b] = 1;
    return b;
}

void kv_hold(struct kv *kv, int32_t block)
{
    kv->refs[block]++;
}

void kv_give(struct kv *kv, int32_t block)
{
    if (--kv->refs[block] == 0)
        kv->free_list[kv->n_free++] = block;
}

/* The last block is written to next, but others read it. */
static bool last_is_shared(const struct kv *kv, const struct kv_seq *s)
{
    return s->n_tokens % kv->block_size != 0 && kv->refs[s->blocks[s->n_blocks - 1]] > 1;
}

int32_t kv_blocks_for(const struct kv *kv, int32_t seq, int32_t n)
{
    const struct kv_seq *s = &kv->seqs[seq];
    int64_t blocks = ((int64_t)s->n_tokens + n + kv->block_size - 1) / kv->block_size - s->n_blocks;
    if (n > 0 && last_is_shared(kv, s))
        blocks++;
    return blocks > INT32_MAX ? INT32_MAX : (int32_t)blocks;
}

static void unshare_last(struct kv *kv, struct kv_seq *s)
{
    int32_t from = s->blocks[s->n_blocks - 1], to = take(kv);
    for (size_t t = 0; t < kv->n_tensors; t++) {
        struct kv_tensor *c = &kv->tensors[t];
        memcpy(c->data + (size_t)to * c->block_bytes, c->data + (size_t)from * c->block_bytes,
               c->block_bytes);
    }
    kv_give(kv, from);
    s->blocks[s->n_blocks - 1] = to;
}

int kv_extend(struct kv *kv, int32_t seq, int32_t n)
{
    struct kv_seq *s = &kv->seqs[seq];
    if (kv_blocks_for(kv, seq, n) > kv->n_free)
        return -1;
    if (n > 0 && last_is_shared(kv, s))
        unshare_last(kv, s);
    s->n_tokens += n;
    while (s->n_blocks * kv->block_size < s->n_tokens)
        s->blocks[s->n_blocks++] = take(kv);
    return 0;
}

/* ---- windows ---- */

int32_t kv_first_read(int32_t window, int32_t block_size, int32_t past)
{
    return window == 0 || past < window ? 0 : (past - window + 1) / block_size;
}

int32_t kv_window_blocks(int32_t block_size, int32_t window, int32_t slack)
{
    return (window - 1 + slack + block_size - 1) / block_size + 1;
}

void kv_slide(struct kv *kv)
{
    for (int32_t i = 0; kv->window > 0 && i < kv->n_seqs; i++) {
        struct kv_seq *s = &kv->seqs[i];
        int32_t first = kv_first_read(kv->window, kv->block_size, s->n_tokens - kv->slack);
        for (; s->first < first; s->first++)
            kv_give(kv, s->blocks[s->first]);
    }
}

/* ---- cutting and sharing ---- */

int32_t kv_trim_point(const struct kv *kv, int32_t seq, int32_t n)
{
    const struct kv_seq *s = &kv->seqs[seq];
    if (n >= s->n_tokens)
        return s->n_tokens;
    return kv_first_read(kv->window, kv->block_size, n) >= s->first ? n : 0;
}

void kv_trim(struct kv *kv, int32_t seq, int32_t n_tokens)
{
    struct kv_seq *s = &kv->seqs[seq];
    if (n_tokens >= s->n_tokens)
        return;
    s->n_tokens = n_tokens;
    while (s->n_blocks > s->first && (s->n_blocks - 1) * kv->block_size >= n_tokens)
        kv_give(kv, s->blocks[--s->n_blocks]);
    if (n_tokens == 0)
        s->first = s->n_blocks = 0;
}

void kv_copy(struct kv *kv, int32_t src, int32_t dst)
{
    if (src == dst)
        return;
    kv_trim(kv, dst, 0);
    struct kv_seq *from = &kv->seqs[src], *to = &kv->seqs[dst];
    kv_adopt(kv, dst, from->blocks, from->first, from->n_blocks);
    to->n_tokens = from->n_tokens;
}

void kv_adopt(struct kv *kv, int32_t seq, const int32_t *blocks, int32_t first, int32_t n)
{
    struct kv_seq *s = &kv->seqs[seq];
    for (int32_t i = first; i < n; i++) {
        s->blocks[i] = blocks[i];
        kv_hold(kv, blocks[i]);
    }
    s->first = first;
    s->n_blocks = n;
    s->n_tokens = n * kv->block_size;
}

void kv_replace(struct kv *kv, int32_t seq, int32_t i, int32_t block)
{
    int32_t *at = &kv->seqs[seq].blocks[i];
    kv_hold(kv, block);
    kv_give(kv, *at);
    *at = block;
}
