/* Files for browsers: those in the binary, or those of the folder of --path. */
#include "server/assets.h"
#include "server/inside.h"
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 64 << 20 };

static const struct {
    const char *suffix, *type;
} TYPES[] = {{".html", "text/html; charset=utf-8"},
             {".js", "text/javascript; charset=utf-8"},
             {".mjs", "text/javascript; charset=utf-8"},
             {".css", "text/css; charset=utf-8"},
             {".json", "application/json"},
             {".webmanifest", "application/manifest+json"},
             {".svg", "image/svg+xml"},
             {".png", "image/png"},
             {".ico", "image/x-icon"},
             {".woff2", "font/woff2"},
             {".wasm", "application/wasm"},
             {".txt", "text/plain; charset=utf-8"}};

static const char *type_of(const char *path)
{
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        size_t m = strlen(TYPES[i].suffix);
        if (n > m && strcmp(path + n - m, TYPES[i].suffix) == 0)
            return TYPES[i].type;
    }
    return "application/octet-stream";
}

/* Nothing that climbs out of the folder; a trailing slash means its index.html. */
static bool file_path(const char *root, const char *path, char out[PATH_MAX])
{
    if (*path != '/' || strstr(path, "/..") || strstr(path, "/."))
        return false;
    size_t n = strlen(path);
    return snprintf(out, PATH_MAX, "%s%s%s", root, path, path[n - 1] == '/' ? "index.html" : "") < PATH_MAX;
}

static int open_file(const char *root, const char *path, struct stat *st)
{
    char name[PATH_MAX];
    if (!file_path(root, path, name))
        return -1;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, st) || !S_ISREG(st->st_mode) || st->st_size > MAX_FILE)) {
        close(fd);
        return -1;
    }
    return fd;
}

static const struct asset *find_asset(const char *path)
{
    const char *want = strcmp(path, "/") == 0 ? "/index.html" : path;
    for (size_t i = 0; i < n_assets; i++) {
        if (strcmp(assets[i].path, want) == 0)
            return &assets[i];
    }
    return NULL;
}

bool asset_exists(const struct server_params *p, const char *path)
{
    if (!p->static_path)
        return find_asset(path) != NULL;
    struct stat st;
    int fd = open_file(p->static_path, path, &st);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool reply_file(struct exchange *x, const char *root)
{
    struct stat st;
    int fd = open_file(root, x->path, &st);
    if (fd < 0)
        return false;
    const char *name = x->path[strlen(x->path) - 1] == '/' ? ".index.html" : x->path;
    reply_text(x, 200, type_of(name), "", 0);
    char chunk[1 << 14];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0)
        buf_add(&x->out, chunk, (size_t)n);
    close(fd);
    return n == 0;
}

bool reply_asset(struct exchange *x)
{
    if (x->srv->p->static_path)
        return reply_file(x, x->srv->p->static_path);
    const struct asset *a = find_asset(x->path);
    if (!a)
        return false;
    const char *accepts = exchange_header(x, "Accept-Encoding");
    if (a->gzip && (!accepts || !strstr(accepts, "gzip"))) {
        reply_text(x, 415, "text/plain", "this page is compressed by gzip", 31);
        return true;
    }
    reply_text(x, 200, a->type, a->data, a->n);
    if (a->gzip) {
        snprintf(x->header[0], sizeof x->header[0], "Content-Encoding");
        snprintf(x->header[1], sizeof x->header[1], "gzip");
    }
    return true;
}
