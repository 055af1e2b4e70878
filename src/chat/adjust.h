/* What single templates need beyond the general rules: rows that are found by texts in the template's source.
 */
#ifndef CHAT_ADJUST_H
#define CHAT_ADJUST_H

#include "base/buf.h"

#include <jansson.h>

/* Appends the source with checks removed that would refuse what clients may send. */
void chat_adjust_source(struct str source, struct buf *out);
/* Changes messages in place; they are in the form of messages.h. */
void chat_adjust_messages(struct str source, json_t *messages);
/* Changes the end of a rendered prompt. */
void chat_adjust_prompt(struct str source, bool add_generation_prompt, struct buf *prompt);
/* Whether the template tells developers from the system. */
bool chat_knows_developer(struct str source);

#endif
