/* Answers: JSON, text, and errors as llama-server has them. */
#include "server/http.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

static const char JSON_TYPE[] = "application/json; charset=utf-8";

double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int fail(struct grappa_err *err, int status, const char *fmt, ...)
{
    if (!err || err->exit_status)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    err->http_status = status;
    err->exit_status = status == 400 ? 2 : 1;
    return -1;
}

/* The `type` of an error by its status. */
static const struct {
    int status;
    const char *type;
} TYPES[] = {{400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
             {404, "not_found_error"},       {413, "invalid_request_error"}, {500, "server_error"},
             {501, "not_supported_error"},   {503, "unavailable_error"}};

json_t *error_body(int status, const char *text)
{
    const char *type = "server_error";
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        if (TYPES[i].status == status)
            type = TYPES[i].type;
    }
    json_t *message = json_string(text);
    if (!message)
        message = json_string("the message is not text");
    return json_pack("{s:i, s:o, s:s}", "code", status, "message", message, "type", type);
}

static int dump_part(const char *p, size_t n, void *user)
{
    buf_add(user, p, n);
    return ((struct buf *)user)->failed ? -1 : 0;
}

void dump_json(struct buf *out, const json_t *j)
{
    if (json_dump_callback(j, dump_part, out, JSON_COMPACT | JSON_ENCODE_ANY))
        out->failed = true;
}

void reply_json(struct exchange *x, int status, json_t *body)
{
    x->status = status;
    x->type = JSON_TYPE;
    buf_clear(&x->out);
    if (body)
        dump_json(&x->out, body);
    if (!body || x->out.failed) {
        static const char lost[] = "{\"error\":{\"code\":500,\"message\":\"the answer could not be written\","
                                   "\"type\":\"server_error\"}}";
        buf_release(&x->out);
        buf_puts(&x->out, lost);
        x->status = 500;
    }
    json_decref(body);
}

void reply_text(struct exchange *x, int status, const char *type, const void *p, size_t n)
{
    x->status = status;
    x->type = type;
    buf_clear(&x->out);
    buf_add(&x->out, p, n);
}

void reply_error(struct exchange *x, const struct grappa_err *err)
{
    int status = err->http_status ? err->http_status : 500;
    reply_json(x, status, json_pack("{s:o}", "error", error_body(status, err->text)));
}

void reply_fail(struct exchange *x, int status, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    reply_json(x, status, json_pack("{s:o}", "error", error_body(status, text)));
}
