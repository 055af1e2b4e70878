/* One file of a model: its bytes, and what its head says. A plain model has one part, a split one several. */
#ifndef GGUF_PART_H
#define GGUF_PART_H

#include "base/map.h"
#include "base/mem.h"
#include "gguf/gguf.h"

#include <time.h>

struct part {
    char *path; /* NULL for memory */
    int fd;     /* -1 for memory */
    const uint8_t *bytes;
    size_t size;
    struct timespec written; /* when the file was, as it was opened */

    /* Filled by part_parse. */
    uint32_t version;
    struct gguf_kv *kv;
    size_t n_kv;
    struct map keys; /* key → index into kv */
    struct gguf_tensor *tensors;
    size_t n_tensors;
    size_t data_start;  /* where tensor data begin in `bytes` */
    size_t data_end;    /* behind the last tensor, padding included if it is there */
    struct arena owned; /* keys and values that came from outside of the file */
};

/* Maps the file and parses it. Errors name the file. The part is to be closed either way. */
int part_open(struct part *p, const char *path, struct err *err);
void part_close(struct part *p);
/* See gguf_changed. */
int part_changed(const struct part *p, struct err *err);

/* Reads header, metadata and tensor directory of p->bytes. Duplicate tensor names are left to the caller, who
 * sees all parts. */
int part_parse(struct part *p, struct err *err);

/* See gguf_override. */
int part_override(struct part *p, const char *spec, struct err *err);

/* NULL when absent. */
const struct gguf_kv *part_find(const struct part *p, const char *key);

/* A name out of a file, for an error text that has to fit on a line: printf("%.*s%s", NAME_ARG(s)). */
#define NAME_SHOWN  96
#define NAME_ARG(s) (int)((s).n > NAME_SHOWN ? NAME_SHOWN : (s).n), (s).p, (s).n > NAME_SHOWN ? "..." : ""
#define NAME_FMT    "'%.*s%s'"

#endif
