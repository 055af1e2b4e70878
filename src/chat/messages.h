/* Messages and tools of a request: OpenAI's JSON in, the form that templates are made for out.
 *
 * What a client may send is wider than what templates expect: content that is null, absent, a text or a list
 * of parts; arguments of a call as JSON text or as an object; a role for developers. Which form a template
 * wants is in its capabilities (chat.h). The rules are llama-server's; fields that it doesn't know are left
 * in place, as Hugging Face does. */
#ifndef CHAT_MESSAGES_H
#define CHAT_MESSAGES_H

#include "chat/chat.h"

#include <jansson.h>

/* The array of messages, checked, in one form: content is a text or a non-empty list of text parts, fields
 * that are null are gone, and so are empty lists of calls; arguments are JSON text. NULL: ERR_USAGE, the text
 * names the message by its number. json_decref is the caller's. */
json_t *chat_messages_parse(struct str json, struct err *err);
/* The same for tools; each has a description and parameters. Both absent and empty give NULL without an
 * error. */
json_t *chat_tools_check(struct str json, struct err *err);

/* Changes the messages to what this template wants. */
int chat_messages_fit(json_t *messages, const struct chat_caps *caps, bool knows_developer, struct err *err);

/* The content of a message as one text: parts joined by newlines. Appends. */
void chat_message_text(const json_t *message, struct buf *out);

/* Small readings of a message; NULL or "" when absent. */
const char *chat_message_role(const json_t *message);
json_t *chat_message_calls(const json_t *message); /* borrowed */

/* Parses JSON of any kind; `what` is named in errors. */
json_t *chat_json(struct str json, const char *what, struct err *err);
/* Appends the compact JSON text of a value. */
void chat_json_text(const json_t *value, struct buf *out);

#endif
