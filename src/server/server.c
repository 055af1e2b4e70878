/* The server's life: listen, load, answer until a signal comes, let what runs come to its end, clean up. */
#include "server/server.h"

#include "server/inside.h"
#include "server/run.h"
#include "server/streams.h"

#include "base/log.h"

#include <signal.h>
#include <time.h>

static int wait_signal(const sigset_t *set, double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    return sigtimedwait(set, NULL, &t);
}

/* Requests at work get the time to end; a second signal ends that. */
static void drain(struct server *s, const sigset_t *set)
{
    double until = clock_s() + s->p->grace_s;
    atomic_store(&s->draining, true);
    http_quiesce(s->http);
    while (http_active(s->http) > 0 && clock_s() < until) {
        if (wait_signal(set, 0.02) > 0)
            break;
    }
}

/* Ends whatever engines still run, so that the connections' threads get their last events. */
static void end_requests(struct server *s)
{
    runs_cancel(s);
    double until = clock_s() + 2;
    while (http_active(s->http) > 0 && clock_s() < until) {
        struct timespec t = {0, 5000000};
        nanosleep(&t, NULL);
    }
}

static int load_first(struct server *s, struct grappa_err *err)
{
    if (!s->p->model) {
        log_at(LOG_INFO, "%zu models to choose from", models_count(s->models));
        return 0;
    }
    struct model *m = models_acquire(s->models, NULL, err);
    model_release(m);
    return m ? 0 : -1;
}

int server_run(const struct server_params *p, struct grappa_err *err)
{
    struct server s = {.p = p, .started = (int64_t)time(NULL)};
    sigset_t set;
    int status = -1;
    pthread_mutex_init(&s.runs_lock, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    s.streams = streams_new();
    s.models = models_new(p, err);
    if (!s.models)
        goto cleanup;
    struct http_params http = {.server = p, .route = route_request};
    s.http = http_start(&s, &http, err);
    if (!s.http || load_first(&s, err))
        goto cleanup;
    atomic_store(&s.ready, true);
    log_at(LOG_INFO, "ready");
    while (wait_signal(&set, p->sleep_idle_s >= 0 ? 0.1 : 3600) < 0)
        models_put_to_sleep(s.models);
    log_at(LOG_INFO, "ending");
    drain(&s, &set);
    end_requests(&s);
    status = 0;
cleanup:
    http_stop(s.http);
    streams_free(s.streams);
    models_free(s.models);
    pthread_mutex_destroy(&s.runs_lock);
    return status;
}
