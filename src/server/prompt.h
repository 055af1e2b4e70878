/* Prompts as requests give them: text, ids, both mixed, an object with "prompt_string", or several of these.
 */
#ifndef SERVER_PROMPT_H
#define SERVER_PROMPT_H

#include "server/run.h"

/* Ids of one prompt (free them), NULL: 400. */
grappa_token *read_prompt_ids(const struct model *m, const json_t *prompt, bool add_special,
                              bool parse_special, size_t *n, struct grappa_err *err);
/* Calls `add` for each of one prompt or several; `add` takes over the ids. */
int each_prompt(const struct model *m, const json_t *prompt, bool add_special, bool parse_special,
                void (*add)(void *user, grappa_token *ids, size_t n), void *user, struct grappa_err *err);

#endif
