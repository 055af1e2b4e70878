/* The inside of a sampler: its stages and what they remember. */
#ifndef SAMPLER_CHAIN_H
#define SAMPLER_CHAIN_H

#include "sampler/cands.h"
#include "sampler/rng.h"
#include "sampler/sampler.h"
#include "sampler/think.h"

/* The last tokens, at most `size` of them. */
struct window {
    token_id *token;
    size_t size, n, next;
};

/* How often each token is in the window, and which are there at all. */
struct penalties {
    struct window window;
    int32_t *count; /* by token */
    token_id *seen; /* those with a count > 0, in no order */
    size_t n_seen;
    int32_t *seen_at; /* by token: its place in `seen` */
};

/* A sequence of tokens that ends a repetition: `head`, then n_tail tokens of `tails`. */
struct breaker {
    token_id head;
    uint32_t tail, n_tail;
};

struct dry {
    struct window window;
    struct breaker *breakers; /* by rising head */
    size_t n_breakers;
    struct token_list tails;
    token_id *newest_first; /* the window, for the search */
    int32_t *match;         /* by position in it: how much of the end is repeated from there on */
    int32_t *repeat;        /* by token: 1 + the longest repetition it would go on with; all 0 between runs */
};

/* The texts of the candidates, one after the other. */
struct infill {
    struct buf pieces;
    size_t *ends;
};

/* How likely the chosen ones were, on a falling average, and the last one that is not accepted yet. */
struct adaptive {
    float *p; /* of each candidate, before it was changed; NULL: off */
    float weighted_sum, total_weight, chosen_p;
    token_id chosen;
};

struct sampler {
    struct sampler_params params; /* the pointers in it are not kept */
    const struct vocab *vocab;
    struct cands cands;
    struct sampler_bias *bias;
    size_t n_bias;
    const struct stage *chain[SAMPLER_MAX_STAGES];
    int n_chain;
    int greedy_from; /* from this stage on, all that can come out is the largest logit; -1: no such stage */
    uint32_t seed;
    struct rng rng, xtc_rng;
    struct penalties penalties;
    struct dry dry;
    float mirostat_mu;
    struct infill infill;
    struct adaptive adaptive;
    struct grammar *grammar; /* NULL: none */
    bool grammar_lazy;
    struct think *think; /* NULL: none */
    token_id sampled;    /* not yet accepted */
};

struct stage {
    const char *name;
    const char *alts[3]; /* other spellings */
    char letter;         /* in --sampling-seq; 0: none */
    bool keeps_max;      /* the largest logit stays a candidate and the largest */
    /* Off for these parameters: the stage is left out. */
    bool (*off)(const struct sampler_params *p);
    /* NULL, or makes what the stage remembers; -1 on failure. */
    int (*init)(struct sampler *s, struct err *err);
    void (*apply)(struct sampler *s, struct cands *c); /* NULL: it chooses in the end */
};

extern const struct stage stages[];
extern const size_t n_stages;

/* cut.c: stages that leave candidates out. */
void apply_top_k(struct sampler *s, struct cands *c);
void apply_top_p(struct sampler *s, struct cands *c);
void apply_min_p(struct sampler *s, struct cands *c);
void apply_typical(struct sampler *s, struct cands *c);
void apply_top_n_sigma(struct sampler *s, struct cands *c);
void apply_xtc(struct sampler *s, struct cands *c);

/* pick.c: temperature, and what chooses in the end. pick_… return the place of the chosen candidate. */
void apply_temperature(struct sampler *s, struct cands *c);
size_t pick_dist(struct sampler *s, struct cands *c);
size_t pick_mirostat(struct sampler *s, struct cands *c);
int init_adaptive(struct sampler *s, struct err *err);
size_t pick_adaptive(struct sampler *s, struct cands *c);
void accept_adaptive(struct sampler *s, token_id t);
void reset_adaptive(struct sampler *s);

/* infill.c */
int init_infill(struct sampler *s, struct err *err);
void apply_infill(struct sampler *s, struct cands *c);
void release_infill(struct infill *in);

/* allow.c: what a grammar and a thinking budget leave. */
int init_constraints(struct sampler *s, const struct sampler_params *p, struct err *err);
void apply_constraints(struct sampler *s, struct cands *c);
void accept_constraints(struct sampler *s, token_id t);
void reset_constraints(struct sampler *s);
void release_constraints(struct sampler *s);

/* penalties.c */
int init_penalties(struct sampler *s, struct err *err);
void apply_penalties(struct sampler *s, struct cands *c);
void accept_penalties(struct penalties *p, token_id t);
void reset_penalties(struct penalties *p);
void release_penalties(struct penalties *p);

/* dry.c */
int init_dry(struct sampler *s, struct err *err);
void apply_dry(struct sampler *s, struct cands *c);
void reset_dry(struct dry *d);
void release_dry(struct dry *d);

/* window.c */
int window_init(struct window *w, int32_t last_n, uint32_t n_ctx, struct err *err);
void window_release(struct window *w);
/* Adds a token; returns the one that fell out, or TOKEN_NONE. */
token_id window_push(struct window *w, token_id t);
/* The token `back` places before the newest. */
token_id window_at(const struct window *w, size_t back);

#endif
