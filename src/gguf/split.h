/* Models in several files, as llama-gguf-split writes them: NAME-00001-of-00003.gguf and so on, each a whole
 * GGUF file with its own directory, tied together by the keys split.no, split.count, split.tensors.count. */
#ifndef GGUF_SPLIT_H
#define GGUF_SPLIT_H

#include "gguf/part.h"

struct split {
    uint32_t no, count; /* this part, from 0; parts in all, 1 for a model in one file */
    uint32_t n_tensors; /* in all parts together; 0: not said */
};

/* What a part says of itself. */
int split_read(const struct part *p, struct split *s, struct err *err);

/* Given the part at parts[s->no], opens all others into parts[s->count] and checks that they belong together.
 * Errors name the part's file. parts[] is zeroed before, and its elements are to be closed either way. */
int split_open_others(struct part *parts, const struct split *s, struct err *err);

#endif
