/* What the normalising tokenizers ask about a character: Unicode 15.1 through utf8proc. */
#ifndef VOCAB_CHARS_H
#define VOCAB_CHARS_H

#include <stdint.h>

enum char_kind {
    CHAR_OTHER, /* letters, numbers, unassigned */
    CHAR_SPACE, /* property White_Space */
    CHAR_CONTROL,
    CHAR_MARK,
    CHAR_PUNCTUATION,
    CHAR_SYMBOL,
};

enum char_kind char_kind(uint32_t cp);
uint32_t char_lower(uint32_t cp); /* simple mapping */
/* The first character of the canonical decomposition. */
uint32_t char_base(uint32_t cp);

#endif
