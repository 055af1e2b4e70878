/* Outputs of any bytes, in every format and cut in any way: no crash, no endless work, and the same message
 * as whole. The first bytes choose format, settings and cuts. */
#include "chat/format_row.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{"
                            "\"type\":\"object\",\"properties\":{\"city\":"
                            "{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"metric\":{\"type\":"
                            "\"boolean\"}},\"required\":[\"city\"]}}},"
                            "{\"type\":\"function\",\"function\":{\"name\":\"note\",\"parameters\":{\"type\":"
                            "\"object\",\"properties\":{\"text\":"
                            "{\"type\":\"string\"}}}}},{\"type\":\"function\",\"function\":{\"name\":"
                            "\"ping\"}},{\"type\":\"function\",\"function\":"
                            "{\"name\":\"python\",\"parameters\":{\"type\":\"object\",\"properties\":{"
                            "\"code\":{\"type\":[\"string\",\"null\"]}}}}}]";

/* The message of an output in pieces of changing size; `cuts` 0: in one. Freed with free(). */
static char *message_of(const struct chat_syntax *s, const char *out, size_t n, unsigned cuts)
{
    struct err err = ERR_INIT;
    struct chat_parser *p = chat_parser_new(s, 1, &err);
    const struct chat_delta *d;
    size_t len;
    while (cuts > 0 && n > 0) {
        cuts = cuts * 1103515245u + 12345u;
        size_t piece = 1 + (cuts >> 16) % 7;
        piece = piece < n ? piece : n;
        char *copy = malloc(piece);
        memcpy(copy, out, piece);
        size_t n_d = chat_parser_add(p, copy, piece, false, &d);
        free(copy);
        for (size_t i = 0; i < n_d; i++) {
            if (d[i].index < 0 || (d[i].type == CHAT_DELTA_TOOL && (!d[i].id || !d[i].name)))
                abort();
        }
        out += piece;
        n -= piece;
        cuts |= 1;
    }
    chat_parser_add(p, out, n, true, &d);
    const char *m = chat_parser_message(p, &len);
    char *copy = calloc(len + 1, 1);
    memcpy(copy, m, len);
    chat_parser_free(p);
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    if (size < 3)
        return 0;
    const struct chat_format_row *row = &chat_format_rows[data[0] % chat_format_n_rows];
    bool think = row->think_end != NULL;
    struct chat_format f = {.row = row,
                            .name = row->name,
                            .think_start = think ? row->think_start : "<think>",
                            .think_end = think ? row->think_end : "</think>",
                            .think_trim = data[1] & 1};
    struct chat_syntax_params params = {.format = f,
                                        .tools = {tools, sizeof tools - 1},
                                        .parallel_tool_calls = true,
                                        .eager = (data[1] & 2) != 0,
                                        .reasoning = (enum chat_reasoning)(data[1] >> 2 & 3),
                                        .continues_reasoning = (data[1] & 16) != 0,
                                        .prompt = str_of(data[1] & 32 ? f.think_start : ">>>"),
                                        .tool_choice = data[1] & 64 ? CHAT_TOOLS_REQUIRED : CHAT_TOOLS_AUTO};
    struct chat_syntax *s = chat_syntax_new(&params, &err);
    if (!s)
        abort();
    const char *out = (const char *)data + 3;
    char *whole = message_of(s, out, size - 3, 0), *cut = message_of(s, out, size - 3, data[2] | 1u);
    if (strcmp(whole, cut) != 0)
        abort();
    free(whole);
    free(cut);
    chat_syntax_free(s);
    return 0;
}
