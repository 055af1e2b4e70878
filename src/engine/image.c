/* Making the blob. Each tensor's pages, in the model file and in the blob, are let go as soon as it is
 * repacked: the page cache keeps them, the process does not. */
#include "engine/image.h"

#include "base/log.h"
#include "base/mem.h"
#include "quant/quant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* A file without a name, with room for `size` bytes; -1 when no folder has it. */
static int temporary_file(size_t size)
{
    static const char *const folders[] = {"/var/tmp", "/tmp"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int fd = open(folders[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0)
            continue;
        if (posix_fallocate(fd, 0, (off_t)size) == 0)
            return fd;
        close(fd);
    }
    return -1;
}

static int map_blob(struct image *m, size_t size, struct err *err)
{
    m->size = align_up(size ? size : 1, PAGE);
    int fd = temporary_file(m->size);
    m->on_disk = fd >= 0;
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    m->p = mmap(NULL, m->size, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0)
        close(fd);
    if (m->p == MAP_FAILED) {
        m->p = NULL;
        return err_set(err, ERR_MEMORY, "no memory for %zu MB of weights: %s", m->size >> 20,
                       strerror(errno));
    }
    if (!m->on_disk)
        log_info("no room for a temporary file of %zu MB: the weights stay in memory twice", m->size >> 20);
    return 0;
}

static void drop(const void *p, size_t n)
{
    uintptr_t first = ((uintptr_t)p + PAGE - 1) / PAGE * PAGE;
    uintptr_t end = ((uintptr_t)p + n) / PAGE * PAGE;
    if (end > first)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

/* The file's own pages in the blob's place. The bytes around the tensor on its first and last page belong to
 * its neighbours in the file and to nobody in the blob. */
static int map_tensor(const struct image *m, const struct gguf *g, const struct weights_entry *e)
{
    size_t lead = e->tensor->offset % PAGE;
    size_t size = align_up(lead + e->tensor->size, PAGE);
    void *at = (char *)m->p + e->q - lead;
    return mmap(at, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, gguf_fd(g, e->tensor->part),
                (off_t)(e->tensor->offset - lead)) == at
               ? 0
               : -1;
}

static int fill_entry(const struct image *m, const struct gguf *g, const struct weights_entry *e,
                      struct err *err)
{
    if (e->map) {
        if (map_tensor(m, g, e) == 0)
            return 0;
        return err_set(err, ERR_IO, "tensor %.*s can't be mapped: %s", STR_ARG(e->tensor->name),
                       strerror(errno));
    }
    struct quant_sizes size;
    if (quant_sizes(e->tensor->type, e->rows, e->cols, &size, err) < 0)
        return -1;
    char *p = m->p;
    quant_repack_all(e->tensor->type, e->tensor->data, e->rows, e->cols, e->row_map, p + e->q,
                     size.scale ? p + e->scale : NULL, size.min ? p + e->min : NULL);
    if (m->on_disk) {
        drop(p + e->q, size.q);
        drop(p + e->scale, size.scale);
        drop(p + e->min, size.min);
    }
    if (gguf_fd(g, e->tensor->part) >= 0)
        drop(e->tensor->data, e->tensor->size);
    return 0;
}

int image_make(struct image *m, const struct gguf *g, const struct weights *w, const struct buf *tail,
               struct image_progress progress, struct err *err)
{
    *m = (struct image){0};
    size_t at = align_up(weights_blob_size(w), 64);
    if (map_blob(m, at + tail->n, err) < 0)
        return -1;
    uint64_t total = 1, done = 0;
    for (size_t i = 0; i < weights_n_entries(w); i++)
        total += weights_entry_at(w, i)->tensor->size;
    for (size_t i = 0; i < weights_n_entries(w); i++) {
        const struct weights_entry *e = weights_entry_at(w, i);
        if (progress.fn && !progress.fn((float)done / (float)total, progress.user)) {
            err_set(err, ERR_CANCELLED, "loading was stopped");
            goto failed;
        }
        if (fill_entry(m, g, e, err) < 0)
            goto failed;
        done += e->tensor->size;
    }
    if (tail->n)
        memcpy((char *)m->p + at, tail->p, tail->n); /* NOLINT(*NonNullParamChecker): mmap gave no NULL */
    return 0;
failed:
    image_release(m);
    return -1;
}

void image_release(struct image *m)
{
    if (m->p)
        munmap(m->p, m->size);
    *m = (struct image){0};
}

static void *sweep(void *arg)
{
    struct image_sweep *s = arg;
    const struct timespec pause = {0, 5 * 1000 * 1000};
    while (!atomic_load(&s->stop)) {
        nanosleep(&pause, NULL);
        madvise(s->m->p, s->m->size, MADV_DONTNEED);
    }
    return NULL;
}

void image_sweep_start(struct image_sweep *s, const struct image *m)
{
    s->m = m;
    atomic_init(&s->stop, false);
    s->running = m->on_disk && pthread_create(&s->thread, NULL, sweep, s) == 0;
}

void image_sweep_stop(struct image_sweep *s)
{
    if (!s->running)
        return;
    atomic_store(&s->stop, true);
    pthread_join(s->thread, NULL);
    s->running = false;
}
