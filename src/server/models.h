/* Models: one file, or a folder of them. Loaded when asked for, unloaded when idle for long or when another
 * needs the place; a model in use stays. */
#ifndef SERVER_MODELS_H
#define SERVER_MODELS_H

#include "server/server.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

struct models;

enum model_state { MODEL_UNLOADED, MODEL_BUSY /* on its way in or out */, MODEL_READY };

/* Figures since the server began; those of an engine that is gone stay in. */
struct model_figures {
    struct grappa_engine_stats sum;
    uint64_t n_tokens_max; /* longest sequence so far */
};

/* What is said of a model also while it is not in memory. */
struct model_info {
    uint32_t n_ctx, n_slots, n_ctx_train;
    int32_t n_vocab, n_embd;
    uint64_t n_params, size;
    char type[64], arch[64];
    char *bos, *eos, *chat_template; /* text; the template may be NULL */
    size_t n_chat_template;
    grappa_token *eog; /* tokens that end a text */
    size_t n_eog;
    json_t *template_caps;
};

/* What /slots says of the request that ran last in a slot. */
struct slot_note {
    uint64_t request;
    json_t *params;
};

struct model {
    struct models *all;
    const char *name; /* shown in answers */
    char *path;
    atomic_bool known; /* `info` is filled */
    struct model_info info;
    struct grappa_model *m, *draft; /* valid while acquired */
    struct grappa_engine *e;
    const struct grappa_vocab *v;
    struct slot_note *notes; /* by slot, under the server's runs_lock */
    /* under the lock of all */
    enum model_state state;
    int users;
    double last_used;
    uint64_t bytes;
    struct model_figures figures;       /* without the engine that runs now */
    struct grappa_engine_stats scraped; /* at the last look of /metrics */
};

/* Nothing is loaded yet. NULL: the folder can't be read. */
struct models *models_new(const struct server_params *p, struct grappa_err *err);
void models_free(struct models *all); /* nobody may use one any more */

/* The model a request means: by `name` where there are several, else the only one. NULL: 404, or it can't be
 * loaded (500), or there is no place (503). Loads it if need be. */
struct model *models_acquire(struct models *all, const char *name, struct grappa_err *err);
void model_release(struct model *m);
/* The same without loading: for what may be said of a model that sleeps. Needs no release. */
struct model *models_find(struct models *all, const char *name, struct grappa_err *err);
bool model_asleep(struct model *m);

size_t models_count(const struct models *all);
struct model *models_at(struct models *all, size_t i);
bool models_is_folder(const struct models *all);
const char *model_state_name(struct model *m);
/* Unloads one that nobody uses; -1: 400. */
int model_unload(struct model *m, struct grappa_err *err);

/* Unloads what was idle for longer than sleep_idle_s. */
void models_put_to_sleep(struct models *all);
/* Figures up to now, and as they were when this was last called. */
void model_scrape(struct model *m, struct model_figures *now, struct grappa_engine_stats *before);
/* A sequence of n tokens ran in the model. */
void model_note_length(struct model *m, uint64_t n);

#endif
