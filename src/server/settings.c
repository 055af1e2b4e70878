/* The table of fields, read into struct settings and written from it. */
#include "server/settings.h"

#include "server/constraint.h"

#include <math.h>
#include <stdlib.h>

#define MAX_I32 2147483647.0

/* ---- fields with a form of their own ---- */

/* Texts of an array. */
static int read_texts(struct settings *s, struct server_texts *out, const json_t *a, struct grappa_err *err)
{
    size_t n = json_array_size(a), kept = 0;
    const char **v = arena_alloc(&s->mem, (n + 1) * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_array_get(a, i);
        if (!json_is_string(e) || strlen(json_string_value(e)) != json_string_length(e))
            return fail(err, 400, "entries must be strings, but one is %s", json_type_name(e));
        if (json_string_length(e))
            v[kept++] = arena_strndup(&s->mem, json_string_value(e), json_string_length(e));
    }
    out->v = v;
    out->n = kept;
    return 0;
}

static int read_stop(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    struct server_texts texts = {0};
    if (json_is_string(j)) {
        const char **v = arena_alloc(&s->mem, sizeof *v);
        v[0] = arena_strndup(&s->mem, json_string_value(j), json_string_length(j));
        texts = (struct server_texts){v, *v[0] ? 1 : 0};
    } else if (!json_is_array(j)) {
        return fail(err, 400, "type must be string or array, but is %s", json_type_name(j));
    } else if (read_texts(s, &texts, j, err)) {
        return -1;
    }
    if (texts.n) /* without any, the server's own stay */
        s->stop = texts;
    return 0;
}

static int read_response_fields(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    if (!json_is_array(j))
        return fail(err, 400, "type must be array, but is %s", json_type_name(j));
    return read_texts(s, &s->response_fields, j, err);
}

static int read_breakers(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    struct server_texts texts = {0};
    if (!json_is_array(j) || json_array_size(j) == 0)
        return fail(err, 400, "must be an array of strings that is not empty");
    if (read_texts(s, &texts, j, err))
        return -1;
    s->s.dry_breakers = texts.v;
    s->s.n_dry_breakers = (int)texts.n;
    return 0;
}

static int read_samplers(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    struct buf names = {0};
    if (json_is_string(j)) {
        s->s.sampling_seq = arena_strndup(&s->mem, json_string_value(j), json_string_length(j));
        return 0;
    }
    if (!json_is_array(j))
        return fail(err, 400, "type must be array or string, but is %s", json_type_name(j));
    struct server_texts texts = {0};
    if (read_texts(s, &texts, j, err))
        return -1;
    for (size_t i = 0; i < texts.n; i++)
        buf_printf(&names, "%s%s", i ? ";" : "", texts.v[i]);
    s->s.samplers = arena_strndup(&s->mem, names.p ? names.p : "", names.n);
    s->s.sampling_seq = NULL;
    buf_release(&names);
    return 0;
}

/* ---- biases ---- */

static void add_bias(struct settings *s, grappa_token t, float bias)
{
    /* Grown by doubling: the arena keeps what was there before. */
    size_t n = s->s.n_bias;
    if ((n & (n - 1)) == 0) {
        size_t size = n ? 2 * n : 1;
        struct grappa_logit_bias *v = arena_alloc(&s->mem, size * sizeof *v);
        if (n)
            memcpy(v, s->s.bias, n * sizeof *v);
        s->s.bias = v;
    }
    ((struct grappa_logit_bias *)s->s.bias)[n] = (struct grappa_logit_bias){t, bias};
    s->s.n_bias = n + 1;
}

static void add_text_bias(struct settings *s, const char *text, size_t n, float bias)
{
    grappa_token ids[512];
    int64_t got = grappa_tokenize(s->model->v, text, n, false, false, ids, 512, NULL);
    for (int64_t i = 0; i < got && i < 512; i++)
        add_bias(s, ids[i], bias);
}

static bool bias_value(const json_t *j, float *out)
{
    *out = json_is_number(j) ? (float)json_number_value(j) : -INFINITY;
    return json_is_number(j) || json_is_false(j);
}

static void add_id_bias(struct settings *s, json_int_t id, float bias)
{
    if (id >= 0 && id < s->model->info.n_vocab)
        add_bias(s, (grappa_token)id, bias);
}

static int read_logit_bias(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    const char *key;
    json_t *value;
    float bias;
    s->s.n_bias = 0;
    if (json_is_object(j)) {
        json_object_foreach((json_t *)j, key, value)
        {
            char *end;
            long id = strtol(key, &end, 10);
            if (!bias_value(value, &bias))
                continue;
            if (*key && !*end)
                add_id_bias(s, id, bias);
            else
                add_text_bias(s, key, strlen(key), bias);
        }
        return 0;
    }
    if (!json_is_array(j))
        return fail(err, 400, "type must be array or object, but is %s", json_type_name(j));
    for (size_t i = 0; i < json_array_size(j); i++) {
        const json_t *pair = json_array_get(j, i), *what = json_array_get(pair, 0);
        if (json_array_size(pair) != 2 || !bias_value(json_array_get(pair, 1), &bias))
            continue;
        if (json_is_integer(what))
            add_id_bias(s, json_integer_value(what), bias);
        else if (json_is_string(what))
            add_text_bias(s, json_string_value(what), json_string_length(what), bias);
    }
    return 0;
}

/* Only chats have thoughts to treat; here it is what generation_settings say. "auto" is no other than
 * deepseek. */
static const char *const REASONING[] = {"deepseek", "none", "deepseek", "deepseek-legacy"};

int reasoning_format_named(const char *name)
{
    static const char *const names[] = {"auto", "none", "deepseek", "deepseek-legacy"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) == 0)
            return i;
    }
    return -1;
}

static int read_reasoning_format(void *into, const json_t *j, struct grappa_err *err)
{
    struct settings *s = into;
    if (!json_is_string(j))
        return fail(err, 400, "type must be string, but is %s", json_type_name(j));
    int format = reasoning_format_named(json_string_value(j));
    if (format < 0)
        return fail(err, 400, "unknown format %.64s", json_string_value(j));
    s->reasoning_format = REASONING[format];
    return 0;
}

static int read_lora(void *into, const json_t *j, struct grappa_err *err)
{
    (void)into;
    if (!json_is_array(j))
        return fail(err, 400, "must be an array of objects with 'id' and 'scale' fields");
    if (json_array_size(j))
        return fail(err, 400, "there are no adapters");
    return 0;
}

/* ---- the table ---- */

#define BOOL_FIELD(names, at)                                                                                \
    {                                                                                                        \
        names, FIELD_BOOL, offsetof(struct settings, at), 0, 0, CLAMP, NULL                                  \
    }
#define INT_FIELD(names, at, lo, hi)                                                                         \
    {                                                                                                        \
        names, FIELD_I32, offsetof(struct settings, at), lo, hi, HARD, NULL                                  \
    }
#define CLAMPED_FIELD(names, at, lo, hi)                                                                     \
    {                                                                                                        \
        names, FIELD_I32, offsetof(struct settings, at), lo, hi, CLAMP, NULL                                 \
    }
#define REAL_FIELD(names, at, lo, hi)                                                                        \
    {                                                                                                        \
        names, FIELD_F32, offsetof(struct settings, at), lo, hi, CLAMP, NULL                                 \
    }
#define OWN_FIELD(names, fn)                                                                                 \
    {                                                                                                        \
        names, FIELD_OWN, 0, 0, 0, CLAMP, fn                                                                 \
    }

static const struct field FIELDS[] = {
    BOOL_FIELD("verbose", verbose),
    BOOL_FIELD("timings_per_token", timings_per_token),
    BOOL_FIELD("stream", stream),
    BOOL_FIELD("cache_prompt", cache_prompt),
    BOOL_FIELD("return_tokens", return_tokens),
    BOOL_FIELD("return_progress", return_progress),
    BOOL_FIELD("backend_sampling", backend_sampling),
    BOOL_FIELD("post_sampling_probs", post_sampling_probs),
    BOOL_FIELD("reasoning_control", reasoning_control),
    BOOL_FIELD("ignore_eos", s.ignore_eos),
    INT_FIELD("sse_ping_interval", ping_s, -1, MAX_I32),
    INT_FIELD("n_predict,max_completion_tokens,max_tokens", n_predict, -1, MAX_I32),
    INT_FIELD("n_indent", n_indent, 0, MAX_I32),
    INT_FIELD("n_keep", n_keep, -1, MAX_I32),
    INT_FIELD("n_discard", n_discard, 0, MAX_I32),
    INT_FIELD("n_cache_reuse", n_cache_reuse, 0, MAX_I32),
    {"t_max_predict_ms", FIELD_I64, offsetof(struct settings, t_max_predict_ms), -1, 9e18, HARD, NULL},
    CLAMPED_FIELD("top_k", s.top_k, 0, MAX_I32),
    REAL_FIELD("top_p", s.top_p, 0, 1),
    REAL_FIELD("min_p", s.min_p, 0, 1),
    REAL_FIELD("top_n_sigma", s.top_n_sigma, -1e30, 1e30),
    REAL_FIELD("xtc_probability", s.xtc_probability, 0, 1),
    REAL_FIELD("xtc_threshold", s.xtc_threshold, 0, 1),
    REAL_FIELD("typical_p", s.typical_p, -1e30, 1e30),
    REAL_FIELD("temperature", s.temp, 0, 1e30),
    REAL_FIELD("dynatemp_range", s.dynatemp_range, -1e30, 1e30),
    REAL_FIELD("dynatemp_exponent", s.dynatemp_exponent, -1e30, 1e30),
    INT_FIELD("repeat_last_n", s.repeat_last_n, 0, MAX_I32),
    REAL_FIELD("repeat_penalty", s.repeat_penalty, -1e30, 1e30),
    REAL_FIELD("frequency_penalty", s.frequency_penalty, -1e30, 1e30),
    REAL_FIELD("presence_penalty", s.presence_penalty, -1e30, 1e30),
    REAL_FIELD("dry_multiplier", s.dry_multiplier, -1e30, 1e30),
    REAL_FIELD("dry_base", s.dry_base, -1e30, 1e30),
    INT_FIELD("dry_allowed_length", s.dry_allowed_length, 0, MAX_I32),
    INT_FIELD("dry_penalty_last_n", s.dry_penalty_last_n, 0, MAX_I32),
    CLAMPED_FIELD("mirostat", s.mirostat, 0, 2),
    REAL_FIELD("mirostat_tau", s.mirostat_tau, -1e30, 1e30),
    REAL_FIELD("mirostat_eta", s.mirostat_eta, -1e30, 1e30),
    REAL_FIELD("adaptive_target", s.adaptive_target, -3e38, 1),
    {"adaptive_decay", FIELD_F32, offsetof(struct settings, s.adaptive_decay), 0, 0.99, HARD, NULL},
    {"seed", FIELD_U32, offsetof(struct settings, s.seed), -1, 4294967295.0, CLAMP, NULL},
    CLAMPED_FIELD("n_probs,logprobs", n_probs, 0, 1 << 20),
    INT_FIELD("min_keep", s.min_keep, 0, MAX_I32),
    INT_FIELD("id_slot", id_slot, -1, MAX_I32),
    CLAMPED_FIELD("speculative.n_max", n_draft, 0, 63),
    CLAMPED_FIELD("speculative.n_min", n_draft_min, 0, 63),
    REAL_FIELD("speculative.p_min", draft_p_min, 0, 1),
    OWN_FIELD("response_fields", read_response_fields),
    OWN_FIELD("reasoning_format", read_reasoning_format),
    OWN_FIELD("lora", read_lora),
    OWN_FIELD("dry_sequence_breakers", read_breakers),
    OWN_FIELD("grammar", read_grammar),
    OWN_FIELD("json_schema", read_json_schema),
    BOOL_FIELD("grammar_lazy", s.grammar.lazy),
    OWN_FIELD("preserved_tokens", read_preserved_tokens),
    OWN_FIELD("grammar_triggers", read_triggers),
    OWN_FIELD("logit_bias", read_logit_bias),
    OWN_FIELD("stop", read_stop),
    OWN_FIELD("samplers", read_samplers),
};

static const struct field STREAM_OPTIONS[] = {BOOL_FIELD("include_usage", include_usage)};

static int check_settings(struct settings *s, struct grappa_err *err)
{
    if (s->id_slot >= (int32_t)s->model->info.n_slots)
        return fail(err, 400, "Field 'id_slot': there are %u slots", s->model->info.n_slots);
    if (s->s.dry_base < 1)
        s->s.dry_base = s->p->sampler.dry_base;
    if (s->s.ignore_eos) {
        for (size_t i = 0; i < s->model->info.n_eog; i++)
            add_bias(s, s->model->info.eog[i], -INFINITY);
    }
    if (s->s.grammar.lazy && s->n_triggers == 0) /* what it waits for never comes */
        s->s.grammar.type = GRAPPA_GRAMMAR_NONE;
    if (s->s.grammar.type != GRAPPA_GRAMMAR_NONE && grappa_grammar_check(s->model->v, &s->s.grammar, err))
        return -1;
    return 0;
}

int settings_init(struct settings *s, const struct server_params *p, const struct model *m,
                  const json_t *body, struct grappa_err *err)
{
    *s = (struct settings){.p = p,
                           .model = m,
                           .s = p->sampler,
                           .verbose = p->verbose,
                           .cache_prompt = p->cache_prompt,
                           .ping_s = p->ping_s,
                           .n_predict = p->n_predict,
                           .n_keep = p->n_keep,
                           .n_draft = p->n_draft,
                           .n_draft_min = p->n_draft_min,
                           .draft_p_min = p->draft_p_min,
                           .n_cmpl = 1,
                           .id_slot = -1,
                           .t_max_predict_ms = -1,
                           .stop = p->stop,
                           .chat_format = "Content-only",
                           .reasoning_format = REASONING[p->reasoning_format]};
    s->s.n_bias = 0;
    for (size_t i = 0; i < p->sampler.n_bias; i++)
        add_id_bias(s, p->sampler.bias[i].token, p->sampler.bias[i].bias);
    const struct field n_cmpl = INT_FIELD("n_cmpl,n", n_cmpl, 1, m->info.n_slots ? m->info.n_slots : 1);
    json_t *options = NULL;
    if (read_fields(s, FIELDS, sizeof FIELDS / sizeof *FIELDS, body, err) ||
        read_fields(s, &n_cmpl, 1, body, err) || member_object(body, "stream_options", &options, err) ||
        (options && read_fields(s, STREAM_OPTIONS, 1, options, err)))
        return -1;
    return check_settings(s, err);
}

void settings_release(struct settings *s)
{
    arena_release(&s->mem);
}

void settings_add_stop(struct settings *s, const char *text)
{
    const char **v = arena_alloc(&s->mem, (s->stop.n + 1) * sizeof *v);
    if (s->stop.n)
        memcpy(v, s->stop.v, s->stop.n * sizeof *v);
    v[s->stop.n] = arena_strndup(&s->mem, text, strlen(text));
    s->stop = (struct server_texts){v, s->stop.n + 1};
}

/* ---- as JSON ---- */

static const struct {
    char letter;
    const char *name;
} SAMPLERS[] = {{'e', "penalties"},   {'d', "dry"},    {'s', "top_n_sigma"}, {'k', "top_k"},
                {'y', "typ_p"},       {'p', "top_p"},  {'m', "min_p"},       {'x', "xtc"},
                {'t', "temperature"}, {'i', "infill"}, {'a', "adaptive_p"}};

static json_t *samplers_json(const struct settings *s)
{
    json_t *a = json_array();
    if (s->s.sampling_seq) {
        for (const char *c = s->s.sampling_seq; *c; c++) {
            for (size_t i = 0; i < sizeof SAMPLERS / sizeof *SAMPLERS; i++) {
                if (SAMPLERS[i].letter == *c)
                    json_array_append_new(a, json_string(SAMPLERS[i].name));
            }
        }
        return a;
    }
    for (const char *p = s->s.samplers ? s->s.samplers : ""; *p;) {
        size_t n = strcspn(p, ";");
        json_array_append_new(a, text_json(p, n));
        p += n + (p[n] == ';');
    }
    return a;
}

static json_t *texts_json(const char *const *v, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, text_json(v[i], strlen(v[i])));
    return a;
}

/* Numbers and switches: name and place, in llama-server's order. */
#define ROW(name, kind, at)                                                                                  \
    {                                                                                                        \
        name, kind, offsetof(struct settings, at)                                                            \
    }
static const struct {
    const char *name;
    enum field_kind kind;
    size_t offset;
} ROWS[] = {
    ROW("seed", FIELD_U32, s.seed),
    ROW("temperature", FIELD_F32, s.temp),
    ROW("dynatemp_range", FIELD_F32, s.dynatemp_range),
    ROW("dynatemp_exponent", FIELD_F32, s.dynatemp_exponent),
    ROW("top_k", FIELD_I32, s.top_k),
    ROW("top_p", FIELD_F32, s.top_p),
    ROW("min_p", FIELD_F32, s.min_p),
    ROW("top_n_sigma", FIELD_F32, s.top_n_sigma),
    ROW("xtc_probability", FIELD_F32, s.xtc_probability),
    ROW("xtc_threshold", FIELD_F32, s.xtc_threshold),
    ROW("typical_p", FIELD_F32, s.typical_p),
    ROW("repeat_last_n", FIELD_I32, s.repeat_last_n),
    ROW("repeat_penalty", FIELD_F32, s.repeat_penalty),
    ROW("presence_penalty", FIELD_F32, s.presence_penalty),
    ROW("frequency_penalty", FIELD_F32, s.frequency_penalty),
    ROW("dry_multiplier", FIELD_F32, s.dry_multiplier),
    ROW("dry_base", FIELD_F32, s.dry_base),
    ROW("dry_allowed_length", FIELD_I32, s.dry_allowed_length),
    ROW("dry_penalty_last_n", FIELD_I32, s.dry_penalty_last_n),
    ROW("mirostat", FIELD_I32, s.mirostat),
    ROW("mirostat_tau", FIELD_F32, s.mirostat_tau),
    ROW("mirostat_eta", FIELD_F32, s.mirostat_eta),
    ROW("adaptive_target", FIELD_F32, s.adaptive_target),
    ROW("adaptive_decay", FIELD_F32, s.adaptive_decay),
    ROW("max_tokens", FIELD_I32, n_predict),
    ROW("n_predict", FIELD_I32, n_predict),
    ROW("n_keep", FIELD_I32, n_keep),
    ROW("n_discard", FIELD_I32, n_discard),
    ROW("ignore_eos", FIELD_BOOL, s.ignore_eos),
    ROW("stream", FIELD_BOOL, stream),
    ROW("n_probs", FIELD_I32, n_probs),
    ROW("min_keep", FIELD_I32, s.min_keep),
    ROW("timings_per_token", FIELD_BOOL, timings_per_token),
    ROW("post_sampling_probs", FIELD_BOOL, post_sampling_probs),
    ROW("backend_sampling", FIELD_BOOL, backend_sampling),
};

static json_t *row_json(const void *at, enum field_kind kind)
{
    switch (kind) {
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    case FIELD_F32:
        return real_json(*(const float *)at);
    case FIELD_U32:
        return json_integer(*(const uint32_t *)at);
    default:
        return json_integer(*(const int32_t *)at);
    }
}

static json_t *bias_json(const struct settings *s)
{
    json_t *a = json_array();
    for (size_t i = 0; i < s->s.n_bias; i++)
        json_array_append_new(
            a, json_pack("{s:o, s:i}", "bias", real_json(s->s.bias[i].bias), "token", s->s.bias[i].token));
    return a;
}

json_t *settings_json(const struct settings *s, bool brief)
{
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    json_t *j = json_object();
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        json_object_set_new(j, ROWS[i].name, row_json((const char *)s + ROWS[i].offset, ROWS[i].kind));
    json_object_set_new(j, "chat_format", json_string(s->chat_format));
    json_object_set_new(j, "reasoning_format", json_string(s->reasoning_format));
    json_object_set_new(j, "reasoning_in_content", json_false());
    json_object_set_new(j, "generation_prompt", json_string(""));
    json_object_set_new(j, "samplers", samplers_json(s));
    const char *types = s->p->lookup             ? "ngram-simple"
                        : s->p->model_draft      ? "draft-simple"
                        : s->p->model_params.mtp ? "draft-mtp"
                                                 : "none";
    json_object_set_new(j, "speculative.types", json_string(types));
    json_object_set_new(j, "lora", json_array());
    if (brief)
        return j;
    bool own = s->s.dry_breakers != NULL;
    json_object_set_new(j, "dry_sequence_breakers",
                        own ? texts_json(s->s.dry_breakers, (size_t)s->s.n_dry_breakers)
                            : texts_json(breakers, 4));
    json_object_set_new(j, "stop", texts_json(s->stop.v, s->stop.n));
    json_object_set_new(j, "logit_bias", bias_json(s));
    put_constraint(j, s);
    return j;
}
