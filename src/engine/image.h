/* The blob of a model's constants in memory: made by the plan, handed to OpenVINO, and given back to the
 * kernel as soon as the plugin has packed its own copy.
 *
 * It is a shared mapping of an unlinked temporary file, so that its pages can leave memory whenever they are
 * not in use and come back when the plugin packs a matrix once more for another kind of step; tensors that
 * OpenVINO reads as they are in the file are mapped straight from it. Without room on disk it is anonymous
 * memory. */
#ifndef ENGINE_IMAGE_H
#define ENGINE_IMAGE_H

#include "arch/weights.h"
#include "base/buf.h"

#include <pthread.h>
#include <stdatomic.h>

struct image {
    void *p;
    size_t size;
    bool on_disk; /* pages may be dropped */
};

struct image_progress {
    bool (*fn)(float done, void *user); /* false stops */
    void *user;
};

/* Makes and fills the blob: the plan's entries, then `tail` (the graph's own constants). */
int image_make(struct image *m, const struct gguf *g, const struct weights *w, const struct buf *tail,
               struct image_progress progress, struct err *err);
void image_release(struct image *m);

/* While a sweep runs, a thread lets the blob's pages go every few milliseconds; those still in use come back
 * from the file when they are touched. Around compilation and the first inferences, when the plugin reads
 * every matrix once to pack it, this keeps the blob from being resident beside the packed copy. */
struct image_sweep {
    const struct image *m;
    pthread_t thread;
    atomic_bool stop;
    bool running;
};
void image_sweep_start(struct image_sweep *s, const struct image *m);
void image_sweep_stop(struct image_sweep *s);

#endif
