/* Constraints: which tokens may follow so that the text stays one of a grammar's.
 *
 * The grammars are those of rust/include/grappa_constraint.h; here they get a vocabulary, and the triggers of
 * lazy ones with llama.cpp's meaning (llama_grammar_accept_impl, b11434). */
#ifndef SAMPLER_GRAMMAR_H
#define SAMPLER_GRAMMAR_H

#include "base/err.h"
#include "vocab/vocab.h"

#include <stdint.h>

/* The bytes of a vocabulary's tokens, prepared. Shared by all grammars of the vocabulary, on any thread; what
 * is large in it is made when a grammar first needs it. */
struct grammar_vocab;

struct grammar_vocab *grammar_vocab_new(const struct vocab *v, struct err *err); /* `v` must outlive it */
void grammar_vocab_free(struct grammar_vocab *gv);                               /* grammars go first */

enum grammar_type { GRAMMAR_NONE, GRAMMAR_GBNF, GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX, GRAMMAR_LARK };

struct grammar_params { /* all-zero: none */
    enum grammar_type type;
    const char *source;
    /* A lazy one leaves the text alone until a trigger appears in it, and holds from the trigger's beginning
     * on. */
    bool lazy;
    const char *const *trigger_words;
    size_t n_trigger_words;
    /* Over all of the text; the trigger begins with the first group that took part, or with the match. */
    const char *const *trigger_patterns;
    size_t n_trigger_patterns;
    const token_id *trigger_tokens;
    size_t n_trigger_tokens;
};

struct grammar;

/* Copies what it needs. ERR_USAGE, in bounded time, when a source or a pattern is none or asks for too much.
 */
struct grammar *grammar_new(const struct grammar_vocab *gv, const struct grammar_params *p, struct err *err);
void grammar_free(struct grammar *g);
void grammar_reset(struct grammar *g);

/* A bit for each token, t % 32 of [t / 32], that may follow; NULL: all may, the trigger has not come. Valid
 * until the grammar changes; computed once. */
const uint32_t *grammar_mask(struct grammar *g);
/* The text goes on with this token. */
void grammar_accept(struct grammar *g, token_id t);
/* Nothing but the end may follow. */
bool grammar_finished(const struct grammar *g);

#endif
