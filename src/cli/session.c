/* The loop that writes text: prefix reuse, the prompt in steps, then sample, show, decode. */
#include "cli/session.h"

#include "cli/common.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/* "15043+1", "15043-1", "15043-inf". */
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

/* Texts of an option with escapes replaced, in memory of their own: pointers first, then the bytes. */
static char **unescaped(const struct options *o, const struct strings *in, size_t *lengths)
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

static void free_texts(char **texts)
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

#define THINK_START "<think>"
#define THINK_END   "</think>"

static int open_sampler(struct session *s, const struct session_turn *turn, struct grappa_err *err)
{
    const struct options *o = s->o;
    struct grappa_sampler_params p;
    grappa_sampler_defaults(&p);
    copy_sampling_options(&p, o);
    p.n_ctx = grappa_n_ctx(s->ctx);

    struct grappa_logit_bias *bias = xcalloc(o->logit_bias.n + 1, sizeof *bias);
    char **breakers = unescaped(o, &o->dry_breakers, NULL);
    struct buf grammar = {0};
    if (grammar_of_options(o, &p.grammar, &grammar, err))
        goto cleanup;
    if (turn->grammar && p.grammar.type == GRAPPA_GRAMMAR_NONE)
        p.grammar = *turn->grammar;
    p.think_budget = o->reasoning_budget;
    p.think_start = turn->think_end ? turn->think_start : THINK_START;
    p.think_end = turn->think_end ? turn->think_end : THINK_END;
    p.think_open = turn->think_open;
    for (size_t i = 0; i < o->logit_bias.n; i++) {
        if (parse_bias(o->logit_bias.v[i], &bias[i], err))
            goto cleanup;
        if (bias[i].token >= grappa_vocab_n_tokens(s->vocab)) {
            cli_error(err, 2, "--logit-bias %s: the vocabulary has %d tokens", o->logit_bias.v[i],
                      (int)grappa_vocab_n_tokens(s->vocab));
            goto cleanup;
        }
    }
    p.bias = bias;
    p.n_bias = o->logit_bias.n;
    if (o->dry_breakers.n) {
        bool none = strcmp(breakers[0], "none") == 0;
        p.dry_breakers = (const char *const *)breakers;
        p.n_dry_breakers = none ? 0 : (int)o->dry_breakers.n;
    }
    s->sampler = grappa_sampler_new(s->vocab, &p, err);
cleanup:
    free(bias);
    free_texts(breakers);
    buf_release(&grammar);
    return s->sampler ? 0 : -1;
}

static void open_stop_texts(struct session *s)
{
    const struct strings *in = &s->o->reverse_prompts;
    size_t *lengths = xcalloc(in->n + 1, sizeof *lengths);
    char **texts = unescaped(s->o, in, lengths);
    s->stop.texts = xcalloc(in->n + 1, sizeof *s->stop.texts);
    s->stop.n = in->n;
    for (size_t i = 0; i < in->n; i++)
        s->stop.texts[i] = (struct str){texts[i], lengths[i]};
    free(texts); /* the texts themselves go with session_close */
    free(lengths);
}

int session_open(struct session *s, const struct options *o, struct grappa_err *err)
{
    *s = (struct session){.o = o, .start = now_s()};
    s->model = load_model_of(o, err);
    if (!s->model)
        return -1;
    s->vocab = grappa_model_vocab(s->model);
    struct grappa_context_params p = {.n_ctx = o->n_ctx, .n_batch = o->n_ubatch, .n_seq_max = 1};
    s->ctx = grappa_context_new(s->model, &p, err);
    if (!s->ctx)
        return -1;
    uint32_t trained = grappa_model_n_ctx_train(s->model);
    if (trained && o->n_ctx > trained)
        log_warn("the model was trained on %u positions, the context has %u", trained, grappa_n_ctx(s->ctx));
    s->held = malloc((size_t)grappa_n_ctx(s->ctx) * sizeof *s->held);
    if (!s->held)
        return cli_error(err, 1, "out of memory");
    open_stop_texts(s);
    if (open_sampler(s, &(struct session_turn){0}, err))
        return -1;
    log_info("context of %u positions, seed %u", grappa_n_ctx(s->ctx), grappa_sampler_seed(s->sampler));
    s->load_s = now_s() - s->start;
    return 0;
}

void session_close(struct session *s)
{
    for (size_t i = 0; i < s->stop.n; i++)
        free((char *)s->stop.texts[i].p);
    free(s->stop.texts);
    free(s->held);
    grappa_sampler_free(s->sampler);
    grappa_context_free(s->ctx);
    grappa_model_free(s->model);
    *s = (struct session){0};
}

/* ---- the context ---- */

/* Keeps what the context has in common with the prompt, but never all of the prompt: its last token must be
 * computed for its logits. */
static int keep_common(struct session *s, const grappa_token *prompt, size_t n, struct grappa_err *err)
{
    size_t keep = 0;
    while (keep < s->n_held && keep + 1 < n && s->held[keep] == prompt[keep])
        keep++;
    if (keep == s->n_held)
        return 0;
    /* Recurrent states go back only to some places. */
    s->n_held = (size_t)grappa_seq_trim_point(s->ctx, 0, (int32_t)keep);
    return grappa_seq_trim(s->ctx, 0, (int32_t)s->n_held, err);
}

static int decode(struct session *s, const grappa_token *tokens, size_t n, struct grappa_err *err)
{
    struct grappa_batch batch = {.n = n, .token = tokens};
    if (grappa_decode(s->ctx, &batch, err))
        return -1;
    memcpy(s->held + s->n_held, tokens, n * sizeof *tokens);
    s->n_held += n;
    return 0;
}

/* Computes the prompt in steps of -b, so that Ctrl-C is heard in between. */
static int compute_prompt(struct session *s, const grappa_token *prompt, size_t n, struct grappa_err *err)
{
    if (keep_common(s, prompt, n, err))
        return -1;
    double start = now_s();
    s->n_prompt += n - s->n_held;
    log_debug("prompt of %zu tokens, %zu of them are in the context", n, s->n_held);
    while (s->n_held < n && !interrupted) {
        size_t end = s->n_lasting > s->n_held && s->n_lasting < n ? s->n_lasting : n;
        size_t step = end - s->n_held < s->o->n_batch ? end - s->n_held : s->o->n_batch;
        if (decode(s, prompt + s->n_held, step, err))
            return -1;
    }
    s->prompt_s += now_s() - start;
    return 0;
}

/* ---- writing ---- */

/* Text on its way out: whole characters, stop texts held back. */
struct writer {
    struct session *s;
    const struct session_turn *turn;
    struct grappa_stream *stream, *special; /* the second for tokens that are preserved */
    struct buf *text;
    struct stop stop;
};

static bool write_out(struct writer *w, struct str t)
{
    if (w->text)
        buf_add(w->text, t.p, t.n);
    if (t.n == 0)
        return true;
    return w->turn->write ? w->turn->write(w->turn->user, t) : out_text(t.p, t.n);
}

static bool is_preserved(const struct session_turn *turn, grappa_token t)
{
    for (size_t i = 0; i < turn->n_preserved; i++) {
        if (turn->preserved[i] == t)
            return true;
    }
    return false;
}

/* False when the text ends with this token; *ending says why. */
static bool write_token(struct writer *w, grappa_token t, enum ending *ending)
{
    struct str piece, out;
    piece.p = grappa_stream_add(is_preserved(w->turn, t) ? w->special : w->stream, t, &piece.n);
    bool stopped = stop_add(&w->stop, piece, &out);
    if (stopped)
        *ending = END_STOP_TEXT;
    if (!write_out(w, out)) {
        *ending = END_OUTPUT;
        return false;
    }
    return !stopped;
}

/* The end of the text: what might have become a stop text. Half a character, held back so far, is no text. */
static void write_end(struct writer *w, enum ending *ending)
{
    if (*ending != END_STOP_TEXT && *ending != END_OUTPUT && !write_out(w, stop_end(&w->stop)))
        *ending = END_OUTPUT;
}

static bool echo_prompt(struct writer *w, const grappa_token *prompt, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *p = grappa_stream_add(w->stream, prompt[i], &len);
        if (len && !out_text(p, len))
            return false;
    }
    return true;
}

/* Sample, show, decode, until something ends it. */
static int write_tokens(struct session *s, struct writer *w, enum ending *ending, struct grappa_err *err)
{
    int32_t left = s->o->n_predict < 0 ? INT32_MAX : s->o->n_predict;
    double start = now_s();
    int status = 0;
    *ending = END_LIMIT;
    for (; left > 0; left--) {
        if (interrupted) {
            *ending = END_INTERRUPT;
            break;
        }
        const float *logits = grappa_logits(s->ctx, -1);
        if (!logits) {
            status = cli_error(err, 1, "the model gave no logits");
            break;
        }
        grappa_token t = grappa_sample(s->sampler, logits);
        grappa_sampler_accept(s->sampler, t);
        bool end = grappa_vocab_is_eog(s->vocab, t);
        if (end)
            *ending = END_MODEL;
        if (((!end || s->o->special || is_preserved(w->turn, t)) && !write_token(w, t, ending)) || end)
            break;
        if (grappa_sampler_finished(s->sampler)) {
            *ending = END_MODEL;
            break;
        }
        if (left == 1)
            break;
        if (s->n_held == grappa_n_ctx(s->ctx)) {
            *ending = END_CONTEXT;
            break;
        }
        status = decode(s, &t, 1, err);
        if (status)
            break;
        s->n_decode++;
    }
    s->decode_s += now_s() - start;
    write_end(w, ending);
    return status;
}

/* White space behind the start of a thought is part of it. */
static bool ends_in_thought(const struct session *s, const grappa_token *prompt, size_t n)
{
    struct buf tail = {0};
    for (size_t i = n > 16 ? n - 16 : 0; i < n; i++) {
        char piece[256];
        size_t len = grappa_token_piece(s->vocab, prompt[i], true, piece, sizeof piece);
        buf_add(&tail, piece, len < sizeof piece ? len : sizeof piece);
    }
    while (tail.n && strchr(" \t\r\n", tail.p[tail.n - 1]))
        tail.n--;
    size_t start = strlen(THINK_START);
    bool inside = tail.n >= start && memcmp(tail.p + tail.n - start, THINK_START, start) == 0;
    buf_release(&tail);
    return inside;
}

/* A text of its own constraint or with a budget for thoughts needs a sampler of its own. */
static int restart_sampler(struct session *s, const struct session_turn *turn, const grappa_token *prompt,
                           size_t n, struct grappa_err *err)
{
    struct session_turn t = *turn;
    bool bounded = s->o->reasoning_budget >= 0;
    if (!bounded && !t.grammar && !s->turn_sampler) {
        grappa_sampler_reset(s->sampler);
        return 0;
    }
    if (!t.think_end)
        t.think_open = bounded && ends_in_thought(s, prompt, n);
    grappa_sampler_free(s->sampler);
    s->sampler = NULL;
    s->turn_sampler = bounded || t.grammar;
    return open_sampler(s, &t, err);
}

static void open_writer(struct writer *w)
{
    const struct session *s = w->s;
    w->stream = grappa_stream_new(s->vocab, s->o->special);
    w->special = grappa_stream_new(s->vocab, true);
    w->stop.n = s->stop.n + w->turn->n_stops;
    w->stop.texts = xcalloc(w->stop.n + 1, sizeof *w->stop.texts);
    for (size_t i = 0; i < w->stop.n; i++)
        w->stop.texts[i] = i < s->stop.n ? s->stop.texts[i] : str_of(w->turn->stops[i - s->stop.n]);
}

static void close_writer(struct writer *w)
{
    grappa_stream_free(w->stream);
    grappa_stream_free(w->special);
    free(w->stop.texts);
    stop_release(&w->stop);
}

int session_write(struct session *s, const grappa_token *prompt, size_t n, bool echo,
                  const struct session_turn *turn, struct buf *text, enum ending *ending,
                  struct grappa_err *err)
{
    if (n == 0)
        return cli_error(err, 1, "the prompt is empty");
    if (n > grappa_n_ctx(s->ctx))
        return cli_error(err, 1, "the prompt has %zu tokens, the context holds %u; see -c", n,
                         grappa_n_ctx(s->ctx));
    const struct session_turn plain = {0};
    struct writer w = {.s = s, .turn = turn ? turn : &plain, .text = text};
    int status = 0;
    if (restart_sampler(s, w.turn, prompt, n, err))
        return -1;
    open_writer(&w);
    for (size_t i = 0; i < n; i++)
        grappa_sampler_accept(s->sampler, prompt[i]);
    if (echo && !echo_prompt(&w, prompt, n))
        *ending = END_OUTPUT;
    else if (compute_prompt(s, prompt, n, err))
        status = -1;
    else if (interrupted)
        *ending = END_INTERRUPT;
    else
        status = write_tokens(s, &w, ending, err);
    close_writer(&w);
    return status;
}

/* ---- the summary ---- */

static void summary_line(const char *what, double seconds, size_t n)
{
    double ms = 1e3 * seconds;
    fprintf(stderr, "%16s = %10.2f ms / %5zu tokens (%8.2f ms per token, %8.2f tokens per second)\n", what,
            ms, n, n ? ms / (double)n : 0, seconds > 0 ? (double)n / seconds : 0);
}

void session_summary(const struct session *s)
{
    if (!s->o->perf && !s->o->verbose)
        return;
    fprintf(stderr, "%16s = %10.2f ms\n", "load time", 1e3 * s->load_s);
    summary_line("prompt eval time", s->prompt_s, s->n_prompt);
    summary_line("eval time", s->decode_s, s->n_decode);
    fprintf(stderr, "%16s = %10.2f ms / %5zu tokens\n", "total time", 1e3 * (now_s() - s->start - s->load_s),
            s->n_prompt + s->n_decode);
}
