/* The one error value. A function that can fail takes `struct err *` last, fills it and returns NULL or -1.
 * The first failure wins: err_set on an error that is already set keeps the older text, so a cleanup path
 * cannot hide the cause. A NULL `struct err *` is allowed where the caller doesn't care. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>

/* Row: code, exit status of the command line, HTTP status of the server. */
#define ERR_CODES(X)                                                                                         \
    X(ERR_NONE, 0, 200)                                                                                      \
    X(ERR_USAGE, 2, 400)       /* wrong option or request field */                                           \
    X(ERR_IO, 1, 500)          /* the operating system said no */                                            \
    X(ERR_FORMAT, 1, 500)      /* a file that breaks its format */                                           \
    X(ERR_UNSUPPORTED, 1, 501) /* a sound file or request that asks for what is not built */                 \
    X(ERR_RANGE, 1, 400)       /* a value outside its bounds: token id, position, context */                 \
    X(ERR_MEMORY, 1, 503)      /* out of memory, or over a ceiling */                                        \
    X(ERR_DEVICE, 1, 500)      /* OpenVINO or its device said no */                                          \
    X(ERR_CANCELLED, 1, 499)   /* the caller asked to stop */

enum err_code {
#define X(code, exit_status, http_status) code,
    ERR_CODES(X)
#undef X
};

struct err {
    enum err_code code;
    char text[2048]; /* one line of UTF-8, no newline; cut at a character boundary when longer */
};

#define ERR_INIT                                                                                             \
    {                                                                                                        \
        ERR_NONE, ""                                                                                         \
    }

/* Fills `err` unless it is already set. Always returns -1, so `return err_set(…)` reads well.
 * Control characters and stray bytes that come in through arguments (names from a file) are shown as '?'. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the text of an error that is set, so that a caller can name the file or tensor. */
void err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

int err_exit_status(enum err_code code);
int err_http_status(enum err_code code);

#endif
