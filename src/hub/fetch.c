/* One file or one text; resuming, trying again, checking. */
#include "hub/fetch.h"

#include "base/log.h"

#include <curl/curl.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 4 };

static void set_common(CURL *c, const char *url, struct curl_slist *headers)
{
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L); /* libcurl keeps the token for the first host only */
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 8L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 20L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L); /* nothing at all for a minute: try again */
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "grappa");
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
}

static struct curl_slist *with_token(const char *token)
{
    char line[600];
    if (!token || !*token ||
        snprintf(line, sizeof line, "Authorization: Bearer %s", token) >= (int)sizeof line)
        return NULL;
    return curl_slist_append(NULL, line);
}

/* ---- text ---- */

static size_t to_buf(char *p, size_t size, size_t n, void *user)
{
    struct buf *out = user;
    buf_add(out, p, size * n);
    return out->failed ? 0 : size * n;
}

int fetch_text(const char *url, const char *token, struct buf *out, struct err *err)
{
    struct curl_slist *headers = with_token(token);
    CURL *c = curl_easy_init();
    long status = 0;
    if (!c) {
        curl_slist_free_all(headers);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    set_common(c, url, headers);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, to_buf);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, out);
    CURLcode code = curl_easy_perform(c);
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(c);
    curl_slist_free_all(headers);
    if (code != CURLE_OK)
        return err_set(err, ERR_IO, "%s: %s", url, curl_easy_strerror(code));
    if (status != 200)
        return err_set(err, ERR_IO, "%s: status %ld%s", url, status,
                       status == 401 ? " (no such model, or it needs a token)" : "");
    return 0;
}

/* ---- files ---- */

struct download {
    const struct fetch_params *p;
    CURL *c;
    FILE *f;
    uint64_t start; /* bytes that were there before */
    uint64_t done;
    bool checked, disk_full, stopped;
};

/* The first bytes: a server that doesn't know ranges sends the whole file again. */
static bool begin(struct download *d)
{
    long status = 0;
    curl_easy_getinfo(d->c, CURLINFO_RESPONSE_CODE, &status);
    d->checked = true;
    if (status == 200 && d->start) {
        d->done = d->start = 0;
        return fseek(d->f, 0, SEEK_SET) == 0 && ftruncate(fileno(d->f), 0) == 0;
    }
    return status == 200 || status == 206;
}

static size_t to_file(char *p, size_t size, size_t n, void *user)
{
    struct download *d = user;
    if (!d->checked && !begin(d))
        return 0;
    if (d->done + size * n > d->p->size) /* more than was announced */
        return 0;
    if (fwrite(p, 1, size * n, d->f) != size * n) {
        d->disk_full = true;
        return 0;
    }
    d->done += size * n;
    if (d->p->progress && !d->p->progress(d->p->user, d->p->name, d->done, d->p->size)) {
        d->stopped = true;
        return 0;
    }
    return size * n;
}

/* 1: whole; 0: worth another try; -1: not. */
static int one_try(struct download *d, const char *partial, struct err *err)
{
    struct curl_slist *headers = with_token(d->p->token);
    long status = 0;
    char range[32];
    d->f = fopen(partial, "ab");
    if (!d->f) {
        curl_slist_free_all(headers);
        return err_set(err, ERR_IO, "%s: %s", partial, strerror(errno));
    }
    struct stat st;
    d->start = fstat(fileno(d->f), &st) == 0 ? (uint64_t)st.st_size : 0;
    d->done = d->start;
    d->checked = false;
    CURLcode code = CURLE_OK;
    if (d->done < d->p->size) {
        set_common(d->c, d->p->url, headers);
        curl_easy_setopt(d->c, CURLOPT_WRITEFUNCTION, to_file);
        curl_easy_setopt(d->c, CURLOPT_WRITEDATA, d);
        snprintf(range, sizeof range, "%llu-", (unsigned long long)d->start);
        curl_easy_setopt(d->c, CURLOPT_RANGE,
                         d->start ? range : NULL); /* begin() sees whether it was heeded */
        curl_easy_setopt(d->c, CURLOPT_FAILONERROR, 1L);
        code = curl_easy_perform(d->c);
        curl_easy_getinfo(d->c, CURLINFO_RESPONSE_CODE, &status);
    }
    curl_slist_free_all(headers);
    if (fclose(d->f) != 0)
        d->disk_full = true;
    if (d->stopped)
        return err_set(err, ERR_CANCELLED, "stopped");
    if (d->disk_full)
        return err_set(err, ERR_IO, "%s: the disk is full", partial);
    if (status >= 400 && status < 500 && status != 408 && status != 429)
        return err_set(err, ERR_IO, "%s: status %ld", d->p->url, status);
    if (code == CURLE_OK && d->done == d->p->size)
        return 1;
    log_warn("%s: %s after %llu of %llu bytes", d->p->name, code ? curl_easy_strerror(code) : "ended",
             (unsigned long long)d->done, (unsigned long long)d->p->size);
    return 0;
}

static void put_hex(char *out, const unsigned char *raw, size_t n)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", raw[i]);
}

/* By SHA-256, or as git counts a blob: SHA-1 over a header and the content. */
static int check_sum(const struct fetch_params *p, const char *partial, struct err *err)
{
    bool sha256 = strlen(p->oid) == 64;
    gnutls_hash_hd_t h;
    unsigned char raw[32];
    char hex[65] = "", header[64];
    static char chunk[1 << 16];
    FILE *f = fopen(partial, "rb");
    if (!f || gnutls_hash_init(&h, sha256 ? GNUTLS_DIG_SHA256 : GNUTLS_DIG_SHA1) != 0) {
        if (f)
            fclose(f);
        return err_set(err, ERR_IO, "%s: can't be read again", partial);
    }
    if (!sha256) {
        int n = snprintf(header, sizeof header, "blob %llu", (unsigned long long)p->size);
        gnutls_hash(h, header, (size_t)n + 1);
    }
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        gnutls_hash(h, chunk, n);
    fclose(f);
    gnutls_hash_deinit(h, raw);
    put_hex(hex, raw, sha256 ? 32 : 20);
    if (strcasecmp(hex, p->oid) == 0)
        return 0;
    unlink(partial);
    return err_set(err, ERR_FORMAT, "%s: the checksum is wrong; it is thrown away", p->name);
}

int fetch_file(const struct fetch_params *p, struct err *err)
{
    char partial[PATH_MAX];
    if (snprintf(partial, sizeof partial, "%s.downloadInProgress", p->path) >= (int)sizeof partial)
        return err_set(err, ERR_USAGE, "%s: the path is too long", p->path);
    struct download d = {.p = p, .c = curl_easy_init()};
    if (!d.c)
        return err_set(err, ERR_MEMORY, "out of memory");
    struct stat st;
    if (stat(partial, &st) == 0 && (uint64_t)st.st_size > p->size)
        unlink(partial);
    int whole = 0;
    for (int i = 0; i < TRIES && whole == 0; i++) {
        struct timespec pause = {.tv_sec = i * i / 2, .tv_nsec = 200000000};
        if (i)
            nanosleep(&pause, NULL);
        whole = one_try(&d, partial, err);
    }
    curl_easy_cleanup(d.c);
    if (whole == 0)
        return err_set(err, ERR_IO, "%s: could not be fetched; what is there is kept for the next time",
                       p->name);
    if (whole < 0 || check_sum(p, partial, err))
        return -1;
    return rename(partial, p->path) == 0 ? 0 : err_set(err, ERR_IO, "%s: %s", p->path, strerror(errno));
}
