/* What the files of this room share: the server itself. */
#ifndef SERVER_INSIDE_H
#define SERVER_INSIDE_H

#include "server/fields.h"
#include "server/models.h"

#include <stdatomic.h>

struct server {
    const struct server_params *p;
    struct models *models;
    struct http *http;
    int64_t started; /* seconds since 1970 */
    atomic_bool ready, draining;
    pthread_mutex_t runs_lock; /* over the list of runs, and the requests they have */
    struct run *runs;
    struct streams *streams;
    bool ending; /* nothing begins any more */
};

/* The model that a body's "model" (or the address' "model") means, in memory and held. NULL: an error. */
struct model *acquire_for(struct exchange *x, const json_t *body, struct grappa_err *err);

http_handler *route_request(struct exchange *x, bool *open);
/* The built-in page or a file of --path; false: there is none of that name. */
bool reply_asset(struct exchange *x);
bool asset_exists(const struct server_params *p, const char *path);

#endif
