/* The C face of the Rust library, part two: constraints on the tokens that a model writes.
 *
 * GBNF grammars mean what they mean to llama.cpp (b11434); JSON schemas, regular expressions and Lark are
 * llguidance's. No function panics, prints, or keeps a pointer into its arguments; compiling takes bounded
 * time and memory. A vocabulary may be shared by threads, a constraint belongs to one at a time. */
#ifndef GRAPPA_CONSTRAINT_H
#define GRAPPA_CONSTRAINT_H

#include "grappa_rust.h"

enum grappa_constraint_token_kind {
    GRAPPA_CONSTRAINT_TEXT,
    GRAPPA_CONSTRAINT_CONTROL, /* its text counts for GBNF only */
    GRAPPA_CONSTRAINT_END,     /* ends the text: allowed when the grammar may end */
};

struct grappa_constraint_token {
    struct grappa_jinja_text text;
    enum grappa_constraint_token_kind kind;
};

struct grappa_constraint_vocab;

/* `n` tokens by id. The tries are made when a constraint first needs them. NULL when memory is out. */
struct grappa_constraint_vocab *grappa_constraint_vocab_new(const struct grappa_constraint_token *tokens,
                                                            size_t n);
/* Constraints made with it stay valid. */
void grappa_constraint_vocab_free(struct grappa_constraint_vocab *v);

enum grappa_constraint_language {
    GRAPPA_CONSTRAINT_GBNF,
    GRAPPA_CONSTRAINT_JSON_SCHEMA,
    GRAPPA_CONSTRAINT_REGEX,
    GRAPPA_CONSTRAINT_LARK,
};

struct grappa_constraint;

/* NULL, and one line in `error`, when the source is no such thing or asks for too much. `token_of` returns
 * the token whose text, with its angle brackets, stands in a GBNF grammar; -1 if there is none. */
struct grappa_constraint *grappa_constraint_new(const struct grappa_constraint_vocab *v,
                                                enum grappa_constraint_language language,
                                                struct grappa_jinja_text source,
                                                int32_t (*token_of)(void *ctx, struct grappa_jinja_text text),
                                                void *ctx, char *error, size_t error_size);
void grappa_constraint_free(struct grappa_constraint *c);
void grappa_constraint_reset(struct grappa_constraint *c); /* to the beginning of the text */

/* Bit t % 32 of mask[t / 32] tells whether token t may follow; there is room for all tokens. Never empty,
 * unless no token ends a text. False when a limit was met: then, and from then on, only the end may follow.
 */
bool grappa_constraint_mask(struct grappa_constraint *c, uint32_t *mask);
/* Goes on by a token; `piece` (NULL: all of it) is the part of its text that counts. False when the grammar
 * doesn't allow it: then, and from then on, only the end may follow. */
bool grappa_constraint_accept(struct grappa_constraint *c, int32_t token,
                              const struct grappa_jinja_text *piece);
/* May the text end here? */
bool grappa_constraint_accepting(struct grappa_constraint *c);
/* May nothing but the end follow? */
bool grappa_constraint_finished(const struct grappa_constraint *c);

#endif
