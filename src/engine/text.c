/* Vocabulary, streams and sampling behind grappa.h: thin, the work is in their rooms. */
#include "engine/schedule.h"

#include "base/mem.h"
#include "sampler/sampler.h"

#include <stdatomic.h>
#include <stdlib.h>

/* ---- vocabulary ---- */

struct grappa_vocab *grappa_vocab_load(const char *path, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct gguf *g = gguf_open(path, &e);
    struct vocab *v = g ? vocab_new(g, &e) : NULL;
    if (!v) {
        engine_fail(err, &e);
        gguf_close(g);
        return NULL;
    }
    struct grappa_vocab *out = xmalloc(sizeof *out);
    *out = (struct grappa_vocab){.v = v, .g = g, .own_g = g};
    return out;
}

void grappa_vocab_free(struct grappa_vocab *v)
{
    if (!v)
        return;
    grammar_vocab_free(v->grammar);
    vocab_free(v->v);
    gguf_close(v->own_g);
    free(v);
}

int32_t grappa_vocab_n_tokens(const struct grappa_vocab *v)
{
    int32_t n = vocab_n_tokens(v->v);
    return n ? n : v->n_rows;
}

grappa_token grappa_vocab_bos(const struct grappa_vocab *v)
{
    return vocab_bos(v->v);
}

grappa_token grappa_vocab_eos(const struct grappa_vocab *v)
{
    return vocab_eos(v->v);
}

bool grappa_vocab_add_bos(const struct grappa_vocab *v)
{
    return vocab_add_bos(v->v);
}

bool grappa_vocab_is_eog(const struct grappa_vocab *v, grappa_token t)
{
    return vocab_is_eog(v->v, t);
}

#define FIM(name)                                                                                            \
    grappa_token grappa_vocab_fim_##name(const struct grappa_vocab *v)                                       \
    {                                                                                                        \
        return vocab_fim_##name(v->v);                                                                       \
    }
FIM(pre)
FIM(suf)
FIM(mid)
FIM(pad)
FIM(rep)
FIM(sep)
#undef FIM

/* Hands a list over, as an array that is never NULL; of a failure NULL, and the error. */
static grappa_token *give_ids(struct token_list *ids, int rc, size_t *n, struct grappa_err *err,
                              const struct err *e)
{
    if (rc < 0) {
        free(ids->p);
        engine_fail(err, e);
        return NULL;
    }
    *n = ids->n;
    return ids->p ? ids->p : xmalloc(sizeof *ids->p);
}

grappa_token *grappa_tokenize_new(const struct grappa_vocab *v, const char *text, size_t len,
                                  bool add_special, bool parse_special, size_t *n, struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct token_list ids = {0};
    int rc = vocab_tokenize(v->v, (struct str){text ? text : "", len}, add_special, parse_special, &ids, &e);
    return give_ids(&ids, rc, n, err, &e);
}

int64_t grappa_tokenize(const struct grappa_vocab *v, const char *text, size_t len, bool add_special,
                        bool parse_special, grappa_token *out, size_t max, struct grappa_err *err)
{
    size_t n;
    grappa_token *ids = grappa_tokenize_new(v, text, len, add_special, parse_special, &n, err);
    if (!ids)
        return -1;
    if (n && max) /* out may be NULL then */
        memcpy(out, ids, (n < max ? n : max) * sizeof *out);
    free(ids);
    return (int64_t)n;
}

grappa_token *grappa_infill_new(const struct grappa_vocab *v, const struct grappa_infill *in, size_t *n,
                                struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct token_list ids = {0};
    struct vocab_infill_file *extra = calloc(in->n_extra + 1, sizeof *extra);
    if (!extra) {
        err_set(&e, ERR_MEMORY, "out of memory");
        engine_fail(err, &e);
        return NULL;
    }
    for (size_t i = 0; i < in->n_extra; i++) {
        const struct grappa_infill_file *f = &in->extra[i];
        extra[i] = (struct vocab_infill_file){str_of(f->name ? f->name : "tmp"), {f->text, f->len}};
    }
    struct vocab_infill all = {.prefix = in->prefix,
                               .suffix = in->suffix,
                               .prompt = in->prompt,
                               .n_prefix = in->n_prefix,
                               .n_suffix = in->n_suffix,
                               .n_prompt = in->n_prompt,
                               .extra = extra,
                               .n_extra = in->n_extra,
                               .n_batch = in->n_batch,
                               .n_predict = in->n_predict,
                               .n_ctx = in->n_ctx,
                               .suffix_first = in->suffix_first};
    int rc = vocab_infill(v->v, &all, &ids, &e);
    free(extra);
    return give_ids(&ids, rc, n, err, &e);
}

size_t grappa_token_piece(const struct grappa_vocab *v, grappa_token t, bool special, char *out, size_t max)
{
    struct buf b = {0};
    vocab_piece(v->v, t, 0, special, &b);
    size_t n = b.n;
    if (n && max)
        memcpy(out, b.p, n < max ? n : max);
    buf_release(&b);
    return n;
}

struct grappa_stream {
    const struct vocab *v;
    bool special;
    struct utf8_stream held;
    struct buf piece, text;
};

struct grappa_stream *grappa_stream_new(const struct grappa_vocab *v, bool special)
{
    struct grappa_stream *s = xcalloc(1, sizeof *s);
    s->v = v->v;
    s->special = special;
    return s;
}

void grappa_stream_free(struct grappa_stream *s)
{
    if (!s)
        return;
    buf_release(&s->piece);
    buf_release(&s->text);
    free(s);
}

static const char *stream_text(const struct grappa_stream *s, size_t *len)
{
    *len = s->text.n;
    return s->text.p ? s->text.p : "";
}

const char *grappa_stream_add(struct grappa_stream *s, grappa_token t, size_t *len)
{
    buf_clear(&s->piece);
    buf_clear(&s->text);
    vocab_piece(s->v, t, 0, s->special, &s->piece);
    utf8_stream_add(&s->held, buf_str(&s->piece), &s->text);
    return stream_text(s, len);
}

const char *engine_stream_piece(const struct grappa_stream *s, size_t *len)
{
    *len = s->piece.n;
    return s->piece.p ? s->piece.p : "";
}

const char *grappa_stream_end(struct grappa_stream *s, size_t *len)
{
    buf_clear(&s->text);
    utf8_stream_end(&s->held, &s->text);
    return stream_text(s, len);
}

/* ---- constraints ---- */

struct grammar_vocab *engine_grammar_vocab(const struct grappa_vocab *v, struct err *err)
{
    struct grappa_vocab *shared = (struct grappa_vocab *)(uintptr_t)v; /* read-only, but for this */
    struct grammar_vocab *there = shared->grammar;
    if (there)
        return there;
    struct grammar_vocab *made = grammar_vocab_new(v->v, err);
    if (made && !atomic_compare_exchange_strong(&shared->grammar, &there, made)) {
        grammar_vocab_free(made); /* another thread was faster */
        made = there;
    }
    return made;
}

static struct grammar_params grammar_params_of(const struct grappa_grammar_params *g)
{
    static const enum grammar_type types[] = {
        [GRAPPA_GRAMMAR_NONE] = GRAMMAR_NONE,
        [GRAPPA_GRAMMAR_GBNF] = GRAMMAR_GBNF,
        [GRAPPA_GRAMMAR_JSON_SCHEMA] = GRAMMAR_JSON_SCHEMA,
        [GRAPPA_GRAMMAR_REGEX] = GRAMMAR_REGEX,
        [GRAPPA_GRAMMAR_LARK] = GRAMMAR_LARK,
    };
    return (struct grammar_params){
        .type = types[g->type],
        .source = g->source,
        .lazy = g->lazy,
        .trigger_words = g->trigger_words,
        .n_trigger_words = g->n_trigger_words,
        .trigger_patterns = g->trigger_patterns,
        .n_trigger_patterns = g->n_trigger_patterns,
        .trigger_tokens = g->trigger_tokens,
        .n_trigger_tokens = g->n_trigger_tokens,
    };
}

int grappa_grammar_check(const struct grappa_vocab *v, const struct grappa_grammar_params *g,
                         struct grappa_err *err)
{
    struct err e = ERR_INIT;
    if (g->type == GRAPPA_GRAMMAR_NONE)
        return 0;
    struct grammar_params p = grammar_params_of(g);
    struct grammar_vocab *gv = engine_grammar_vocab(v, &e);
    struct grammar *made = gv ? grammar_new(gv, &p, &e) : NULL;
    grammar_free(made);
    return made ? 0 : engine_fail(err, &e);
}

/* ---- sampling ---- */

struct grappa_sampler {
    struct sampler *s;
};

/* The parameters that both structs have under one name; a row is a field. */
/* clang-format off */
#define SAMPLER_FIELDS(X) \
    X(seed) X(temp) X(dynatemp_range) X(dynatemp_exponent) \
    X(top_k) X(top_p) X(min_p) X(typical_p) \
    X(top_n_sigma) X(xtc_probability) X(xtc_threshold) X(min_keep) \
    X(repeat_penalty) X(frequency_penalty) X(presence_penalty) X(repeat_last_n) \
    X(dry_multiplier) X(dry_base) X(dry_allowed_length) X(dry_penalty_last_n) \
    X(dry_breakers) X(n_dry_breakers) X(mirostat) X(mirostat_tau) \
    X(mirostat_eta) X(adaptive_target) X(adaptive_decay) X(ignore_eos) X(n_bias) X(samplers) \
    X(n_ctx) X(think_budget) X(think_start) X(think_end) X(think_open) X(think_control)
/* clang-format on */

void grappa_sampler_defaults(struct grappa_sampler_params *out)
{
    struct sampler_params d = sampler_defaults();
    *out = (struct grappa_sampler_params){0};
#define X(field) out->field = d.field;
    SAMPLER_FIELDS(X)
#undef X
}

struct grappa_sampler *grappa_sampler_new(const struct grappa_vocab *v, const struct grappa_sampler_params *p,
                                          struct grappa_err *err)
{
    struct err e = ERR_INIT;
    struct sampler_params o = {0};
    struct buf names = {0};
    struct sampler *s = NULL;
#define X(field) o.field = p->field;
    SAMPLER_FIELDS(X)
#undef X
    if (vocab_n_tokens(v->v) == 0) {
        err_set(&e, ERR_FORMAT, "the file has no vocabulary (key tokenizer.ggml.model): it can't write text");
        engine_fail(err, &e);
        return NULL;
    }
    struct sampler_bias *bias = xcalloc(p->n_bias, sizeof *bias);
    for (size_t i = 0; i < p->n_bias; i++)
        bias[i] = (struct sampler_bias){p->bias[i].token, p->bias[i].bias};
    o.bias = bias;
    o.grammar = grammar_params_of(&p->grammar);
    if (o.grammar.type != GRAMMAR_NONE)
        o.grammar_vocab = engine_grammar_vocab(v, &e);
    if (!e.code && (!p->sampling_seq || sampler_seq_names(p->sampling_seq, &names, &e) == 0)) {
        if (p->sampling_seq)
            o.samplers = names.p ? names.p : "";
        s = sampler_new(&o, v->v, &e);
    }
    free(bias);
    buf_release(&names);
    if (!s) {
        engine_fail(err, &e);
        return NULL;
    }
    struct grappa_sampler *out = xmalloc(sizeof *out);
    out->s = s;
    return out;
}

void grappa_sampler_free(struct grappa_sampler *s)
{
    if (!s)
        return;
    sampler_free(s->s);
    free(s);
}

void grappa_sampler_reset(struct grappa_sampler *s)
{
    sampler_reset(s->s);
}

uint32_t grappa_sampler_seed(const struct grappa_sampler *s)
{
    return sampler_seed(s->s);
}

void grappa_sampler_prepare(struct grappa_sampler *s)
{
    sampler_prepare(s->s);
}

bool grappa_sampler_finished(const struct grappa_sampler *s)
{
    return sampler_finished(s->s);
}

grappa_token grappa_sample(struct grappa_sampler *s, const float *logits)
{
    return sampler_sample(s->s, logits);
}

void grappa_sampler_end_thoughts(struct grappa_sampler *s)
{
    sampler_end_thoughts(s->s);
}

size_t engine_sampler_candidates(const struct grappa_sampler *s, const struct sampler_candidate **out)
{
    return sampler_candidates(s->s, out);
}

void grappa_sampler_accept(struct grappa_sampler *s, grappa_token t)
{
    sampler_accept(s->s, t);
}
