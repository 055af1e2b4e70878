/* HTTP: connections, limits, keys, CORS, whole and streamed answers. Knows nothing of models.
 *
 * Each connection has a thread of libmicrohttpd's. A handler runs on it and may block; while it waits for the
 * engine it also watches the connection (exchange_wait), so that a client who leaves is noticed at once. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include "grappa.h"

#include "base/buf.h"

#include <jansson.h>

struct server;
struct http;
struct MHD_Connection;

/* One request and its answer. Belongs to its connection's thread. */
struct exchange {
    struct server *srv;
    struct MHD_Connection *conn;
    int fd; /* the connection's socket, to watch */
    uint64_t id;
    double start; /* clock_s */
    const char *method;
    const char *path; /* behind the prefix */
    struct buf body;
    int timeout_s;
    bool early; /* answered before the body was read */
    /* the answer */
    int status;
    const char *type; /* content type, static or own_type */
    char own_type[160];
    struct buf out;
    /* A streamed answer: makes more of `out` (may block); false when this was all. */
    bool (*next)(struct exchange *x, void *user, struct buf *out);
    void (*end)(struct exchange *x, void *user); /* always called once, also for whole answers */
    void *user;
    bool streaming, done;
    /* The client of a streamed answer has gone: true if somebody takes the exchange over, makes what is left
     * of the answer, and calls exchange_finish. NULL: it ends. */
    bool (*orphaned)(struct exchange *x);
    char *own; /* method and path, once the connection is gone */
    struct http *http;
    size_t sent; /* bytes of `out` that went out */
    /* for the log */
    int32_t n_prompt, n_cached, n_predicted;
    double prompt_s, predict_s;
    const char *finish;
    char model[64];
    char header[2][160]; /* up to one more header line: name, value */
};

typedef void http_handler(struct exchange *x);

struct http_params {
    const struct server_params *server;
    /* Chooses what answers a request; NULL after it has answered itself (404, 503, …). `open`: needs no key.
     */
    http_handler *(*route)(struct exchange *x, bool *open);
};

/* Listens and answers from then on; NULL when it can't. The error names the address. */
struct http *http_start(struct server *srv, const struct http_params *params, struct grappa_err *err);
/* No new connections; those that are there go on. */
void http_quiesce(struct http *h);
/* Ends all; waits for the connections' threads. */
void http_stop(struct http *h);
/* Handlers at work now, and answers still being sent. */
int http_active(const struct http *h);

/* ---- answers ---- */
/* Takes over `body`; NULL (out of memory, or text that is not UTF-8) becomes a 500. */
void reply_json(struct exchange *x, int status, json_t *body);
void reply_text(struct exchange *x, int status, const char *type, const void *p, size_t n);
/* {"error": {"code", "message", "type"}}, by err->http_status. */
void reply_error(struct exchange *x, const struct grappa_err *err);
/* The same with a text made here. */
void reply_fail(struct exchange *x, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
json_t *error_body(int status, const char *text); /* what stands in "error" */
void dump_json(struct buf *out, const json_t *j);

/* ---- requests ---- */
const char *exchange_query(struct exchange *x, const char *name);  /* of the address; NULL: not there */
const char *exchange_header(struct exchange *x, const char *name); /* NULL: not there */
/* Calls fn for every header line. */
void exchange_headers(struct exchange *x, void (*fn)(void *user, const char *name, const char *value),
                      void *user);

/* Waits until the event counter `efd` (which is read) is up, the client has gone, or the time is over. */
enum waited { WAITED_EVENT, WAITED_GONE, WAITED_TIMEOUT };
enum waited exchange_wait(struct exchange *x, int efd, int timeout_ms);

/* The end of an exchange that somebody took over. */
void exchange_finish(struct exchange *x);

double clock_s(void);
/* Fills `err` unless it is set; returns -1. */
int fail(struct grappa_err *err, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
