/* Small things every command needs: one error line, output that notices a full disk, files, the prompt, a
 * model. */
#include "cli/common.h"

#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- errors ---- */

void cli_set_error(struct grappa_err *err, int exit_status, const char *fmt, ...)
{
    if (!err || err->exit_status)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    for (char *p = err->text; *p; p++) { /* names come from outside: keep it one line */
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    }
    err->exit_status = exit_status;
    err->http_status = exit_status == 2 ? 400 : 500;
}

int cli_fail(const struct grappa_err *err)
{
    log_at(LOG_ERROR, "%s", *err->text ? err->text : "failed without a reason");
    return err->exit_status ? err->exit_status : 1;
}

int unknown_command(const char *name)
{
    const char *near = command_nearest(name);
    struct grappa_err err = {0};
    if (near)
        cli_error(&err, 2, "%s: unknown command; did you mean %s?", name, near);
    else
        cli_error(&err, 2, "%s: unknown command; see `grappa help`", name);
    return cli_fail(&err);
}

/* ---- output ---- */

static int out_errno; /* why stdout takes no more, 0 while it does */

static void note_output(bool ok)
{
    if (!ok && !out_errno)
        out_errno = errno ? errno : EIO;
}

bool out_text(const char *p, size_t n)
{
    if (out_errno)
        return false;
    errno = 0;
    note_output(fwrite(p, 1, n, stdout) == n && fflush(stdout) == 0);
    return out_errno == 0;
}

bool out_flush(void)
{
    if (out_errno)
        return false;
    errno = 0;
    note_output(fflush(stdout) == 0);
    return out_errno == 0;
}

void out_start(void)
{
    /* What is not shown piece by piece goes out at once, so that out_finish sees why it could not. */
    if (!isatty(STDOUT_FILENO))
        setvbuf(stdout, NULL, _IOFBF, 1 << 20);
}

/* For a write that stdio did by itself, whose errno is gone. */
static bool reader_is_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

int out_finish(int status)
{
    bool lost = ferror(stdout) && !out_errno;
    errno = 0;
    if (fflush(stdout) != 0)
        note_output(false);
    if ((!lost && !out_errno) || out_errno == EPIPE || reader_is_gone())
        return status;
    if (status == 0) {
        struct grappa_err err = {0};
        if (out_errno)
            cli_error(&err, 1, "can't write to stdout: %s", strerror(out_errno));
        else
            cli_error(&err, 1, "can't write to stdout");
        status = cli_fail(&err);
    }
    return status;
}

FILE *open_output(const char *path, struct grappa_err *err)
{
    if (!path || strcmp(path, "-") == 0)
        return stdout;
    FILE *f = fopen(path, "wb");
    if (!f)
        cli_error(err, 1, "can't write %s: %s", path, strerror(errno));
    return f;
}

int write_output(FILE *f, const char *path, const void *p, size_t n, struct grappa_err *err)
{
    if (f == stdout)
        return out_text(p, n) ? 0 : -1;
    errno = 0;
    return fwrite(p, 1, n, f) == n
               ? 0
               : cli_error(err, 1, "can't write %s: %s", path, strerror(errno ? errno : EIO));
}

int close_output(FILE *f, const char *path, struct grappa_err *err)
{
    if (!f || f == stdout)
        return 0; /* out_finish looks after it */
    errno = 0;
    bool ok = fflush(f) == 0 && !ferror(f);
    int why = errno;
    if (fclose(f) != 0 && ok) {
        ok = false;
        why = errno;
    }
    return ok ? 0 : cli_error(err, 1, "can't write %s: %s", path, strerror(why ? why : EIO));
}

/* ---- input ---- */

int read_stream(FILE *f, const char *name, struct buf *out, struct grappa_err *err)
{
    char chunk[1 << 16];
    size_t n;
    errno = 0;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_add(out, chunk, n);
    if (ferror(f))
        return cli_error(err, 1, "can't read %s: %s", name, strerror(errno));
    if (out->failed)
        return cli_error(err, 1, "can't read %s: too long", name);
    return 0;
}

int read_file(const char *path, struct buf *out, struct grappa_err *err)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return cli_error(err, 1, "can't read %s: %s", path, strerror(errno));
    int status = read_stream(f, path, out, err);
    fclose(f);
    return status;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

size_t unescape(char *text, size_t n)
{
    static const char from[] = "nrt'\"\\", to[] = "\n\r\t'\"\\";
    size_t w = 0;
    for (size_t i = 0; i < n; i++) {
        const char *known = text[i] == '\\' && i + 1 < n && text[i + 1] ? strchr(from, text[i + 1]) : NULL;
        if (known) {
            text[w++] = to[known - from];
            i++;
        } else if (text[i] == '\\' && i + 3 < n && text[i + 1] == 'x' && hex(text[i + 2]) >= 0 &&
                   hex(text[i + 3]) >= 0) {
            text[w++] = (char)(hex(text[i + 2]) * 16 + hex(text[i + 3]));
            i += 3;
        } else {
            text[w++] = text[i];
            /* An unknown escape stays whole, so that its second character can't start another one. */
            if (text[i] == '\\' && i + 1 < n)
                text[w++] = text[++i];
        }
    }
    return w;
}

bool has_prompt(const struct options *o)
{
    return o->prompt || o->prompt_file || o->binary_file;
}

int read_prompt(const struct options *o, bool verbatim, struct buf *out, struct grappa_err *err)
{
    const char *file = o->prompt_file ? o->prompt_file : o->binary_file;
    if (file && read_file(file, out, err))
        return -1;
    if (file == o->prompt_file && file && !verbatim && out->n && out->p[out->n - 1] == '\n')
        out->n--;
    if (!file && o->prompt)
        buf_puts(out, o->prompt);
    if (out->n && o->escape)
        out->n = unescape(out->p, out->n);
    if (out->p)
        out->p[out->n] = '\0';
    return 0;
}

void show_tokens(const struct grappa_vocab *v, const grappa_token *tokens, size_t n)
{
    fprintf(stderr, "number of tokens in prompt = %zu\n", n);
    for (size_t i = 0; i < n; i++) {
        char piece[256];
        size_t len = grappa_token_piece(v, tokens[i], true, piece, sizeof piece);
        fprintf(stderr, "%6d -> '%.*s'\n", tokens[i], (int)(len < sizeof piece ? len : sizeof piece), piece);
    }
}

/* ---- interruption ---- */

volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    if (interrupted)
        _exit(EXIT_INTERRUPTED);
    interrupted = 1;
}

void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

/* ---- models ---- */

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *device_name(const char *name)
{
    if (!name || strcmp(name, "none") == 0 || strcmp(name, "auto") == 0)
        return "CPU";
    return name;
}

int type_parse(const char *option, const char *name, enum grappa_type *out, struct grappa_err *err)
{
    *out = GRAPPA_TYPE_DEFAULT;
    if (name && grappa_type_parse(name, out))
        return cli_error(err, 2, "%s %s: not a type that can be had here: f32, f16, bf16, q8_0, q4_0", option,
                         name);
    return 0;
}

static int split_properties(struct model_setup *s, const struct strings *texts, struct grappa_err *err)
{
    s->properties = xcalloc(texts->n + 1, sizeof *s->properties);
    for (size_t i = 0; i < texts->n; i++) {
        char *key = xstrdup(texts->v[i]);
        char *equals = strchr(key, '=');
        s->properties[i].key = key;
        s->params.n_properties = i + 1;
        if (!equals || equals == key)
            return cli_error(err, 2, "--ov %s: must be KEY=VALUE", texts->v[i]);
        *equals = '\0';
        s->properties[i].value = equals + 1;
    }
    s->params.properties = s->properties;
    return 0;
}

/* The table's -1 is the library's 0: "as the file says". */
static float file_default(float v)
{
    return v < 0 ? 0 : v;
}

bool guesses_by_mtp(const struct options *o)
{
    return o->spec_type && strstr(o->spec_type, "draft-mtp") && !strstr(o->spec_type, "ngram") &&
           !o->model_draft;
}

int model_setup_init(struct model_setup *s, const struct options *o, struct grappa_err *err)
{
    *s = (struct model_setup){0};
    struct grappa_model_params *p = &s->params;
    p->device = device_name(o->device);
    p->n_threads = o->n_threads > 0 ? o->n_threads : 0;
    p->override_kv = o->override_kv.v;
    p->n_override_kv = o->override_kv.n;
    p->rope_scaling = o->rope_scaling;
    p->rope_scale = o->rope_scale;
    p->rope_freq_base = o->rope_freq_base;
    p->rope_freq_scale = o->rope_freq_scale;
    p->yarn_orig_ctx = o->yarn_orig_ctx;
    p->yarn_ext_factor = o->yarn_ext_factor;
    p->yarn_attn_factor = file_default(o->yarn_attn_factor);
    p->yarn_beta_slow = file_default(o->yarn_beta_slow);
    p->yarn_beta_fast = file_default(o->yarn_beta_fast);
    p->profile = o->profile;
    p->repack = o->repack;
    p->mtp = guesses_by_mtp(o);
    if (type_parse("--precision", o->precision, &p->precision, err) ||
        type_parse("--cache-type-k", o->type_k, &p->type_k, err) ||
        type_parse("--cache-type-v", o->type_v, &p->type_v, err))
        return -1;
    return split_properties(s, &o->properties, err);
}

void model_setup_release(struct model_setup *s)
{
    for (size_t i = 0; i < s->params.n_properties; i++)
        free((char *)s->properties[i].key);
    free(s->properties);
    *s = (struct model_setup){0};
}

struct load_progress {
    double start;
    bool on_terminal, shown;
};

static bool show_progress(float done, void *user)
{
    struct load_progress *p = user;
    if (p->on_terminal && now_s() - p->start > 1) {
        fprintf(stderr, "\rloading %3.0f %%", 100 * (double)done);
        p->shown = true;
    }
    return !interrupted;
}

struct grappa_model *load_model(const char *path, const struct grappa_model_params *params,
                                struct grappa_err *err)
{
    struct load_progress progress = {.start = now_s(), .on_terminal = isatty(STDERR_FILENO)};
    struct grappa_model_params p = *params;
    p.progress = show_progress;
    p.progress_user = &progress;
    struct grappa_model *m = grappa_model_load(path, &p, err);
    if (progress.shown)
        fprintf(stderr, "\r\033[K");
    if (!m)
        return NULL;
    struct grappa_model_stats stats;
    grappa_model_stats(m, &stats);
    log_info("loaded %s in %.2f s (building %.2f s, compiling %.2f s)", path, stats.load_s, stats.build_s,
             stats.compile_s);
    return m;
}

struct grappa_model *load_model_of(const struct options *o, struct grappa_err *err)
{
    struct model_setup setup;
    struct grappa_model *m = NULL;
    if (model_setup_init(&setup, o, err) == 0)
        m = load_model(o->model, &setup.params, err);
    model_setup_release(&setup);
    return m;
}

void print_profile(const struct options *o, struct grappa_context *c)
{
    const char *text = o->profile ? grappa_profile(c) : NULL;
    if (text)
        fputs(text, stderr);
}
