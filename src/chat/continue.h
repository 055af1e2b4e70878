/* The answer that a prompt opens with: the assistant's last message, to be continued. */
#ifndef CHAT_CONTINUE_H
#define CHAT_CONTINUE_H

#include "base/buf.h"

#include <jansson.h>

struct chat_opening {
    struct str source; /* of the template */
    /* What the template puts at the end of a prompt to ask for an answer. */
    struct str generation_prompt;
    /* Around reasoning, with the white space that belongs to them; empty: the model isn't known to reason. */
    struct str think_start, think_end;
};

/* Appends the opening of an answer that goes on from `message`: its reasoning, and unless there is nothing
 * but reasoning, what ends that, and its content. */
void chat_continue(const struct chat_opening *o, const json_t *message, struct buf *prompt);

#endif
