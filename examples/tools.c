/* A conversation with a tool: the model has to call it, so what it writes is constrained to a call whose
 * arguments follow the tool's schema; a parser takes that apart while it comes. Repetitions are guessed from
 * the text so far (lookup), which changes the speed and not the text.
 *
 *     tools model.gguf "What is the weather in Paris?" */
#include <grappa-chat.h>
#include <grappa-engine.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tool[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {"
    "\"type\": \"object\", \"properties\": {\"city\": {\"enum\": [\"Paris\", \"Rome\"]}, "
    "\"unit\": {\"enum\": [\"celsius\", \"fahrenheit\"]}}, \"required\": [\"city\", \"unit\"]}}}]";

/* Runs on the engine's thread. */
static bool on_event(void *user, const struct grappa_event *ev)
{
    struct grappa_chat_parser *parser = user;
    const struct grappa_delta *deltas;
    size_t n = grappa_chat_parser_add(parser, ev->text, ev->n_text, ev->type == GRAPPA_EVENT_DONE, &deltas);
    for (size_t i = 0; i < n; i++) {
        if (deltas[i].type == GRAPPA_DELTA_TOOL)
            printf("calls %s\n", deltas[i].name);
    }
    if (ev->type == GRAPPA_EVENT_DONE && ev->err)
        fprintf(stderr, "%s\n", ev->err->text);
    return true;
}

static int ask(struct grappa_engine *e, const struct grappa_chat *chat, struct grappa_chat_parser *parser,
               struct grappa_err *err)
{
    size_t len, n;
    const char *text = grappa_chat_prompt(chat, &len);
    const struct grappa_vocab *v = grappa_model_vocab(grappa_engine_model(e));
    grappa_token *prompt = grappa_tokenize_new(v, text, len, true, true, &n, err);
    if (!prompt)
        return -1;
    struct grappa_request_params p;
    grappa_request_defaults(&p);
    p.prompt = prompt;
    p.n_prompt = n;
    p.n_predict = 256;
    p.sampler.temp = 0;
    if (grappa_chat_grammar(chat))
        p.sampler.grammar = *grappa_chat_grammar(chat);
    p.n_stop = grappa_chat_stops(chat, &p.stop);
    p.lookup = true;
    p.n_draft = 16;
    p.on_event = on_event;
    p.user = parser;
    struct grappa_request *r = grappa_request_new(e, &p, err);
    free(prompt);
    if (!r)
        return -1;
    grappa_request_wait(r);
    grappa_request_free(r);
    return 0;
}

int main(int argc, char **argv)
{
    struct grappa_err err = {0};
    int status = 1;
    if (argc != 3 || strpbrk(argv[2], "\"\\\n")) {
        fprintf(stderr, "usage: %s model.gguf QUESTION\n", argv[0]);
        return 2;
    }
    char messages[4096];
    snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%.3000s\"}]", argv[2]);
    const struct grappa_chat_params p = {
        .messages = messages, .tools = tool, .tool_choice = "required", .add_generation_prompt = true};
    struct grappa_chat *chat = NULL;
    struct grappa_chat_parser *parser = NULL;
    struct grappa_model *m = grappa_model_load(argv[1], NULL, &err);
    struct grappa_engine *e = m ? grappa_engine_new(m, NULL, &err) : NULL;
    if (!e)
        goto done;
    chat = grappa_chat_new(grappa_model_vocab(m), &p, &err);
    parser = chat ? grappa_chat_parser_new(chat, &err) : NULL;
    if (parser && ask(e, chat, parser, &err) == 0) {
        printf("%s\n", grappa_chat_parser_message(parser, &(size_t){0}));
        status = grappa_chat_parser_n_calls(parser) > 0 ? 0 : 1;
    }
done:
    if (status)
        fprintf(stderr, "%s\n", err.text);
    grappa_chat_parser_free(parser);
    grappa_chat_free(chat);
    grappa_engine_free(e);
    grappa_model_free(m);
    return status;
}
