/* The models of a server: which there are, which are in memory, who uses them. One lock for all; loading and
 * unloading happen outside of it, with the model marked as busy. */
#include "server/models.h"

#include "server/http.h"

#include "base/log.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct models {
    const struct server_params *p;
    bool folder;
    struct model **list;
    size_t n;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* ---- which there are ---- */

static void add_model(struct models *all, const char *name, const char *path)
{
    struct stat st;
    struct model *m = xcalloc(1, sizeof *m);
    m->all = all;
    m->name = xstrdup(name);
    m->path = xstrdup(path);
    m->bytes = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    all->list = xrealloc(all->list, (all->n + 1) * sizeof(struct model *));
    all->list[all->n++] = m;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

/* Of a split file only the first part counts, under the name without the count. A projector of images is
 * none. */
static bool model_file_name(const char *file, char *out, size_t size)
{
    if (!has_suffix(file, ".gguf") || strncmp(file, "mmproj", 6) == 0)
        return false;
    snprintf(out, size, "%.*s", (int)(strlen(file) - 5), file);
    const char *of = strstr(out, "-of-");
    if (!of || of - out < 6 || strlen(of) != 9)
        return true;
    if (strncmp(of - 6, "-00001", 6) != 0)
        return false;
    out[of - 6 - out] = '\0';
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct model *const *)a)->name, (*(struct model *const *)b)->name);
}

/* Files in the folder, and in its folders (a model of several parts has one of its own). */
static int scan(struct models *all, const char *dir, int depth, struct grappa_err *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return fail(err, 500, "--models-dir %s: %s", dir, strerror(errno));
    struct dirent *e;
    while ((e = readdir(d))) {
        char path[4096], name[256];
        struct stat st;
        if (e->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path ||
            stat(path, &st))
            continue;
        if (S_ISDIR(st.st_mode) && depth == 0)
            scan(all, path, 1, NULL);
        else if (S_ISREG(st.st_mode) && model_file_name(e->d_name, name, sizeof name))
            add_model(all, name, path);
    }
    closedir(d);
    return 0;
}

static const char *least(const struct server_texts *t)
{
    const char *best = NULL;
    for (size_t i = 0; i < t->n; i++)
        best = !best || strcmp(t->v[i], best) < 0 ? t->v[i] : best;
    return best;
}

struct models *models_new(const struct server_params *p, struct grappa_err *err)
{
    struct models *all = xcalloc(1, sizeof *all);
    all->p = p;
    all->folder = !p->model;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    if (p->model) {
        const char *alias = least(&p->aliases);
        add_model(all, alias ? alias : p->model_name ? p->model_name : p->model, p->model);
    } else if (p->models_dir && scan(all, p->models_dir, 0, err)) {
        models_free(all);
        return NULL;
    }
    if (all->n)
        qsort(all->list, all->n, sizeof(struct model *), by_name);
    return all;
}

/* ---- what is said of one ---- */

static char *piece_text(const struct grappa_vocab *v, grappa_token t)
{
    char piece[256];
    size_t n = t >= 0 ? grappa_token_piece(v, t, true, piece, sizeof piece - 1) : 0;
    piece[n < sizeof piece ? n : sizeof piece - 1] = '\0';
    return xstrdup(piece);
}

static uint64_t file_number(const struct grappa_file *f, const char *arch, const char *name)
{
    char key[160];
    struct grappa_kv kv;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    for (size_t i = 0; i < grappa_file_n_kv(f); i++) {
        grappa_file_kv(f, i, &kv);
        if (strcmp(kv.key, key) == 0)
            return strtoull(kv.value, NULL, 10);
    }
    return 0;
}

/* What the template can do is found out by rendering with it; a file without one that works has no say here.
 */
static void learn_template(struct model *m)
{
    struct grappa_chat_params p = {.chat_template = m->all->p->chat_template,
                                   .messages = "[{\"role\": \"user\", \"content\": \"a\"}]",
                                   .add_generation_prompt = true};
    struct grappa_chat *c = grappa_chat_new(m->v, &p, NULL);
    const char *caps = c ? grappa_chat_caps(c) : NULL;
    m->info.template_caps = caps ? json_loads(caps, 0, NULL) : NULL;
    grappa_chat_free(c);
}

static void learn(struct model *m)
{
    struct model_info *i = &m->info;
    struct grappa_file_info file;
    grappa_file_info(grappa_model_file(m->m), &file);
    memcpy(i->type, file.type, sizeof i->type);
    memcpy(i->arch, file.arch, sizeof i->arch);
    i->n_params = file.n_params;
    i->size = file.size;
    i->n_embd = (int32_t)file_number(grappa_model_file(m->m), file.arch, "embedding_length");
    i->n_vocab = grappa_vocab_n_tokens(m->v);
    i->n_ctx_train = grappa_model_n_ctx_train(m->m);
    i->n_ctx = grappa_engine_n_ctx_slot(m->e);
    i->n_slots = grappa_engine_n_slots(m->e);
    m->notes = xcalloc(i->n_slots + 1, sizeof *m->notes);
    i->bos = piece_text(m->v, grappa_vocab_bos(m->v));
    i->eos = piece_text(m->v, grappa_vocab_eos(m->v));
    size_t n = 0;
    const char *source = grappa_vocab_chat_template(m->v, NULL, &n);
    if (source) {
        i->chat_template = xcalloc(n + 1, 1);
        memcpy(i->chat_template, source, n);
        i->n_chat_template = n;
    }
    i->eog = xcalloc(64, sizeof *i->eog);
    for (int32_t t = 0; t < i->n_vocab && i->n_eog < 64; t++) {
        if (grappa_vocab_is_eog(m->v, t))
            i->eog[i->n_eog++] = t;
    }
    learn_template(m);
    atomic_store(&m->known, true);
}

/* ---- in and out of memory; the model is busy and the lock is not held ---- */

static void add_stats(struct grappa_engine_stats *sum, const struct grappa_engine_stats *s)
{
    sum->n_steps += s->n_steps;
    sum->n_requests += s->n_requests;
    sum->n_done += s->n_done;
    sum->n_cancelled += s->n_cancelled;
    sum->prompt_tokens += s->prompt_tokens;
    sum->cached_tokens += s->cached_tokens;
    sum->predicted_tokens += s->predicted_tokens;
    sum->drafted += s->drafted;
    sum->accepted += s->accepted;
    sum->drafts += s->drafts;
    sum->prompt_s += s->prompt_s;
    sum->predict_s += s->predict_s;
    sum->infer_s += s->infer_s;
    sum->host_s += s->host_s;
    sum->n_running = s->n_running;
    sum->n_waiting = s->n_waiting;
    sum->n_blocks = s->n_blocks;
    sum->n_blocks_used = s->n_blocks_used;
    sum->n_blocks_cached = s->n_blocks_cached;
}

static void close_model(struct model *m)
{
    if (m->e) {
        struct grappa_engine_stats s;
        grappa_engine_stats(m->e, &s);
        s.n_running = s.n_waiting = 0;
        add_stats(&m->figures.sum, &s);
    }
    grappa_engine_free(m->e);
    grappa_model_free(m->draft);
    grappa_model_free(m->m);
    m->e = NULL;
    m->draft = m->m = NULL;
    m->v = NULL;
}

/* A load goes on unless the server is told to end meanwhile. */
static bool not_ending(float done, void *user)
{
    sigset_t pending;
    (void)done;
    (void)user;
    return sigpending(&pending) != 0 ||
           !(sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

static int open_model(struct model *m, struct grappa_err *err)
{
    const struct server_params *p = m->all->p;
    struct grappa_model_params params = p->model_params;
    params.progress = not_ending;
    struct grappa_engine_params engine = p->engine;
    double start = clock_s();
    m->m = grappa_model_load(m->path, &params, err);
    if (!m->m)
        return -1;
    m->v = grappa_model_vocab(m->m);
    if (p->model_draft) {
        params.mtp = false;
        m->draft = grappa_model_load(p->model_draft, &params, err);
        if (!m->draft)
            goto failed;
        engine.draft = m->draft;
    }
    m->e = grappa_engine_new(m->m, &engine, err);
    if (!m->e)
        goto failed;
    if (!m->known)
        learn(m);
    if (p->context_shift && grappa_model_is_recurrent(m->m))
        log_at(LOG_WARN, "no --context-shift for %s: its recurrent layers can't forget", m->name);
    log_at(LOG_INFO, "%s is ready after %.2f s", m->name, clock_s() - start);
    return 0;
failed:
    close_model(m);
    return -1;
}

static void set_state(struct model *m, enum model_state s)
{
    m->state = s;
    m->last_used = clock_s();
    pthread_cond_broadcast(&m->all->changed);
}

/* With the lock held, which it lets go meanwhile. */
static void unload_locked(struct model *m)
{
    set_state(m, MODEL_BUSY);
    pthread_mutex_unlock(&m->all->lock);
    close_model(m);
    pthread_mutex_lock(&m->all->lock);
    set_state(m, MODEL_UNLOADED);
}

static int load_locked(struct model *m, struct grappa_err *err)
{
    set_state(m, MODEL_BUSY);
    pthread_mutex_unlock(&m->all->lock);
    struct grappa_err e = {0};
    int status = open_model(m, &e);
    pthread_mutex_lock(&m->all->lock);
    set_state(m, status ? MODEL_UNLOADED : MODEL_READY);
    return status ? fail(err, 500, "%s", e.text) : 0;
}

/* ---- places ---- */

/* Whether one more model fits; else the one to go first, if any can. */
static bool fits(struct models *all, const struct model *m, struct model **victim)
{
    const struct server_params *p = all->p;
    uint64_t bytes = m->bytes;
    int n = 1;
    *victim = NULL;
    for (size_t i = 0; i < all->n; i++) {
        struct model *o = all->list[i];
        if (o == m || o->state == MODEL_UNLOADED)
            continue;
        n++;
        bytes += o->bytes;
        if (o->state == MODEL_READY && o->users == 0 && (!*victim || o->last_used < (*victim)->last_used))
            *victim = o;
    }
    return (p->models_max == 0 || n <= p->models_max) &&
           (p->models_memory == 0 || bytes <= p->models_memory || n == 1);
}

static int make_place(struct models *all, struct model *m, struct grappa_err *err)
{
    struct model *victim;
    while (all->folder && !fits(all, m, &victim)) {
        if (!victim)
            return fail(err, 503, "no place for %s: all models in memory are in use", m->name);
        log_at(LOG_INFO, "%s makes place for %s", victim->name, m->name);
        unload_locked(victim);
    }
    return 0;
}

/* ---- finding and using ---- */

struct model *models_find(struct models *all, const char *name, struct grappa_err *err)
{
    if (!all->folder)
        return all->list[0];
    if (!name || !*name) {
        if (all->n == 1)
            return all->list[0];
        fail(err, 400, "the request must name a model");
        return NULL;
    }
    for (size_t i = 0; i < all->n; i++) {
        if (strcmp(all->list[i]->name, name) == 0)
            return all->list[i];
    }
    fail(err, 404, "model '%s' not found", name);
    return NULL;
}

struct model *models_acquire(struct models *all, const char *name, struct grappa_err *err)
{
    struct model *m = models_find(all, name, err);
    if (!m)
        return NULL;
    pthread_mutex_lock(&all->lock);
    int status = 0;
    while (m->state != MODEL_READY && status == 0) {
        if (m->state == MODEL_BUSY)
            pthread_cond_wait(&all->changed, &all->lock);
        else if (all->folder && !all->p->models_autoload)
            status = fail(err, 400, "model '%s' is not loaded", m->name);
        else if ((status = make_place(all, m, err)) == 0 && m->state == MODEL_UNLOADED)
            status = load_locked(m, err);
    }
    if (status == 0)
        m->users++;
    pthread_mutex_unlock(&all->lock);
    return status ? NULL : m;
}

void model_release(struct model *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->all->lock);
    m->users--;
    m->last_used = clock_s();
    pthread_cond_broadcast(&m->all->changed);
    pthread_mutex_unlock(&m->all->lock);
}

bool model_asleep(struct model *m)
{
    pthread_mutex_lock(&m->all->lock);
    bool asleep = m->state == MODEL_UNLOADED;
    pthread_mutex_unlock(&m->all->lock);
    return asleep;
}

int model_unload(struct model *m, struct grappa_err *err)
{
    int status = 0;
    pthread_mutex_lock(&m->all->lock);
    if (m->state != MODEL_READY)
        status = fail(err, 400, "model '%s' is not loaded", m->name);
    else if (m->users)
        status = fail(err, 400, "model '%s' is in use", m->name);
    else
        unload_locked(m);
    pthread_mutex_unlock(&m->all->lock);
    return status;
}

void models_put_to_sleep(struct models *all)
{
    int after = all->p->sleep_idle_s;
    if (after < 0)
        return;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->n; i++) {
        struct model *m = all->list[i];
        if (m->state == MODEL_READY && m->users == 0 && clock_s() - m->last_used >= after) {
            log_at(LOG_INFO, "%s goes to sleep", m->name);
            unload_locked(m);
        }
    }
    pthread_mutex_unlock(&all->lock);
}

size_t models_count(const struct models *all)
{
    return all->n;
}

struct model *models_at(struct models *all, size_t i)
{
    return all->list[i];
}

bool models_is_folder(const struct models *all)
{
    return all->folder;
}

const char *model_state_name(struct model *m)
{
    static const char *const names[] = {"unloaded", "loading", "loaded"};
    pthread_mutex_lock(&m->all->lock);
    const char *name = names[m->state];
    pthread_mutex_unlock(&m->all->lock);
    return name;
}

/* ---- figures ---- */

void model_scrape(struct model *m, struct model_figures *out, struct grappa_engine_stats *before)
{
    pthread_mutex_lock(&m->all->lock);
    *out = m->figures;
    if (m->state == MODEL_READY) {
        struct grappa_engine_stats s;
        grappa_engine_stats(m->e, &s);
        add_stats(&out->sum, &s);
    }
    *before = m->scraped;
    m->scraped = out->sum;
    pthread_mutex_unlock(&m->all->lock);
}

void model_note_length(struct model *m, uint64_t n)
{
    pthread_mutex_lock(&m->all->lock);
    if (n > m->figures.n_tokens_max)
        m->figures.n_tokens_max = n;
    pthread_mutex_unlock(&m->all->lock);
}

static void free_model(struct model *m)
{
    close_model(m);
    free((char *)m->name);
    for (uint32_t i = 0; m->notes && i < m->info.n_slots; i++)
        json_decref(m->notes[i].params);
    free(m->notes);
    free(m->path);
    free(m->info.bos);
    free(m->info.eos);
    free(m->info.chat_template);
    free(m->info.eog);
    json_decref(m->info.template_caps);
    free(m);
}

void models_free(struct models *all)
{
    if (!all)
        return;
    for (size_t i = 0; i < all->n; i++)
        free_model(all->list[i]);
    free(all->list);
    pthread_cond_destroy(&all->changed);
    pthread_mutex_destroy(&all->lock);
    free(all);
}
