/* The program: which command is meant, by the name it was called by or by its first argument; then its
 * options. Everything else is in the commands. */
#include "cli/common.h"
#include "cli/options.h"

#include "base/cut.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* A file we open must not become stdin, stdout or stderr because the caller closed those. The flags are
 * chosen so that using one that was closed still fails. */
static void occupy_standard_streams(void)
{
    static const int flags[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", flags[fd]) != fd)
            _exit(1);
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The command; moves *first to the first of its arguments. NULL: the status says how it ended. */
static const struct command *choose_command(int argc, char **argv, int *first, int *status)
{
    const char *program = argc > 0 ? base_name(argv[0]) : "grappa";
    const struct command *c = command_by_program(program);
    *first = 1;
    if (c)
        return c;
    const char *name = argc > 1 ? argv[1] : NULL;
    *first = 2;
    *status = 0;
    if (!name || strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0)
        c = &commands[COMMAND_HELP];
    else if (strcmp(name, "--version") == 0)
        c = &commands[COMMAND_VERSION];
    else if (strcmp(name, "--list-devices") == 0)
        c = &commands[COMMAND_DEVICES];
    else
        c = command_by_name(name);
    if (!c)
        *status = unknown_command(name);
    return c;
}

static int start_log(const struct options *o, struct grappa_err *err)
{
    int level = o->log_disable ? LOG_ERROR : LOG_WARN + o->verbose;
    if (level > LOG_DEBUG)
        level = LOG_DEBUG;
    if (grappa_log(level, o->log_file, err))
        return -1;
    log_set_level((enum log_level)level);
    for (size_t i = 0; i < o->ignored.n; i++)
        log_info("%s has no effect here", o->ignored.v[i]);
    return 0;
}

static int run_command(struct options *o)
{
    struct grappa_err err = {0};
    const struct command *c = o->command;
    if (start_log(o, &err))
        return cli_fail(&err);
    if (o->help) {
        help_print(c);
        return 0;
    }
    if (o->version)
        return commands[COMMAND_VERSION].run(o);
    if (o->list_devices)
        return commands[COMMAND_DEVICES].run(o);
    if (c->needs_model && c->plain_argument && !o->model)
        o->model = o->argument;
    if (o->hf_repo && !o->model && fetch_model(o, &err))
        return cli_fail(&err);
    if (c->needs_model && !o->model && !o->models.n) {
        cli_error(&err, 2, "`%s` needs a model: -m FILE", c->name);
        return cli_fail(&err);
    }
    return c->run(o);
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away shows as EPIPE where we write */
    cut_files_read_as_zeros();
    out_start();
    setlocale(LC_CTYPE, ""); /* for line editing; numbers stay as in C */

    int first, status = 0;
    const struct command *c = choose_command(argc, argv, &first, &status);
    if (!c)
        return status;
    struct options o;
    struct grappa_err err = {0};
    int left = argc > first ? argc - first : 0;
    if (options_parse(&o, c, argc > 0 ? base_name(argv[0]) : "grappa", left, argv + argc - left, &err))
        status = cli_fail(&err);
    else
        status = run_command(&o);
    options_release(&o);
    if (argc < 2 && c == &commands[COMMAND_HELP])
        status = 2; /* the bare name: help, but nothing was asked for */
    return out_finish(status);
}
