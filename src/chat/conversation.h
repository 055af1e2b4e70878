/* A conversation: from a request's JSON to the prompt, and to how the answer will be written.
 *
 * The steps, as llama-server takes them: choose the template, check messages and tools, change them to what
 * the template wants (messages.h, adjust.h), render, open the answer that is to be continued (continue.h),
 * and ask format.h what the output will look like. Templates are compiled once and kept (cache.h). */
#ifndef CHAT_CONVERSATION_H
#define CHAT_CONVERSATION_H

#include "chat/chat.h"
#include "chat/format.h"

struct conversation_params {                /* texts need to live only during the call */
    struct str template, template_tool_use; /* sources; the second for requests with tools, or empty */
    struct str bos, eos;
    bool strip_bos, strip_eos; /* the tokenizer adds them: the prompt comes without */
    struct str messages, tools, template_kwargs, json_schema, grammar, tool_name; /* JSON; empty: absent */
    enum chat_tool_choice tool_choice;
    bool parallel_tool_calls, add_generation_prompt;
    bool continue_final; /* if the last message is the assistant's, its text is continued */
    enum chat_reasoning reasoning;
    int enable_thinking; /* 1 on, -1 off, 0 on if the template shows that it can */
    bool eager;          /* see struct chat_syntax_params */
    int64_t now;         /* seconds since 1970; 0: the clock */
    int64_t (*control_token)(void *user, const char *text); /* as in struct chat_syntax_params */
    void *user;
};

struct conversation;

/* ERR_USAGE for all that is wrong with the request, with the template's own words where it refused. */
struct conversation *conversation_new(const struct conversation_params *params, struct err *err);
void conversation_free(struct conversation *c);

struct str conversation_prompt(const struct conversation *c);
const struct chat_syntax *conversation_syntax(const struct conversation *c);
const struct chat_caps *conversation_caps(const struct conversation *c);

/* The source of a chat template given on a command line: a built-in's name, or Jinja. ERR_USAGE for a word
 * that is neither. */
int chat_template_choose(const char *name_or_source, struct str *out, struct err *err);

#endif
