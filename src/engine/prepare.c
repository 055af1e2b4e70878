/* Masks of constrained requests, worked out beside the inference: a thread that has the samplers while the
 * engine's thread is inside a step, and gives them back before anything is sampled. */
#include "engine/schedule.h"

#include "base/mem.h"

#include <stdlib.h>

static void *work(void *arg)
{
    struct prepare *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        if (p->done == p->n) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        struct grappa_sampler *s = p->samplers[p->done];
        pthread_mutex_unlock(&p->lock);
        grappa_sampler_prepare(s);
        pthread_mutex_lock(&p->lock);
        p->done++;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void prepare_init(struct prepare *p, int32_t n_slots)
{
    *p = (struct prepare){.samplers = xcalloc((size_t)n_slots, sizeof(struct grappa_sampler *))};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
}

void prepare_release(struct prepare *p)
{
    if (!p->samplers)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->running)
        pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->samplers);
}

void prepare_start(struct prepare *p, const struct step *t)
{
    int32_t n = 0;
    pthread_mutex_lock(&p->lock);
    for (int32_t i = 0; i < t->n_parts; i++) {
        const struct slot *s = t->parts[i];
        if (s->n_out > 0 && s->r->constrained)
            p->samplers[n++] = s->r->sampler;
    }
    if (n > 0 && !p->running) /* without it each mask is made when it is needed */
        p->running = pthread_create(&p->thread, NULL, work, p) == 0;
    p->n = p->running ? n : 0;
    p->done = 0;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void prepare_wait(struct prepare *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->done < p->n)
        pthread_cond_wait(&p->changed, &p->lock);
    p->n = p->done = 0;
    pthread_mutex_unlock(&p->lock);
}
