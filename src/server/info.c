/* What the server says of itself: /health, /props, /models, /slots, /metrics, /lora-adapters. */
#include "server/dialects.h"

#include "server/server.h"

#include <stdlib.h>
#include <time.h>

void get_health(struct exchange *x)
{
    reply_json(x, 200, json_pack("{s:s}", "status", "ok"));
}

/* The model in question without loading it; NULL: replied. */
static struct model *asked_model(struct exchange *x)
{
    struct grappa_err err = {0};
    struct model *m = models_find(x->srv->models, exchange_query(x, "model"), &err);
    if (!m)
        reply_error(x, &err);
    return m;
}

/* ---- /props ---- */

static json_t *default_settings(const struct server_params *p, const struct model *m)
{
    struct settings s;
    json_t *empty = json_object(), *out = NULL;
    if (settings_init(&s, p, m, empty, NULL) == 0)
        out = settings_json(&s, true);
    settings_release(&s);
    json_decref(empty);
    return out ? out : json_object();
}

static json_t *ui_settings(const struct server_params *p)
{
    json_t *j = p->ui_config ? json_loads(p->ui_config, 0, NULL) : NULL;
    return j ? j : json_object();
}

static json_t *props_json(struct server *srv, struct model *m)
{
    const struct server_params *p = srv->p;
    const struct model_info *i = &m->info;
    const char *template = p->chat_template ? p->chat_template : i->chat_template;
    size_t n = template == i->chat_template ? i->n_chat_template : template ? strlen(template) : 0;
    json_t *j = json_object();
    json_object_set_new(
        j, "default_generation_settings",
        json_pack("{s:o, s:I}", "params", default_settings(p, m), "n_ctx", (json_int_t)i->n_ctx));
    json_object_set_new(j, "total_slots", json_integer(i->n_slots));
    json_object_set_new(j, "model_alias", json_string(m->name));
    json_object_set_new(j, "model_ftype", json_string(i->type));
    json_object_set_new(j, "model_path", json_string(m->path));
    json_object_set_new(j, "modalities", json_pack("{s:b, s:b, s:b}", "vision", 0, "video", 0, "audio", 0));
    json_object_set_new(j, "media_marker", json_string("<__media__>"));
    json_object_set_new(j, "endpoint_slots", json_boolean(p->slots));
    json_object_set_new(j, "endpoint_props", json_boolean(p->props));
    json_object_set_new(j, "endpoint_metrics", json_boolean(p->metrics));
    json_object_set_new(j, "ui", json_boolean(p->ui));
    json_object_set_new(j, "ui_settings", ui_settings(p));
    json_object_set_new(j, "chat_template", text_json(template, n));
    json_object_set_new(j, "chat_template_caps",
                        i->template_caps ? json_incref(i->template_caps) : json_object());
    json_object_set_new(j, "bos_token", text_json(i->bos, strlen(i->bos)));
    json_object_set_new(j, "eos_token", text_json(i->eos, strlen(i->eos)));
    json_object_set_new(j, "build_info", json_string(FINGERPRINT));
    json_object_set_new(j, "is_sleeping", json_boolean(model_asleep(m)));
    json_object_set_new(j, "cors_proxy_enabled", json_boolean(p->ui_proxy));
    return j;
}

void get_props(struct exchange *x)
{
    const char *name = exchange_query(x, "model");
    if (models_is_folder(x->srv->models) && (!name || !*name)) {
        reply_json(x, 200,
                   json_pack("{s:s, s:s, s:b, s:o}", "role", "router", "build_info", FINGERPRINT, "ui",
                             x->srv->p->ui, "ui_settings", ui_settings(x->srv->p)));
        return;
    }
    struct model *m = asked_model(x);
    if (!m)
        return;
    if (!atomic_load(&m->known)) { /* never loaded yet: only then does this load it */
        struct grappa_err err = {0};
        struct model *held = models_acquire(x->srv->models, m->name, &err);
        if (!held) {
            reply_error(x, &err);
            return;
        }
        model_release(held);
    }
    reply_json(x, 200, props_json(x->srv, m));
}

void post_props(struct exchange *x)
{
    if (!x->srv->p->props)
        reply_fail(x, 501,
                   "This server does not support changing global properties. Start it with `--props`");
    else
        reply_json(x, 200, json_pack("{s:b}", "success", 1));
}

/* ---- /models ---- */

static json_t *names_json(const struct server_texts *t)
{
    json_t *a = json_array();
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(a, json_string(t->v[i]));
    return a;
}

static json_t *model_json(struct server *srv, struct model *m)
{
    const struct model_info *i = &m->info;
    json_t *meta = json_null();
    if (atomic_load(&m->known))
        meta = json_pack("{s:i, s:I, s:I, s:i, s:I, s:I, s:s}", "n_vocab", i->n_vocab, "n_ctx",
                         (json_int_t)i->n_ctx, "n_ctx_train", (json_int_t)i->n_ctx_train, "n_embd", i->n_embd,
                         "n_params", (json_int_t)i->n_params, "size", (json_int_t)i->size, "ftype", i->type);
    json_t *j = json_pack("{s:s, s:o, s:o, s:s, s:I, s:s, s:o}", "id", m->name, "aliases",
                          names_json(&srv->p->aliases), "tags", names_json(&srv->p->tags), "object", "model",
                          "created", (json_int_t)time(NULL), "owned_by", "llamacpp", "meta", meta);
    json_object_set_new(j, "architecture",
                        json_pack("{s:[s], s:[s]}", "input_modalities", "text", "output_modalities", "text"));
    if (models_is_folder(srv->models)) {
        json_object_set_new(j, "path", json_string(m->path));
        json_object_set_new(j, "status", json_pack("{s:s}", "value", model_state_name(m)));
    }
    return j;
}

/* Also in the form of Ollama's list, which some clients look for. */
static json_t *ollama_json(const struct model *m)
{
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:[s], s:[s], s:s, s:{s:s, s:s, s:s, s:[s], s:s, s:s}}", "name",
        m->name, "model", m->name, "modified_at", "", "size", "", "digest", "", "type", "model",
        "description", "", "tags", "", "capabilities", "completion", "parameters", "", "details",
        "parent_model", "", "format", "gguf", "family", "", "families", "", "parameter_size", "",
        "quantization_level", "");
}

void get_models(struct exchange *x)
{
    json_t *models = json_array(), *data = json_array();
    for (size_t i = 0; i < models_count(x->srv->models); i++) {
        struct model *m = models_at(x->srv->models, i);
        json_array_append_new(models, ollama_json(m));
        json_array_append_new(data, model_json(x->srv, m));
    }
    reply_json(x, 200, json_pack("{s:o, s:s, s:o}", "models", models, "object", "list", "data", data));
}

/* One of them, as OpenAI's clients ask for it. */
void get_model(struct exchange *x)
{
    static const char before[] = "/v1/models/";
    const char *name = x->path + sizeof before - 1;
    for (size_t i = 0; i < models_count(x->srv->models); i++) {
        struct model *m = models_at(x->srv->models, i);
        bool own = strcmp(m->name, name) == 0;
        for (size_t k = 0; !models_is_folder(x->srv->models) && k < x->srv->p->aliases.n; k++)
            own |= strcmp(x->srv->p->aliases.v[k], name) == 0;
        if (own) {
            reply_json(x, 200, model_json(x->srv, m));
            return;
        }
    }
    reply_fail(x, 404, "there is no model '%.128s'", name);
}

static void load_or_unload(struct exchange *x, bool load)
{
    struct grappa_err err = {0};
    const char *name = NULL;
    json_t *body = read_body(x, false, &err);
    struct model *m = NULL;
    if (!models_is_folder(x->srv->models))
        fail(&err, 501, "only a server of a folder of models loads them on request");
    if (body && member_string(body, "model", &name, &err) == 0 && !err.exit_status)
        m = models_find(x->srv->models, name, &err);
    if (m && load) {
        m = models_acquire(x->srv->models, name, &err);
        model_release(m);
    } else if (m) {
        model_unload(m, &err);
    }
    if (err.exit_status)
        reply_error(x, &err);
    else
        reply_json(x, 200, json_pack("{s:b}", "success", 1));
    json_decref(body);
}

void post_models_load(struct exchange *x)
{
    load_or_unload(x, true);
}

void post_models_unload(struct exchange *x)
{
    load_or_unload(x, false);
}

/* ---- /metrics ---- */

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static void put_metric(struct buf *out, const char *type, const char *name, const char *help, double value)
{
    buf_printf(out, "# HELP llamacpp:%s %s\n# TYPE llamacpp:%s %s\nllamacpp:%s %.10g\n", name, help, name,
               type, name, value);
}

/* The averages are over the time since the last look. */
static void write_metrics(struct model *m, struct buf *out)
{
    struct model_figures f;
    struct grappa_engine_stats before;
    model_scrape(m, &f, &before);
    const struct grappa_engine_stats *s = &f.sum;
    const struct {
        const char *type, *name, *help;
        double value;
    } rows[] = {
        {"counter", "prompt_tokens_total",
         "Tokens of prompts that were computed, without those from the cache", (double)s->prompt_tokens},
        {"counter", "prompt_tokens_cached_total", "Tokens of prompts that were in the cache",
         (double)s->cached_tokens},
        {"counter", "prompt_seconds_total", "Time spent on prompts", s->prompt_s},
        {"counter", "tokens_predicted_total", "Tokens written", (double)s->predicted_tokens},
        {"counter", "tokens_predicted_seconds_total", "Time spent on writing", s->predict_s},
        {"counter", "n_decode_total", "Steps of the model", (double)s->n_steps},
        {"counter", "n_tokens_max", "Longest sequence so far, prompt and text", (double)f.n_tokens_max},
        {"counter", "spec_decode_num_draft_tokens_total", "Tokens guessed", (double)s->drafted},
        {"counter", "spec_decode_num_accepted_tokens_total", "Tokens guessed rightly", (double)s->accepted},
        {"counter", "spec_decode_num_drafts_total", "Steps with guesses", (double)s->drafts},
        {"gauge", "prompt_tokens_seconds", "Prompt tokens per second",
         rate((double)(s->prompt_tokens - before.prompt_tokens), s->prompt_s - before.prompt_s)},
        {"gauge", "predicted_tokens_seconds", "Written tokens per second",
         rate((double)(s->predicted_tokens - before.predicted_tokens), s->predict_s - before.predict_s)},
        {"gauge", "requests_processing", "Requests at work", s->n_running},
        {"gauge", "requests_deferred", "Requests that wait", s->n_waiting},
        {"gauge", "n_busy_slots_per_decode", "Slots at work in a step, on average",
         rate((double)s->predicted_tokens, (double)s->n_steps)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        put_metric(out, rows[i].type, rows[i].name, rows[i].help, rows[i].value);
}

void get_metrics(struct exchange *x)
{
    if (!x->srv->p->metrics) {
        reply_fail(x, 501, "This server does not support metrics endpoint. Start it with `--metrics`");
        return;
    }
    struct model *m = asked_model(x);
    if (!m)
        return;
    reply_text(x, 200, "text/plain; version=0.0.4", "", 0);
    write_metrics(m, &x->out);
    snprintf(x->header[0], sizeof x->header[0], "Process-Start-Time-Unix");
    snprintf(x->header[1], sizeof x->header[1], "%lld", (long long)x->srv->started);
}

/* ---- /lora-adapters: there are none ---- */

void get_lora(struct exchange *x)
{
    reply_json(x, 200, json_array());
}

void post_lora(struct exchange *x)
{
    struct grappa_err err = {0};
    json_t *body = read_body(x, true, &err);
    if (!body)
        reply_error(x, &err);
    else if (!json_is_array(body))
        reply_fail(x, 400, "Request body must be an array");
    else if (json_array_size(body))
        reply_fail(x, 400, "there are no adapters");
    else
        reply_json(x, 200, json_pack("{s:b}", "success", 1));
    json_decref(body);
}

/* ---- what there is none of ---- */

void post_audio(struct exchange *x)
{
    reply_fail(x, 501, "The current model does not support audio input.");
}
