/* Chat templates: messages to the prompt text that a model was trained on.
 *
 * The file's own Jinja source (tokenizer.chat_template) is rendered by minijinja behind a C header
 * (rust/include/grappa_rust.h), set up as Hugging Face's apply_chat_template does it: trim_blocks,
 * lstrip_blocks, Python's string methods, tojson without HTML escapes, raise_exception, strftime_now, {%
 * generation %}. conversation.h is the way from a request to a prompt; this is the engine under it. */
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H

#include "base/buf.h"
#include "base/err.h"

struct chat_template;

/* Parses a template; the error text is one line with the line number in the template. */
struct chat_template *chat_template_new(struct str source, struct str bos, struct str eos, struct err *err);
void chat_template_free(struct chat_template *t);
/* The source of a template by its llama.cpp name ("chatml", "llama3", "gemma", …); NULL when unknown. */
const char *chat_template_builtin(const char *name);

/* Renders a conversation. `messages_json` is a JSON array of {"role", "content", …} objects; `extra_json` an
 * object of further variables (tools, chat_template_kwargs; NULL: none); `now` the seconds since 1970 for
 * strftime_now, 0: the clock. Time and output are bounded; a template's own raise_exception text becomes the
 * error's text (ERR_USAGE). */
int chat_template_render(const struct chat_template *t, struct str messages_json, struct str extra_json,
                         bool add_generation_prompt, int64_t now, struct buf *out, struct err *err);

/* What a template can do, found out by rendering small conversations; llama-server's chat_template_caps. */
struct chat_caps {
    bool tools, tool_calls, system_role, parallel_tool_calls;
    bool preserve_reasoning;            /* shows reasoning of earlier turns if asked to */
    bool reasoning_effort;              /* looks at that variable */
    bool string_content, typed_content; /* content as a text, as a list of parts */
    bool object_arguments;              /* wants the arguments of a call as an object, not as JSON text */
};
struct chat_caps chat_template_caps(const struct chat_template *t);
/* The same as a JSON object with llama-server's names. Appends. */
void chat_caps_json(const struct chat_caps *caps, struct buf *out);

#endif
