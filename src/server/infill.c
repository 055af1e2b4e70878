/* Code with a hole: /infill. */
#include "server/chat.h"

void post_infill(struct exchange *x)
{
    reply_fail(
        x, 501,
        "Infill is not supported by this model: prefix token is missing. suffix token is missing. middle "
        "token is missing. ");
}
