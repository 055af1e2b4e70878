/* How much a context holds: the sizes of its pools, out of a length, of bytes, or of what memory is free. */
#include "engine/context.h"

#include "base/log.h"

#include <stdlib.h>

/* What the inference of a step takes beside the cache, by rule of thumb: kept free when the context's length
 * is chosen by memory. */
static uint64_t reserve_bytes(const struct grappa_model *m, uint32_t n_batch)
{
    return (uint64_t)n_batch * m->arch->h.n_embd * 64 + ((uint64_t)512 << 20);
}

struct pools {
    uint64_t block_bytes;   /* of the first pool, which grows with the context */
    uint64_t n_swa;         /* blocks of the other, which doesn't; 0: there is none */
    uint64_t swa_bytes;     /* of all of them */
    uint64_t ctx, n_blocks; /* that were chosen */
};

static uint64_t block_bytes(const struct grappa_model *m, bool swa)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->n_caches; i++)
        bytes += m->arch->caches[i / 2].swa == swa ? m->caches[i].block_bytes : 0;
    return bytes;
}

/* Tokens behind a window that stay for small steps back: wrong guesses, a stop text, the end of a prompt
 * whose letters join others. */
static int32_t slack(const struct grappa_model *m)
{
    return 2 * m->block_size > CONTEXT_GUESSES ? 2 * m->block_size : CONTEXT_GUESSES;
}

/* Each sequence has its window, a block that it begins and one that it copies to write; a step adds its
 * tokens. */
static uint64_t window_blocks(const struct grappa_context *c, const struct grappa_context_params *p,
                              const struct context_extras *x)
{
    const struct grappa_model *m = c->m;
    uint64_t size = (uint64_t)m->block_size, seqs = p->n_seq_max;
    uint64_t each = (uint64_t)kv_window_blocks(m->block_size, c->window, slack(m));
    return seqs * (each + 2) + (x->forgets ? 0 : seqs * each) + (c->n_batch + x->n_windows) / size + 2;
}

static void choose(const struct grappa_context *c, const struct grappa_context_params *p, uint64_t room,
                   struct pools *o)
{
    uint64_t size = (uint64_t)c->m->block_size, given = p->kv_memory;
    o->ctx = p->n_ctx ? p->n_ctx : c->m->arch->h.n_ctx_train;
    if (given && o->block_bytes)
        o->ctx = (given > o->swa_bytes ? given - o->swa_bytes : 0) / o->block_bytes * size / CONTEXT_PAD *
                 CONTEXT_PAD;
    o->n_blocks = (align_up(o->ctx, CONTEXT_PAD) + size - 1) / size;
    if (!p->n_ctx && room && o->block_bytes && o->n_blocks * o->block_bytes + o->swa_bytes > room) {
        o->n_blocks = (room > o->swa_bytes ? room - o->swa_bytes : 0) / o->block_bytes;
        o->ctx = o->n_blocks * size / CONTEXT_PAD * CONTEXT_PAD;
    }
}

/* Windows have a pool of their own if that is smaller than keeping all they ever held. */
static int choose_pools(struct grappa_context *c, const struct grappa_context_params *p,
                        const struct context_extras *x, struct pools *o, struct err *err)
{
    const struct grappa_model *m = c->m;
    uint64_t swa = block_bytes(m, true), full = block_bytes(m, false), available = engine_memory_available();
    uint64_t slots = (uint64_t)states_slots((int32_t)p->n_seq_max, (int32_t)x->n_copies, c->states.n_within);
    uint64_t reserve = reserve_bytes(m, c->n_batch) + slots * context_state_bytes(m);
    uint64_t room = available > reserve ? available - reserve : 0, most = m->arch->n_ctx_max;
    bool apart = swa > 0 && !p->swa_full;
    if (apart) {
        *o = (struct pools){.block_bytes = full, .n_swa = window_blocks(c, p, x)};
        o->swa_bytes = o->n_swa * swa;
        choose(c, p, room, o);
        apart = o->n_swa < o->n_blocks && (room == 0 || o->swa_bytes < room) &&
                (p->kv_memory == 0 || o->swa_bytes <= p->kv_memory);
    }
    if (!apart) {
        *o = (struct pools){.block_bytes = full + swa};
        choose(c, p, room, o);
    }
    uint64_t bytes = o->n_blocks * o->block_bytes + o->swa_bytes;
    if (most != 0 && o->ctx > most && !p->kv_memory)
        return err_set(err, ERR_RANGE, "a context of %llu tokens: %s can have %llu at most",
                       (unsigned long long)o->ctx, m->arch->h.arch, (unsigned long long)most);
    if (o->ctx == 0 || o->n_blocks > INT32_MAX / 2 || (available && bytes > room))
        return err_set(err, ERR_MEMORY, "a context of %llu tokens takes %llu MB, %llu MB are free",
                       (unsigned long long)o->ctx, (unsigned long long)(bytes >> 20),
                       (unsigned long long)(room >> 20));
    log_info("context of %llu tokens, %llu MB", (unsigned long long)o->ctx,
             (unsigned long long)(bytes >> 20));
    return 0;
}

static int make_pool(struct kv *kv, const struct grappa_model *m, const struct kv_shape *shape, bool full,
                     bool swa, struct err *err)
{
    size_t *bytes = xcalloc(m->n_caches + 1, sizeof *bytes), n = 0;
    for (size_t i = 0; i < m->n_caches; i++) {
        if (m->arch->caches[i / 2].swa ? swa : full)
            bytes[n++] = m->caches[i].block_bytes;
    }
    int r = kv_init(kv, shape, bytes, n, err);
    free(bytes);
    return r;
}

static void look_at_layers(struct grappa_context *c)
{
    for (uint32_t i = 0; i < c->m->arch->n_caches; i++) {
        if (c->m->arch->caches[i].swa)
            c->window = (int32_t)c->m->arch->h.n_swa;
        else
            c->reads_all = true;
    }
}

static int bind_caches(struct grappa_context *c, struct err *err)
{
    size_t next[2] = {0, 0};
    for (size_t i = 0; i < c->m->n_caches; i++) {
        const struct engine_cache *k = &c->m->caches[i];
        bool swa = c->swa.n_seqs > 0 && c->m->arch->caches[i / 2].swa;
        const struct kv *kv = swa ? &c->swa : &c->kv;
        int64_t dims[4] = {kv->n_blocks, k->port.dims[1], k->port.dims[2], k->port.dims[3]};
        if (ov_bind(c->m->program, k->name, k->port.elem, 4, dims, kv->tensors[next[swa]++].data, err) < 0)
            return -1;
    }
    return 0;
}

int context_make_kv(struct grappa_context *c, const struct grappa_context_params *p,
                    const struct context_extras *extras, struct err *err)
{
    struct pools o;
    uint32_t most = c->m->arch->n_ctx_max;
    int32_t n_seqs = (int32_t)p->n_seq_max;
    look_at_layers(c);
    if (choose_pools(c, p, extras, &o, err) < 0)
        return -1;
    c->n_ctx = (uint32_t)align_up(o.ctx, CONTEXT_PAD);
    if (most != 0 && c->n_ctx > most)
        c->n_ctx = most;
    /* A sequence's last block may be partly empty. */
    struct kv_shape shape = {
        .block_size = c->m->block_size, .n_blocks = (int32_t)o.n_blocks + n_seqs, .n_seqs = n_seqs};
    if (make_pool(&c->kv, c->m, &shape, true, o.n_swa == 0, err) < 0)
        return -1;
    shape = (struct kv_shape){.block_size = c->m->block_size,
                              .n_blocks = (int32_t)o.n_swa,
                              .n_seqs = extras->forgets ? n_seqs : 2 * n_seqs,
                              .seq_blocks = c->kv.n_blocks,
                              .window = c->window,
                              .slack = slack(c->m)};
    if (o.n_swa > 0 && make_pool(&c->swa, c->m, &shape, false, true, err) < 0)
        return -1;
    return bind_caches(c, err);
}
