/* Templates by llama.cpp's names, for files that bring none. */
#include "chat/chat.h"

static const struct {
    const char *name, *source;
} builtins[] = {
    {"chatml", "{%- for message in messages -%}\n"
               "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
               "{%- endfor -%}\n"
               "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}\n"},
};

const char *chat_template_builtin(const char *name)
{
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++) {
        if (strcmp(name, builtins[i].name) == 0)
            return builtins[i].source;
    }
    return NULL;
}
