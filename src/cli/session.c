/* The loop that writes text: a request to an engine of one slot, whose events become text. The engine has
 * the context, what is in it of the last prompt, guesses, and shifts. */
#include "cli/session.h"

#include "cli/common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define THINK_START "<think>"
#define THINK_END   "</think>"

/* ---- opening ---- */

static void open_stop_texts(struct session *s)
{
    const struct strings *in = &s->o->reverse_prompts;
    size_t *lengths = xcalloc(in->n + 1, sizeof *lengths);
    char **texts = unescaped_texts(s->o, in, lengths);
    s->stop.texts = xcalloc(in->n + 1, sizeof *s->stop.texts);
    s->stop.n = in->n;
    for (size_t i = 0; i < in->n; i++)
        s->stop.texts[i] = (struct str){texts[i], lengths[i]};
    free(texts); /* the texts themselves go with session_close */
    free(lengths);
}

static int open_engine(struct session *s, struct grappa_err *err)
{
    const struct options *o = s->o;
    struct grappa_engine_params p = {.n_ctx = o->n_ctx,
                                     .n_batch = o->n_batch < o->n_ubatch ? o->n_batch : o->n_ubatch,
                                     .n_slots = 1,
                                     .no_prefix_cache = true, /* the slot's own sequence is all there is */
                                     .swa_full = o->swa_full,
                                     .past_trained = true};
    if (o->model_draft) {
        struct model_setup setup;
        if (model_setup_init(&setup, o, err) == 0)
            s->draft = load_model(o->model_draft, &setup.params, err);
        model_setup_release(&setup);
        if (!s->draft)
            return -1;
        p.draft = s->draft;
    }
    s->engine = grappa_engine_new(s->model, &p, err);
    return s->engine ? 0 : -1;
}

static int restore(struct session *s, struct grappa_err *err)
{
    struct stat st;
    const char *path = s->o->prompt_cache;
    if (!path || stat(path, &st) != 0 || st.st_size == 0)
        return 0;
    int64_t n = grappa_engine_slot_restore(s->engine, 0, path, NULL, err);
    if (n >= 0)
        log_info("%s: %lld tokens", path, (long long)n);
    return n >= 0 ? 0 : -1;
}

int session_keep(struct session *s, struct grappa_err *err)
{
    const char *path = s->o->prompt_cache;
    bool due = path && !s->o->prompt_cache_ro;
    return due && grappa_engine_slot_save(s->engine, 0, path, NULL, err) < 0 ? -1 : 0;
}

/* What is wrong with the options shall be said before anything is written. */
static int check_sampling(const struct session *s, struct grappa_err *err)
{
    struct grappa_sampler *sampler = grappa_sampler_new(s->vocab, &s->sampling.p, err);
    if (sampler)
        log_info("context of %u positions, seed %u", session_n_ctx(s), grappa_sampler_seed(sampler));
    grappa_sampler_free(sampler);
    return sampler ? 0 : -1;
}

int session_open(struct session *s, const struct options *o, struct grappa_err *err)
{
    *s = (struct session){.o = o, .start = now_s()};
    s->model = load_model_of(o, err);
    if (!s->model)
        return -1;
    s->vocab = grappa_model_vocab(s->model);
    if (open_engine(s, err))
        return -1;
    uint32_t trained = grappa_model_n_ctx_train(s->model);
    if (trained && o->n_ctx > trained)
        log_warn("the model was trained on %u positions, the context has %u", trained, session_n_ctx(s));
    open_stop_texts(s);
    if (sampling_init(&s->sampling, o, s->vocab, err) || check_sampling(s, err) || restore(s, err))
        return -1;
    s->load_s = now_s() - s->start;
    return 0;
}

void session_close(struct session *s)
{
    for (size_t i = 0; i < s->stop.n; i++)
        free((char *)s->stop.texts[i].p);
    free(s->stop.texts);
    sampling_release(&s->sampling);
    grappa_engine_free(s->engine);
    grappa_model_free(s->draft);
    grappa_model_free(s->model);
    *s = (struct session){0};
}

uint32_t session_n_ctx(const struct session *s)
{
    return grappa_engine_n_ctx_slot(s->engine);
}

/* ---- writing ---- */

/* Text on its way out: whole characters, stop texts held back. The engine's thread works on it while the
 * request runs, the session's own only waits then. */
struct writer {
    struct session *s;
    const struct session_turn *turn;
    struct grappa_stream *stream, *special; /* the second for tokens that are preserved */
    struct buf *text;
    struct stop stop;
    const grappa_token *prompt; /* to be written before anything else; n may be 0 */
    size_t n_prompt, n_echo;
    bool begun, ended; /* ended: by us, `ending` says why */
    enum ending ending;
    struct grappa_err err;
};

static bool end_by(struct writer *w, enum ending ending)
{
    w->ended = true;
    w->ending = ending;
    return false;
}

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

/* False when the text ends with this token. */
static bool write_token(struct writer *w, grappa_token t)
{
    struct str piece, out;
    piece.p = grappa_stream_add(is_preserved(w->turn, t) ? w->special : w->stream, t, &piece.n);
    bool stopped = stop_add(&w->stop, piece, &out);
    if (!write_out(w, out))
        return end_by(w, END_OUTPUT);
    return !stopped || end_by(w, END_STOP_TEXT);
}

static bool begin(struct writer *w, int32_t n_held)
{
    log_debug("prompt of %zu tokens, %d of them are in the context", w->n_prompt, n_held);
    for (size_t i = 0; i < w->n_echo; i++) {
        size_t len;
        const char *p = grappa_stream_add(w->stream, w->prompt[i], &len);
        if (len && !out_text(p, len))
            return end_by(w, END_OUTPUT);
    }
    return true;
}

static void end(struct writer *w, const struct grappa_event *ev)
{
    const struct grappa_timings *t = ev->timings;
    struct session *s = w->s;
    s->n_prompt += (size_t)t->n_computed;
    s->prompt_s += t->prompt_s;
    s->n_decode += t->n_predicted > 0 ? (size_t)t->n_predicted - 1 : 0;
    s->decode_s += t->predict_s;
    s->n_drafted += (size_t)t->n_drafted;
    s->n_accepted += (size_t)t->n_accepted;
    if (ev->err)
        w->err = *ev->err;
    if (w->ended)
        return;
    bool all = s->o->n_predict >= 0 && t->n_predicted >= s->o->n_predict;
    w->ending = ev->finish != GRAPPA_FINISH_LENGTH ? END_MODEL : all ? END_LIMIT : END_CONTEXT;
}

static bool on_event(void *user, const struct grappa_event *ev)
{
    struct writer *w = user;
    if (ev->type == GRAPPA_EVENT_DONE) {
        end(w, ev);
        return false;
    }
    if (w->ended)
        return false;
    bool first = !w->begun;
    w->begun = true;
    if (first && !begin(w, ev->n_done))
        return false;
    if (interrupted)
        return end_by(w, END_INTERRUPT);
    if (ev->type != GRAPPA_EVENT_TOKEN)
        return true;
    bool silent = grappa_vocab_is_eog(w->s->vocab, ev->token) && !w->s->o->special;
    return (silent && !is_preserved(w->turn, ev->token)) || write_token(w, ev->token);
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

static void set_sampler(const struct session *s, const struct session_turn *turn, const grappa_token *prompt,
                        size_t n, struct grappa_sampler_params *p)
{
    *p = s->sampling.p;
    if (turn->grammar && p->grammar.type == GRAPPA_GRAMMAR_NONE)
        p->grammar = *turn->grammar;
    p->think_budget = s->o->reasoning_budget;
    p->think_start = turn->think_end ? turn->think_start : THINK_START;
    p->think_end = turn->think_end ? turn->think_end : THINK_END;
    p->think_open =
        turn->think_end ? turn->think_open : p->think_budget >= 0 && ends_in_thought(s, prompt, n);
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

/* The request, from its first event to its last. */
static int run(struct session *s, struct writer *w, struct grappa_err *err)
{
    struct grappa_request_params p;
    grappa_request_defaults(&p);
    set_sampler(s, w->turn, w->prompt, w->n_prompt, &p.sampler);
    copy_speculation_options(&p, s->o);
    p.prompt = w->prompt;
    p.n_prompt = w->n_prompt;
    p.n_predict = s->o->n_predict < 0 ? -1 : s->o->n_predict;
    p.n_keep = s->o->n_keep;
    p.context_shift = s->o->context_shift && s->o->n_predict != -2;
    p.n_lasting = (int32_t)s->n_lasting;
    p.want_progress = true;
    p.slot = 0;
    p.on_event = on_event;
    p.user = w;
    struct grappa_request *r = grappa_request_new(s->engine, &p, err);
    if (!r)
        return -1;
    grappa_request_wait(r);
    grappa_request_free(r);
    if (w->err.exit_status && err)
        *err = w->err;
    return w->err.exit_status ? -1 : 0;
}

int session_write(struct session *s, const grappa_token *prompt, size_t n, bool echo,
                  const struct session_turn *turn, struct buf *text, enum ending *ending,
                  struct grappa_err *err)
{
    if (n == 0)
        return cli_error(err, 1, "the prompt is empty");
    if (n >= session_n_ctx(s))
        return cli_error(err, 1, "the prompt has %zu tokens, of the %u of the context; see -c", n,
                         session_n_ctx(s));
    const struct session_turn plain = {0};
    struct writer w = {.s = s, .turn = turn ? turn : &plain, .text = text, .prompt = prompt};
    w.n_prompt = n;
    w.n_echo = echo ? n : 0;
    open_writer(&w);
    int status = run(s, &w, err);
    /* What might have become a stop text. Half a character, held back so far, is no text. */
    if (w.ending != END_STOP_TEXT && w.ending != END_OUTPUT && !write_out(&w, stop_end(&w.stop)))
        w.ending = END_OUTPUT;
    *ending = w.ending;
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
    struct grappa_engine_stats t;
    grappa_engine_stats(s->engine, &t);
    if (s->n_drafted && t.drafts)
        fprintf(stderr, "%16s = %0.5f (%5zu accepted / %5zu generated), mean len = %5.2f\n",
                "draft acceptance", (double)s->n_accepted / (double)s->n_drafted, s->n_accepted, s->n_drafted,
                1 + (double)s->n_accepted / (double)t.drafts);
    fprintf(stderr, "%16s = %10.2f ms / %5zu tokens\n", "total time", 1e3 * (now_s() - s->start - s->load_s),
            s->n_prompt + s->n_decode);
}
