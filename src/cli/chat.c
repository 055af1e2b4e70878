/* A conversation: messages in, the whole of it through the model's template for every turn. What the context
 * already holds of it is not computed again (session.c). */
#include "cli/chat.h"

#include "cli/common.h"
#include "cli/line.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat {
    struct session *s;
    struct grappa_message *messages; /* contents are owned */
    size_t n, size;
    struct buf template; /* from the options; empty: the file's */
    struct line_reader *reader;
};

static void add_message(struct chat *c, const char *role, struct str content)
{
    if (c->n == c->size) {
        c->size = 2 * c->size + 8;
        c->messages = xrealloc(c->messages, c->size * sizeof *c->messages);
    }
    char *copy = xmalloc(content.n + 1);
    if (content.n)
        memcpy(copy, content.p, content.n);
    copy[content.n] = '\0';
    c->messages[c->n++] = (struct grappa_message){role, copy};
}

static void drop_messages(struct chat *c, size_t keep)
{
    while (c->n > keep)
        free((char *)c->messages[--c->n].content);
}

static size_t n_system_messages(const struct chat *c)
{
    return c->n && strcmp(c->messages[0].role, "system") == 0;
}

/* ---- a turn ---- */

static grappa_token *render(struct chat *c, bool for_answer, size_t *n, struct grappa_err *err)
{
    const char *template = c->template.n ? c->template.p : NULL;
    size_t len;
    char *prompt = grappa_chat_apply(c->s->vocab, template, c->messages, c->n, for_answer, &len, err);
    if (!prompt)
        return NULL;
    grappa_token *tokens = tokenize(c->s->vocab, prompt, len, true, true, n, err);
    free(prompt);
    /* Many templates write the BOS that the tokenizer adds too. */
    if (tokens && *n >= 2 && tokens[0] == tokens[1] && tokens[0] == grappa_vocab_bos(c->s->vocab))
        memmove(tokens, tokens + 1, --*n * sizeof *tokens);
    return tokens;
}

/* How much of the prompt the next one will begin with: the messages, but perhaps not what asks for an answer,
 * such as the start of a thought that templates leave out later. */
static size_t lasting_part(struct chat *c, const grappa_token *prompt, size_t n)
{
    size_t n_messages = 0, same = 0;
    grappa_token *messages = render(c, false, &n_messages, NULL);
    while (messages && same < n && same < n_messages && messages[same] == prompt[same])
        same++;
    free(messages);
    return same;
}

/* The answer to the messages so far, which then is one of them. A question without one is taken back. */
static int answer(struct chat *c, bool echo, enum ending *ending, struct grappa_err *err)
{
    struct buf text = {0};
    size_t n = 0;
    grappa_token *tokens = render(c, true, &n, err);
    int status = tokens ? 0 : -1;
    if (tokens && c->s->o->verbose_prompt)
        show_tokens(c->s->vocab, tokens, n);
    if (tokens)
        c->s->n_lasting = grappa_model_is_recurrent(c->s->model) ? lasting_part(c, tokens, n) : 0;
    if (tokens)
        status = session_write(c->s, tokens, n, echo, &text, ending, err);
    bool unanswered = status || (text.n == 0 && *ending == END_INTERRUPT);
    if (unanswered)
        drop_messages(c, c->n - 1);
    else
        add_message(c, "assistant", buf_str(&text));
    if (*ending != END_OUTPUT && (status == 0 || text.n))
        out_text("\n", 1);
    if (status == 0 && *ending == END_CONTEXT)
        log_warn("the context of %u positions is full; /clear starts anew", grappa_n_ctx(c->s->ctx));
    buf_release(&text);
    free(tokens);
    return status;
}

/* ---- the person's side ---- */

enum command_result { NOT_A_COMMAND, DONE, LEAVE };

static enum command_result chat_command(struct chat *c, const char *text)
{
    if (strcmp(text, "/exit") == 0 || strcmp(text, "/quit") == 0)
        return LEAVE;
    if (strcmp(text, "/clear") == 0) {
        drop_messages(c, n_system_messages(c));
        fputs("The conversation starts anew.\n", stderr);
        return DONE;
    }
    if (strcmp(text, "/help") == 0) {
        fputs("/clear   forget the conversation\n"
              "/exit    leave, as /quit and Ctrl-D do\n"
              "/help    show this\n"
              "A line that ends in \\ goes on in the next one. Ctrl-C stops an answer, and leaves at the "
              "prompt.\n",
              stderr);
        return DONE;
    }
    return NOT_A_COMMAND;
}

/* The next question as a message; false: no more. */
static bool ask(struct chat *c, int *status)
{
    struct buf line = {0};
    bool asked = false;
    while (!asked) {
        enum line_result got = line_read(c->reader, &line);
        if (got == LINE_INTERRUPTED)
            *status = EXIT_INTERRUPTED;
        if (got != LINE_OK)
            break;
        if (line.n == 0)
            continue;
        enum command_result result = chat_command(c, line.p);
        if (result == LEAVE)
            break;
        asked = result == NOT_A_COMMAND;
    }
    if (asked)
        add_message(c, "user", buf_str(&line));
    buf_release(&line);
    return asked;
}

static int talk(struct chat *c, bool first_given, struct grappa_err *err)
{
    const struct options *o = c->s->o;
    int status = 0;
    bool echo = first_given && strcmp(o->called_as, "llama-completion") == 0 && o->display_prompt;
    for (bool given = first_given; given || ask(c, &status); given = false) {
        enum ending ending = END_MODEL;
        interrupted = 0;
        if (answer(c, given && echo, &ending, err)) {
            if (o->single_turn || !isatty(STDIN_FILENO))
                return cli_fail(err);
            cli_fail(err); /* a person may go on */
            *err = (struct grappa_err){0};
        }
        bool stopped = ending == END_INTERRUPT;
        interrupted = 0;
        if (ending == END_OUTPUT)
            break;
        if (stopped && (o->single_turn || !isatty(STDIN_FILENO)))
            return EXIT_INTERRUPTED;
        if (o->single_turn)
            break;
    }
    return status;
}

/* ---- */

static int read_template(struct chat *c, struct grappa_err *err)
{
    const struct options *o = c->s->o;
    if (o->chat_template_file)
        return read_file(o->chat_template_file, &c->template, err);
    if (o->chat_template) {
        buf_puts(&c->template, o->chat_template);
    } else if (!grappa_has_chat_template(c->s->vocab)) {
        log_warn("%s has no chat template, chatml is used; see --chat-template", o->model);
        buf_puts(&c->template, "chatml");
    }
    return 0;
}

static int read_system_prompt(struct chat *c, struct grappa_err *err)
{
    const struct options *o = c->s->o;
    struct buf text = {0};
    int status = 0;
    if (o->system_prompt_file) {
        status = read_file(o->system_prompt_file, &text, err);
        if (text.n && text.p[text.n - 1] == '\n')
            text.n--;
    } else if (o->system_prompt) {
        buf_puts(&text, o->system_prompt);
    }
    if (status == 0 && text.n)
        add_message(c, "system", buf_str(&text));
    buf_release(&text);
    return status;
}

int chat(struct session *s, struct grappa_err *err)
{
    struct chat c = {.s = s};
    struct buf first = {0};
    int status;
    if (read_template(&c, err) || read_system_prompt(&c, err) || read_prompt(s->o, false, &first, err)) {
        status = cli_fail(err);
    } else {
        if (first.n)
            add_message(&c, "user", buf_str(&first));
        c.reader = line_reader_new(s->o->simple_io);
        status = talk(&c, first.n > 0, err);
    }
    line_reader_free(c.reader);
    drop_messages(&c, 0);
    free(c.messages);
    buf_release(&c.template);
    buf_release(&first);
    return status;
}
