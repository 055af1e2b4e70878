/* In the place of OpenVINO: programs whose logits are a hash of the tokens that the caches hold. What is
 * computed is nonsense, but it depends on every position of a sequence, read from the blocks and states that
 * the step names: one block that is given away, written twice or mixed up changes the text. The sanitizers
 * see all of it. Layers with a sliding window hold the tokens once more, in blocks of their own; what they
 * hold of the window must be what the others do.
 *
 * Defines what ov/ov.h declares, so that the linker takes nothing from that room. */
#ifndef FAKE_OV_H
#define FAKE_OV_H

#include "arch/arch.h"
#include "ov/ov.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_BLOCK = 8, FAKE_WIDTH = 4, FAKE_INPUTS = 512 };

struct fake_input {
    char name[32];
    void *data;
    int rank;
    int64_t dims[OV_MAX_RANK];
};

struct ov_program {
    struct fake_input inputs[FAKE_INPUTS];
    int n_inputs;
    float *logits;
    size_t n_logits;
    float *hidden;
    size_t n_hidden;
};

static int32_t fake_n_vocab;                     /* set by the test before the first step */
static int fake_fail_at = -1;                    /* steps until one fails; -1: none does */
static int fake_full_cache, fake_swa_cache = -1; /* numbers of a layer of each kind; -1: there is none */
static int32_t fake_window;
static void (*fake_on_infer)(int n_rows); /* called before every step */

/* For a model that stays loaded alone. */
static inline void fake_layers(const struct arch_model *a)
{
    fake_full_cache = 0;
    fake_swa_cache = -1;
    fake_window = (int32_t)a->h.n_swa;
    for (int i = (int)a->n_caches - 1; i >= 0; i--)
        *(a->caches[i].swa ? &fake_swa_cache : &fake_full_cache) = i;
}

static uint64_t fake_mix(uint64_t h, uint64_t w)
{
    h = (h ^ w) * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ h >> 32;
}

static uint64_t fake_row_hash(const float *row, int64_t n)
{
    uint64_t h = 1;
    for (int64_t i = 0; i < n; i++) {
        uint32_t w;
        memcpy(&w, row + i, sizeof w);
        h = fake_mix(h, w);
    }
    return h;
}

/* Logits between -4 and 4 of a sequence whose tokens have the hash h. */
static void fake_logits(uint64_t h, float *out)
{
    for (int32_t v = 0; v < fake_n_vocab; v++)
        out[v] = (float)(fake_mix(h, (uint64_t)v) >> 40) * 0x1p-21f - 4.0f;
}

struct ov_runtime {
    int nothing;
};

struct ov_runtime *ov_open(struct err *err)
{
    static struct ov_runtime rt;
    (void)err;
    return &rt;
}

void ov_close(struct ov_runtime *rt)
{
    (void)rt;
}

const char *ov_version(void)
{
    return "none";
}

int ov_each_device(struct ov_runtime *rt, void (*fn)(const char *name, const char *full_name, void *user),
                   void *user, struct err *err)
{
    (void)rt, (void)fn, (void)user, (void)err;
    return 0;
}

struct ov_program *ov_compile(struct ov_runtime *rt, const char *device, struct str xml, void *blob,
                              size_t blob_size, const struct linear *linears, size_t n_linears,
                              const struct experts *experts, size_t n_experts, const struct ov_prop *props,
                              size_t n_props, struct err *err)
{
    (void)rt, (void)device, (void)xml, (void)blob, (void)blob_size, (void)linears, (void)n_linears,
        (void)experts;
    (void)n_experts, (void)props, (void)n_props, (void)err;
    return calloc(1, sizeof(struct ov_program));
}

void ov_program_free(struct ov_program *p)
{
    if (!p)
        return;
    free(p->logits);
    free(p->hidden);
    free(p);
}

int ov_elem_bits(enum ov_elem e)
{
    (void)e;
    return 32;
}

int ov_input_port(const struct ov_program *p, const char *name, struct ov_port *out, struct err *err)
{
    (void)p, (void)name, (void)err;
    *out = (struct ov_port){.elem = OV_ELEM_F32, .rank = 4, .dims = {-1, 1, FAKE_BLOCK, FAKE_WIDTH}};
    return 0;
}

static struct fake_input *fake_input(struct ov_program *p, const char *name)
{
    for (int i = 0; i < p->n_inputs; i++) {
        if (strcmp(p->inputs[i].name, name) == 0)
            return &p->inputs[i];
    }
    return NULL;
}

int ov_bind(struct ov_program *p, const char *name, enum ov_elem elem, int rank, const int64_t *dims,
            void *data, struct err *err)
{
    struct fake_input *in = fake_input(p, name);
    (void)elem, (void)err;
    if (!in) {
        in = &p->inputs[p->n_inputs++];
        snprintf(in->name, sizeof in->name, "%s", name);
    }
    in->data = data;
    in->rank = rank;
    memcpy(in->dims, dims, (size_t)rank * sizeof *dims);
    return 0;
}

static int32_t *fake_ints(struct ov_program *p, const char *name)
{
    struct fake_input *in = fake_input(p, name);
    return in ? in->data : NULL;
}

static struct fake_input *fake_cache(struct ov_program *p, int number)
{
    char name[32];
    snprintf(name, sizeof name, "key_cache.%d", number);
    return number < 0 ? NULL : fake_input(p, name);
}

/* Where the hash of the token at a position is; with a window positions begin where its blocks do. */
static char *fake_place(struct ov_program *p, bool swa, int32_t seq, int32_t pos)
{
    const int32_t *begins = fake_ints(p, swa ? "block_indices_begins_swa" : "block_indices_begins");
    const int32_t *blocks = fake_ints(p, swa ? "block_indices_swa" : "block_indices");
    struct fake_input *cache = fake_cache(p, swa ? fake_swa_cache : fake_full_cache);
    if (pos < 0 || begins[seq] + pos / FAKE_BLOCK >= begins[seq + 1])
        abort();
    int32_t block = blocks[begins[seq] + pos / FAKE_BLOCK];
    if (block < 0 || block >= cache->dims[0])
        abort();
    size_t at = ((size_t)block * FAKE_BLOCK + (size_t)(pos % FAKE_BLOCK)) * FAKE_WIDTH;
    return (char *)((float *)cache->data + at);
}

/* A token goes into the layers with a window. Whether they show what the others hold. */
static bool fake_window_is_right(struct ov_program *p, int32_t seq, int32_t pos, uint64_t token)
{
    int32_t past = fake_ints(p, "past_lens")[seq], gone = past - fake_ints(p, "past_lens_swa")[seq];
    if (gone % FAKE_BLOCK != 0)
        abort();
    memcpy(fake_place(p, true, seq, pos - gone), &token, sizeof token);
    for (int32_t i = pos >= fake_window ? pos - fake_window + 1 : 0; i <= pos; i++) {
        if (memcmp(fake_place(p, true, seq, i - gone), fake_place(p, false, seq, i), sizeof token) != 0)
            return false;
    }
    return true;
}

/* The state of a recurrent model: the hash of all tokens so far. */
static char *fake_state(struct ov_program *p, int32_t slot)
{
    struct fake_input *state = fake_input(p, "state.0");
    size_t width = 1;
    for (int i = 1; i < state->rank; i++)
        width *= (size_t)state->dims[i];
    return (char *)((float *)state->data + (size_t)slot * width);
}

static uint64_t fake_token(struct ov_program *p, int32_t row)
{
    const struct fake_input *embeddings = fake_input(p, "embeddings");
    return fake_row_hash((float *)embeddings->data + row * embeddings->dims[1], embeddings->dims[1]);
}

/* One sequence of the step, as attention sees it; hashes[row]: of all tokens up to there. */
static void fake_sequence(struct ov_program *p, int32_t seq, uint64_t *hashes)
{
    const int32_t *rows = fake_ints(p, "subsequence_begins"), *past = fake_ints(p, "past_lens");
    uint64_t all = 0, t;
    for (int32_t i = 0; i < past[seq]; i++) {
        memcpy(&t, fake_place(p, false, seq, i), sizeof t);
        all = fake_mix(all, t);
    }
    for (int32_t r = rows[seq], at = past[seq]; r < rows[seq + 1]; r++, at++) {
        t = fake_token(p, r);
        memcpy(fake_place(p, false, seq, at), &t, sizeof t);
        all = fake_mix(all, t);
        hashes[r] = all;
        if (fake_swa_cache >= 0 && !fake_window_is_right(p, seq, at, t))
            hashes[r] = 0;
    }
}

/* One sequence of the step, as recurrent layers see it. */
static void fake_recurrent(struct ov_program *p, int32_t seq, uint64_t *hashes)
{
    const int32_t *rows = fake_ints(p, "state_rows"), *begins = fake_ints(p, "state_begins");
    const int32_t *slots = fake_ints(p, "state_indices") + begins[seq];
    bool each = fake_ints(p, "state_interval")[seq] == 1; /* a state after every token */
    uint64_t state = 0;
    if (begins[seq + 1] - begins[seq] != 1 + (each ? rows[seq + 1] - rows[seq] : 1))
        abort();
    memcpy(&state, fake_state(p, slots[0]), sizeof state);
    for (int32_t r = rows[seq]; r < rows[seq + 1]; r++) {
        state = fake_mix(state, fake_token(p, r));
        if (each)
            memcpy(fake_state(p, *++slots), &state, sizeof state);
        /* Where there is attention too, both must be right: they are the same. */
        hashes[r] = !fake_cache(p, fake_full_cache) || hashes[r] == state ? state : 0;
    }
    if (!each)
        memcpy(fake_state(p, slots[1]), &state, sizeof state);
}

int ov_infer(struct ov_program *p, struct err *err)
{
    const struct fake_input *embeddings = fake_input(p, "embeddings"), *out = fake_input(p, "out_rows");
    const int32_t *out_rows = out->data;
    size_t n_out = (size_t)out->dims[0];
    uint64_t *hashes = calloc((size_t)embeddings->dims[0], sizeof *hashes);
    if (fake_on_infer)
        fake_on_infer((int)embeddings->dims[0]);
    const struct fake_input *past = fake_input(p, "past_lens"), *recurrent = fake_input(p, "state_past");
    if (fake_fail_at >= 0 && fake_fail_at-- == 0) {
        free(hashes);
        return err_set(err, ERR_DEVICE, "this step was to fail");
    }
    for (int32_t s = 0; past && s < past->dims[0]; s++)
        fake_sequence(p, s, hashes);
    for (int32_t s = 0; recurrent && s < recurrent->dims[0]; s++)
        fake_recurrent(p, s, hashes);
    if (p->n_logits < n_out) {
        p->logits = realloc(p->logits, n_out * (size_t)fake_n_vocab * sizeof *p->logits);
        p->n_logits = n_out;
    }
    for (size_t i = 0; i < n_out; i++)
        fake_logits(hashes[out_rows[i]], p->logits + i * (size_t)fake_n_vocab);
    free(hashes);
    p->n_hidden = (size_t)(embeddings->dims[0] * embeddings->dims[1]); /* for guesses: anything will do */
    p->hidden = realloc(p->hidden, p->n_hidden * sizeof *p->hidden);
    memset(p->hidden, 0, p->n_hidden * sizeof *p->hidden);
    return 0;
}

const float *ov_output(struct ov_program *p, const char *name, size_t *n, struct err *err)
{
    (void)err;
    if (strcmp(name, "hidden") == 0) {
        *n = p->n_hidden;
        return p->hidden;
    }
    *n = p->n_logits * (size_t)fake_n_vocab;
    return p->logits;
}

void ov_profile_add(struct ov_program *p)
{
    (void)p;
}

void ov_profile_print(struct ov_program *p, struct buf *out)
{
    (void)p, (void)out;
}

#endif
