/* Files in the binary: the page, made at build time out of web/ (see cmake/assets.cmake). */
#ifndef SERVER_ASSETS_H
#define SERVER_ASSETS_H

#include <stdbool.h>
#include <stddef.h>

struct asset {
    const char *path; /* "/index.html"; "/" is that too */
    const char *type;
    const unsigned char *data;
    size_t n;
    bool gzip; /* `data` is compressed */
};

extern struct asset assets[]; /* not changed once main runs */
extern const size_t n_assets;

#endif
