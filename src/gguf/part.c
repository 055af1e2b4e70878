/* From a path to mapped bytes. The map is read-only and private; nothing here looks at what is inside. */
#include "gguf/part.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_file(struct part *p, struct err *err)
{
    /* O_NONBLOCK: a FIFO is to be refused, not waited for. */
    p->fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0)
        return err_set(err, ERR_IO, "%s", strerror(errno));
    struct stat st;
    if (fstat(p->fd, &st) != 0)
        return err_set(err, ERR_IO, "%s", strerror(errno));
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_IO, "is a folder, not a GGUF file");
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_IO, "is not a regular file");
    if (st.st_size == 0)
        return err_set(err, ERR_FORMAT, "is empty, not a GGUF file");
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, p->fd, 0);
    if (bytes == MAP_FAILED)
        return err_set(err, ERR_IO, "cannot be mapped: %s", strerror(errno));
    p->bytes = bytes;
    p->size = (size_t)st.st_size;
    p->written = st.st_mtim;
    return 0;
}

int part_open(struct part *p, const char *path, struct err *err)
{
    *p = (struct part){.path = xstrdup(path), .fd = -1};
    if (map_file(p, err) == 0 && part_parse(p, err) == 0)
        return 0;
    err_prefix(err, "%s", path);
    return -1;
}

int part_changed(const struct part *p, struct err *err)
{
    struct stat st;
    if (p->fd < 0)
        return 0;
    if (fstat(p->fd, &st) != 0)
        return err_set(err, ERR_IO, "%s: %s", p->path, strerror(errno));
    if (st.st_size != (off_t)p->size)
        return err_set(err, ERR_IO, "%s: the file has %lld bytes now and had %zu when it was opened", p->path,
                       (long long)st.st_size, p->size);
    if (st.st_mtim.tv_sec != p->written.tv_sec || st.st_mtim.tv_nsec != p->written.tv_nsec)
        return err_set(err, ERR_IO, "%s: the file was written to since it was opened", p->path);
    return 0;
}

void part_close(struct part *p)
{
    if (p->fd >= 0) {
        if (p->bytes)
            munmap((void *)(uintptr_t)p->bytes, p->size);
        close(p->fd);
    }
    for (size_t i = 0; i < p->n_kv; i++)
        free((void *)(uintptr_t)p->kv[i].strings);
    free(p->kv);
    free(p->tensors);
    map_release(&p->keys);
    arena_release(&p->owned);
    free(p->path);
    *p = (struct part){.fd = -1};
}

const struct gguf_kv *part_find(const struct part *p, const char *key)
{
    uint64_t i;
    return map_get(&p->keys, str_of(key), &i) ? &p->kv[i] : NULL;
}
