/* Templates that were compiled before, with what was found out about them. Compiling one and looking at it
 * takes some ten renders, so the last few are kept, for all threads. */
#ifndef CHAT_KNOWN_H
#define CHAT_KNOWN_H

#include "chat/chat.h"

struct chat_known {    /* read-only */
    struct str source; /* as it was compiled, see adjust.h */
    struct chat_template *template;
    struct chat_caps caps;
    struct str sample; /* the rendering of format.h's probe, empty if the template refuses it */
    /* What stands before and after reasoning in an answer, with white space if the template shows it; or
     * empty. */
    struct str think_start, think_end;
    bool thinks; /* it shows reasoning, or asks for it otherwise when enable_thinking is set */
};

/* Compiles, or finds. Given back with chat_known_put. */
const struct chat_known *chat_known_get(struct str source, struct str bos, struct str eos, struct err *err);
void chat_known_put(const struct chat_known *known);

#endif
