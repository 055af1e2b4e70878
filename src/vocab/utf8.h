/* UTF-8 as the tokenizers see it. */
#ifndef VOCAB_UTF8_H
#define VOCAB_UTF8_H

#include "base/buf.h"

#include <stdint.h>

/* Bytes that a character takes by its first byte; 1 for a byte that begins none. */
unsigned utf8_length(unsigned char first);

/* Bytes of the character at text.p[0] (text.n > 0) by its form alone, 0 when it has none. Forms of four bytes
 * beyond U+10FFFF count, too. */
unsigned utf8_whole(struct str text);

/* Decodes one character at text.p[0] (text.n > 0) without asking for the shortest form, surrogates let
 * through. Returns the bytes taken; for what is no character, 1 and U+FFFD. */
unsigned utf8_decode(struct str text, uint32_t *cp);

/* Text in the form the byte-level tokenizers work on: what is no character becomes U+FFFD, overlong forms the
 * shortest. Returns `text` itself when nothing is to be changed, else a slice of `scratch`. */
struct str utf8_repair(struct str text, struct buf *scratch);

/* `text`, a result of utf8_repair, with every character that a regular expression engine could take for
 * something else than Unicode 15.1 does replaced by one of the same length and kind. The same return rule. */
struct str utf8_for_matching(struct str text, struct buf *scratch);

/* The character that stands for `cp` there. */
uint32_t utf8_stand_in(uint32_t cp);

/* The alphabet of byte-level BPE: every byte as a printable character. */
uint32_t byte_to_char(unsigned char byte);
/* The byte, or -1 when the character is not of the alphabet. */
int char_to_byte(uint32_t cp);

#endif
