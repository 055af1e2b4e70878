/* Requests of any bytes through a few templates that look at much, or through one of the request's own: no
 * crash, no endless work, an error has a text. The input is four parts with NUL between them: messages,
 * tools, variables, and a template; parts that are missing get a plausible value. */
#include "chat/conversation.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const templates[] = {
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls "
    "or [] %}"
    "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if tools %}"
    "{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
    "{%- for m in messages %}<think>{{ m.reasoning_content }}</think>{{ m.content }}{% if m.tool_calls %}"
    "{% for k, v in m.tool_calls[0].function.arguments.items() %}<function={{ k }}><parameter={{ v }}>{% "
    "endfor %}"
    "{% endif %}{% endfor %}{{ '<think>\n' if enable_thinking else '<think></think>' }}",
    "{% for m in messages %}{{ m['role'] ~ m.content }}{% endfor "
    "%}[SYSTEM_PROMPT][TOOL_CALLS][ARGS]dsml_token DSML "
    "tool_calls '<|tool_call>call:' <|channel|>",
};

static struct str part(struct str *rest, const char *otherwise)
{
    if (!rest->p)
        return str_of(otherwise);
    const char *end = rest->n ? memchr(rest->p, 0, rest->n) : NULL;
    struct str s = {rest->p, end ? (size_t)(end - rest->p) : rest->n};
    *rest = end ? (struct str){end + 1, rest->n - s.n - 1} : (struct str){0};
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = {size ? (const char *)data : "", size};
    struct conversation_params p = {.bos = str_of("<s>"), .eos = str_of("</s>"), .now = 1, .eager = true};
    struct err err = ERR_INIT;
    p.messages = part(&rest, "[{\"role\": \"user\", \"content\": \"Hi\"}]");
    p.tools = part(&rest, "");
    p.template_kwargs = part(&rest, "{\"custom\": [1, null]}");
    p.template = part(&rest, templates[size % (sizeof templates / sizeof templates[0])]);
    p.continue_final = size % 3 != 0;
    p.add_generation_prompt = size % 5 != 0;
    p.strip_bos = size % 2;
    p.tool_choice = (enum chat_tool_choice)(size % 3);
    p.enable_thinking = (int)(size % 3) - 1;
    struct conversation *c = conversation_new(&p, &err);
    if (!c && err.text[0] == '\0')
        abort();
    conversation_free(c);
    return 0;
}
