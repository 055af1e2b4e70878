/* A context: sequences, and steps of many of them.
 *
 * A batch is checked as a whole, then computed in slices of at most n_batch tokens. The rows of a slice are
 * put in the order of their sequences, as paged attention wants them; the wanted rows come out in the batch's
 * order. All host tensors are made once, with room for the largest slice, and bound again only when a shape
 * changes. */
#include "engine/context.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_BATCH = 512, MAX_SEQS = 1024 };
enum { WITHIN_MEMORY = 16 }; /* a part of so many of what is free */

/* ---- making one ---- */

static void *host_alloc(size_t n, size_t size)
{
    size_t bytes;
    if (!mul_size(n ? n : 1, size, &bytes))
        return NULL;
    void *p = aligned_alloc(64, align_up(bytes, 64));
    if (p)
        memset(p, 0, bytes);
    return p;
}

static int make_host(struct grappa_context *c, struct err *err)
{
    struct host *t = &c->host;
    size_t n = c->n_batch, seqs = (size_t)c->kv.n_seqs, n_rot = c->m->arch->h.n_rot;
    t->embeddings = host_alloc(n * c->m->arch->h.n_embd, sizeof(float));
    t->pos = host_alloc(n, sizeof(int32_t));
    t->out_rows = host_alloc(n, sizeof(int32_t));
    size_t parts = seqs + 1 + CONTEXT_GUESSES;
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        const struct kv *kv = i ? context_windows(c) : &c->kv;
        size_t n_blocks = kv ? (size_t)kv->n_blocks : 0;
        t->table[i].past_lens = host_alloc(parts + 1, sizeof(int32_t));
        t->table[i].block_indices_begins = host_alloc(parts + 1, sizeof(int32_t));
        t->table[i].block_indices = host_alloc(parts * n_blocks, sizeof(int32_t));
        ok = ok && t->table[i].past_lens && t->table[i].block_indices_begins && t->table[i].block_indices;
    }
    t->subsequence_begins = host_alloc(parts + 1, sizeof(int32_t));
    t->state_indices = host_alloc(2 * parts, sizeof(int32_t)); /* states within steps are among the parts */
    t->state_begins = host_alloc(seqs + 1, sizeof(int32_t));
    t->state_interval = host_alloc(seqs, sizeof(int32_t));
    t->state_rows = host_alloc(seqs + 1, sizeof(int32_t));
    t->state_past = host_alloc(seqs, sizeof(int32_t));
    if (c->m->arch->part == ARCH_NEXTN) {
        t->hidden = host_alloc(n * c->m->arch->h.n_embd, sizeof(float));
        c->hidden_in = host_alloc(n, sizeof *c->hidden_in);
        ok = ok && t->hidden && c->hidden_in;
    }
    c->row_of = host_alloc(n, sizeof(int32_t));
    c->seq_tokens = host_alloc(seqs, sizeof(int32_t));
    c->old_len = host_alloc(seqs, sizeof(int32_t));
    c->keep = host_alloc(seqs, sizeof(bool));
    c->guesses = host_alloc(seqs, sizeof(int32_t));
    t->q_growth = host_alloc(n, sizeof(float));
    ok = ok && t->embeddings && t->q_growth && t->pos && t->out_rows && t->subsequence_begins && c->row_of &&
         c->seq_tokens && c->old_len && t->state_indices && t->state_begins && t->state_interval &&
         t->state_rows && t->state_past && c->keep && c->guesses;
    for (int i = 0; i < 2 && ok; i++) {
        if (!c->m->arch->rope_used[i])
            continue;
        t->cos[i] = host_alloc(n * n_rot, sizeof(float));
        t->sin[i] = host_alloc(n * n_rot, sizeof(float));
        ok = t->cos[i] && t->sin[i];
    }
    return ok ? 0 : err_set(err, ERR_MEMORY, "no memory for steps of %u tokens", c->n_batch);
}

static size_t state_bytes(const struct arch_state *s)
{
    size_t bytes = sizeof(float);
    for (int i = 0; i < s->rank; i++)
        bytes *= (size_t)s->dims[i];
    return bytes;
}

uint64_t context_state_bytes(const struct grappa_model *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->arch->n_states; i++)
        bytes += state_bytes(&m->arch->states[i]);
    return bytes;
}

/* How many states within steps there is memory for. */
static int32_t states_within(const struct grappa_model *m)
{
    uint64_t bytes = context_state_bytes(m), available = engine_memory_available();
    uint64_t n = bytes && available ? available / WITHIN_MEMORY / bytes : CONTEXT_GUESSES;
    return n < CONTEXT_GUESSES ? (int32_t)n : CONTEXT_GUESSES;
}

static int make_states(struct grappa_context *c, uint32_t n_seqs, uint32_t n_copies, struct err *err)
{
    const struct arch_model *a = c->m->arch;
    size_t *bytes = xcalloc(a->n_states + 1, sizeof *bytes);
    for (uint32_t i = 0; i < a->n_states; i++)
        bytes[i] = state_bytes(&a->states[i]);
    int r = states_init(&c->states, (int32_t)n_seqs, (int32_t)n_copies, c->states.n_within, bytes,
                        a->n_states, err);
    free(bytes);
    for (uint32_t i = 0; i < a->n_states && r == 0; i++) {
        const struct arch_state *s = &a->states[i];
        int64_t dims[4] = {c->states.n_slots, s->dims[0], s->dims[1], s->dims[2]};
        char name[32];
        snprintf(name, sizeof name, "state.%u", i);
        r = ov_bind(c->m->program, name, OV_ELEM_F32, s->rank + 1, dims, c->states.tables[i], err);
    }
    return r;
}

struct grappa_context *grappa_context_new(struct grappa_model *m, const struct grappa_context_params *params,
                                          struct grappa_err *err)
{
    return context_new(m, params, &(struct context_extras){0}, err);
}

struct grappa_context *context_new(struct grappa_model *m, const struct grappa_context_params *params,
                                   const struct context_extras *extras, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct grappa_context_params p = params ? *params : (struct grappa_context_params){0};
    struct grappa_context *c = xcalloc(1, sizeof *c);
    c->m = m;
    c->n_batch = p.n_batch ? p.n_batch : DEFAULT_BATCH;
    p.n_seq_max = p.n_seq_max ? p.n_seq_max : 1;
    if (m->user)
        err_set(&e, ERR_RANGE, "a model has one context at a time");
    else if (p.n_seq_max > MAX_SEQS)
        err_set(&e, ERR_RANGE, "%u sequences: at most %d", p.n_seq_max, MAX_SEQS);
    c->states.n_within = states_within(m);
    if (e.code || context_make_kv(c, &p, extras, &e) < 0)
        goto failed;
    if (c->n_batch > c->n_ctx)
        c->n_batch = c->n_ctx;
    if (make_states(c, p.n_seq_max, extras->n_copies, &e) < 0 || make_host(c, &e) < 0)
        goto failed;
    m->user = c;
    return c;
failed:
    engine_fail(err, &e);
    grappa_context_free(c);
    return NULL;
}

void grappa_context_free(struct grappa_context *c)
{
    if (!c)
        return;
    if (c->m->user == c)
        c->m->user = NULL;
    struct host *t = &c->host;
    void *all[] = {t->q_growth,
                   t->embeddings,
                   t->hidden,
                   (void *)c->hidden_in,
                   t->cos[0],
                   t->cos[1],
                   t->sin[0],
                   t->sin[1],
                   t->pos,
                   t->subsequence_begins,
                   t->table[0].past_lens,
                   t->table[0].block_indices,
                   t->table[0].block_indices_begins,
                   t->table[1].past_lens,
                   t->table[1].block_indices,
                   t->table[1].block_indices_begins,
                   t->out_rows,
                   c->row_of,
                   c->seq_tokens,
                   c->old_len,
                   t->state_indices,
                   t->state_begins,
                   t->state_interval,
                   t->state_rows,
                   t->state_past,
                   c->keep,
                   c->guesses,
                   c->logits_own};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    kv_release(&c->kv);
    kv_release(&c->swa);
    states_release(&c->states);
    buf_release(&c->profile);
    free(c);
}

uint32_t grappa_n_ctx(const struct grappa_context *c)
{
    return c->n_ctx;
}

uint32_t grappa_n_batch(const struct grappa_context *c)
{
    return c->n_batch;
}

/* ---- checking a batch ---- */

static bool wanted(const struct grappa_batch *b, size_t i)
{
    return b->logits ? b->logits[i] != 0 : i + 1 == b->n;
}

static int check_token(struct grappa_context *c, const struct grappa_batch *b, size_t i, struct err *err)
{
    int32_t seq = context_seq_of(b, i);
    if (b->token[i] < 0 || (uint32_t)b->token[i] >= c->m->arch->h.n_vocab)
        return err_set(err, ERR_RANGE, "token id %d is out of range: the model has %u", b->token[i],
                       c->m->arch->h.n_vocab);
    if (seq < 0 || seq >= c->kv.n_seqs)
        return err_set(err, ERR_RANGE, "sequence %d is out of range: the context has %d", seq, c->kv.n_seqs);
    int32_t at = c->kv.seqs[seq].n_tokens + c->seq_tokens[seq]++;
    if (b->pos && b->pos[i] != at)
        return err_set(err, ERR_RANGE, "position %d of sequence %d doesn't continue it at %d", b->pos[i], seq,
                       at);
    if ((uint32_t)at >= c->n_ctx)
        return err_set(err, ERR_RANGE, "sequence %d is longer than the context of %u tokens", seq, c->n_ctx);
    return 0;
}

static int check_batch(struct grappa_context *c, const struct grappa_batch *b, struct err *err)
{
    if (b->n == 0)
        return err_set(err, ERR_RANGE, "an empty batch");
    memset(c->seq_tokens, 0, (size_t)c->kv.n_seqs * sizeof *c->seq_tokens);
    for (size_t i = 0; i < b->n; i++) {
        if (check_token(c, b, i, err) < 0)
            return -1;
    }
    int64_t blocks = 0;
    for (int32_t s = 0; s < c->kv.n_seqs; s++)
        blocks += kv_blocks_for(&c->kv, s, c->seq_tokens[s]);
    if (blocks > c->kv.n_free)
        return err_set(err, ERR_RANGE, "the context of %u tokens is full", c->n_ctx);
    return 0;
}

/* ---- one slice: tokens [first, first + n) of a batch ---- */

static int bind_tables(struct grappa_context *c, int64_t n_seqs, struct err *err)
{
    static const char *const names[2][4] = {
        {"past_lens", "block_indices", "block_indices_begins", "max_context_len"},
        {"past_lens_swa", "block_indices_swa", "block_indices_begins_swa", "max_context_len_swa"}};
    struct ov_program *p = c->m->program;
    for (int i = 0; i < 2; i++) {
        struct block_table *t = &c->host.table[i];
        int64_t n_blocks = t->block_indices_begins[n_seqs], n_begins = n_seqs + 1;
        bool used = i ? c->window > 0 : c->reads_all;
        if (used && (ov_bind(p, names[i][0], OV_ELEM_I32, 1, &n_seqs, t->past_lens, err) < 0 ||
                     ov_bind(p, names[i][1], OV_ELEM_I32, 1, &n_blocks, t->block_indices, err) < 0 ||
                     ov_bind(p, names[i][2], OV_ELEM_I32, 1, &n_begins, t->block_indices_begins, err) < 0 ||
                     ov_bind(p, names[i][3], OV_ELEM_I32, 0, &n_begins, &t->max_context_len, err) < 0))
            return -1;
    }
    return 0;
}

static int bind_slice(struct grappa_context *c, int64_t rows, int64_t n_seqs, int64_t n_out, struct err *err)
{
    struct host *t = &c->host;
    struct ov_program *p = c->m->program;
    static const char *const cos_names[] = {"rope.cos", "rope_swa.cos"}, *const sin_names[] = {
                                                                             "rope.sin", "rope_swa.sin"};
    int64_t n_rot = c->m->arch->h.n_rot;
    for (int i = 0; i < 2; i++) {
        if (!c->m->arch->rope_used[i])
            continue;
        int64_t dims[] = {rows, 1, 1, n_rot};
        rope_fill(&c->m->arch->rope[i], c->n_ctx, t->pos, (size_t)rows, t->cos[i], t->sin[i]);
        if (ov_bind(p, cos_names[i], OV_ELEM_F32, 4, dims, t->cos[i], err) < 0 ||
            ov_bind(p, sin_names[i], OV_ELEM_F32, 4, dims, t->sin[i], err) < 0)
            return -1;
    }
    if (c->m->arch->q_growth_used) {
        arch_q_growth(c->m->arch, t->pos, (size_t)rows, t->q_growth);
        if (ov_bind(p, "q_growth", OV_ELEM_F32, 2, (int64_t[]){rows, 1}, t->q_growth, err) < 0)
            return -1;
    }
    bool recurrent = c->states.n_tables > 0;
    const struct {
        const char *name;
        int32_t *data;
        int64_t n;
        bool used;
    } lists[] = {{"subsequence_begins", t->subsequence_begins, n_seqs + 1, c->m->n_caches > 0},
                 {"state_rows", t->state_rows, t->n_states + 1, recurrent},
                 {"state_indices", t->state_indices, t->state_begins[t->n_states], recurrent},
                 {"state_begins", t->state_begins, t->n_states + 1, recurrent},
                 {"state_past", t->state_past, t->n_states, recurrent},
                 {"state_interval", t->state_interval, t->n_states, recurrent},
                 {"out_rows", t->out_rows, n_out, true}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (lists[i].used && ov_bind(p, lists[i].name, OV_ELEM_I32, 1, &lists[i].n, lists[i].data, err) < 0)
            return -1;
    }
    int64_t dims[] = {rows, c->m->arch->h.n_embd};
    if (ov_bind(p, "embeddings", OV_ELEM_F32, 2, dims, t->embeddings, err) < 0)
        return -1;
    if (t->hidden && ov_bind(p, "hidden_in", OV_ELEM_F32, 2, dims, t->hidden, err) < 0)
        return -1;
    return bind_tables(c, n_seqs, err);
}

/* One inference. In the first few the plugin packs the weights for the kinds of steps it meets. */
static int infer(struct grappa_model *m, struct err *err)
{
    if (m->unpacked_steps == 0)
        return ov_infer(m->program, err);
    struct image_sweep sweep;
    m->unpacked_steps--;
    image_sweep_start(&sweep, &m->image);
    int r = ov_infer(m->program, err);
    image_sweep_stop(&sweep);
    return r;
}

/* Room for a slice in the windows: what has fallen out of them goes. */
static int move_windows(struct grappa_context *c, const struct grappa_batch *b, size_t first, size_t n,
                        struct err *err)
{
    int32_t blocks = 0;
    if (c->swa.n_seqs == 0)
        return 0;
    memset(c->seq_tokens, 0, (size_t)c->kv.n_seqs * sizeof *c->seq_tokens);
    for (size_t i = 0; i < n; i++)
        c->seq_tokens[context_seq_of(b, first + i)]++;
    kv_slide(&c->swa);
    for (int32_t s = 0; s < c->kv.n_seqs; s++)
        blocks += kv_blocks_for(&c->swa, s, c->seq_tokens[s]);
    if (blocks <= c->swa.n_free || (c->make_room && c->make_room(c->make_room_user, 0, blocks)))
        return 0;
    return err_set(err, ERR_RANGE, "%d blocks for sliding windows are too few", c->swa.n_blocks);
}

static int run_slice(struct grappa_context *c, const struct grappa_batch *b, size_t first, size_t n,
                     int32_t *n_out, struct err *err)
{
    struct host *t = &c->host;
    int32_t n_seqs = context_lay_out(c, b, first, n), out = 0;
    size_t width = c->m->arch->h.n_embd;
    for (size_t i = 0; i < n; i++) {
        int32_t row = c->row_of[i];
        arch_embed(c->m->arch, b->token[first + i], t->pos[row], t->embeddings + (size_t)row * width);
        if (t->hidden && c->hidden_in[i])
            memcpy(t->hidden + (size_t)row * width, c->hidden_in[i], width * sizeof(float));
        else if (t->hidden)
            memset(t->hidden + (size_t)row * width, 0, width * sizeof(float));
        if (wanted(b, first + i))
            t->out_rows[out++] = row;
    }
    *n_out = out;
    if (out == 0) /* a graph wants at least one; nobody will look at it */
        t->out_rows[out++] = 0;
    if (bind_slice(c, (int64_t)n, n_seqs, out, err) < 0)
        return -1;
    double start = engine_seconds();
    if (infer(c->m, err) < 0)
        return -1;
    c->infer_s += engine_seconds() - start;
    if (c->m->profile)
        ov_profile_add(c->m->program);
    return 0;
}

/* Of a row that comes out. */
static size_t row_width(const struct grappa_context *c)
{
    return c->m->arch->embeddings ? c->m->arch->h.n_embd : c->m->arch->h.n_vocab;
}

/* Logits of several slices, one behind the other. */
static int collect(struct grappa_context *c, const float *logits, size_t n, struct err *err)
{
    size_t have = (size_t)c->n_logits * row_width(c);
    if (have + n > c->logits_own_size) {
        float *p = realloc(c->logits_own, (have + n) * sizeof *p);
        if (!p)
            return err_set(err, ERR_MEMORY, "no memory for the logits of the batch");
        c->logits_own = p;
        c->logits_own_size = have + n;
    }
    memcpy(c->logits_own + have, logits, n * sizeof *logits);
    return 0;
}

static int run(struct grappa_context *c, const struct grappa_batch *b, struct err *err)
{
    bool whole = b->n <= c->n_batch;
    c->n_logits = 0;
    for (size_t first = 0, n; first < b->n; first += n) {
        int32_t n_out;
        size_t size;
        n = b->n - first < c->n_batch ? b->n - first : c->n_batch;
        /* Asked again behind the step, for a file that was cut in it. */
        if (gguf_changed(c->m->file.g, err) < 0 || move_windows(c, b, first, n, err) < 0 ||
            run_slice(c, b, first, n, &n_out, err) < 0 || gguf_changed(c->m->file.g, err) < 0)
            return -1;
        if (c->m->arch->part != ARCH_TRUNK && !(c->hidden = ov_output(c->m->program, "hidden", &size, err)))
            return -1;
        if (n_out == 0)
            continue;
        c->logits = ov_output(c->m->program, c->m->arch->embeddings ? "embd" : "logits", &size, err);
        if (!c->logits)
            return -1;
        if (size < (size_t)n_out * row_width(c))
            return err_set(err, ERR_DEVICE, "the device gave %zu logits for %d tokens", size, n_out);
        for (int32_t r = 0; r < n_out; r++) { /* a number that is none spreads over the whole row */
            if (isnan(c->logits[(size_t)r * row_width(c)]))
                return err_set(err, ERR_FORMAT, "the logits are not numbers: weights of the file are broken");
        }
        if (!whole && collect(c, c->logits, (size_t)n_out * row_width(c), err) < 0)
            return -1;
        c->n_logits += n_out;
    }
    if (!whole)
        c->logits = c->logits_own;
    return 0;
}

/* The ends of pieces are worth coming back to; single tokens would only push them out. */
static void commit(struct grappa_context *c)
{
    for (int32_t s = 0; s < c->kv.n_seqs; s++) {
        c->keep[s] = c->kv.seqs[s].n_tokens - c->old_len[s] > 1 && c->guesses[s] == 0;
        if (c->keep[s] && c->swa.n_seqs > c->kv.n_seqs)
            kv_copy(&c->swa, s, s + c->kv.n_seqs);
    }
    states_commit(&c->states, c->keep, c->guesses);
}

/* A batch of several slices may have lost windows that its beginning had. */
static void undo(struct grappa_context *c)
{
    states_undo(&c->states);
    for (int32_t s = 0; s < c->kv.n_seqs; s++) {
        if (c->old_len[s] < c->kv.seqs[s].n_tokens)
            context_trim(c, s, grappa_seq_trim_point(c, s, c->old_len[s]));
    }
    c->n_logits = 0;
}

int grappa_decode(struct grappa_context *c, const struct grappa_batch *batch, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    if (check_batch(c, batch, &e) < 0)
        return engine_fail(err, &e);
    for (int32_t s = 0; s < c->kv.n_seqs; s++)
        c->old_len[s] = c->kv.seqs[s].n_tokens;
    states_begin(&c->states);
    if (run(c, batch, &e) == 0) {
        commit(c);
        return 0;
    }
    undo(c);
    return engine_fail(err, &e);
}

const float *grappa_logits(struct grappa_context *c, int32_t i)
{
    if (i < 0)
        i += c->n_logits;
    if (i < 0 || i >= c->n_logits)
        return NULL;
    return c->logits + (size_t)i * row_width(c);
}

const float *context_hidden(const struct grappa_context *c, int32_t i)
{
    int32_t row = c->m->arch->part == ARCH_NEXTN ? i : c->row_of[i];
    return c->hidden + (size_t)row * c->m->arch->h.n_embd;
}

int32_t grappa_n_logits(const struct grappa_context *c)
{
    return c->n_logits;
}

/* ---- sequences ---- */

static int check_seq(const struct grappa_context *c, int32_t seq, struct err *err)
{
    if (seq >= 0 && seq < c->kv.n_seqs)
        return 0;
    return err_set(err, ERR_RANGE, "sequence %d is out of range: the context has %d", seq, c->kv.n_seqs);
}

int32_t grappa_seq_len(const struct grappa_context *c, int32_t seq)
{
    return check_seq(c, seq, NULL) < 0 ? 0 : c->kv.seqs[seq].n_tokens;
}

int grappa_seq_trim(struct grappa_context *c, int32_t seq, int32_t n, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    if (check_seq(c, seq, &e) < 0)
        return engine_fail(err, &e);
    if (n < 0 || n > c->kv.seqs[seq].n_tokens) {
        err_set(&e, ERR_RANGE, "sequence %d holds %d tokens, it can't be cut to %d", seq,
                c->kv.seqs[seq].n_tokens, n);
        return engine_fail(err, &e);
    }
    int32_t point = grappa_seq_trim_point(c, seq, n);
    if (point != n) {
        err_set(&e, ERR_RANGE, "sequence %d can be cut to %d tokens, not to %d: %s", seq, point, n,
                states_trim_point(&c->states, seq, n) != n ? "recurrent layers keep no state of every length"
                                                           : "what lies behind sliding windows is gone");
        return engine_fail(err, &e);
    }
    context_trim(c, seq, n);
    return 0;
}

void context_trim(struct grappa_context *c, int32_t seq, int32_t n)
{
    int32_t kept = seq + c->kv.n_seqs;
    kv_trim(&c->kv, seq, n);
    states_trim(&c->states, seq, n);
    if (c->swa.n_seqs == 0)
        return;
    bool remembers = kept < c->swa.n_seqs && kv_trim_point(&c->swa, kept, n) == n;
    if (kv_trim_point(&c->swa, seq, n) != n && remembers)
        kv_copy(&c->swa, kept, seq);
    kv_trim(&c->swa, seq, n);
    if (kept < c->swa.n_seqs)
        kv_trim(&c->swa, kept, kv_trim_point(&c->swa, kept, n));
}

int32_t grappa_seq_trim_point(const struct grappa_context *c, int32_t seq, int32_t n)
{
    int32_t len = grappa_seq_len(c, seq), kept = seq + c->kv.n_seqs;
    n = n < len ? n : len;
    if (n <= 0)
        return 0;
    n = states_trim_point(&c->states, seq, n);
    if (c->swa.n_seqs == 0 || kv_trim_point(&c->swa, seq, n) == n)
        return n;
    if (kept >= c->swa.n_seqs)
        return 0;
    n = states_trim_point(&c->states, seq, kv_trim_point(&c->swa, kept, n));
    return kv_trim_point(&c->swa, kept, n) == n ? n : 0;
}

int grappa_seq_copy(struct grappa_context *c, int32_t src, int32_t dst, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    if (check_seq(c, src, &e) < 0 || check_seq(c, dst, &e) < 0)
        return engine_fail(err, &e);
    kv_copy(&c->kv, src, dst);
    states_copy(&c->states, src, dst);
    for (int32_t first = 0; first < c->swa.n_seqs; first += c->kv.n_seqs)
        kv_copy(&c->swa, src + first, dst + first);
    return 0;
}

const char *grappa_profile(struct grappa_context *c)
{
    buf_clear(&c->profile);
    ov_profile_print(c->m->program, &c->profile);
    return c->profile.p ? c->profile.p : "";
}
