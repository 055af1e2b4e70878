/* Speculation: guesses of what a request writes next go into its step behind the known token, each with a row
 * of logits. Rows are sampled in order with the request's own sampler as long as what comes out is what was
 * guessed (step.c), so a text is the one that plain sampling writes, whoever guessed.
 *
 * Guesses come from the text itself, by looking up where its last tokens stood before (as llama.cpp's
 * ngram-simple), from a draft model, or from the model's own layers for it (multi-token prediction). How many
 * are taken is a matter of cost: what steps of so many rows have taken lately, and how often guesses were
 * right; where a step with guesses doesn't pay, there are none.
 */
#ifndef ENGINE_SPECULATE_H
#define ENGINE_SPECULATE_H

#include "base/err.h"

#include <grappa.h>

#include <stdbool.h>

struct grappa_engine;
struct slot;

enum {
    GUESS_MAX = 64,   /* guesses behind one token */
    LOOKUP_MIN = 3,   /* tokens that must match */
    LOOKUP_MOST = 32, /* more of them say no more */
    GUESS_KINDS = 5,  /* by how much of the text matches; the last: of a draft model or MTP layers */
};

/* ---- speculate_lookup.c: where the last tokens of a text stood before ---- */
struct lookup {
    int32_t *head; /* by hash of LOOKUP_MIN tokens: where they ended last; -1: nowhere */
    int32_t *prev; /* [room]: by end, the end before it of the same hash */
    int32_t room, n;
};

void lookup_release(struct lookup *l);
/* Another text begins. `room`: most tokens it can have. */
void lookup_reset(struct lookup *l, int32_t room);
/* The place behind the longest part of the text that equals its end, of equals the latest; 0: there is none.
 * *match: its length, LOOKUP_MIN to LOOKUP_MOST. The text may have grown since the last call, or lost its
 * end. */
int32_t lookup_find(struct lookup *l, const grappa_token *tokens, int32_t n, int32_t *match);

/* ---- speculate_cost.c: what rows cost, and how many guesses pay ---- */
struct row_cost { /* seconds of a step by number of rows */
    double seconds[GUESS_MAX + 1];
    int32_t n[GUESS_MAX + 1]; /* measurements, until they are forgotten */
    int32_t n_steps;
};

void cost_add(struct row_cost *c, int32_t rows, double seconds);
/* In proportion to the cost of one row; measured, or between what was. */
double cost_of(const struct row_cost *c, int32_t rows);

struct offer {    /* guesses that a request could have */
    float right;  /* probability that a guess is right when those before it are */
    int32_t most; /* how many there are */
    int32_t n;    /* how many are worth it: the answer */
};
/* Chooses offers[].n so that tokens per time are most. `rows`: of the step without guesses; `each`: cost of
 * making one more guess for all, in the same proportion. */
void cost_choose(const struct row_cost *c, struct offer *offers, int32_t n_offers, int32_t rows, double each);

/* ---- speculate_draft.c: another model's guesses ---- */
/* Of a sequence of the engine's context, in the draft context's of the same number. Places are those of the
 * slot's text. */
struct draft_text {
    uint64_t started;     /* of which request; 0: none that runs */
    grappa_token *tokens; /* [n_ctx_slot and some], by place: what the sequence holds */
    int32_t base, held;   /* the first and the one behind the last */
    int32_t from;         /* from here on they are guesses */
    /* MTP layers: hidden rows of places from row_from on, which no token has been put in with yet. */
    float *rows; /* [MTP_ROWS, n_embd]; NULL before there is one */
    int32_t row_from, n_rows;
};

struct draft {
    struct grappa_context *ctx; /* NULL: there is no draft model */
    bool mtp;                   /* it is of the model's own layers */
    int32_t n_logits;           /* tokens that can be guessed */
    struct draft_text *texts;   /* [n_texts] */
    int32_t n_texts;
    grappa_token *token; /* [room]: the batch that is put together */
    int32_t *seq;
    int8_t *logits;
    int32_t n, room;
    double seconds; /* of one guess for all slots, lately */
};

/* -1 when the model's vocabulary isn't the engine's, or it can't guess. */
int draft_init(struct draft *d, const struct grappa_engine *e, struct grappa_err *err);
void draft_release(struct draft *d);
/* Guesses for the slots with offers[i].n > 0, put behind their tokens; fewer where the model isn't sure, none
 * for texts that it has yet to read. offers[i] is of line[i]. */
void draft_guess(struct grappa_engine *e, struct slot **line, struct offer *offers, int32_t n);
/* A token into the batch; `row`, of MTP layers: the hidden row before it, NULL: none. */
void draft_put(struct draft *d, int32_t seq, grappa_token t, bool wanted, const float *row);
/* Runs the batch. False: it failed. */
bool draft_run(struct grappa_engine *e, struct draft *d);
/* Cuts the sequence so that it ends before a place, or before where it can be cut to. */
void draft_cut(struct draft *d, int32_t seq, int32_t place);
/* The sequence holds nothing any more. */
void draft_forget(struct draft *d, int32_t seq);

/* ---- speculate_mtp.c: what differs when it is MTP layers that guess ---- */
enum { MTP_ROWS = 2 * GUESS_MAX };

/* After a step of the engine's context, before anything is made of it: MTP layers learn what it has computed.
 */
void mtp_follow(struct grappa_engine *e);
/* Whether the slot's text can be put in up to its end. */
bool mtp_ready(struct draft *d, const struct slot *s);
/* The hidden row that goes with the token at a place; NULL: none. */
const float *mtp_row_for(const struct draft *d, const struct draft_text *x, int32_t place);
/* All rows are used but the one to come, of the last token. */
void mtp_rows_used(struct draft_text *x);
/* A sequence of the engine's context has become a copy of another. */
void mtp_copied(struct grappa_engine *e, int32_t src, int32_t dst);

/* ---- speculate.c ---- */
struct guessed { /* the last guesses of a slot, to learn from */
    float right[GUESS_KINDS];
    grappa_token token[GUESS_MAX];
    int32_t n, at, kind;   /* so many from this place of the text on */
    int32_t pause, paused; /* draft models: steps until the next try, and how many there were */
    uint64_t started;      /* of which request */
};

struct speculate {
    struct row_cost cost;
    struct draft draft;
    struct offer *offers;  /* [n_slots] */
    float draft_right;     /* of all requests: what a new one begins with … */
    int32_t n_draft_right; /* … and how often that was learnt */
    struct lookup *lookups;
    struct guessed *guessed; /* [n_slots] */
};

int speculate_init(struct grappa_engine *e, struct grappa_err *err);
void speculate_release(struct grappa_engine *e);
/* Before a step is put together: fills n_draft of the slots that write and the tokens behind theirs. */
void speculate_guess(struct grappa_engine *e);
/* The step that ran took so long; only steps of those that write count. */
void speculate_timed(struct grappa_engine *e, double seconds);

#endif
