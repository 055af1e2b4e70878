/* Constraints as fields of a request; readers of the table in settings.c (FIELD_OWN, `into` a struct
 * settings). */
#ifndef SERVER_CONSTRAINT_H
#define SERVER_CONSTRAINT_H

#include "server/settings.h"

int read_grammar(void *into, const json_t *j, struct grappa_err *err);
int read_json_schema(void *into, const json_t *j, struct grappa_err *err); /* after "grammar" */
int read_preserved_tokens(void *into, const json_t *j, struct grappa_err *err);
/* After "grammar_lazy" and "preserved_tokens". */
int read_triggers(void *into, const json_t *j, struct grappa_err *err);
/* "grammar", "grammar_lazy", "grammar_triggers", "preserved_tokens". */
void put_constraint(json_t *j, const struct settings *s);

#endif
