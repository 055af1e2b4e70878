/* Bytes over HTTP, by libcurl. */
#ifndef HUB_FETCH_H
#define HUB_FETCH_H

#include "base/buf.h"
#include "base/err.h"

struct fetch_params {
    const char *url, *token; /* token: NULL for none */
    const char *path;        /* where the file shall lie in the end */
    const char *name;        /* for people */
    const char *oid;         /* SHA-256 in hex, or git's SHA-1 of a blob */
    uint64_t size;
    bool (*progress)(void *user, const char *file, uint64_t done, uint64_t size);
    void *user;
};

/* A small answer in memory; its status must be 200. */
int fetch_text(const char *url, const char *token, struct buf *out, struct err *err);
/* A file, in path.downloadInProgress until it is whole and its checksum is right. Tries again a few times,
 * from where it stopped. */
int fetch_file(const struct fetch_params *p, struct err *err);

#endif
