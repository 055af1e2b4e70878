/* The HTTP server: llama-server's endpoints, fields and errors, on the engine of grappa-engine.h.
 *
 * server_run listens, loads the model (or looks through a folder of models), answers until a signal comes,
 * and cleans up. Everything in the parameters belongs to the caller and must outlive the call. Errors are the
 * public struct grappa_err: this room is a user of the library like any other. */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "grappa-chat.h"
#include "grappa-engine.h"
#include "grappa.h"

struct server_texts {
    const char *const *v;
    size_t n;
};

struct server_params {
    /* ---- listening ---- */
    struct server_texts hosts; /* addresses, or paths that end in ".sock" */
    uint16_t port;             /* 0: any */
    bool reuse_port;
    const char *api_prefix;  /* NULL: none */
    const char *static_path; /* NULL: the built-in page */
    bool ui;
    struct server_texts api_keys;   /* none: nobody needs one */
    const char *ssl_key, *ssl_cert; /* PEM, the text itself; NULL: no TLS */
    const char *cors_origins, *cors_methods, *cors_headers;
    bool cors_credentials;
    int timeout_s, ping_s, grace_s;
    int max_connections;
    size_t max_body; /* bytes */
    bool log_json;
    /* ---- endpoints ---- */
    bool metrics, props, slots;
    const char *slot_save_path; /* NULL: slots are not saved */
    const char *predict_route;  /* of Vertex AI; NULL: not there */
    const char *health_route;   /* another path of /health, or NULL */
    bool ui_proxy;
    const char *ui_config; /* JSON object, or NULL */
    bool verbose;          /* answers carry "__verbose" */
    /* ---- models ---- */
    const char *model;      /* a file; NULL: models_dir */
    const char *model_name; /* shown in answers when there is no alias */
    const char *model_draft;
    const char *models_dir;
    int models_max;
    uint64_t models_memory; /* bytes of weights; 0: no bound */
    bool models_autoload;
    struct server_texts aliases, tags;
    struct grappa_model_params model_params;
    struct grappa_engine_params engine;
    int sleep_idle_s; /* -1: never */
    /* ---- what requests begin with ---- */
    struct grappa_sampler_params sampler;
    int32_t n_predict, n_keep;
    bool context_shift, cache_prompt, special;
    struct server_texts stop;
    int32_t n_draft, n_draft_min; /* see grappa_request_params */
    float draft_p_min;
    bool lookup;
    bool embeddings, reranking;
    enum grappa_pooling pooling;
    int embd_normalize;
    /* ---- chats ---- */
    const char *chat_template, *template_kwargs;
    bool jinja, prefill_assistant;
    enum grappa_reasoning_format reasoning_format;
    int enable_thinking; /* 0: as the template has it, 1, -1 */
    int32_t think_budget;
    bool spm_infill;
    int32_t infill_batch; /* tokens of prefix and suffix together */
};

/* Returns once a signal (SIGINT, SIGTERM) has ended it and all is cleaned up. The signals must be blocked in
 * all threads when it is called. -1: it never got to answer. */
int server_run(const struct server_params *params, struct grappa_err *err);

#endif
