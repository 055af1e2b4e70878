/* /cors-proxy: fetches what a page in a browser could not, since the other server does not allow it. Only
 * with
 * --ui-mcp-proxy; only headers that the page marks as meant for the other server go on. */
#include "server/dialects.h"

#include "server/server.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <strings.h>

enum { MAX_ANSWER = 64 << 20 };

static void reply_disabled(struct exchange *x)
{
    reply_json(x, 403,
               json_pack("{s:{s:s, s:s}}", "error", "message", "this feature is disabled", "type",
                         "feature_disabled"));
}

void get_tools(struct exchange *x)
{
    reply_disabled(x);
}

static void take_header(void *user, const char *name, const char *value)
{
    static const char prefix[] = "x-llama-server-proxy-header-";
    struct curl_slist **list = user;
    char line[8192];
    if (strncasecmp(name, prefix, sizeof prefix - 1) != 0 || !name[sizeof prefix - 1])
        return;
    if (snprintf(line, sizeof line, "%s: %s", name + sizeof prefix - 1, value) < (int)sizeof line)
        *list = curl_slist_append(*list, line);
}

static size_t take_body(char *p, size_t size, size_t n, void *user)
{
    struct buf *out = user;
    buf_add(out, p, size * n);
    return out->failed ? 0 : size * n;
}

static int fetch(struct exchange *x, CURL *c, const char *url, struct curl_slist *headers, char type[160],
                 struct grappa_err *err)
{
    long status = 0;
    const char *content = NULL;
    x->out.ceiling = MAX_ANSWER;
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TIMEOUT, 600L);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &x->out);
    if (strcmp(x->method, "POST") == 0) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, x->body.p ? x->body.p : "");
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)x->body.n);
    }
    CURLcode status_code = curl_easy_perform(c);
    if (status_code != CURLE_OK)
        return fail(err, 500, "can't fetch the address: %s", curl_easy_strerror(status_code));
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(c, CURLINFO_CONTENT_TYPE, &content);
    snprintf(type, 160, "%s", content ? content : "application/octet-stream");
    return (int)status;
}

void any_proxy(struct exchange *x)
{
    const char *url = exchange_query(x, "url");
    struct grappa_err err = {0};
    if (!x->srv->p->ui_proxy) {
        reply_disabled(x);
        return;
    }
    if (!url || strchr(url, '@') ||
        (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)) {
        reply_fail(x, 400, "\"url\" must be an address of http or https, without a name and password");
        return;
    }
    struct curl_slist *headers = NULL;
    exchange_headers(x, take_header, &headers);
    CURL *c = curl_easy_init();
    int status = c ? fetch(x, c, url, headers, x->own_type, &err) : fail(&err, 500, "out of memory");
    curl_easy_cleanup(c);
    curl_slist_free_all(headers);
    if (status < 0) {
        reply_error(x, &err);
        return;
    }
    x->status = status;
    x->type = x->own_type;
}
