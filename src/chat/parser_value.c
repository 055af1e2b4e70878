/* A push-down machine for values: states for what may come next, one bit per open bracket. It never looks
 * back or ahead, so that an argument is checked and rewritten in one pass however it is cut. */
#include "chat/parser_value.h"

#include <stdlib.h>

enum state {
    S_VALUE,      /* a value must come */
    S_FIRST_ITEM, /* a value or ']' */
    S_FIRST_KEY,  /* a key or '}' */
    S_KEY,        /* a key must come */
    S_BARE_KEY,   /* inside a key without quotes */
    S_COLON,
    S_AFTER, /* ',' or the end of the bracket */
    S_STRING,
    S_ESCAPE,
    S_HEX,      /* of \u, copied */
    S_HEX_BYTE, /* of \x, as \u00.. */
    S_QUOTE,    /* inside the dict's opening quote */
    S_TEXT,     /* inside a dict's string */
    S_NUMBER,
    S_WORD,
    S_END
};
enum number { N_MINUS, N_ZERO, N_INT, N_POINT, N_FRACTION, N_E, N_E_SIGN, N_EXPONENT };

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_word_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void json_escape(struct buf *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        static const char plain[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
        const char *at = c ? strchr(plain, c) : NULL;
        if (at) {
            buf_putc(out, '\\');
            buf_putc(out, names[at - plain]);
        } else if (c < 0x20) {
            buf_printf(out, "\\u%04x", c);
        } else {
            buf_putc(out, (char)c);
        }
    }
}

static uint32_t hex4(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v = v * 16 + (uint32_t)(is_digit(p[i]) ? p[i] - '0' : (p[i] | 32) - 'a' + 10);
    return v;
}

void json_unescape(struct buf *out, struct str s)
{
    for (size_t i = 1; i + 1 < s.n; i++) {
        static const char names[] = "bfnrt", plain[] = "\b\f\n\r\t";
        if (s.p[i] != '\\') {
            buf_putc(out, s.p[i]);
            continue;
        }
        char c = s.p[++i];
        const char *at = strchr(names, c);
        if (c != 'u') {
            buf_putc(out, at && c ? plain[at - names] : c);
            continue;
        }
        if (i + 5 > s.n - 1)
            return;
        uint32_t cp = hex4(s.p + i + 1);
        i += 4;
        if (cp >= 0xD800 && cp < 0xDC00 && i + 7 <= s.n - 1 && s.p[i + 1] == '\\' && s.p[i + 2] == 'u') {
            uint32_t low = hex4(s.p + i + 3);
            if (low >= 0xDC00 && low < 0xE000) {
                cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
                i += 6;
            }
        }
        buf_put_utf8(out, cp >= 0xD800 && cp < 0xE000 ? 0xFFFD : cp ? cp : 0xFFFD);
    }
}

static enum value_result ended(struct value *v)
{
    v->state = v->depth ? S_AFTER : S_END;
    return v->depth ? VALUE_MORE : VALUE_DONE;
}

static enum value_result opened(struct value *v, bool array, struct buf *out)
{
    if (v->depth == VALUE_MAX_DEPTH)
        return VALUE_BAD;
    v->array[v->depth++] = array;
    v->state = array ? S_FIRST_ITEM : S_FIRST_KEY;
    buf_putc(out, array ? '[' : '{');
    return VALUE_MORE;
}

static enum value_result closed(struct value *v, char c, struct buf *out)
{
    if (v->depth == 0 || v->array[v->depth - 1] != (c == ']'))
        return VALUE_BAD;
    buf_putc(out, c);
    v->depth--;
    return ended(v);
}

static enum value_result begin_string(struct value *v, char delimiter, bool key, struct buf *out)
{
    v->state = S_STRING;
    v->delimiter = delimiter;
    v->key = key;
    buf_putc(out, '"');
    return VALUE_MORE;
}

static enum value_result end_string(struct value *v, struct buf *out)
{
    buf_putc(out, '"');
    if (!v->key)
        return ended(v);
    v->state = S_COLON;
    return VALUE_MORE;
}

static bool begin_word(struct value *v, char c)
{
    static const struct {
        const char *word, *json;
        bool python;
    } words[] = {{"true", "true", false}, {"false", "false", false}, {"null", "null", false},
                 {"True", "true", true},  {"False", "false", true},  {"None", "null", true}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].word[0] == c && (v->dialect == VALUE_PYTHON || !words[i].python)) {
            v->state = S_WORD;
            v->word = words[i].word;
            v->word_json = words[i].json;
            v->matched = 1;
            return true;
        }
    }
    return false;
}

static enum value_result begin_value(struct value *v, char c, struct buf *out)
{
    if (c == '{' || c == '[')
        return opened(v, c == '[', out);
    if (v->dialect == VALUE_DICT) {
        if (v->quote && c == v->quote[0]) {
            v->state = S_QUOTE;
            v->matched = 1;
            return VALUE_MORE;
        }
    } else if (c == '"' || (c == '\'' && v->dialect == VALUE_PYTHON)) {
        return begin_string(v, c, false, out);
    }
    if (c == '-' || is_digit(c)) {
        v->state = S_NUMBER;
        v->number = c == '-' ? N_MINUS : c == '0' ? N_ZERO : N_INT;
        buf_putc(out, c);
        return VALUE_MORE;
    }
    return begin_word(v, c) ? VALUE_MORE : VALUE_BAD;
}

static enum value_result in_string(struct value *v, char c, struct buf *out)
{
    if (c == v->delimiter)
        return end_string(v, out);
    if (c == '\\')
        v->state = S_ESCAPE;
    else
        json_escape(out, &c, 1);
    return VALUE_MORE;
}

static enum value_result in_escape(struct value *v, char c, struct buf *out)
{
    v->state = S_STRING;
    if (c == 'u' || (c == 'x' && v->dialect == VALUE_PYTHON)) {
        v->state = c == 'u' ? S_HEX : S_HEX_BYTE;
        v->digits = c == 'u' ? 4 : 2;
        buf_puts(out, c == 'u' ? "\\u" : "\\u00");
    } else if (c && strchr("\"\\/bfnrt", c)) {
        buf_putc(out, '\\');
        buf_putc(out, c);
    } else if (v->dialect != VALUE_PYTHON) {
        return VALUE_BAD;
    } else if (c == '\'') {
        buf_putc(out, c);
    } else { /* Python keeps the backslash of escapes that it doesn't know */
        buf_puts(out, "\\\\");
        json_escape(out, &c, 1);
    }
    return VALUE_MORE;
}

static enum value_result in_hex(struct value *v, char c, struct buf *out)
{
    if (!is_hex(c))
        return VALUE_BAD;
    buf_putc(out, c);
    if (--v->digits == 0)
        v->state = S_STRING;
    return VALUE_MORE;
}

/* The next state of a number, or -1: it can't go on like this. */
static int number_next(unsigned char n, char c)
{
    switch (n) {
    case N_MINUS:
        return c == '0' ? N_ZERO : is_digit(c) ? N_INT : -1;
    case N_ZERO:
    case N_INT:
        return c == '.' ? N_POINT : c == 'e' || c == 'E' ? N_E : n == N_INT && is_digit(c) ? N_INT : -1;
    case N_POINT:
        return is_digit(c) ? N_FRACTION : -1;
    case N_FRACTION:
        return is_digit(c) ? N_FRACTION : c == 'e' || c == 'E' ? N_E : -1;
    case N_E:
        return is_digit(c) ? N_EXPONENT : c == '+' || c == '-' ? N_E_SIGN : -1;
    default:
        return is_digit(c) ? N_EXPONENT : -1;
    }
}

static bool number_whole(unsigned char n)
{
    return n == N_ZERO || n == N_INT || n == N_FRACTION || n == N_EXPONENT;
}

/* A number or word was over before c. */
static enum value_result over(struct value *v, char c, struct buf *out)
{
    if (ended(v) == VALUE_DONE)
        return VALUE_BEFORE;
    return value_feed(v, c, out);
}

static enum value_result in_number(struct value *v, char c, struct buf *out)
{
    int next = number_next(v->number, c);
    if (next >= 0) {
        v->number = (unsigned char)next;
        buf_putc(out, c);
        return VALUE_MORE;
    }
    return number_whole(v->number) && !is_word_char(c) ? over(v, c, out) : VALUE_BAD;
}

static enum value_result in_word(struct value *v, char c, struct buf *out)
{
    if (v->word[v->matched] == '\0') {
        if (is_word_char(c))
            return VALUE_BAD;
        buf_puts(out, v->word_json);
        return over(v, c, out);
    }
    return v->word[v->matched++] == c ? VALUE_MORE : VALUE_BAD;
}

static enum value_result in_quote(struct value *v, char c, struct buf *out)
{
    if (v->quote[v->matched] != c)
        return VALUE_BAD;
    if (v->quote[++v->matched] == '\0') {
        v->state = S_TEXT;
        v->matched = 0;
        buf_putc(out, '"');
    }
    return VALUE_MORE;
}

/* A quote's first byte isn't in it a second time, so a mismatch can only begin it anew with this byte. */
static enum value_result in_text(struct value *v, char c, struct buf *out)
{
    if (v->quote[v->matched] == c) {
        if (v->quote[++v->matched] != '\0')
            return VALUE_MORE;
        buf_putc(out, '"');
        return ended(v);
    }
    json_escape(out, v->quote, v->matched);
    v->matched = v->quote[0] == c;
    if (!v->matched)
        json_escape(out, &c, 1);
    return VALUE_MORE;
}

static enum value_result key_comes(struct value *v, char c, struct buf *out)
{
    if (c == '}' && v->state == S_FIRST_KEY)
        return closed(v, c, out);
    if (v->dialect != VALUE_DICT)
        return c == '"' || (c == '\'' && v->dialect == VALUE_PYTHON) ? begin_string(v, c, true, out)
                                                                     : VALUE_BAD;
    if (c == ':' || c == ',' || c == '{' || c == '}')
        return VALUE_BAD;
    v->state = S_BARE_KEY;
    buf_putc(out, '"');
    json_escape(out, &c, 1);
    return VALUE_MORE;
}

static enum value_result bare_key(struct value *v, char c, struct buf *out)
{
    if (c == '}' || c == '{' || c == '\n')
        return VALUE_BAD;
    if (c == ':') {
        buf_puts(out, "\":");
        v->state = S_VALUE;
    } else {
        json_escape(out, &c, 1);
    }
    return VALUE_MORE;
}

static enum value_result after(struct value *v, char c, struct buf *out)
{
    if (c != ',')
        return closed(v, c, out);
    buf_putc(out, c);
    v->state = v->array[v->depth - 1] ? S_VALUE : S_KEY;
    return VALUE_MORE;
}

static enum value_result space(struct value *v, char c, struct buf *out)
{
    if (v->dialect != VALUE_DICT && v->depth > 0)
        buf_putc(out, c);
    return VALUE_MORE;
}

enum value_result value_feed(struct value *v, char c, struct buf *out)
{
    if (v->state <= S_AFTER && v->state != S_BARE_KEY && is_space(c))
        return space(v, c, out);
    switch (v->state) {
    case S_FIRST_ITEM:
        return c == ']' ? closed(v, c, out) : begin_value(v, c, out);
    case S_VALUE:
        return begin_value(v, c, out);
    case S_FIRST_KEY:
    case S_KEY:
        return key_comes(v, c, out);
    case S_BARE_KEY:
        return bare_key(v, c, out);
    case S_COLON:
        if (c != ':')
            return VALUE_BAD;
        buf_putc(out, c);
        v->state = S_VALUE;
        return VALUE_MORE;
    case S_AFTER:
        return after(v, c, out);
    case S_STRING:
        return in_string(v, c, out);
    case S_ESCAPE:
        return in_escape(v, c, out);
    case S_HEX:
    case S_HEX_BYTE:
        return in_hex(v, c, out);
    case S_QUOTE:
        return in_quote(v, c, out);
    case S_TEXT:
        return in_text(v, c, out);
    case S_NUMBER:
        return in_number(v, c, out);
    case S_WORD:
        return in_word(v, c, out);
    default:
        return VALUE_BAD;
    }
}

bool value_finish(const struct value *v)
{
    if (v->state == S_END)
        return true;
    if (v->depth > 0)
        return false;
    return (v->state == S_NUMBER && number_whole(v->number)) ||
           (v->state == S_WORD && v->word[v->matched] == '\0');
}

char value_kind(struct str json)
{
    char c = json.n ? json.p[0] : 0;
    return c == '-' || is_digit(c) ? '0' : c == 'f' ? 't' : c;
}

bool value_whole(struct str text, enum value_dialect dialect, struct buf *out)
{
    struct value v = {.dialect = dialect};
    enum value_result r = VALUE_MORE;
    size_t i = 0;
    buf_clear(out);
    for (; i < text.n && r == VALUE_MORE; i++)
        r = value_feed(&v, text.p[i], out);
    if (r == VALUE_BAD)
        return false;
    i -= r == VALUE_BEFORE;
    for (; i < text.n; i++) {
        if (!is_space(text.p[i]))
            return false;
    }
    if (r == VALUE_MORE && v.state == S_WORD && value_finish(&v))
        buf_puts(out, v.word_json);
    return value_finish(&v);
}
