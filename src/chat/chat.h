/* Chat templates: messages to the prompt text that a model was trained on.
 *
 * The file's own Jinja source (tokenizer.chat_template) is rendered by minijinja behind a C header
 * (rust/include/grappa_rust.h), set up as Hugging Face's apply_chat_template does it: trim_blocks,
 * lstrip_blocks, Python's string methods, tojson without HTML escapes, raise_exception, strftime_now, {%
 * generation %}. */
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
 * object of further variables (tools, chat_template_kwargs; NULL: none). Time and output are bounded; a
 * template's own raise_exception text becomes the error's text (ERR_USAGE). */
int chat_template_render(const struct chat_template *t, struct str messages_json, struct str extra_json,
                         bool add_generation_prompt, struct buf *out, struct err *err);

#endif
