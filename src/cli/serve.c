/* `grappa serve`: from options to the server's parameters. */
#include "cli/common.h"
#include "cli/sampling.h"

#include "server/server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* What the parameters point to and the options don't own. */
struct serving {
    struct server_params p;
    struct model_setup setup;
    struct buf keys, ssl_key, ssl_cert, template, grammar;
    const char **key_list;
    struct grappa_logit_bias *bias;
};

/* ---- keys ---- */

/* One in each line; those that begin with # are comments. */
static void split_keys(struct serving *s, const struct options *o)
{
    size_t n = o->api_keys.n, size = n + 1;
    for (size_t i = 0; i < s->keys.n; i++)
        size += s->keys.p[i] == '\n';
    s->key_list = xcalloc(size + 1, sizeof *s->key_list);
    for (size_t i = 0; i < n; i++)
        s->key_list[i] = o->api_keys.v[i];
    for (char *line = s->keys.p; line && *line;) {
        size_t len = strcspn(line, "\r\n");
        char *next = line + len + (line[len] ? 1 : 0);
        line[len] = '\0';
        if (len && *line != '#')
            s->key_list[n++] = line;
        line = next;
    }
    s->p.api_keys = (struct server_texts){s->key_list, n};
}

static int read_keys(struct serving *s, const struct options *o, struct grappa_err *err)
{
    if (o->api_key_file && read_file(o->api_key_file, &s->keys, err))
        return -1;
    split_keys(s, o);
    if (o->api_key_file && s->p.api_keys.n == o->api_keys.n)
        return cli_error(err, 2, "%s: there is no key in it", o->api_key_file);
    if (!o->ssl_key_file != !o->ssl_cert_file)
        return cli_error(err, 2, "TLS needs both, --ssl-key-file and --ssl-cert-file");
    if (o->ssl_key_file &&
        (read_file(o->ssl_key_file, &s->ssl_key, err) || read_file(o->ssl_cert_file, &s->ssl_cert, err)))
        return -1;
    s->p.ssl_key = s->ssl_key.p;
    s->p.ssl_cert = s->ssl_cert.p;
    return 0;
}

/* ---- parts of the parameters ---- */

static struct server_texts texts_of(const struct strings *s)
{
    return (struct server_texts){s->v, s->n};
}

static void set_listening(struct server_params *p, const struct options *o)
{
    bool vertex = o->aip_mode && strcmp(o->aip_mode, "PREDICTION") == 0;
    p->hosts = texts_of(&o->hosts);
    p->port = (uint16_t)(vertex ? o->aip_port : o->port);
    p->predict_route = vertex ? o->aip_predict : NULL;
    p->health_route = vertex ? o->aip_health : NULL;
    p->reuse_port = o->reuse_port;
    p->api_prefix = o->api_prefix;
    p->static_path = o->static_path;
    p->ui = o->ui;
    p->cors_origins = o->cors_origins;
    p->cors_methods = o->cors_methods;
    p->cors_headers = o->cors_headers;
    p->cors_credentials = o->cors_credentials;
    if (o->server_tools) {
        log_warn("--tools: this server runs no tools");
        if (strcmp(p->cors_origins, "*") == 0)
            p->cors_origins = "localhost";
    }
    p->timeout_s = o->timeout;
    p->ping_s = o->sse_ping;
    p->grace_s = o->grace;
    p->max_connections = o->max_connections;
    p->max_body = (size_t)o->max_body << 20;
    p->log_json = strcmp(o->log_format, "json") == 0;
    p->metrics = o->metrics;
    p->props = o->props;
    p->slots = o->slots;
    p->slot_save_path = o->slot_save_path;
    p->ui_proxy = o->ui_proxy;
    p->ui_config = o->ui_config;
    p->verbose = o->verbose > 0;
}

static void set_engine(struct server_params *p, const struct options *o)
{
    bool automatic = o->n_parallel < 1;
    p->engine = (struct grappa_engine_params){.n_ctx = o->n_ctx,
                                              .n_batch = o->n_batch < o->n_ubatch ? o->n_batch : o->n_ubatch,
                                              .n_slots = automatic ? 4 : (uint32_t)o->n_parallel,
                                              .n_queue = (uint32_t)o->max_queue,
                                              .kv_split = !automatic && !o->kv_unified,
                                              .swa_full = o->swa_full,
                                              .embeddings = o->embeddings || o->reranking};
    p->embeddings = o->embeddings || o->reranking;
    p->reranking = o->reranking || (o->embeddings && o->pooling && strcmp(o->pooling, "rank") == 0);
    p->pooling = GRAPPA_POOLING_LAST;
    static const struct {
        const char *name;
        enum grappa_pooling pooling;
    } poolings[] = {
        {"none", GRAPPA_POOLING_NONE}, {"mean", GRAPPA_POOLING_MEAN}, {"cls", GRAPPA_POOLING_CLS}};
    for (size_t i = 0; i < sizeof poolings / sizeof *poolings; i++) {
        if (o->pooling && strcmp(o->pooling, poolings[i].name) == 0)
            p->pooling = poolings[i].pooling;
    }
    p->embd_normalize = o->embd_normalize;
    struct grappa_request_params q = {0};
    copy_speculation_options(&q, o);
    p->lookup = q.lookup;
    p->n_draft = q.n_draft;
    p->n_draft_min = q.n_draft_min;
    p->draft_p_min = q.draft_p_min;
}

static int read_bias(struct serving *s, const struct options *o, struct grappa_err *err)
{
    s->bias = xcalloc(o->logit_bias.n + 1, sizeof *s->bias);
    for (size_t i = 0; i < o->logit_bias.n; i++) {
        if (parse_bias(o->logit_bias.v[i], &s->bias[i], err))
            return -1;
    }
    s->p.sampler.bias = s->bias;
    s->p.sampler.n_bias = o->logit_bias.n;
    return 0;
}

static void set_writing(struct server_params *p, const struct options *o)
{
    grappa_sampler_defaults(&p->sampler);
    copy_sampling_options(&p->sampler, o);
    if (o->dry_breakers.n) {
        p->sampler.dry_breakers = o->dry_breakers.v;
        p->sampler.n_dry_breakers = strcmp(o->dry_breakers.v[0], "none") == 0 ? 0 : (int)o->dry_breakers.n;
    }
    p->sampler.think_budget = -1;
    p->n_predict = o->n_predict < 0 ? -1 : o->n_predict;
    p->n_keep = o->n_keep;
    p->context_shift = o->context_shift;
    p->cache_prompt = o->cache_prompt;
    p->special = o->special;
    p->stop = texts_of(&o->reverse_prompts);
}

static int set_chats(struct serving *s, const struct options *o, struct grappa_err *err)
{
    static const char *const formats[] = {"auto", "none", "deepseek", "deepseek-legacy"};
    struct server_params *p = &s->p;
    p->chat_template = o->chat_template;
    if (o->chat_template_file) {
        if (read_file(o->chat_template_file, &s->template, err))
            return -1;
        p->chat_template = s->template.p ? s->template.p : "";
    }
    /* Text without any Jinja in it is a template too, which ignores the conversation; a space says that it is
     * no name of a built-in one, and the library wants to see Jinja then. */
    if (p->chat_template && strchr(p->chat_template, ' ') && !strchr(p->chat_template, '{')) {
        struct buf text = {0};
        buf_printf(&text, "%s{{''}}", p->chat_template);
        buf_release(&s->template);
        s->template = text;
        p->chat_template = text.p;
    }
    p->template_kwargs = o->chat_template_kwargs;
    p->jinja = o->jinja;
    p->prefill_assistant = o->prefill_assistant;
    for (int i = 0; i < 4; i++) {
        if (strcmp(o->reasoning_format, formats[i]) == 0)
            p->reasoning_format = (enum grappa_reasoning_format)i;
    }
    p->enable_thinking = strcmp(o->reasoning, "on") == 0 ? 1 : strcmp(o->reasoning, "off") == 0 ? -1 : 0;
    p->think_budget = o->reasoning_budget;
    p->spm_infill = o->spm_infill;
    p->infill_batch = (int32_t)(o->n_batch < INT32_MAX ? o->n_batch : INT32_MAX);
    return 0;
}

static int set_models(struct serving *s, const struct options *o, struct grappa_err *err)
{
    struct server_params *p = &s->p;
    if (model_setup_init(&s->setup, o, err))
        return -1;
    p->model = o->model;
    p->model_name = o->hf_repo;
    p->model_draft = o->model_draft;
    p->models_dir = o->models_dir;
    p->models_max = o->models_max;
    p->models_memory = (uint64_t)o->models_memory << 20;
    p->models_autoload = o->models_autoload;
    p->aliases = texts_of(&o->model_alias);
    p->tags = texts_of(&o->model_tags);
    p->sleep_idle_s = o->sleep_idle;
    p->model_params = s->setup.params;
    p->model_params.embeddings = p->embeddings;
    if (p->model && p->models_dir)
        return cli_error(err, 2, "-m and --models-dir: one file, or a folder");
    return 0;
}

int cmd_serve(const struct options *o)
{
    struct grappa_err err = {0};
    struct serving s = {0};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: server_run takes them one by one */
    if (log_get_level() < LOG_INFO && !o->log_disable)
        log_set_level(LOG_INFO); /* a line for each request */
    set_listening(&s.p, o);
    set_engine(&s.p, o);
    set_writing(&s.p, o);
    int status = 0;
    if (read_keys(&s, o, &err) || read_bias(&s, o, &err) ||
        grammar_of_options(o, &s.p.sampler.grammar, &s.grammar, &err) || set_chats(&s, o, &err) ||
        set_models(&s, o, &err) || server_run(&s.p, &err))
        status = cli_fail(&err);
    model_setup_release(&s.setup);
    buf_release(&s.keys);
    buf_release(&s.ssl_key);
    buf_release(&s.ssl_cert);
    buf_release(&s.template);
    buf_release(&s.grammar);
    free(s.key_list);
    free(s.bias);
    return status;
}
