/* Conversations: bodies in OpenAI's form, checked, rendered, and turned into runs. The other dialects
 * translate into this form first. */
#ifndef SERVER_CHAT_H
#define SERVER_CHAT_H

#include "server/dialects.h"

/* Checks the body and renders its prompt; NULL: an error. Free with grappa_chat_free. */
struct grappa_chat *chat_open(struct exchange *x, const struct model *m, json_t *body,
                              struct grappa_err *err);
/* Everything up to the answer: a run for the body, in the dialect. Replies itself, also with errors. */
void chat_go(struct exchange *x, json_t *body, const struct dialect *d);
/* Replies with the number of tokens of the prompt. `object`: OpenAI's name of such an answer, or NULL. */
void chat_count(struct exchange *x, json_t *body, const char *object);
/* A delta as OpenAI's streams have it. */
json_t *delta_json(const struct grappa_delta *d);
/* The whole message so far, never NULL. */
json_t *part_message(struct part *p);
/* Calls fn with the body, or replies that it is none. */
void with_body(struct exchange *x, void (*fn)(struct exchange *x, json_t *body));

#endif
