/* UTF-8 that may be broken: the one question that printing needs. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed character (Unicode, table 3-7) at p, of which `left` bytes are there; 0 if there
 * is none: a stray byte, an overlong form, a surrogate, a cut. */
size_t utf8_len(const char *p, size_t left);

#endif
