/* One value, byte by byte, in three dialects, written out as JSON while it comes. */
#ifndef CHAT_PARSER_VALUE_H
#define CHAT_PARSER_VALUE_H

#include "base/buf.h"

enum value_dialect {
    VALUE_JSON,   /* strict but for raw control characters in strings, which come out escaped */
    VALUE_PYTHON, /* also '…' and True, False, None */
    VALUE_DICT    /* {key:value}, strings between `quote`; written without white space */
};
enum value_result {
    VALUE_MORE,   /* the byte was taken */
    VALUE_DONE,   /* the byte was taken and ends the value */
    VALUE_BEFORE, /* the value (a number or word) ended before this byte, which was not taken */
    VALUE_BAD     /* no value; the byte was not taken */
};

#define VALUE_MAX_DEPTH 256

/* Zeroed but for dialect and quote it is ready for one value. */
struct value {
    enum value_dialect dialect;
    const char *quote;
    unsigned char state, number;
    unsigned char digits; /* left of \u or \x */
    char delimiter;       /* of a string */
    size_t matched;       /* bytes of a quote or word */
    const char *word, *word_json;
    unsigned depth;
    bool key; /* the string is a key */
    bool array[VALUE_MAX_DEPTH];
};

enum value_result value_feed(struct value *v, char c, struct buf *out);
/* At the end of all input: whether what came is a whole value. */
bool value_finish(const struct value *v);
/* The kind of value that begins with this JSON text: '{', '[', '"', 'n', 't' (both booleans), '0', or 0. */
char value_kind(struct str json);
/* Whether the text is one value with white space around; then *out (cleared) has it as JSON. */
bool value_whole(struct str text, enum value_dialect dialect, struct buf *out);

/* The inside of a JSON string for this text. */
void json_escape(struct buf *out, const char *p, size_t n);
/* The text of a JSON string with its quotes. */
void json_unescape(struct buf *out, struct str json);

#endif
