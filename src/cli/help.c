/* The help text, written from the tables: what is not in options.def or commands.def is not in here. */
#include "cli/common.h"
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 110, COLUMN = 30 };

/* Columns a text takes: its characters, not its bytes. */
static int columns(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

/* Prints words from the current column on, and goes on under `indent` when the line is full. */
static void wrap(const char *text, int column, int indent)
{
    while (*text) {
        int len = (int)strcspn(text, " ");
        char word[128];
        snprintf(word, sizeof word, "%.*s", len, text);
        int space = column > indent;
        if (space && column + 1 + columns(word) > WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
            space = 0;
        }
        printf("%*s%s", space, "", word);
        column += space + columns(word);
        text += len;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static bool add_name(const char *name, size_t len, void *user)
{
    char *line = user;
    size_t n = strlen(line);
    snprintf(line + n, 512 - n, "%s%.*s", n ? ", " : "", (int)len, name);
    return false;
}

static void print_option(const struct option *d, const struct command *c)
{
    char head[512] = "", env[160] = "", deflt[128] = "", text[1024], grappa[64], llama[64];
    each_name(d->names, add_name, head);
    each_name(d->off, add_name, head);
    if (*d->value) {
        size_t n = strlen(head);
        snprintf(head + n, sizeof head - n, " %s", d->value);
    }
    const char *standard = option_default(d, c);
    if (d->kind == OPT_BOOL && *standard == '1')
        snprintf(deflt, sizeof deflt, " (default: on)");
    else if (*standard && d->kind != OPT_BOOL && d->kind != OPT_COUNT)
        snprintf(deflt, sizeof deflt, " (default: %s)", standard);
    if (option_env(d, grappa, llama))
        snprintf(env, sizeof env, " [%s%s%s]", llama, *llama ? ", " : "", grappa);
    snprintf(text, sizeof text, "%s%s%s", d->help, deflt, env);

    printf("  %s", head);
    int column = 2 + columns(head);
    if (column >= COLUMN) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", COLUMN - column, "");
    wrap(text, COLUMN, COLUMN);
}

/* Rows without anything to explain, names only. */
static void print_names(const struct command *c, enum option_kind kind, const char *title)
{
    unsigned bit = 1u << (c - commands);
    bool any = false;
    for (size_t i = 0; i < n_options; i++) {
        const struct option *d = &option_table[i];
        if (d->kind != kind || !(d->commands & bit))
            continue;
        if (!any)
            printf("\n%s:\n", title);
        any = true;
        char head[512] = "";
        each_name(d->names, add_name, head);
        each_name(d->off, add_name, head);
        if (*d->value) {
            size_t n = strlen(head);
            snprintf(head + n, sizeof head - n, " %s", d->value);
        }
        printf("  ");
        if (d->help) {
            size_t n = strlen(head);
            snprintf(head + n, sizeof head - n, ": %s", d->help);
        }
        wrap(head, 2, 4);
    }
}

static void print_command(const struct command *c)
{
    unsigned bit = 1u << (c - commands);
    printf("grappa %s: %s\n\n%s\n", c->name, c->summary, c->example);
    const char *section = NULL;
    for (size_t i = 0; i < n_options; i++) {
        const struct option *d = &option_table[i];
        if (d->kind == OPT_SECTION)
            section = d->help;
        if (d->kind == OPT_SECTION || d->kind == OPT_NOP || d->kind == OPT_REFUSED || !(d->commands & bit))
            continue;
        if (section)
            printf("\n%s:\n", section);
        section = NULL;
        print_option(d, c);
    }
    print_names(c, OPT_REFUSED, "Not supported");
    print_names(c, OPT_NOP, "Accepted without effect");
    if (c == &commands[COMMAND_RUN])
        printf("\nIn a chat: /help shows the commands, Ctrl-C stops an answer, Ctrl-D leaves.\n");
}

void help_print(const struct command *c)
{
    if (c) {
        print_command(c);
        return;
    }
    printf("grappa %s: GGUF language models on OpenVINO\n\nusage: grappa COMMAND [options]\n\n",
           GRAPPA_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++)
        printf("  %-12s %s\n", commands[i].name, commands[i].summary);
    printf("\n`grappa help COMMAND` explains one. Called as llama-cli, llama-completion, llama-server, "
           "llama-bench,\nllama-perplexity or llama-tokenize the program behaves like those.\n");
}

int cmd_help(const struct options *o)
{
    if (!o->argument) {
        help_print(NULL);
        return 0;
    }
    const struct command *c = command_by_name(o->argument);
    if (!c)
        c = command_by_program(o->argument);
    if (!c)
        return unknown_command(o->argument);
    help_print(c);
    return 0;
}
