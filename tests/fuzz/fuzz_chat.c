/* Templates, conversations and variables of any bytes: no crash, no endless work. The input is three parts
 * with NUL between them; parts that are missing get a plausible value. */
#include "chat/chat.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    struct str source = part(&rest, "");
    struct str messages = part(&rest, "[{\"role\": \"user\", \"content\": \"Hi\"}]");
    struct str variables = part(&rest, "{\"tools\": [{\"a\": [1, null, 2.5]}]}");
    struct buf out = {.ceiling = 1 << 20};
    struct err err = ERR_INIT;
    struct chat_template *t = chat_template_new(source, str_of("<s>"), str_of("</s>"), &err);
    if (t && chat_template_render(t, messages, variables, size % 2, 0, &out, &err) != 0 &&
        err.text[0] == '\0')
        abort();
    if (!t && err.text[0] == '\0')
        abort();
    chat_template_free(t);
    buf_release(&out);
    return 0;
}
