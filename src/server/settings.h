/* What one request asks of the sampler and the engine: llama-server's fields, their defaults, types and
 * limits. */
#ifndef SERVER_SETTINGS_H
#define SERVER_SETTINGS_H

#include "server/fields.h"
#include "server/models.h"

/* One of "grammar_triggers"; a word that is one token stands here as that. */
struct trigger_row {
    int type; /* llama-server's number */
    const char *value;
    grappa_token token;
};

struct settings {
    const struct server_params *p;
    const struct model *model;
    struct arena mem; /* owns what the pointers below lead to */
    struct grappa_sampler_params s;
    bool verbose, timings_per_token, stream, include_usage, cache_prompt, return_tokens, return_progress;
    bool backend_sampling, post_sampling_probs;
    bool reasoning_control; /* /v1/chat/completions/control may end the thoughts */
    int32_t ping_s, n_predict, n_indent, n_keep, n_discard, n_cmpl, n_cache_reuse, n_probs, id_slot;
    int32_t n_draft, n_draft_min;
    float draft_p_min;
    int64_t t_max_predict_ms;
    struct server_texts stop;
    struct server_texts response_fields;
    bool grammar_given; /* a "schema" has no say then */
    struct trigger_row *triggers;
    size_t n_triggers;
    grappa_token *preserved; /* "preserved_tokens": what may be a trigger */
    size_t n_preserved;
    /* of chats, shown in generation_settings */
    const char *chat_format, *reasoning_format;
};

/* The enum grappa_reasoning_format of that name; -1: there is none. */
int reasoning_format_named(const char *name);

/* From the server's defaults and the fields of a request. settings_release is due either way. */
int settings_init(struct settings *s, const struct server_params *p, const struct model *m,
                  const json_t *body, struct grappa_err *err);
void settings_release(struct settings *s);
/* "generation_settings"; `brief` without the parts that may be long, as in /props and /slots. */
json_t *settings_json(const struct settings *s, bool brief);
void settings_add_stop(struct settings *s, const char *text);

#endif
