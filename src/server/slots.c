/* /slots: what runs in them; saving, restoring, erasing. */
#include "server/dialects.h"

#include "server/run.h"
#include "server/server.h"

#include <limits.h>
#include <stdlib.h>

enum { MAX_SLOTS = 1024 };

/* What the request that runs, or ran last, asked for; of one that runs, whether it wrote a new line. */
static json_t *slot_params(struct server *srv, const struct model *m, const struct grappa_slot *s,
                           bool *has_new_line)
{
    json_t *params = NULL;
    pthread_mutex_lock(&srv->runs_lock);
    const struct part *p = runs_find(srv, m, s->request);
    const struct slot_note *n = &m->notes[s->id];
    if (p) {
        params = settings_json(&p->run->s, true);
        *has_new_line = p->has_new_line;
    } else if (n->request == s->request) {
        params = json_incref(n->params);
    }
    pthread_mutex_unlock(&srv->runs_lock);
    return params ? params : json_object();
}

/* Of a request that has ended its parameters are left, and nothing of what it did, as with llama-server. */
static json_t *slot_json(struct server *srv, const struct model *m, const struct grappa_slot *s)
{
    json_t *j = json_pack("{s:i, s:i, s:b, s:b}", "id", s->id, "n_ctx", s->n_ctx, "speculative",
                          s->speculative, "is_processing", s->busy);
    bool has_new_line = false;
    if (s->request == 0)
        return j;
    json_object_set_new(j, "id_task", json_integer((json_int_t)s->request));
    json_object_set_new(j, "n_prompt_tokens", json_integer(s->n_held));
    json_object_set_new(j, "n_prompt_tokens_processed", json_integer(s->busy ? s->n_computed : 0));
    json_object_set_new(j, "n_prompt_tokens_cache", json_integer(s->busy ? s->n_cached : 0));
    json_object_set_new(j, "params", slot_params(srv, m, s, &has_new_line));
    json_object_set_new(j, "next_token",
                        json_pack("[{s:b, s:b, s:i, s:i}]", "has_next_token", s->busy, "has_new_line",
                                  s->busy && has_new_line, "n_remain", s->busy ? s->n_remaining : -1,
                                  "n_decoded", s->busy ? s->n_predicted : 0));
    return j;
}

void get_slots(struct exchange *x)
{
    struct grappa_err err = {0};
    if (!x->srv->p->slots) {
        reply_fail(x, 501, "This server does not support slots endpoint. Start it with `--slots`");
        return;
    }
    struct model *m = acquire_for(x, NULL, &err);
    if (!m) {
        reply_error(x, &err);
        return;
    }
    struct grappa_slot *slots = xcalloc(MAX_SLOTS, sizeof *slots);
    int n = grappa_engine_slots(m->e, slots, MAX_SLOTS), idle = 0;
    json_t *a = json_array();
    for (int i = 0; i < n && i < MAX_SLOTS; i++) {
        json_array_append_new(a, slot_json(x->srv, m, &slots[i]));
        idle += !slots[i].busy;
    }
    free(slots);
    model_release(m);
    const char *strict = exchange_query(x, "fail_on_no_slot");
    if (strict && *strict && idle == 0) {
        json_decref(a);
        reply_fail(x, 503, "no slot available");
        return;
    }
    reply_json(x, 200, a);
}

/* ---- actions ---- */

/* A plain name: no folder, nothing hidden, no character that a file system or a shell takes for something
 * else. */
static bool good_file_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > 255 || *name == '.' || *name == ' ' || name[n - 1] == '.' || name[n - 1] == ' ' ||
        strstr(name, ".."))
        return false;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c < 0x20 || *c == 0x7f || strchr("/\\:*?\"<>|", *c))
            return false;
    }
    return true;
}

static int slot_path(struct exchange *x, const json_t *body, const char **name, char path[PATH_MAX],
                     struct grappa_err *err)
{
    if (member_string(body, "filename", name, err))
        return -1;
    if (!*name)
        return fail(err, 400, "\"filename\" is required");
    if (!good_file_name(*name))
        return fail(err, 400, "Invalid filename");
    if (snprintf(path, PATH_MAX, "%s/%s", x->srv->p->slot_save_path, *name) >= PATH_MAX)
        return fail(err, 400, "Invalid filename");
    return 0;
}

static json_t *save_slot(struct exchange *x, struct model *m, int id, const json_t *body,
                         struct grappa_err *err)
{
    char path[PATH_MAX];
    const char *name = NULL;
    uint64_t bytes = 0;
    double start = clock_s();
    if (slot_path(x, body, &name, path, err))
        return NULL;
    int64_t n = grappa_engine_slot_save(m->e, id, path, &bytes, err);
    return n < 0 ? NULL
                 : json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", id, "filename", name, "n_saved",
                             (json_int_t)n, "n_written", (json_int_t)bytes, "timings", "save_ms",
                             1e3 * (clock_s() - start));
}

static json_t *restore_slot(struct exchange *x, struct model *m, int id, const json_t *body,
                            struct grappa_err *err)
{
    char path[PATH_MAX];
    const char *name = NULL;
    uint64_t bytes = 0;
    double start = clock_s();
    if (slot_path(x, body, &name, path, err))
        return NULL;
    struct grappa_err why = {0};
    int64_t n = grappa_engine_slot_restore(m->e, id, path, &bytes, &why);
    if (n < 0) {
        fail(err, 400, "Unable to restore slot: %.400s", why.text);
        return NULL;
    }
    return json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", id, "filename", name, "n_restored",
                     (json_int_t)n, "n_read", (json_int_t)bytes, "timings", "restore_ms",
                     1e3 * (clock_s() - start));
}

static json_t *erase_slot(struct exchange *x, struct model *m, int id, const json_t *body,
                          struct grappa_err *err)
{
    (void)x;
    (void)body;
    int64_t n = grappa_engine_slot_erase(m->e, id, err);
    return n < 0 ? NULL : json_pack("{s:i, s:I}", "id_slot", id, "n_erased", (json_int_t)n);
}

static const struct {
    const char *name;
    json_t *(*act)(struct exchange *x, struct model *m, int id, const json_t *body, struct grappa_err *err);
    bool has_body;
} ACTIONS[] = {{"save", save_slot, true}, {"restore", restore_slot, true}, {"erase", erase_slot, false}};

static json_t *act_on_slot(struct exchange *x, struct model *m, const json_t *body, size_t action,
                           struct grappa_err *err)
{
    char *end;
    const char *text = strrchr(x->path, '/') + 1;
    long id = strtol(text, &end, 10);
    if (end == text || *end || id < 0 || id >= (long)m->info.n_slots) {
        fail(err, 400, "Invalid slot ID");
        return NULL;
    }
    return ACTIONS[action].act(x, m, (int)id, body, err);
}

void post_slot(struct exchange *x)
{
    struct grappa_err err = {0};
    const char *name = exchange_query(x, "action");
    size_t action = 0, n = sizeof ACTIONS / sizeof *ACTIONS;
    if (!x->srv->p->slot_save_path) {
        reply_fail(x, 501, "This server does not support slots action. Start it with `--slot-save-path`");
        return;
    }
    while (action < n && strcmp(ACTIONS[action].name, name ? name : "") != 0)
        action++;
    if (action == n) {
        reply_fail(x, 400, "Invalid action");
        return;
    }
    json_t *body = ACTIONS[action].has_body ? read_body(x, false, &err) : json_object();
    struct model *m = body ? acquire_for(x, body, &err) : NULL;
    json_t *answer = m ? act_on_slot(x, m, body, action, &err) : NULL;
    model_release(m);
    json_decref(body);
    if (answer)
        reply_json(x, 200, answer);
    else
        reply_error(x, &err);
}
