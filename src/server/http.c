/* Requests on their way in and out: libmicrohttpd's callbacks. Which bytes of a request are taken, when it is
 * refused before it is read, and how an answer goes out. */
#include "server/http.h"

#include "server/listen.h"
#include "server/server.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_HOSTS = 16,
    HEADER_MEMORY = 64 << 10, /* request line and headers of a connection; more is a 431 */
    STREAM_BLOCK = 16 << 10,
    KEEP_ALIVE_S = 75 /* how long a connection may stay without a request */
};

struct http {
    struct server *srv;
    struct http_params params;
    const struct server_params *p;
    struct MHD_Daemon *daemons[MAX_HOSTS];
    size_t n_daemons;
    atomic_int active;
    atomic_ullong next_id;
};

/* ---- the life of an exchange ---- */

static void exchange_free(struct exchange *x)
{
    if (x->end)
        x->end(x, x->user);
    buf_release(&x->body);
    buf_release(&x->out);
    free(x->own);
    free(x);
}

static struct exchange *exchange_new(struct http *h, struct MHD_Connection *conn, const char *method)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->srv = h->srv;
    x->http = h;
    x->conn = conn;
    x->fd = info ? info->connect_fd : -1;
    x->id = atomic_fetch_add(&h->next_id, 1) + 1;
    x->start = clock_s();
    x->timeout_s = h->p->timeout_s;
    x->method = method;
    x->body.ceiling = h->p->max_body;
    x->out.ceiling = (size_t)1 << 30;
    return x;
}

/* The time a connection may be idle begins anew. libmicrohttpd counts the time a handler took as idle too, so
 * this is due after every wait. */
static void restart_timeout(struct exchange *x, int seconds)
{
    MHD_set_connection_option(x->conn, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    MHD_set_connection_option(x->conn, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)seconds);
}

/* ---- keys and origins ---- */

/* In a time that depends on the lengths only. */
static bool same_secret(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned char differ = na != nb;
    for (size_t i = 0; i < nb; i++)
        differ |= (unsigned char)((i < na ? a[i] : 0) ^ b[i]);
    return differ == 0;
}

static bool key_is_good(struct exchange *x, const struct server_params *p)
{
    static const char bearer[] = "Bearer ";
    if (p->api_keys.n == 0)
        return true;
    const char *key = exchange_header(x, "Authorization");
    if (!key || !*key)
        key = exchange_header(x, "X-Api-Key");
    if (!key)
        return false;
    if (strncmp(key, bearer, sizeof bearer - 1) == 0)
        key += sizeof bearer - 1;
    bool good = false;
    for (size_t i = 0; i < p->api_keys.n; i++)
        good |= same_secret(key, strlen(key), p->api_keys.v[i], strlen(p->api_keys.v[i]));
    return good;
}

static bool origin_is_local(const char *origin)
{
    const char *host = strstr(origin, "://");
    if (!host)
        return false;
    host += 3;
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (strlen(local[i]) == n && strncmp(host, local[i], n) == 0)
            return host[n] == '\0' || host[n] == ':' || host[n] == '/';
    }
    return false;
}

static void add_cors(struct exchange *x, const struct server_params *p, struct MHD_Response *r)
{
    const char *origin = exchange_header(x, "Origin"), *allow = p->cors_origins;
    if (p->cors_credentials && strcmp(p->cors_origins, "*") == 0)
        allow = origin ? origin : "";
    else if (strcmp(p->cors_origins, "localhost") == 0)
        allow = origin && origin_is_local(origin) ? origin : NULL;
    if (allow)
        MHD_add_response_header(r, "Access-Control-Allow-Origin", allow);
    if (strcmp(x->method, "OPTIONS") == 0) {
        MHD_add_response_header(r, "Access-Control-Allow-Credentials",
                                p->cors_credentials ? "true" : "false");
        MHD_add_response_header(r, "Access-Control-Allow-Methods", p->cors_methods);
        MHD_add_response_header(r, "Access-Control-Allow-Headers", p->cors_headers);
    }
}

/* ---- answers on their way ---- */

static ssize_t stream_read(void *user, uint64_t pos, char *to, size_t max)
{
    struct exchange *x = user;
    (void)pos;
    while (x->sent == x->out.n) {
        if (x->done)
            return MHD_CONTENT_READER_END_OF_STREAM;
        buf_clear(&x->out);
        x->sent = 0;
        x->done = !x->next(x, x->user, &x->out);
        restart_timeout(x, x->timeout_s);
        if (x->out.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = x->out.n - x->sent;
    n = n < max ? n : max;
    memcpy(to, x->out.p + x->sent, n);
    x->sent += n;
    return (ssize_t)n;
}

static enum MHD_Result send_answer(struct http *h, struct exchange *x)
{
    struct MHD_Response *r;
    if (x->streaming)
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, stream_read, x, NULL);
    else
        r = MHD_create_response_from_buffer(x->out.n, x->out.p ? x->out.p : (char *)"",
                                            MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    MHD_add_response_header(r, "Server", "grappa");
    if (x->type)
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->type);
    if (x->streaming) {
        MHD_add_response_header(r, "Cache-Control", "no-cache");
        MHD_add_response_header(r, "X-Accel-Buffering", "no"); /* proxies shall not hold it back */
    }
    for (size_t i = 0; i < 2; i += 2) {
        if (x->header[i][0])
            MHD_add_response_header(r, x->header[i], x->header[i + 1]);
    }
    add_cors(x, h->p, r);
    enum MHD_Result ok = MHD_queue_response(x->conn, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return ok;
}

static void answer(struct http *h, struct exchange *x)
{
    bool open = false;
    if (x->body.failed) {
        reply_fail(x, 413, "the request is larger than %zu bytes", h->p->max_body);
        return;
    }
    if (strcmp(x->method, "OPTIONS") == 0) { /* browsers ask before they send a key */
        reply_text(x, 200, "text/html", "", 0);
        return;
    }
    http_handler *handler = h->params.route(x, &open);
    if (!open && !key_is_good(x, h->p)) {
        buf_clear(&x->out);
        reply_fail(x, 401, "Invalid API Key");
        return;
    }
    if (handler)
        handler(x);
}

static enum MHD_Result respond(struct http *h, struct exchange *x)
{
    MHD_set_connection_option(x->conn, MHD_CONNECTION_OPTION_TIMEOUT,
                              0u); /* a handler takes the time it takes */
    answer(h, x);
    restart_timeout(x, h->p->timeout_s);
    return send_answer(h, x);
}

/* ---- requests on their way ---- */

/* NULL when the path is outside the prefix. */
static const char *behind_prefix(const struct server_params *p, const char *path)
{
    size_t n = p->api_prefix ? strlen(p->api_prefix) : 0;
    if (n == 0)
        return path;
    if (strncmp(path, p->api_prefix, n) != 0 || (path[n] && path[n] != '/'))
        return NULL;
    return path[n] ? path + n : "/";
}

/* What is a little too large is read to its end, for clients that don't look at an answer before; the rest is
 * refused at once. */
static bool announced_too_large(struct exchange *x, const struct server_params *p)
{
    const char *text = exchange_header(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (!text)
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, NULL, 10);
    return errno || n / 8 > p->max_body;
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n_upload, void **place)
{
    struct http *h = user;
    struct exchange *x = *place;
    (void)version;
    if (!x) {
        x = exchange_new(h, conn, method);
        if (!x)
            return MHD_NO;
        *place = x;
        atomic_fetch_add(&h->active, 1);
        restart_timeout(x, h->p->timeout_s);
        x->path = behind_prefix(h->p, path);
        if (!x->path)
            x->path = ""; /* no such file, with whatever body */
        if (announced_too_large(x, h->p)) {
            x->early = true;
            reply_fail(x, 413, "the request is larger than %zu bytes", h->p->max_body);
            return send_answer(h, x);
        }
        return MHD_YES;
    }
    if (*n_upload) {
        buf_add(&x->body, upload, *n_upload); /* beyond the ceiling it is read and let go */
        *n_upload = 0;
        return MHD_YES;
    }
    x->path = behind_prefix(h->p, path);
    x->path = x->path ? x->path : "";
    x->method = method;
    return x->early ? MHD_YES : respond(h, x);
}

static void log_request(const struct http *h, const struct exchange *x, double now);

void exchange_finish(struct exchange *x)
{
    struct http *h = x->http;
    void (*end)(struct exchange *, void *) = x->end;
    x->end = NULL;
    if (end)
        end(x, x->user); /* may still fill in figures for the log */
    log_request(h, x, clock_s());
    exchange_free(x);
    atomic_fetch_sub(&h->active, 1);
}

/* What a connection takes along when it goes. */
static bool survives(struct exchange *x)
{
    if (!x->orphaned || !x->streaming || x->done)
        return false;
    size_t room = strlen(x->method) + strlen(x->path) + 2;
    x->own = xmalloc(room);
    snprintf(x->own, room, "%s%c%s", x->method, 0, x->path);
    x->path = x->own + strlen(x->method) + 1;
    x->method = x->own;
    x->conn = NULL;
    x->fd = -1;
    return x->orphaned(x);
}

static void on_completed(void *user, struct MHD_Connection *conn, void **place,
                         enum MHD_RequestTerminationCode code)
{
    struct exchange *x = *place;
    (void)user;
    (void)conn;
    if (!x)
        return;
    *place = NULL;
    bool gone = code != MHD_REQUEST_TERMINATED_COMPLETED_OK;
    if (gone && code != MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN && survives(x))
        return;
    if (gone && !x->finish)
        x->finish = "gone";
    if (!gone)
        restart_timeout(x, KEEP_ALIVE_S);
    exchange_finish(x);
}

static void on_message(void *user, const char *fmt, va_list ap)
{
    char line[512];
    (void)user;
    vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    log_debug("http: %s", line);
}

/* ---- the line for each request ---- */

static void log_request_json(const struct exchange *x, double now)
{
    json_t *j = json_pack("{s:I, s:s, s:s, s:i, s:f}", "id", (json_int_t)x->id, "method", x->method, "path",
                          x->path, "status", x->status, "ms", 1e3 * (now - x->start));
    if (j && x->n_prompt)
        json_object_update_new(j,
                               json_pack("{s:i, s:i, s:i, s:f, s:f}", "prompt_tokens", x->n_prompt,
                                         "cached_tokens", x->n_cached, "completion_tokens", x->n_predicted,
                                         "prompt_ms", 1e3 * x->prompt_s, "predicted_ms", 1e3 * x->predict_s));
    if (j && *x->model)
        json_object_set_new(j, "model", json_string(x->model));
    if (j && x->finish)
        json_object_set_new(j, "finish", json_string(x->finish));
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    if (text)
        log_at(LOG_INFO, "%s", text);
    free(text);
    json_decref(j);
}

static void log_request(const struct http *h, const struct exchange *x, double now)
{
    if (log_get_level() < LOG_INFO)
        return;
    if (h->p->log_json) {
        log_request_json(x, now);
        return;
    }
    char tokens[160] = "", finish[48] = "";
    if (x->n_prompt)
        snprintf(tokens, sizeof tokens, ", %d+%d tokens (%d cached), prompt %.0f ms, text %.0f ms",
                 x->n_prompt, x->n_predicted, x->n_cached, 1e3 * x->prompt_s, 1e3 * x->predict_s);
    if (x->finish)
        snprintf(finish, sizeof finish, ", %s", x->finish);
    log_at(LOG_INFO, "#%llu %s %.128s %d in %.0f ms%s%s", (unsigned long long)x->id, x->method, x->path,
           x->status, 1e3 * (now - x->start), tokens, finish);
}

/* ---- start and end ---- */

static int start_daemon(struct http *h, int fd, struct grappa_err *err)
{
    const struct server_params *p = h->p;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)p->ssl_key},
                                   {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)p->ssl_cert},
                                   {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                     MHD_USE_ITC | MHD_USE_ERROR_LOG | (p->ssl_key ? MHD_USE_TLS : 0);
    struct MHD_Daemon *d = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)p->max_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(p->timeout_s < KEEP_ALIVE_S ? p->timeout_s : KEEP_ALIVE_S),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_MEMORY, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        h, MHD_OPTION_ARRAY, p->ssl_key ? tls : plain, MHD_OPTION_END);
    if (!d) {
        close(fd);
        return fail(err, 500,
                    p->ssl_key ? "can't start the server with this TLS key and certificate"
                               : "can't start the server");
    }
    h->daemons[h->n_daemons++] = d;
    return 0;
}

struct http *http_start(struct server *srv, const struct http_params *params, struct grappa_err *err)
{
    struct http *h = xcalloc(1, sizeof *h);
    h->srv = srv;
    h->params = *params;
    h->p = params->server;
    if (h->p->hosts.n > MAX_HOSTS) {
        fail(err, 400, "--host: more than %d addresses", MAX_HOSTS);
        goto failed;
    }
    for (size_t i = 0; i < h->p->hosts.n; i++) {
        int fd = listen_on(h->p->hosts.v[i], h->p->port, h->p->reuse_port, h->p->hosts.n > 1,
                           h->p->ssl_key != NULL, err);
        if (fd < 0 || start_daemon(h, fd, err))
            goto failed;
    }
    return h;
failed:
    http_stop(h);
    return NULL;
}

void http_quiesce(struct http *h)
{
    for (size_t i = 0; i < h->n_daemons; i++) {
        int fd = MHD_quiesce_daemon(h->daemons[i]);
        if (fd >= 0)
            close(fd);
    }
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n_daemons; i++)
        MHD_stop_daemon(h->daemons[i]);
    while (http_active(h) > 0) { /* those that were taken over */
        struct timespec t = {0, 5000000};
        nanosleep(&t, NULL);
    }
    free(h);
}

int http_active(const struct http *h)
{
    return atomic_load(&h->active);
}

/* ---- what handlers ask ---- */

const char *exchange_query(struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->conn, MHD_GET_ARGUMENT_KIND, name);
}

const char *exchange_header(struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, name);
}

struct each_header {
    void (*fn)(void *user, const char *name, const char *value);
    void *user;
};

static enum MHD_Result on_header(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct each_header *e = user;
    (void)kind;
    e->fn(e->user, name, value ? value : "");
    return MHD_YES;
}

void exchange_headers(struct exchange *x, void (*fn)(void *user, const char *name, const char *value),
                      void *user)
{
    struct each_header e = {fn, user};
    MHD_get_connection_values(x->conn, MHD_HEADER_KIND, on_header, &e);
}

enum waited exchange_wait(struct exchange *x, int efd, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = efd, .events = POLLIN}, {.fd = x->fd, .events = POLLRDHUP}};
    int n;
    do
        n = poll(fds, 2, timeout_ms);
    while (n < 0 && errno == EINTR);
    if (fds[0].revents & POLLIN) {
        uint64_t count;
        if (read(efd, &count, sizeof count) < 0 && errno != EAGAIN)
            return WAITED_GONE;
        return WAITED_EVENT;
    }
    if (fds[1].revents & (POLLRDHUP | POLLHUP | POLLERR))
        return WAITED_GONE;
    return WAITED_TIMEOUT;
}
