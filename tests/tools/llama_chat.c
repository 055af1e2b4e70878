/* Expected values for the built-in chat templates: what llama.cpp's formats of the same names give.
 *
 *     cc -Illama.cpp/include -Illama.cpp/ggml/include llama_chat.c -lllama -o llama_chat
 *     ./llama_chat > tests/golden/chat/builtin.txt
 *
 * Output: records "key LENGTH\n" text "\n". "messages" holds for the records behind it; "name" and "text" are
 * pairs. Not a part of the build: it needs llama.cpp's headers and libllama. */
#include "llama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const llama_chat_message long_chat[] = {
    {"system", " You are \"brief\". "},
    {"user", "Hi é\n"},
    {"assistant", " Hello, it's me. "},
    {"user", "1 < 2?"},
};
static const llama_chat_message short_chat[] = {{"user", "Hi"}};

static void put(const char *key, const char *text, size_t n)
{
    printf("%s %zu\n", key, n);
    fwrite(text, 1, n, stdout);
    putchar('\n');
}

static void put_messages(const llama_chat_message *m, size_t n)
{
    char json[1024] = "[", *p = json + 1;
    for (size_t i = 0; i < n; i++) {
        p += sprintf(p, "%s{\"role\": \"%s\", \"content\": \"", i ? ", " : "", m[i].role);
        for (const char *c = m[i].content; *c; c++)
            p += *c == '\n' ? sprintf(p, "\\n") : *c == '"' ? sprintf(p, "\\\"") : sprintf(p, "%c", *c);
        p += sprintf(p, "\"}");
    }
    p += sprintf(p, "]");
    put("messages", json, (size_t)(p - json));
}

static void put_all(const llama_chat_message *m, size_t n)
{
    const char *names[256];
    int n_names = llama_chat_builtin_templates(names, 256);
    put_messages(m, n);
    for (int i = 0; i < n_names; i++) {
        char text[4096];
        int length = llama_chat_apply_template(names[i], m, n, true, text, sizeof text);
        if (length < 0)
            exit(1);
        put("name", names[i], strlen(names[i]));
        put("text", text, (size_t)length);
    }
}

int main(void)
{
    put_all(long_chat, sizeof long_chat / sizeof long_chat[0]);
    put_all(short_chat, sizeof short_chat / sizeof short_chat[0]);
    return 0;
}
