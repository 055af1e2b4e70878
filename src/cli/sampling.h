/* What the options say about sampling, as parameters of the library. */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

#include "cli/options.h"

#include "base/buf.h"

#include <grappa-engine.h>

struct sampling {
    struct grappa_sampler_params p; /* points to what follows, and into the options */
    struct grappa_logit_bias *bias;
    char **breakers;
    struct buf grammar;
};

/* sampling_release is due either way. */
int sampling_init(struct sampling *s, const struct options *o, const struct grappa_vocab *vocab,
                  struct grappa_err *err);
void sampling_release(struct sampling *s);

/* "15043+1", "15043-1", "15043-inf". */
int parse_bias(const char *text, struct grappa_logit_bias *out, struct grappa_err *err);
/* The numbers and names alone. */
void copy_sampling_options(struct grappa_sampler_params *p, const struct options *o);

/* The grammar or schema that the options give. `text` holds it as long as it is needed. */
int grammar_of_options(const struct options *o, struct grappa_grammar_params *g, struct buf *text,
                       struct grappa_err *err);

/* Who guesses, and how many tokens: the fields of a request that speculation has. */
void copy_speculation_options(struct grappa_request_params *p, const struct options *o);

/* Texts of an option with escapes replaced, in memory of their own, NULL behind the last; `lengths` (of as
 * many, or NULL) receives their bytes. */
char **unescaped_texts(const struct options *o, const struct strings *in, size_t *lengths);
void free_texts(char **texts);

#endif
