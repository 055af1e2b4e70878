/* What the commands share: the error line, output that may fail, reading files, and a model loaded by the
 * options. The one error value in this room is the public struct grappa_err, as for any program that uses the
 * library. */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include "cli/options.h"

#include "base/buf.h"
#include "base/log.h"

#include <signal.h>
#include <stdio.h>

enum { EXIT_INTERRUPTED = 130 }; /* what a shell reports for a program ended by Ctrl-C */

/* Fills `err` (exit status 1: run time, 2: usage) unless it is set. */
void cli_set_error(struct grappa_err *err, int exit_status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same as an expression that is -1, so that `return cli_error(…)` reads well, to checkers too. */
#define cli_error(...) (cli_set_error(__VA_ARGS__), cli_failed())
static inline int cli_failed(void)
{
    return -1;
}
/* Writes the error's line to stderr; returns the exit status it asks for. */
int cli_fail(const struct grappa_err *err);
/* One line for a command that doesn't exist; returns 2. */
int unknown_command(const char *name);

/* ---- stdout ---- */
void out_start(void); /* before anything is written */
/* Writes and flushes; false once stdout takes no more, and then there is no point in going on. */
bool out_text(const char *p, size_t n);
bool out_flush(void); /* the same for what printf wrote */
/* At the end: what a command's exit status becomes. A reader that went away is no failure, a full disk is. */
int out_finish(int status);

/* The file `path` for binary output ("-" or NULL: stdout). close_output says whether all of it arrived. Where
 * it is stdout that takes no more, write_output returns -1 without an error, and out_finish has the word. */
FILE *open_output(const char *path, struct grappa_err *err);
int write_output(FILE *f, const char *path, const void *p, size_t n, struct grappa_err *err);
int close_output(FILE *f, const char *path, struct grappa_err *err);

/* ---- input ---- */
/* All of a file, or of a stream. */
int read_file(const char *path, struct buf *out, struct grappa_err *err);
int read_stream(FILE *f, const char *name, struct buf *out, struct grappa_err *err);
/* Replaces \n, \r, \t, \', \", \\ and \xHH in place; others stay as they are. Returns the new length. */
size_t unescape(char *text, size_t n);
/* The prompt of -p, -f or -bf, with escapes replaced if asked for; empty if none was given. `verbatim` keeps
 * the newline at the end of a file. */
int read_prompt(const struct options *o, bool verbatim, struct buf *out, struct grappa_err *err);
bool has_prompt(const struct options *o);

/* On stderr, for --verbose-prompt: how many, and each with its text. */
void show_tokens(const struct grappa_vocab *v, const grappa_token *tokens, size_t n);

/* ---- interruption ---- */
/* From then on the first SIGINT sets `interrupted`, and one that comes while it is still set ends the
 * process. */
void catch_interrupts(void);
extern volatile sig_atomic_t interrupted;

/* ---- models ---- */
struct model_setup {
    struct grappa_model_params params;
    struct grappa_property *properties;
};

/* Whether the options ask for guesses by layers of the model itself. */
bool guesses_by_mtp(const struct options *o);
/* Model parameters by the options; model_setup_release is due either way. */
int model_setup_init(struct model_setup *s, const struct options *o, struct grappa_err *err);
void model_setup_release(struct model_setup *s);
/* A cache or inference type by its name; NULL stands for the default. */
int type_parse(const char *option, const char *name, enum grappa_type *out, struct grappa_err *err);
/* NULL, "none" and "auto" stand for the CPU. */
const char *device_name(const char *name);
/* Loads; on a terminal with progress if it takes longer than a second. */
struct grappa_model *load_model(const char *path, const struct grappa_model_params *params,
                                struct grappa_err *err);
/* With -hf: fetches the model, if need be, and makes it the one of -m; on a terminal with progress. */
int fetch_model(struct options *o, struct grappa_err *err);
/* All of it at once, by the options. */
struct grappa_model *load_model_of(const struct options *o, struct grappa_err *err);

/* With --profile: the times by kind of node, on stderr. */
void print_profile(const struct options *o, struct grappa_context *c);

double now_s(void); /* a clock that only goes forward */

#endif
