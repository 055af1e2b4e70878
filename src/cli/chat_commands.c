/* What a person can type instead of a question: one row for each command. */
#include "cli/chat_state.h"
#include "cli/common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAVED ((size_t)64 << 20)

static const char *role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

static enum chat_command_result leave(struct chat *c, const char *argument)
{
    (void)c;
    (void)argument;
    return CHAT_LEAVE;
}

static enum chat_command_result clear(struct chat *c, const char *argument)
{
    (void)argument;
    chat_keep(c, chat_system(c) ? 1 : 0);
    buf_clear(&c->files);
    fputs("The conversation starts anew.\n", stderr);
    return CHAT_DONE;
}

static enum chat_command_result again(struct chat *c, const char *argument)
{
    (void)argument;
    size_t n = json_array_size(c->messages);
    while (n && strcmp(role_of(json_array_get(c->messages, n - 1)), "assistant") == 0)
        n--;
    if (n == json_array_size(c->messages) || n == 0) {
        fputs("There is no answer to write again.\n", stderr);
        return CHAT_DONE;
    }
    chat_keep(c, n);
    return CHAT_AGAIN;
}

static enum chat_command_result set_system(struct chat *c, const char *argument)
{
    json_t *first = chat_system(c);
    if (first && !*argument)
        json_array_remove(c->messages, 0);
    else if (first)
        json_object_set_new(first, "content", chat_text(str_of(argument)));
    else if (*argument)
        json_array_insert_new(
            c->messages, 0,
            json_pack("{s:s, s:o}", "role", "system", "content", chat_text(str_of(argument))));
    fputs(*argument ? "The system message is set.\n" : "There is no system message now.\n", stderr);
    return CHAT_DONE;
}

static enum chat_command_result read_text(struct chat *c, const char *argument)
{
    struct grappa_err err = {0};
    struct buf text = {.ceiling = MAX_SAVED};
    if (read_file(argument, &text, &err)) {
        cli_fail(&err);
    } else {
        buf_printf(&c->files, "--- File: %s ---\n", argument);
        buf_add(&c->files, text.p, text.n);
        if (text.n && text.p[text.n - 1] != '\n')
            buf_putc(&c->files, '\n');
        fprintf(stderr, "%s goes with the next question.\n", argument);
    }
    buf_release(&text);
    return CHAT_DONE;
}

static enum chat_command_result save(struct chat *c, const char *argument)
{
    if (json_dump_file(c->messages, argument, JSON_INDENT(2)))
        fprintf(stderr, "grappa: %s: %s\n", argument, strerror(errno));
    else
        fprintf(stderr, "%zu messages are in %s.\n", json_array_size(c->messages), argument);
    return CHAT_DONE;
}

static bool is_conversation(const json_t *messages)
{
    json_t *message;
    size_t i;
    json_array_foreach(messages, i, message)
    {
        if (!*role_of(message))
            return false;
    }
    return json_is_array(messages);
}

static enum chat_command_result load(struct chat *c, const char *argument)
{
    struct grappa_err err = {0};
    struct buf text = {.ceiling = MAX_SAVED};
    if (read_file(argument, &text, &err)) {
        cli_fail(&err);
        buf_release(&text);
        return CHAT_DONE;
    }
    json_t *messages = json_loadb(text.n ? text.p : "", text.n, JSON_ALLOW_NUL, NULL);
    buf_release(&text);
    if (!is_conversation(messages)) {
        fprintf(stderr, "grappa: %s: not a JSON array of messages\n", argument);
        json_decref(messages);
        return CHAT_DONE;
    }
    json_decref(c->messages);
    c->messages = messages;
    fprintf(stderr, "%zu messages are loaded.\n", json_array_size(messages));
    return CHAT_DONE;
}

static enum chat_command_result help(struct chat *c, const char *argument);

/* Row: name, what stands for its argument (NULL: it takes none; in brackets: it may be missing), what it
 * does. */
static const struct {
    const char *name, *argument, *help;
    enum chat_command_result (*run)(struct chat *c, const char *argument);
} commands_of_chat[] = {
    {"/clear", NULL, "forget the conversation", clear},
    {"/exit", NULL, "leave, as /quit and Ctrl-D do", leave},
    {"/help", NULL, "show this", help},
    {"/load", "FILE", "go on with a conversation that was saved", load},
    {"/quit", NULL, NULL, leave},
    {"/read", "FILE", "put a text file in front of the next question", read_text},
    {"/regen", NULL, "write the last answer again", again},
    {"/save", "FILE", "write the conversation to a file, as JSON", save},
    {"/system", "[TEXT]", "set the system message, or remove it", set_system},
};

static enum chat_command_result help(struct chat *c, const char *argument)
{
    (void)c;
    (void)argument;
    for (size_t i = 0; i < sizeof commands_of_chat / sizeof commands_of_chat[0]; i++) {
        const char *what = commands_of_chat[i].argument;
        if (commands_of_chat[i].help)
            fprintf(stderr, "%-8s %-7s %s\n", commands_of_chat[i].name, what ? what : "",
                    commands_of_chat[i].help);
    }
    fputs(
        "A line that ends in \\ goes on in the next one. Ctrl-C stops an answer, and leaves at the prompt.\n",
        stderr);
    return CHAT_DONE;
}

enum chat_command_result chat_command(struct chat *c, const char *line)
{
    for (size_t i = 0; i < sizeof commands_of_chat / sizeof commands_of_chat[0]; i++) {
        size_t n = strlen(commands_of_chat[i].name);
        const char *what = commands_of_chat[i].argument;
        if (strncmp(line, commands_of_chat[i].name, n) != 0 || (line[n] && (line[n] != ' ' || !what)))
            continue;
        const char *argument = line + n + strspn(line + n, " ");
        if (what && *what != '[' && !*argument) {
            fprintf(stderr, "%s needs a %s.\n", commands_of_chat[i].name, what);
            return CHAT_DONE;
        }
        return commands_of_chat[i].run(c, argument);
    }
    return CHAT_NO_COMMAND;
}
