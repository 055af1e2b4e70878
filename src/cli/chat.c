/* A conversation: messages in, the whole of it through the model's template for every turn. What the context
 * already holds of it is not computed again (session.c). What the model writes is taken apart as it comes:
 * the answer goes to stdout, thoughts to stderr, calls of tools are shown as such, and their results are
 * asked for. */
#include "cli/chat.h"

#include "base/utf8.h"
#include "cli/chat_state.h"
#include "cli/common.h"

#include <grappa-chat.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- messages ---- */

json_t *chat_text(struct str text)
{
    struct buf b = {0};
    for (size_t i = 0, n; i < text.n; i += n) {
        n = utf8_len(text.p + i, text.n - i);
        if (n)
            buf_add(&b, text.p + i, n);
        else
            buf_put_utf8(&b, 0xFFFD);
        n += n == 0;
    }
    json_t *value = json_stringn(b.n ? b.p : "", b.n);
    buf_release(&b);
    return value;
}

void chat_add(struct chat *c, const char *role, struct str content)
{
    json_array_append_new(c->messages, json_pack("{s:s, s:o}", "role", role, "content", chat_text(content)));
}

void chat_keep(struct chat *c, size_t n)
{
    while (json_array_size(c->messages) > n)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static bool is_role(const json_t *message, const char *role)
{
    const char *is = json_string_value(json_object_get(message, "role"));
    return is && strcmp(is, role) == 0;
}

json_t *chat_system(const struct chat *c)
{
    json_t *first = json_array_get(c->messages, 0);
    return is_role(first, "system") ? first : NULL;
}

json_t *chat_open_call(const struct chat *c)
{
    size_t n = json_array_size(c->messages), i = n;
    while (i && is_role(json_array_get(c->messages, i - 1), "tool"))
        i--;
    return i ? json_array_get(json_object_get(json_array_get(c->messages, i - 1), "tool_calls"), n - i)
             : NULL;
}

/* ---- what the model writes ---- */

struct answer {
    struct chat *c;
    struct grappa_chat_parser *parser;
    enum grappa_delta_type last; /* what was shown last */
    bool any, in_call;
};

#define DIM   "\033[2m"
#define CALL  "\033[36m"
#define PLAIN "\033[0m"

static bool color(const struct answer *a, const char *code)
{
    return !a->c->colors || out_text(code, strlen(code));
}

/* Thoughts go to stderr; there they are dim. */
static void show_thought(const struct answer *a, const struct grappa_delta *d)
{
    bool colors = a->c->colors && isatty(STDERR_FILENO);
    fprintf(stderr, "%s%.*s%s", colors ? DIM : "", (int)d->n_text, d->text, colors ? PLAIN : "");
}

static bool end_call(struct answer *a)
{
    bool was = a->in_call;
    a->in_call = false;
    return !was || (out_text(")", 1) && color(a, PLAIN));
}

static bool begin_call(struct answer *a, const struct grappa_delta *d)
{
    bool ok = end_call(a) && (!a->any || a->last == GRAPPA_DELTA_REASONING || out_text("\n", 1));
    a->in_call = true;
    return ok && color(a, CALL) && out_text(d->name, strlen(d->name)) && out_text("(", 1);
}

static bool show(struct answer *a, const struct grappa_delta *d)
{
    bool ok = true;
    if (a->any && a->last == GRAPPA_DELTA_REASONING && d->type != GRAPPA_DELTA_REASONING)
        fputs("\n\n", stderr);
    if (d->type == GRAPPA_DELTA_REASONING)
        show_thought(a, d);
    else if (d->type == GRAPPA_DELTA_TOOL)
        ok = begin_call(a, d);
    else
        ok = out_text(d->text, d->n_text);
    a->last = d->type;
    a->any = true;
    return ok;
}

static bool take(struct answer *a, struct str text, bool last)
{
    const struct grappa_delta *deltas;
    size_t n = grappa_chat_parser_add(a->parser, text.p, text.n, last, &deltas);
    for (size_t i = 0; i < n; i++) {
        if (!show(a, &deltas[i]))
            return false;
    }
    return !last || end_call(a);
}

static bool take_more(void *user, struct str text)
{
    return take(user, text, false);
}

/* ---- a turn ---- */

/* llama-completion writes all of the text as it is. */
static bool is_raw(const struct chat *c)
{
    return strcmp(c->s->o->called_as, "llama-completion") == 0;
}

static int word_index(const char *words, const char *word)
{
    int i = 0;
    for (const char *w = words; *w && strncmp(w, word, strlen(word)) != 0;
         w += strcspn(w, "|"), w += *w == '|')
        i++;
    return i;
}

static struct grappa_chat *converse(struct chat *c, bool for_answer, struct grappa_err *err)
{
    const struct options *o = c->s->o;
    static const int thinking[] = {1, -1, 0};
    char *messages = json_dumps(c->messages, JSON_COMPACT);
    struct grappa_chat_params p = {
        .chat_template = c->template.n ? c->template.p : NULL,
        .messages = messages,
        .tools = c->tools.n && !is_raw(c) ? c->tools.p : NULL,
        .template_kwargs = o->chat_template_kwargs,
        .parallel_tool_calls = true,
        .add_generation_prompt = for_answer,
        .continue_final = -1,
        .reasoning_format = is_raw(c) ? GRAPPA_REASONING_NONE
                                      : (enum grappa_reasoning_format)word_index(
                                            "auto|none|deepseek|deepseek-legacy", o->reasoning_format),
        .enable_thinking = thinking[word_index("on|off|auto", o->reasoning)],
    };
    struct grappa_chat *made = NULL;
    if (messages)
        made = grappa_chat_new(c->s->vocab, &p, err);
    else
        cli_error(err, 1, "out of memory");
    free(messages);
    return made;
}

static grappa_token *prompt_of(struct chat *c, const struct grappa_chat *chat, size_t *n,
                               struct grappa_err *err)
{
    size_t len;
    const char *prompt = grappa_chat_prompt(chat, &len);
    return grappa_tokenize_new(c->s->vocab, prompt, len, true, true, n, err);
}

/* How much of the prompt the next one will begin with: the messages, but perhaps not what asks for an answer,
 * such as the start of a thought that templates leave out later. */
static size_t lasting_part(struct chat *c, const grappa_token *prompt, size_t n)
{
    size_t n_messages = 0, same = 0;
    struct grappa_chat *chat = converse(c, false, NULL);
    grappa_token *messages = chat ? prompt_of(c, chat, &n_messages, NULL) : NULL;
    while (messages && same < n && same < n_messages && messages[same] == prompt[same])
        same++;
    free(messages);
    grappa_chat_free(chat);
    return same;
}

/* Text to messages: what the parser made of it. */
static void add_answer(struct chat *c, struct answer *a, struct str text)
{
    size_t len;
    const char *message = a->parser ? grappa_chat_parser_message(a->parser, &len) : NULL;
    json_t *value = message ? json_loadb(message, len, JSON_ALLOW_NUL, NULL) : NULL;
    if (value)
        json_array_append_new(c->messages, value);
    else
        chat_add(c, "assistant", text);
}

static int write_answer(struct chat *c, struct grappa_chat *chat, bool echo, struct answer *a,
                        struct buf *text, enum ending *ending, struct grappa_err *err)
{
    struct session_turn turn = {0};
    size_t n = 0;
    grappa_token *tokens = prompt_of(c, chat, &n, err);
    int status = tokens ? 0 : -1;
    if (tokens && c->s->o->verbose_prompt)
        show_tokens(c->s->vocab, tokens, n);
    if (tokens)
        c->s->n_lasting = grappa_model_is_recurrent(c->s->model) ? lasting_part(c, tokens, n) : 0;
    turn.n_stops = grappa_chat_stops(chat, &turn.stops);
    if (!is_raw(c)) {
        turn.write = take_more;
        turn.user = a;
        turn.n_preserved = grappa_chat_preserved(chat, &turn.preserved);
        turn.grammar = grappa_chat_grammar(chat);
        turn.think_start = grappa_chat_think_start(chat);
        turn.think_end = grappa_chat_think_end(chat);
        turn.think_open = grappa_chat_thinking_open(chat);
        a->parser = grappa_chat_parser_new(chat, err);
        status = a->parser ? status : -1;
    }
    if (status == 0)
        status = session_write(c->s, tokens, n, echo, &turn, text, ending, err);
    if (a->parser && *ending != END_OUTPUT && !take(a, (struct str){"", 0}, true))
        *ending = END_OUTPUT;
    free(tokens);
    return status;
}

/* The answer to the messages so far, which then is one of them. A question without one is taken back. */
static int answer(struct chat *c, bool echo, enum ending *ending, struct grappa_err *err)
{
    struct buf text = {0};
    struct answer a = {.c = c};
    struct grappa_chat *chat = converse(c, true, err);
    int status = chat ? write_answer(c, chat, echo, &a, &text, ending, err) : -1;
    if (status || (text.n == 0 && *ending == END_INTERRUPT))
        chat_keep(c, json_array_size(c->messages) - 1);
    else
        add_answer(c, &a, buf_str(&text));
    if (a.any && a.last == GRAPPA_DELTA_REASONING)
        fputs("\n", stderr);
    if (*ending != END_OUTPUT && (status == 0 || text.n))
        out_text("\n", 1);
    if (status == 0 && *ending == END_CONTEXT)
        log_warn("the context of %u positions is full; /clear starts anew", session_n_ctx(c->s));
    grappa_chat_parser_free(a.parser);
    grappa_chat_free(chat);
    buf_release(&text);
    return status;
}

/* ---- the person's side ---- */

/* A line is a question, or what a tool that was called gave. */
static void add_line(struct chat *c, struct str line)
{
    json_t *call = chat_open_call(c), *function = json_object_get(call, "function");
    if (call) {
        json_array_append_new(c->messages,
                              json_pack("{s:s, s:O*, s:O*, s:o}", "role", "tool", "tool_call_id",
                                        json_object_get(call, "id"), "name",
                                        json_object_get(function, "name"), "content", chat_text(line)));
        return;
    }
    buf_add(&c->files, line.p, line.n);
    chat_add(c, "user", buf_str(&c->files));
    buf_clear(&c->files);
}

static void ask_for_result(struct chat *c)
{
    json_t *function = json_object_get(chat_open_call(c), "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    if (name && isatty(STDIN_FILENO))
        fprintf(stderr, "What does %s give?\n", name);
}

/* The next question as a message; false: no more. */
static bool ask(struct chat *c, int *status)
{
    struct buf line = {0};
    bool asked = false;
    while (!asked) {
        ask_for_result(c);
        enum line_result got = line_read(c->reader, &line);
        if (got == LINE_INTERRUPTED)
            *status = EXIT_INTERRUPTED;
        if (got != LINE_OK)
            break;
        if (line.n == 0)
            continue;
        enum chat_command_result result = chat_command(c, line.p);
        if (result == CHAT_LEAVE)
            break;
        if (result == CHAT_NO_COMMAND)
            add_line(c, buf_str(&line));
        asked = result == CHAT_AGAIN || (result == CHAT_NO_COMMAND && !chat_open_call(c));
    }
    buf_release(&line);
    return asked;
}

static int talk(struct chat *c, bool first_given, struct grappa_err *err)
{
    const struct options *o = c->s->o;
    int status = 0;
    bool echo = first_given && is_raw(c) && o->display_prompt;
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

static int read_tools(struct chat *c, struct grappa_err *err)
{
    const char *path = c->s->o->tools;
    if (!path)
        return 0;
    if (read_file(path, &c->tools, err))
        return -1;
    json_t *tools = json_loadb(c->tools.n ? c->tools.p : "", c->tools.n, 0, NULL);
    bool ok = json_is_array(tools);
    json_decref(tools);
    return ok ? 0 : cli_error(err, 1, "%s: not a JSON array of tools", path);
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
        chat_add(c, "system", buf_str(&text));
    buf_release(&text);
    return status;
}

static bool wants_colors(const struct options *o)
{
    return strcmp(o->color, "on") == 0 || (strcmp(o->color, "auto") == 0 && isatty(STDOUT_FILENO));
}

int chat(struct session *s, struct grappa_err *err)
{
    struct chat c = {.s = s, .messages = json_array(), .colors = wants_colors(s->o)};
    struct buf first = {0};
    int status;
    if (read_template(&c, err) || read_tools(&c, err) || read_system_prompt(&c, err) ||
        read_prompt(s->o, false, &first, err)) {
        status = cli_fail(err);
    } else {
        if (first.n)
            chat_add(&c, "user", buf_str(&first));
        c.reader = line_reader_new(s->o->simple_io);
        status = talk(&c, first.n > 0, err);
    }
    line_reader_free(c.reader);
    json_decref(c.messages);
    buf_release(&c.template);
    buf_release(&c.tools);
    buf_release(&c.files);
    buf_release(&first);
    return status;
}
