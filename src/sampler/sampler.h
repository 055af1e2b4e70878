/* The sampler chain: logits to a token, in llama.cpp's order and meaning (b11434, common/sampling and
 * llama-sampler).
 *
 * The chain is a table of stages over one array of candidates; which stages run and in which order is
 * `samplers`. A struct sampler belongs to one sequence and is not shared between threads. */
#ifndef SAMPLER_SAMPLER_H
#define SAMPLER_SAMPLER_H

#include "base/err.h"
#include "sampler/grammar.h"
#include "vocab/vocab.h"

#include <stdint.h>

#define SAMPLER_SEED_RANDOM 0xFFFFFFFFu
#define SAMPLER_MAX_STAGES  16

struct sampler_bias {
    token_id token;
    float bias; /* added to the logit; -INFINITY bans the token */
};

struct sampler_params { /* defaults: sampler_defaults(), those of llama.cpp */
    uint32_t seed;      /* SAMPLER_SEED_RANDOM: drawn anew */
    float temp, dynatemp_range, dynatemp_exponent;
    int32_t top_k;
    float top_p, min_p, typical_p, top_n_sigma;
    float xtc_probability, xtc_threshold;
    int32_t min_keep;
    float repeat_penalty, frequency_penalty, presence_penalty;
    int32_t repeat_last_n; /* -1: whole context, 0: off */
    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_penalty_last_n;
    const char *const *dry_breakers; /* NULL: the defaults "\n", ":", "\"", "*" */
    int n_dry_breakers;
    int32_t mirostat; /* 0 off, 1, 2 */
    float mirostat_tau, mirostat_eta;
    float adaptive_target, adaptive_decay; /* of "adaptive_p"; a target below 0: it leaves the distribution */
    bool ignore_eos;
    const struct sampler_bias *bias;
    size_t n_bias;
    const char *samplers; /* "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature" */
    uint32_t n_ctx;       /* what a "last_n" of -1 means */
    struct grammar_params grammar;
    const struct grammar_vocab
        *grammar_vocab; /* of the same vocabulary; outlives the sampler; NULL without grammar */
    /* Thinking budget, see sampler/think.h; without both texts there is none. */
    int32_t think_budget; /* -1: no bound */
    const char *think_start, *think_end;
    bool think_open;    /* the text begins inside */
    bool think_control; /* sampler_end_thoughts will be asked for, also without a budget */
};

struct sampler_params sampler_defaults(void);

struct sampler;

/* Copies what it needs. Fails on an unknown stage name (also accepts llama.cpp's other spellings and the
 * letters of --sampling-seq through sampler_seq_names). `v` must outlive it. */
struct sampler *sampler_new(const struct sampler_params *p, const struct vocab *v, struct err *err);
void sampler_free(struct sampler *s);
void sampler_reset(struct sampler *s);
uint32_t sampler_seed(const struct sampler *s); /* the seed really used */

/* Turns --sampling-seq letters ("edskypmxt") into names for `samplers`; -1 on an unknown letter. */
int sampler_seq_names(const char *letters, struct buf *out, struct err *err);

/* Works out which tokens may follow, so that sampler_sample need not: on any thread, while nothing else is
 * done with the sampler. */
void sampler_prepare(struct sampler *s);
/* The grammar is at its end: only the end of the text may follow. */
bool sampler_finished(const struct sampler *s);

/* Thoughts that go on end now: what comes next is their end. Without any it does nothing. */
void sampler_end_thoughts(struct sampler *s);

/* Tokens that the grammar doesn't allow are no candidates, so the stages work with those that are left
 * (llama.cpp samples without the grammar first, and again with it when that went wrong; greedy results are
 * the same). */
/* Picks a token from logits[n_vocab], which are not changed. Nothing is allocated. Does not accept it. */
token_id sampler_sample(struct sampler *s, const float *logits);
/* Tells the chain that a token is now part of the sequence. When it is the one that was sampled last, it is
 * text that was written, and the grammar and the thinking budget go on by it; others are a prompt's. */
void sampler_accept(struct sampler *s, token_id t);

/* After sampler_sample: the candidates that were left, sorted by probability, for logprobs-like displays. */
struct sampler_candidate {
    token_id id;
    float logit, p;
};
size_t sampler_candidates(const struct sampler *s, const struct sampler_candidate **out);

#endif
