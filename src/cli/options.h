/* Options of every command, made from options.def and commands.def: the struct they fill, the parser, and
 * what the help text and other users of the table need to know about a row. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "grappa.h"

#include "base/mem.h"

#include <stdint.h>

/* ---- commands ---- */
enum command_index {
#define COMMAND(id, name, run, aliases, needs_model, plain_argument, summary, example) COMMAND_##id,
#include "cli/commands.def"
#undef COMMAND
    N_COMMANDS
};

/* Sets of commands, the unit of the table's `commands` column. */
enum {
#define COMMAND(id, name, run, aliases, needs_model, plain_argument, summary, example) id = 1 << COMMAND_##id,
#include "cli/commands.def"
#undef COMMAND
    WRITE = RUN | SERVE,                       /* those that write text */
    MODEL = RUN | PERPLEXITY | LOGITS | SERVE, /* those that run one model */
    ANY = (1 << N_COMMANDS) - 1
};

struct options;

struct command {
    const char *name;
    int (*run)(const struct options *o); /* returns the exit status */
    const char *aliases;                 /* program names, separated by commas */
    bool needs_model;
    bool plain_argument; /* one argument that is no option: the model, or the topic of `help` */
    const char *summary, *example;
};

extern const struct command commands[N_COMMANDS];

#define COMMAND(id, name, run, aliases, needs_model, plain_argument, summary, example)                       \
    int run(const struct options *o);
#include "cli/commands.def"
#undef COMMAND

/* ---- options ---- */
struct strings {
    const char **v;
    size_t n;
};

struct ints {
    int32_t *v;
    size_t n;
};

#define OPTION_TYPE_BOOL  bool
#define OPTION_TYPE_TRI   int
#define OPTION_TYPE_COUNT int
#define OPTION_TYPE_I32   int32_t
#define OPTION_TYPE_U32   uint32_t
#define OPTION_TYPE_SEED  uint32_t
#define OPTION_TYPE_F32   float
#define OPTION_TYPE_STR   const char *
#define OPTION_TYPE_WORD  const char *
#define OPTION_TYPE_LIST  struct strings
#define OPTION_TYPE_CSV   struct strings
#define OPTION_TYPE_INTS  struct ints

struct options {
#define SECTION(title)
#define OPT(field, kind, names, off, value, least, most, deflt, cmds, env, help) OPTION_TYPE_##kind field;
#define NOP(takes, names, off, value, cmds)
#define REFUSED(takes, names, cmds, why)
#define DEFAULT(cmd, field, deflt)
#include "cli/options.def"
#undef SECTION
#undef OPT
#undef NOP
#undef REFUSED
#undef DEFAULT
    const struct command *command;
    const char *called_as;  /* the program's name: "grappa", "llama-bench", … */
    const char *argument;   /* the plain argument, if the command takes one */
    struct strings ignored; /* options given that have no effect */
    bool *from_environment; /* rows of the table whose list came from there */
    struct arena mem;       /* owns what the lists point to */
};

/* A row of the table. */
enum option_kind {
    OPT_SECTION,
    OPT_BOOL,
    OPT_TRI,
    OPT_COUNT,
    OPT_I32,
    OPT_U32,
    OPT_SEED,
    OPT_F32,
    OPT_STR,
    OPT_WORD,
    OPT_LIST,
    OPT_CSV,
    OPT_INTS,
    OPT_NOP,
    OPT_REFUSED
};

enum option_takes { TAKES_FLAG, TAKES_ARG, TAKES_MAYBE };

struct option {
    enum option_kind kind;
    enum option_takes takes;
    unsigned commands;
    const char *names, *off; /* separated by commas */
    const char *value;       /* what stands for the value in the help text; the words of a WORD */
    double least, most;
    const char *deflt, *env, *help;
    size_t offset;
};

extern const struct option option_table[];
extern const size_t n_options;

/* The default of a row for a command. */
const char *option_default(const struct option *d, const struct command *c);
/* The two environment names of a row; false when it has none. `llama` may be empty. */
bool option_env(const struct option *d, char grappa[64], char llama[64]);

/* Calls fn for each name in a list separated by commas; stops and returns true when fn does. */
bool each_name(const char *names, bool (*fn)(const char *name, size_t len, void *user), void *user);

/* Fills `o` from defaults, environment and argv[0 … argc) (without program and command), in this order.
 * Strings point into argv and the environment. -1: wrong usage; options_release is due either way. */
int options_parse(struct options *o, const struct command *c, const char *called_as, int argc, char **argv,
                  struct grappa_err *err);
void options_release(struct options *o);

/* The command of that name, or whose program name it is; NULL. */
const struct command *command_by_name(const char *name);
const struct command *command_by_program(const char *name);
/* The known command nearest to a misspelt one, or NULL. */
const char *command_nearest(const char *name);

/* Help on stdout: one command, or (NULL) all of them in short. */
void help_print(const struct command *c);

#endif
