/* From method and path to a handler. */
#include "server/dialects.h"

#include <string.h>

static const struct route {
    const char *method, *path;
    http_handler *handler;
    bool open, asleep;
} ROUTES[] = {
#define ROUTE(method, path, handler, open, asleep) {method, path, handler, open, asleep},
#include "server/routes.def"
#undef ROUTE
};

static bool path_matches(const char *pattern, const char *path)
{
    const char *colon = strchr(pattern, ':'), *plus = strchr(pattern, '+');
    if (plus)
        return strncmp(pattern, path, (size_t)(plus - pattern)) == 0 && path[plus - pattern];
    if (!colon)
        return strcmp(pattern, path) == 0;
    size_t n = (size_t)(colon - pattern);
    return strncmp(pattern, path, n) == 0 && path[n] && !strchr(path + n, '/');
}

static void reply_not_found(struct exchange *x)
{
    reply_fail(x, 404, "File Not Found");
}

static void serve_asset(struct exchange *x)
{
    if (!reply_asset(x))
        reply_not_found(x);
}

/* A route of an option's, not of the table. */
static http_handler *optional_route(struct exchange *x, bool *open)
{
    const struct server_params *p = x->srv->p;
    bool get = strcmp(x->method, "GET") == 0;
    if (p->health_route && get && strcmp(x->path, p->health_route) == 0) {
        *open = true;
        return get_health;
    }
    if (p->predict_route && !get && strcmp(x->path, p->predict_route) == 0)
        return post_predict;
    return NULL;
}

http_handler *route_request(struct exchange *x, bool *open)
{
    const struct server_params *p = x->srv->p;
    bool get = strcmp(x->method, "GET") == 0 || strcmp(x->method, "HEAD") == 0;
    if (get && p->ui && asset_exists(p, x->path)) {
        *open = true;
        return serve_asset;
    }
    const char *method = strcmp(x->method, "HEAD") == 0 ? "GET" : x->method; /* without the body */
    http_handler *found = optional_route(x, open);
    for (size_t i = 0; i < sizeof ROUTES / sizeof *ROUTES && !found; i++) {
        const struct route *r = &ROUTES[i];
        if (strcmp(r->method, method) == 0 && path_matches(r->path, x->path)) {
            *open = r->open;
            found = r->handler;
        }
    }
    if (!found)
        return reply_not_found;
    if (!atomic_load(&x->srv->ready)) {
        reply_fail(x, 503, "Loading model");
        return NULL;
    }
    if (atomic_load(&x->srv->draining)) {
        reply_fail(x, 503, "the server is shutting down");
        return NULL;
    }
    return found;
}

struct model *acquire_for(struct exchange *x, const json_t *body, struct grappa_err *err)
{
    const char *name = exchange_query(x, "model");
    const json_t *member = body ? json_object_get(body, "model") : NULL;
    if (json_is_string(member))
        name = json_string_value(member);
    else if (member && !json_is_null(member) && models_is_folder(x->srv->models)) {
        fail(err, 400, "Field 'model': type must be string, but is %s", json_type_name(member));
        return NULL;
    }
    return models_acquire(x->srv->models, name, err);
}
