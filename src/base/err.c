/* Error values: formatting, cutting at a character boundary, and the one table of exit and HTTP statuses. */
#include "base/err.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
        len = utf8_len(text + i, n - i);
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
