/* Sequences in files.
 *
 * The file: a preamble laid out as llama.cpp's saved sequences are (magic, version, number of 32-bit words
 * that follow: either the tokens alone, or -1, a version, their number and they), for tools that look at the
 * tokens; then a header, the KV blocks (block by block, in each every cache's part), those of sliding windows
 * in the same way where they have a pool of their own, the states (each a length and every table's part), and
 * last an XXH3 checksum of the tokens and all that comes behind them.
 * Numbers are as this machine has them; the magic tells a foreign order. It is written beside its place,
 * forced to the disk and renamed, so that whatever happens there is either the whole file or none, and what
 * is read back is what was written. */
#include "engine/context.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char magic[8] = "grappaSQ";
enum { FORMAT = 3, PACKED = 1, BYTE_ORDER_MARK = 0x01020304, SAMPLE = 256 };

struct head {
    char magic[8];
    uint32_t order, format;
    uint64_t model[2];  /* what file, see identity() */
    uint64_t layout[2]; /* how the caches lie */
    uint32_t n_tokens, n_blocks, n_states;
    uint32_t n_swa; /* blocks of sliding windows, the last of the sequence */
    uint64_t size;  /* of the file from here on */
};

/* What the file begins with. */
struct preamble {
    char magic[4];
    uint32_t version;
    uint32_t n_words; /* that follow */
};
struct packed { /* the first of these words, where they are not tokens alone */
    int32_t none;
    uint32_t version, n_tokens;
};
static const char preamble_magic[4] = "gSEQ";

/* ---- who may read it ---- */

static void hash_text(XXH3_state_t *h, struct str s)
{
    uint64_t n = s.n;
    XXH3_128bits_update(h, &n, sizeof n);
    XXH3_128bits_update(h, s.p, s.n);
}

static void hash_value(XXH3_state_t *h, const struct gguf_kv *kv)
{
    uint64_t what[] = {kv->type, kv->is_array, kv->n};
    hash_text(h, kv->key);
    XXH3_128bits_update(h, what, sizeof what);
    for (uint64_t i = 0; i < kv->n; i++) {
        double number = kv->type == GGUF_STRING ? 0 : gguf_f64_at(kv, i);
        if (kv->type == GGUF_STRING)
            hash_text(h, gguf_str_at(kv, i));
        else
            XXH3_128bits_update(h, &number, sizeof number);
    }
}

/* Its description, and of the data a little from the middle: of a model that was trained further only that
 * differs. */
static void hash_tensor(XXH3_state_t *h, const struct gguf_tensor *t)
{
    size_t n = t->size < SAMPLE ? t->size : SAMPLE;
    hash_text(h, t->name);
    XXH3_128bits_update(h, &t->type, sizeof t->type);
    XXH3_128bits_update(h, t->ne, sizeof t->ne);
    XXH3_128bits_update(h, t->data + (t->size - n) / 2, n);
}

static void give_hash(XXH3_state_t *h, uint64_t out[2])
{
    XXH128_hash_t d = XXH3_128bits_digest(h);
    out[0] = d.low64;
    out[1] = d.high64;
}

/* Keys, tensors, and how positions are turned, which options may change. */
static void identity(const struct grappa_context *c, uint64_t out[2])
{
    XXH3_state_t h;
    const struct gguf *g = c->m->file.g;
    XXH3_128bits_reset(&h);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        hash_value(&h, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        hash_tensor(&h, gguf_tensor_at(g, i));
    for (int i = 0; i < 2; i++) {
        const struct rope *r = &c->m->arch->rope[i];
        float turn[] = {r->freq_base,   r->freq_scale, r->ext_factor,
                        r->attn_factor, r->ramp_low,   r->ramp_high};
        XXH3_128bits_update(&h, turn, sizeof turn);
    }
    give_hash(&h, out);
}

static void layout(const struct grappa_context *c, uint64_t out[2])
{
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    XXH3_128bits_update(&h, &c->kv.block_size, sizeof c->kv.block_size);
    for (size_t i = 0; i < c->m->n_caches; i++) {
        const struct engine_cache *k = &c->m->caches[i];
        int64_t dims[] = {k->port.elem, k->port.dims[1], k->port.dims[2], k->port.dims[3],
                          c->swa.n_seqs && c->m->arch->caches[i / 2].swa};
        XXH3_128bits_update(&h, dims, sizeof dims);
    }
    for (size_t i = 0; i < c->states.n_tables; i++) {
        uint64_t bytes = c->states.slot_bytes[i];
        XXH3_128bits_update(&h, &bytes, sizeof bytes);
    }
    give_hash(&h, out);
}

static size_t block_bytes(const struct kv *kv)
{
    size_t bytes = 0;
    for (size_t i = 0; i < kv->n_tensors; i++)
        bytes += kv->tensors[i].block_bytes;
    return bytes;
}

/* What a file with these counts takes from its header on; false on overflow. */
static bool file_size(const struct grappa_context *c, const struct head *h, uint64_t *out)
{
    size_t state = sizeof(int32_t), blocks, windows, states, sum;
    for (size_t i = 0; i < c->states.n_tables; i++)
        state += c->states.slot_bytes[i];
    if (!mul_size(h->n_blocks, block_bytes(&c->kv), &blocks) ||
        !mul_size(h->n_swa, block_bytes(&c->swa), &windows) || !mul_size(h->n_states, state, &states) ||
        !add_size(blocks, windows, &sum) || !add_size(sum, states, &sum) ||
        !add_size(sum, sizeof *h + sizeof(uint64_t), &sum))
        return false;
    *out = sum;
    return true;
}

/* ---- both ways ---- */

struct pipe {
    FILE *f;
    XXH3_state_t sum;
    bool failed; /* errno says why; 0: the file has ended */
};

static void put(struct pipe *p, const void *data, size_t n)
{
    XXH3_64bits_update(&p->sum, data, n);
    if (!p->failed && n && fwrite(data, n, 1, p->f) != 1)
        p->failed = true;
}

static void get(struct pipe *p, void *data, size_t n)
{
    errno = 0;
    if (!p->failed && n && fread(data, n, 1, p->f) != 1)
        p->failed = true;
    if (!p->failed)
        XXH3_64bits_update(&p->sum, data, n);
}

static void all_blocks(const struct kv *kv, int32_t seq, struct pipe *p,
                       void (*pass)(struct pipe *, void *, size_t))
{
    const struct kv_seq *s = &kv->seqs[seq];
    for (int32_t b = s->first; b < s->n_blocks; b++)
        for (size_t t = 0; t < kv->n_tensors; t++) {
            const struct kv_tensor *k = &kv->tensors[t];
            pass(p, k->data + (size_t)s->blocks[b] * k->block_bytes, k->block_bytes);
        }
}

static void both_pools(struct grappa_context *c, int32_t seq, struct pipe *p,
                       void (*pass)(struct pipe *, void *, size_t))
{
    all_blocks(&c->kv, seq, p, pass);
    if (c->swa.n_seqs)
        all_blocks(&c->swa, seq, p, pass);
}

static void one_state(struct grappa_context *c, int32_t slot, struct pipe *p,
                      void (*pass)(struct pipe *, void *, size_t))
{
    for (size_t t = 0; t < c->states.n_tables; t++)
        pass(p, c->states.tables[t] + (size_t)slot * c->states.slot_bytes[t], c->states.slot_bytes[t]);
}

/* ---- writing ---- */

static void put_data(struct pipe *p, void *data, size_t n)
{
    put(p, data, n);
}

static void write_states(struct grappa_context *c, int32_t seq, struct pipe *p)
{
    const struct states_seq *q = &c->states.seqs[seq];
    for (int32_t i = 0; i <= q->n_kept && c->states.n_tables; i++) {
        const struct state_at *at = i < q->n_kept ? &q->kept[i] : &q->now;
        put(p, &at->n_tokens, sizeof at->n_tokens);
        one_state(c, at->slot, p, put_data);
    }
}

static int write_all(struct grappa_context *c, int32_t seq, const grappa_token *tokens, int fd,
                     uint64_t *bytes)
{
    struct pipe p = {.f = fdopen(fd, "wb")};
    const struct kv_seq *s = &c->kv.seqs[seq], *w = c->swa.n_seqs ? &c->swa.seqs[seq] : NULL;
    kv_slide(&c->swa);
    struct head h = {.order = BYTE_ORDER_MARK,
                     .format = FORMAT,
                     .n_tokens = (uint32_t)s->n_tokens,
                     .n_blocks = (uint32_t)s->n_blocks,
                     .n_states = c->states.n_tables ? (uint32_t)c->states.seqs[seq].n_kept + 1 : 0,
                     .n_swa = w ? (uint32_t)(w->n_blocks - w->first) : 0};
    if (!p.f) {
        close(fd);
        return -1;
    }
    memcpy(h.magic, magic, sizeof magic);
    identity(c, h.model);
    layout(c, h.layout);
    file_size(c, &h, &h.size);
    struct preamble pre = {.version = PACKED,
                           .n_words = h.n_tokens + sizeof(struct packed) / sizeof(uint32_t)};
    struct packed packed = {.none = -1, .version = PACKED, .n_tokens = h.n_tokens};
    memcpy(pre.magic, preamble_magic, sizeof pre.magic);
    put(&p, &pre, sizeof pre);
    put(&p, &packed, sizeof packed);
    XXH3_64bits_reset(&p.sum);
    put(&p, tokens, (size_t)s->n_tokens * sizeof *tokens);
    put(&p, &h, sizeof h);
    both_pools(c, seq, &p, put_data);
    write_states(c, seq, &p);
    uint64_t sum = XXH3_64bits_digest(&p.sum);
    put(&p, &sum, sizeof sum);
    *bytes = h.size + sizeof pre + sizeof packed + (uint64_t)s->n_tokens * sizeof *tokens;
    bool ok = !p.failed && fflush(p.f) == 0 && fsync(fd) == 0;
    int why = errno;
    ok = fclose(p.f) == 0 && ok;
    errno = ok ? 0 : why;
    return ok ? 0 : -1;
}

/* The new name in its folder, too, has to reach the disk. */
static void sync_folder(const char *path)
{
    char *copy = strdup(path);
    int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(copy);
}

int64_t grappa_seq_save(struct grappa_context *c, int32_t seq, const grappa_token *tokens, const char *path,
                        uint64_t *bytes, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct buf name = {0};
    uint64_t written = 0;
    if (seq < 0 || seq >= c->kv.n_seqs) {
        err_set(&e, ERR_RANGE, "sequence %d is out of range: the context has %d", seq, c->kv.n_seqs);
        return engine_fail(err, &e);
    }
    buf_printf(&name, "%s.XXXXXX", path);
    int fd = name.failed ? -1 : mkostemp(name.p, O_CLOEXEC);
    if (fd < 0) {
        err_set(&e, ERR_IO, "%s: %s", path, strerror(errno));
    } else if (write_all(c, seq, tokens, fd, &written) < 0 || rename(name.p, path) < 0) {
        err_set(&e, ERR_IO, "%s: %s", path, strerror(errno));
        unlink(name.p);
    } else {
        sync_folder(path);
    }
    buf_release(&name);
    if (bytes)
        *bytes = e.code ? 0 : written;
    return e.code ? engine_fail(err, &e) : c->kv.seqs[seq].n_tokens;
}

/* ---- reading ---- */

/* No less than the next token reads, and no more than there is room for. */
static bool windows_fit(const struct grappa_context *c, const struct head *h)
{
    const struct kv *kv = &c->swa;
    if (kv->n_seqs == 0 || h->n_tokens > INT32_MAX)
        return h->n_swa == 0;
    int32_t first = kv_first_read(kv->window, kv->block_size, (int32_t)h->n_tokens);
    return h->n_swa <= (uint32_t)kv_window_blocks(kv->block_size, kv->window, kv->slack) &&
           h->n_swa <= h->n_blocks && h->n_blocks - h->n_swa <= (uint32_t)first;
}

static int check_head(const struct grappa_context *c, const struct head *h, uint64_t size, struct err *err)
{
    uint64_t model[2], lies[2], wanted;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return err_set(err, ERR_FORMAT, "not a saved sequence");
    if (h->order != BYTE_ORDER_MARK || h->format != FORMAT)
        return err_set(err, ERR_UNSUPPORTED, "a saved sequence of format %u; this is %d", h->format, FORMAT);
    identity(c, model);
    if (memcmp(model, h->model, sizeof model) != 0)
        return err_set(err, ERR_FORMAT, "saved with another model");
    layout(c, lies);
    if (memcmp(lies, h->layout, sizeof lies) != 0)
        return err_set(err, ERR_FORMAT,
                       "saved with other cache types, or with sliding windows kept in another way");
    if (!windows_fit(c, h))
        return err_set(err, ERR_FORMAT, "broken: its sliding windows aren't whole");
    int32_t per_block = c->kv.block_size;
    if (h->n_tokens > (uint32_t)(INT32_MAX - per_block) ||
        h->n_blocks != (h->n_tokens + (uint32_t)per_block - 1) / (uint32_t)per_block ||
        h->n_states > (c->states.n_tables ? STATES_KEPT + 1u : 0u) ||
        (c->states.n_tables && h->n_states == 0) || !file_size(c, h, &wanted) || wanted != h->size)
        return err_set(err, ERR_FORMAT, "broken: the sizes don't fit each other");
    if (size != h->size)
        return err_set(err, ERR_FORMAT, "broken: %llu bytes, expected %llu", (unsigned long long)size,
                       (unsigned long long)h->size);
    return 0;
}

/* The rest of the file, before anything is changed. */
static int check_sum(struct pipe *p, uint64_t size, struct err *err)
{
    char part[1 << 16];
    uint64_t sum;
    for (uint64_t left = size - sizeof sum, n; left > 0 && !p->failed; left -= n) {
        n = left < sizeof part ? left : sizeof part;
        get(p, part, n);
    }
    uint64_t computed = XXH3_64bits_digest(&p->sum);
    get(p, &sum, sizeof sum);
    if (p->failed)
        return err_set(err, ERR_IO, "can't be read: %s", errno ? strerror(errno) : "it has ended");
    if (sum != computed)
        return err_set(err, ERR_FORMAT, "broken: its checksum is wrong");
    return 0;
}

/* Up to the tokens; their number, or -1. The checksum begins with them. */
static int64_t read_preamble(struct pipe *p, struct err *err)
{
    struct preamble pre;
    struct packed packed;
    uint32_t extra = sizeof packed / sizeof(uint32_t);
    get(p, &pre, sizeof pre);
    if (p->failed || memcmp(pre.magic, preamble_magic, sizeof pre.magic) != 0)
        return err_set(err, ERR_FORMAT, "not a saved sequence");
    if (pre.version != PACKED)
        return err_set(err, ERR_UNSUPPORTED, "a saved sequence of version %u; this is %d", pre.version,
                       PACKED);
    long at = ftell(p->f);
    int64_t n = pre.n_words;
    if (pre.n_words >= extra) {
        get(p, &packed, sizeof packed);
        if (p->failed)
            return err_set(err, ERR_FORMAT, "not a saved sequence");
        if (packed.none == -1) {
            n = pre.n_words - extra;
            if (packed.version != PACKED || packed.n_tokens != n)
                return err_set(err, ERR_FORMAT, "broken: the sizes don't fit each other");
        } else if (at < 0 || fseek(p->f, at, SEEK_SET) != 0) {
            return err_set(err, ERR_IO, "can't be read: %s", strerror(errno));
        }
    }
    XXH3_64bits_reset(&p->sum);
    return n;
}

static void rewind_pipe(struct pipe *p)
{
    rewind(p->f);
    p->failed = false;
    XXH3_64bits_reset(&p->sum);
}

static int read_states(struct grappa_context *c, int32_t seq, const struct head *h, struct pipe *p,
                       struct err *err)
{
    for (uint32_t i = 0; i < h->n_states; i++) {
        int32_t n;
        bool now = i + 1 == h->n_states;
        get(p, &n, sizeof n);
        if (p->failed || n < 0 || (now ? n != (int32_t)h->n_tokens : n > (int32_t)h->n_tokens))
            return err_set(err, ERR_FORMAT, "broken: states of no length of it");
        int32_t slot = states_put(&c->states, seq, n, now);
        if (slot > 0)
            one_state(c, slot, p, get);
    }
    return 0;
}

/* Preamble, tokens, header: what both passes begin with. */
static int read_front(struct pipe *p, grappa_token *tokens, size_t max, struct head *h, struct err *err)
{
    rewind_pipe(p);
    int64_t n = read_preamble(p, err);
    if (n < 0)
        return -1;
    if ((uint64_t)n > max)
        return err_set(err, ERR_RANGE, "it has %lld tokens, there is room for %zu", (long long)n, max);
    get(p, tokens, (size_t)n * sizeof *tokens);
    get(p, h, sizeof *h);
    if (p->failed)
        return err_set(err, ERR_FORMAT, "not a saved sequence");
    if (memcmp(h->magic, magic, sizeof magic) == 0 && h->n_tokens != n)
        return err_set(err, ERR_FORMAT, "broken: the sizes don't fit each other");
    return 0;
}

static int read_all(struct grappa_context *c, int32_t seq, const struct head *h, grappa_token *tokens,
                    struct pipe *p, struct err *err)
{
    struct head again;
    if (read_front(p, tokens, h->n_tokens, &again, err) < 0)
        return -1;
    for (uint32_t i = 0; i < h->n_tokens && !p->failed; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= c->m->arch->h.n_vocab)
            return err_set(err, ERR_FORMAT, "broken: a token that the model doesn't have");
    }
    int32_t n = (int32_t)h->n_tokens, gone = (int32_t)(h->n_blocks - h->n_swa), there = 0;
    if (c->swa.n_seqs) {
        kv_adopt(&c->swa, seq, NULL, gone, gone);
        there = c->swa.seqs[seq].n_tokens;
    }
    if (kv_extend(&c->kv, seq, n) < 0 || (c->swa.n_seqs && kv_extend(&c->swa, seq, n - there) < 0))
        return err_set(err, ERR_RANGE, "the context of %u tokens is full", c->n_ctx);
    both_pools(c, seq, p, get);
    if (read_states(c, seq, h, p, err) < 0)
        return -1;
    uint64_t computed = XXH3_64bits_digest(&p->sum), sum;
    get(p, &sum, sizeof sum);
    if (p->failed || sum != computed)
        return err_set(err, ERR_FORMAT, "changed while it was read");
    return 0;
}

/* Blocks that are free once the sequence has given back its own. */
static int32_t free_without(const struct kv *kv, int32_t seq)
{
    int32_t n = kv->n_free;
    for (int32_t i = kv->n_seqs ? kv->seqs[seq].first : 0; kv->n_seqs && i < kv->seqs[seq].n_blocks; i++)
        n += kv->refs[kv->seqs[seq].blocks[i]] == 1;
    return n;
}

static bool room_for(struct grappa_context *c, int32_t seq, int32_t n_blocks, int32_t n_swa)
{
    kv_slide(&c->swa);
    n_blocks -= free_without(&c->kv, seq) - c->kv.n_free;
    n_swa -= free_without(&c->swa, seq) - c->swa.n_free;
    if (n_blocks <= c->kv.n_free && n_swa <= c->swa.n_free)
        return true;
    return c->make_room && c->make_room(c->make_room_user, n_blocks, n_swa);
}

static int restore(struct grappa_context *c, int32_t seq, struct pipe *p, grappa_token *tokens, size_t max,
                   struct head *h, struct err *err)
{
    struct stat st;
    if (fstat(fileno(p->f), &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_FORMAT, "not a saved sequence");
    size_t room = max < c->n_ctx ? max : c->n_ctx;
    if (read_front(p, tokens, room, h, err) < 0)
        return -1;
    long at = ftell(p->f);
    uint64_t front = at < 0 ? 0 : (uint64_t)at - sizeof *h;
    if (check_head(c, h, (uint64_t)st.st_size - front, err) < 0)
        return -1;
    if (check_sum(p, h->size - sizeof *h, err) < 0)
        return -1;
    bool fits = room_for(c, seq, (int32_t)h->n_blocks, (int32_t)h->n_swa);
    context_trim(c, seq, 0);
    /* Blocks that a cache shares with the sequence can only be given up without it. */
    if (!fits && !room_for(c, seq, (int32_t)h->n_blocks, (int32_t)h->n_swa))
        return err_set(err, ERR_RANGE, "the context of %u tokens is full", c->n_ctx);
    if (read_all(c, seq, h, tokens, p, err) < 0) {
        context_trim(c, seq, 0);
        return -1;
    }
    return 0;
}

int64_t grappa_seq_restore(struct grappa_context *c, int32_t seq, const char *path, grappa_token *tokens,
                           size_t max, uint64_t *bytes, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct head h = {0};
    if (seq < 0 || seq >= c->kv.n_seqs) {
        err_set(&e, ERR_RANGE, "sequence %d is out of range: the context has %d", seq, c->kv.n_seqs);
        return engine_fail(err, &e);
    }
    uint64_t size = 0;
    struct pipe p = {.f = fopen(path, "rbe")};
    if (!p.f)
        err_set(&e, ERR_IO, "%s", strerror(errno));
    else if (restore(c, seq, &p, tokens, max, &h, &e) == 0)
        size = (uint64_t)ftell(p.f);
    if (p.f)
        fclose(p.f);
    err_prefix(&e, "%s", path);
    if (bytes)
        *bytes = size;
    return e.code ? engine_fail(err, &e) : (int64_t)h.n_tokens;
}
