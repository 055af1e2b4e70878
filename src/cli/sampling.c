/* Options to parameters: samplers, constraints, guesses. */
#include "cli/sampling.h"

#include "cli/common.h"

#include <stdlib.h>
#include <string.h>

int parse_bias(const char *text, struct grappa_logit_bias *out, struct grappa_err *err)
{
    char *sign, *end;
    long id = strtol(text, &sign, 10);
    bool ok = sign != text && id >= 0 && id <= INT32_MAX && (*sign == '+' || *sign == '-') && sign[1] > ' ' &&
              sign[1] != '+' && sign[1] != '-';
    float value = ok ? strtof(sign + 1, &end) : 0;
    if (!ok || end == sign + 1 || *end || value != value)
        return cli_error(err, 2, "--logit-bias %s: must be a token id, + or -, and a number", text);
    *out = (struct grappa_logit_bias){(grappa_token)id, *sign == '-' ? -value : value};
    return 0;
}

char **unescaped_texts(const struct options *o, const struct strings *in, size_t *lengths)
{
    char **out = xcalloc(in->n + 1, sizeof *out);
    for (size_t i = 0; i < in->n; i++) {
        out[i] = xstrdup(in->v[i]);
        size_t n = strlen(out[i]);
        n = o->escape ? unescape(out[i], n) : n;
        out[i][n] = '\0';
        if (lengths)
            lengths[i] = n;
    }
    return out;
}

void free_texts(char **texts)
{
    for (size_t i = 0; texts && texts[i]; i++)
        free(texts[i]);
    free(texts);
}

void copy_sampling_options(struct grappa_sampler_params *p, const struct options *o)
{
    p->seed = o->seed;
    p->temp = o->temp;
    p->dynatemp_range = o->dynatemp_range;
    p->dynatemp_exponent = o->dynatemp_exp;
    p->top_k = o->top_k;
    p->top_p = o->top_p;
    p->min_p = o->min_p;
    p->typical_p = o->typical;
    p->top_n_sigma = o->top_n_sigma;
    p->xtc_probability = o->xtc_probability;
    p->xtc_threshold = o->xtc_threshold;
    p->repeat_penalty = o->repeat_penalty;
    p->frequency_penalty = o->frequency_penalty;
    p->presence_penalty = o->presence_penalty;
    p->repeat_last_n = o->repeat_last_n;
    p->dry_multiplier = o->dry_multiplier;
    p->dry_base = o->dry_base;
    p->dry_allowed_length = o->dry_allowed_length;
    p->dry_penalty_last_n = o->dry_penalty_last_n;
    p->mirostat = o->mirostat;
    p->mirostat_tau = o->mirostat_ent;
    p->mirostat_eta = o->mirostat_lr;
    p->adaptive_target = o->adaptive_target;
    p->adaptive_decay = o->adaptive_decay;
    p->ignore_eos = o->ignore_eos;
    p->samplers = o->samplers;
    p->sampling_seq = o->sampling_seq;
}

int grammar_of_options(const struct options *o, struct grappa_grammar_params *g, struct buf *text,
                       struct grappa_err *err)
{
    /* Row: the option that holds a source, or names its file. */
    const struct {
        const char *source, *file;
        enum grappa_grammar_type type;
    } rows[] = {
        {o->grammar, o->grammar_file, GRAPPA_GRAMMAR_GBNF},
        {o->json_schema, o->json_schema_file, GRAPPA_GRAMMAR_JSON_SCHEMA},
    };
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].source && !rows[i].file)
            continue;
        n += 1 + (rows[i].source && rows[i].file);
        if (rows[i].source)
            buf_puts(text, rows[i].source);
        else if (read_file(rows[i].file, text, err))
            return -1;
        g->type = rows[i].type;
    }
    if (n > 1)
        return cli_error(err, 2, "more than one grammar or JSON schema");
    buf_puts(text, "");
    g->source = text->p;
    return text->failed ? cli_error(err, 1, "out of memory") : 0;
}

static int read_biases(struct sampling *s, const struct options *o, const struct grappa_vocab *vocab,
                       struct grappa_err *err)
{
    s->bias = xcalloc(o->logit_bias.n + 1, sizeof *s->bias);
    for (size_t i = 0; i < o->logit_bias.n; i++) {
        if (parse_bias(o->logit_bias.v[i], &s->bias[i], err))
            return -1;
        if (s->bias[i].token >= grappa_vocab_n_tokens(vocab))
            return cli_error(err, 2, "--logit-bias %s: the vocabulary has %d tokens", o->logit_bias.v[i],
                             (int)grappa_vocab_n_tokens(vocab));
    }
    s->p.bias = s->bias;
    s->p.n_bias = o->logit_bias.n;
    return 0;
}

int sampling_init(struct sampling *s, const struct options *o, const struct grappa_vocab *vocab,
                  struct grappa_err *err)
{
    *s = (struct sampling){0};
    grappa_sampler_defaults(&s->p);
    copy_sampling_options(&s->p, o);
    s->breakers = unescaped_texts(o, &o->dry_breakers, NULL);
    if (o->dry_breakers.n) {
        s->p.dry_breakers = (const char *const *)s->breakers;
        s->p.n_dry_breakers = strcmp(s->breakers[0], "none") == 0 ? 0 : (int)o->dry_breakers.n;
    }
    return grammar_of_options(o, &s->p.grammar, &s->grammar, err) ? -1 : read_biases(s, o, vocab, err);
}

void sampling_release(struct sampling *s)
{
    free(s->bias);
    free_texts(s->breakers);
    buf_release(&s->grammar);
    *s = (struct sampling){0};
}

void copy_speculation_options(struct grappa_request_params *p, const struct options *o)
{
    p->lookup = o->spec_type && strstr(o->spec_type, "ngram");
    bool drafts = o->model_draft || guesses_by_mtp(o);
    p->n_draft = p->lookup ? o->lookup_max : drafts ? o->draft_max : 0;
    p->n_draft_min = o->draft_min;
    p->draft_p_min = o->draft_p_min;
    if (!p->lookup && !drafts && o->spec_type && strstr(o->spec_type, "draft"))
        log_warn("--spec-type %s: nothing guesses without -md", o->spec_type);
}
