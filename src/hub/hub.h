/* Models from the Hugging Face Hub, or a server that speaks as it does: found, fetched, checked, and kept in
 * the usual cache folder (models--USER--REPO with refs, blobs and snapshots), which llama.cpp and Python's
 * huggingface_hub share. */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include "base/buf.h"
#include "base/err.h"

struct hub_params {
    const char *repo;     /* user/name, with :QUANT behind it if wanted */
    const char *file;     /* of the repository, instead of a QUANT; or NULL */
    const char *token;    /* NULL: none */
    const char *endpoint; /* NULL: the Hub itself */
    const char *cache;    /* folder; NULL: the usual one */
    bool offline;         /* only what is in the cache */
    /* Called now and then; false stops. May be NULL. */
    bool (*progress)(void *user, const char *file, uint64_t done, uint64_t size);
    void *user;
};

/* The path of the model's file (its first part), fetched if need be, in `path`. A file is fetched beside its
 * place, continued where an earlier try stopped, compared with its checksum, and only then put there. */
int hub_get(const struct hub_params *p, struct buf *path, struct err *err);

/* ---- for tests ---- */
/* Which of the names is the model for a quantisation ("" or NULL: Q4_K_M, else Q4_0, else the first); -1:
 * none. */
int hub_choose(const char *const *names, size_t n, const char *quant);
/* Whether `name` may become a path below a folder. */
bool hub_safe_path(const char *name);

#endif
