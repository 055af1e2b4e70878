/* -hf: the model's file by way of hub/hub.h, with a bar on a terminal. */
#include "cli/common.h"

#include "hub/hub.h"

#include <unistd.h>

struct bar {
    double start, shown;
    bool on_terminal;
    uint64_t first; /* bytes at the start, of an earlier try */
    bool begun;
};

static bool show_bar(void *user, const char *file, uint64_t done, uint64_t size)
{
    enum { WIDTH = 30 };
    struct bar *b = user;
    double now = now_s();
    if (!b->begun) {
        b->begun = true;
        b->first = done;
        b->start = now;
        log_info("fetching %s, %.1f MB", file, 1e-6 * (double)size);
    }
    if (!b->on_terminal || (now - b->shown < 0.1 && done < size))
        return !interrupted;
    b->shown = now;
    int filled = size ? (int)(WIDTH * done / size) : 0;
    double rate = now > b->start ? 1e-6 * (double)(done - b->first) / (now - b->start) : 0;
    fprintf(stderr, "\r\033[K%.40s [%.*s%*s] %3.0f %% of %.0f MB, %.1f MB/s", file, filled,
            "##############################", WIDTH - filled, "",
            size ? 100 * (double)done / (double)size : 100, 1e-6 * (double)size, rate);
    if (done >= size) {
        fprintf(stderr, "\r\033[K");
        b->begun = false; /* another part may follow */
    }
    return !interrupted;
}

int fetch_model(struct options *o, struct grappa_err *err)
{
    struct bar bar = {.on_terminal = isatty(STDERR_FILENO)};
    struct hub_params p = {.repo = o->hf_repo,
                           .file = o->hf_file,
                           .token = o->hf_token,
                           .endpoint = o->model_endpoint ? o->model_endpoint : o->hf_endpoint,
                           .offline = o->offline,
                           .progress = show_bar,
                           .user = &bar};
    struct err e = ERR_INIT;
    struct buf path = {0};
    if (hub_get(&p, &path, &e)) {
        cli_error(err, err_exit_status(e.code), "%s", e.text);
        buf_release(&path);
        return -1;
    }
    o->model = arena_strndup(&o->mem, path.p, path.n);
    buf_release(&path);
    return 0;
}
