/* What a lazy grammar waits for: words, patterns and tokens in the text written so far. */
#ifndef SAMPLER_TRIGGER_H
#define SAMPLER_TRIGGER_H

#include "sampler/grammar.h"

struct trigger;

struct trigger *trigger_new(const struct grammar_params *p, struct err *err);
void trigger_free(struct trigger *t);
void trigger_reset(struct trigger *t);

/* The text goes on with a token of these bytes. True when that triggers: *start is then the byte of
 * trigger_text where the trigger begins; for a trigger token the beginning of that token. */
bool trigger_add(struct trigger *t, token_id id, struct str piece, size_t *start);

/* The text, and its tokens with the place where each ends. */
struct str trigger_text(const struct trigger *t);
struct trigger_token {
    token_id id;
    size_t end;
};
const struct trigger_token *trigger_tokens(const struct trigger *t, size_t *n);

#endif
