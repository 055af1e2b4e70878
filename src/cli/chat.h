/* The conversation of `grappa run`. */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "cli/session.h"

/* Until the person leaves, or after one answer with -st. Returns the exit status. */
int chat(struct session *s, struct grappa_err *err);

#endif
