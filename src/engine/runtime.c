/* What is one per process: OpenVINO's core, the log, the clock; and errors on their way out. */
#include "engine/engine.h"

#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int engine_fail(struct grappa_err *out, const struct err *err)
{
    if (out) {
        out->exit_status = err_exit_status(err->code);
        out->http_status = err_http_status(err->code);
        memcpy(out->text, err->text, sizeof out->text);
    }
    return -1;
}

/* Lives until the process ends: plugins keep threads and caches that are costly to make again. */
struct ov_runtime *engine_runtime(struct err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct ov_runtime *runtime;
    pthread_mutex_lock(&lock);
    if (!runtime)
        runtime = ov_open(err);
    struct ov_runtime *rt = runtime;
    pthread_mutex_unlock(&lock);
    return rt;
}

const char *grappa_openvino_version(void)
{
    return ov_version();
}

int grappa_log(int level, const char *file, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    log_set_level((enum log_level)level);
    if (file && log_set_file(file) < 0) {
        err_set(&e, ERR_IO, "log file %s: %s", file, strerror(errno));
        return engine_fail(err, &e);
    }
    return 0;
}

struct device_list {
    struct grappa_device *out;
    int n, max;
};

static void add_device(const char *name, const char *full_name, void *user)
{
    struct device_list *l = user;
    if (l->n < l->max) {
        snprintf(l->out[l->n].name, sizeof l->out[l->n].name, "%s", name);
        snprintf(l->out[l->n].full_name, sizeof l->out[l->n].full_name, "%s", full_name);
    }
    l->n++;
}

int grappa_devices(struct grappa_device *out, int max, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct device_list l = {out, 0, max};
    struct ov_runtime *rt = engine_runtime(&e);
    if (!rt || ov_each_device(rt, add_device, &l, &e) < 0)
        return engine_fail(err, &e);
    return l.n;
}

double engine_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

uint64_t engine_memory_available(void)
{
    char line[256];
    static const char key[] = "MemAvailable:";
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, sizeof key - 1) == 0) {
            kb = strtoull(line + sizeof key - 1, NULL, 10);
            break;
        }
    }
    if (f)
        fclose(f);
    return (uint64_t)kb << 10;
}
