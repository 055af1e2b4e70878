/* The dialects' handlers, and what they share. Each row of routes.def names one of these. */
#ifndef SERVER_DIALECTS_H
#define SERVER_DIALECTS_H

#include "server/inside.h"
#include "server/prompt.h"
#include "server/run.h"

#define FINGERPRINT "b" GRAPPA_VERSION "-grappa"

#define ROUTE(method, path, handler, open, asleep) http_handler handler;
#include "server/routes.def"
#undef ROUTE
http_handler post_predict; /* its path is an option */

/* A run with its settings read from the body; NULL: replied with an error. The run belongs to the exchange.
 */
struct run *begin_run(struct exchange *x, const json_t *body, const struct dialect *d);
json_t *native_whole(struct part *p);
json_t *openai_usage(const struct part *p);
json_t *join_choices(json_t *answers);
void stream_failed(struct part *p, const struct event *e, struct buf *out);
void run_infill(struct exchange *x, json_t *body, grappa_token *ids, size_t n); /* takes over ids */

#endif
