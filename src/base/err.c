/* Error values: formatting, cutting at a character boundary, and the one table of exit and HTTP statuses. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the UTF-8 character at p, 0 if there is none. The text ends in a NUL, which continues nothing. */
static size_t utf8_len(const char *p)
{
    unsigned char c = (unsigned char)p[0], second = (unsigned char)p[1];
    size_t n = c < 0x80 ? 1 : c < 0xC2 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : c < 0xF5 ? 4 : 0;
    if ((c == 0xE0 && second < 0xA0) || (c == 0xED && second > 0x9F) || (c == 0xF0 && second < 0x90) ||
        (c == 0xF4 && second > 0x8F))
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)p[i] & 0xC0) != 0x80)
            return 0;
    }
    return n;
}

/* One line, printable, whole characters: error texts go to terminals, logs and JSON. */
static void tidy(char *text, bool cut)
{
    size_t n = strlen(text);
    if (cut) {
        while (n > 0 && ((unsigned char)text[n - 1] & 0xC0) == 0x80)
            n--;
        if (n > 0 && (unsigned char)text[n - 1] >= 0xC0)
            n--;
        text[n] = '\0';
    }
    for (size_t i = 0, len; i < n; i += len ? len : 1) {
        len = utf8_len(text + i);
        if (len == 0 || (unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
    }
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    if (!err || err->code != ERR_NONE)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    err->code = code;
    tidy(err->text, n >= (int)sizeof err->text);
    return -1;
}

void err_prefix(struct err *err, const char *fmt, ...)
{
    if (!err || err->code == ERR_NONE)
        return;
    char prefix[sizeof err->text / 2];
    va_list ap;
    va_start(ap, fmt);
    int prefix_n = vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    tidy(prefix, prefix_n >= (int)sizeof prefix);
    char text[sizeof err->text];
    int n = snprintf(text, sizeof text, "%s: %s", prefix, err->text);
    memcpy(err->text, text, sizeof text);
    tidy(err->text, n >= (int)sizeof text);
}

int err_exit_status(enum err_code code)
{
    switch (code) {
#define X(code, exit_status, http_status)                                                                    \
    case code:                                                                                               \
        return exit_status;
        ERR_CODES(X)
#undef X
    }
    return 1;
}

int err_http_status(enum err_code code)
{
    switch (code) {
#define X(code, exit_status, http_status)                                                                    \
    case code:                                                                                               \
        return http_status;
        ERR_CODES(X)
#undef X
    }
    return 500;
}
