/* Unicode properties. Characters newer than the library's tables go by older ones of the same category. */
#include "vocab/chars.h"
#include "vocab/utf8.h"

#include <utf8proc.h>

static const unsigned char by_category[] = {
    [UTF8PROC_CATEGORY_MN] = CHAR_MARK,        [UTF8PROC_CATEGORY_MC] = CHAR_MARK,
    [UTF8PROC_CATEGORY_ME] = CHAR_MARK,        [UTF8PROC_CATEGORY_PC] = CHAR_PUNCTUATION,
    [UTF8PROC_CATEGORY_PD] = CHAR_PUNCTUATION, [UTF8PROC_CATEGORY_PS] = CHAR_PUNCTUATION,
    [UTF8PROC_CATEGORY_PE] = CHAR_PUNCTUATION, [UTF8PROC_CATEGORY_PI] = CHAR_PUNCTUATION,
    [UTF8PROC_CATEGORY_PF] = CHAR_PUNCTUATION, [UTF8PROC_CATEGORY_PO] = CHAR_PUNCTUATION,
    [UTF8PROC_CATEGORY_SM] = CHAR_SYMBOL,      [UTF8PROC_CATEGORY_SC] = CHAR_SYMBOL,
    [UTF8PROC_CATEGORY_SK] = CHAR_SYMBOL,      [UTF8PROC_CATEGORY_SO] = CHAR_SYMBOL,
    [UTF8PROC_CATEGORY_ZS] = CHAR_SPACE,       [UTF8PROC_CATEGORY_ZL] = CHAR_SPACE,
    [UTF8PROC_CATEGORY_ZP] = CHAR_SPACE,       [UTF8PROC_CATEGORY_CC] = CHAR_CONTROL,
    [UTF8PROC_CATEGORY_CF] = CHAR_CONTROL,     [UTF8PROC_CATEGORY_CS] = CHAR_CONTROL,
    [UTF8PROC_CATEGORY_CO] = CHAR_CONTROL,
};

enum char_kind char_kind(uint32_t cp)
{
    if ((cp >= '\t' && cp <= '\r') || cp == 0x85)
        return CHAR_SPACE;
    int category = utf8proc_category((utf8proc_int32_t)utf8_stand_in(cp));
    return (enum char_kind)by_category[category];
}

uint32_t char_lower(uint32_t cp)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
}

uint32_t char_base(uint32_t cp)
{
    utf8proc_int32_t parts[8];
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 8, UTF8PROC_DECOMPOSE, &boundary);
    return n > 0 && n <= 8 ? (uint32_t)parts[0] : cp;
}
