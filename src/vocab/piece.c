/* Ids to text. */
#include "vocab/inside.h"

static void put_unescaped(struct str text, struct buf *out)
{
    for (size_t at = 0, next; at < text.n; at = next + 3) {
        next = find_space_mark(text, at);
        buf_add(out, text.p + at, next - at);
        if (next == text.n)
            break;
        buf_putc(out, ' ');
    }
}

/* Out of the byte alphabet. A character that isn't in it is shown, as llama.cpp does. */
static void put_decoded(struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        i += utf8_decode((struct str){text.p + i, text.n - i}, &cp);
        int byte = char_to_byte(cp);
        if (byte >= 0) {
            buf_putc(out, (char)byte);
            continue;
        }
        struct buf spelled = {0};
        buf_put_utf8(&spelled, cp);
        buf_puts(out, "[UNK_BYTE_0x");
        for (size_t k = 0; k < spelled.n; k++)
            buf_printf(out, "%02x", (unsigned char)spelled.p[k]);
        buf_release(&spelled);
        buf_add(out, text.p, text.n);
        buf_putc(out, ']');
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "<0x1F>" */
static void put_byte(struct str text, struct buf *out)
{
    int value = 0;
    for (size_t i = 3; i < 5 && i < text.n; i++) {
        int digit = hex_digit(text.p[i]);
        if (digit < 0)
            break;
        value = value << 4 | digit;
    }
    buf_putc(out, (char)value);
}

void plain_piece(const struct vocab *v, token_id t, struct buf *out)
{
    struct str text = shown_text(v, t);
    unsigned attr = v->attrs[t];
    if (attr & (VOCAB_ATTR_UNKNOWN | VOCAB_ATTR_CONTROL | VOCAB_ATTR_USER_DEFINED))
        buf_add(out, text.p, text.n);
    else if (attr & VOCAB_ATTR_NORMAL)
        (v->escape_spaces ? put_unescaped : put_decoded)(text, out);
    else if (attr & VOCAB_ATTR_BYTE)
        put_byte(text, out);
}

void vocab_piece(const struct vocab *v, token_id t, int lstrip, bool special, struct buf *out)
{
    if (!token_valid(v, t) || v->kind == VOCAB_NONE)
        return;
    if (!special && v->attrs[t] & (VOCAB_ATTR_UNKNOWN | VOCAB_ATTR_CONTROL))
        return;
    size_t from = out->n;
    v->how->piece(v, t, out);
    size_t spaces = 0;
    while (lstrip > 0 && spaces < (size_t)lstrip && from + spaces < out->n && out->p[from + spaces] == ' ')
        spaces++;
    if (spaces) {
        memmove(out->p + from, out->p + from + spaces, out->n - from - spaces);
        out->n -= spaces;
        out->p[out->n] = '\0';
    }
}

/* A pass of the clean-up: how many bytes to take from p[0, n), after a space, in place of the space. 0: the
 * space stays. */
typedef size_t clean_rule(const char *p, size_t n, size_t *skip);

/* " ?" to "?" */
static size_t before_sign(const char *p, size_t n, size_t *skip)
{
    (void)n;
    (void)skip;
    return *p == '?' || *p == '!' || *p == '.' || *p == ',';
}

/* " ' " to "'" */
static size_t lone_apostrophe(const char *p, size_t n, size_t *skip)
{
    *skip = 1;
    return n > 1 && p[0] == '\'' && p[1] == ' ';
}

/* " 's" to "'s", and 'm, 're, 've */
static size_t short_form(const char *p, size_t n, size_t *skip)
{
    (void)skip;
    if (n < 2 || p[0] != '\'')
        return 0;
    return p[1] == 's' || p[1] == 'm' || (n > 2 && (p[1] == 'r' || p[1] == 'v') && p[2] == 'e');
}

static size_t clean(char *text, size_t n, clean_rule *rule)
{
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        size_t skip = 0, take = to && i && text[i - 1] == ' ' ? rule(text + i, n - i, &skip) : 0;
        if (take)
            to--;
        char c = text[i];
        if (take && skip) {
            i += skip;
            text[i] = '\0'; /* no space any more to what follows */
        }
        text[to++] = c;
    }
    return to;
}

void vocab_detokenize(const struct vocab *v, const token_id *ids, size_t n, bool remove_special,
                      bool unparse_special, struct buf *out)
{
    size_t from = out->n;
    bool strip = v->add_space_prefix;
    if (v->kind == VOCAB_NONE)
        return;
    if (remove_special && v->add_bos && n && ids[0] == v->role[ROLE_BOS]) {
        strip = false;
        ids++;
        n--;
    }
    if (remove_special && v->add_eos && n && ids[n - 1] == v->role[ROLE_EOS])
        n--;
    for (size_t i = 0; i < n; i++) {
        vocab_piece(v, ids[i], strip, unparse_special, out);
        strip = false;
    }
    if (!v->clean_spaces || out->failed || out->n == from)
        return;
    static clean_rule *const rules[] = {before_sign, lone_apostrophe, short_form};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        out->n = from + clean(out->p + from, out->n - from, rules[i]);
    out->p[out->n] = '\0';
}
