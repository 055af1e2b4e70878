/* A conversation as the files of the chat share it: its messages, and the commands that change them. */
#ifndef CLI_CHAT_STATE_H
#define CLI_CHAT_STATE_H

#include "cli/line.h"
#include "cli/session.h"

#include <jansson.h>

struct chat {
    struct session *s;
    json_t *messages;           /* array of OpenAI's messages */
    struct buf template, tools; /* from the options; empty: the file's, none */
    struct buf files;           /* read by /read, in front of the next question */
    struct line_reader *reader;
    bool colors;
};

/* A text as a JSON string; bytes that are no character become U+FFFD. */
json_t *chat_text(struct str text);
void chat_add(struct chat *c, const char *role, struct str content);
/* Drops messages from the end. */
void chat_keep(struct chat *c, size_t n);
/* The first message, if it is the system's; NULL. */
json_t *chat_system(const struct chat *c);
/* The calls of the last message that have no result yet: the first of them, NULL when there is none. */
json_t *chat_open_call(const struct chat *c);

enum chat_command_result {
    CHAT_NO_COMMAND,
    CHAT_DONE,
    CHAT_LEAVE,
    CHAT_AGAIN, /* the last question is to be answered once more */
};
/* Runs a line that begins with the name of a command. */
enum chat_command_result chat_command(struct chat *c, const char *line);

#endif
