/* Decoding and repair of UTF-8, stand-ins for the matcher, the byte alphabet, and whole characters out of a
 * stream of bytes. */
#include "vocab/utf8.h"
#include "vocab/vocab.h"

#define REPLACEMENT 0xFFFDu

unsigned utf8_length(unsigned char first)
{
    static const unsigned char by_high_bits[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    return by_high_bits[first >> 4];
}

unsigned utf8_whole(struct str text)
{
    const unsigned char *p = (const unsigned char *)text.p;
    unsigned n = utf8_length(p[0]);
    if (n > text.n || p[0] >= 0xF8 || (n == 1 && p[0] >= 0x80))
        return 0;
    for (unsigned i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    return n;
}

unsigned utf8_decode(struct str text, uint32_t *cp)
{
    static const unsigned char value_bits[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const unsigned char *p = (const unsigned char *)text.p;
    unsigned n = utf8_whole(text);
    uint32_t c = p[0] & value_bits[n];
    for (unsigned i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3F);
    if (!n || c > 0x10FFFF) {
        *cp = REPLACEMENT;
        return 1;
    }
    *cp = c;
    return n;
}

static unsigned shortest(uint32_t cp)
{
    return cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
}

/* Length of the beginning that is ASCII, eight bytes at a time. */
static size_t ascii_prefix(struct str t)
{
    size_t i = 0;
    for (uint64_t w; i + 8 <= t.n; i += 8) {
        memcpy(&w, t.p + i, 8);
        if (w & 0x8080808080808080u)
            break;
    }
    while (i < t.n && (unsigned char)t.p[i] < 0x80)
        i++;
    return i;
}

static struct str rest(struct str t, size_t from)
{
    return (struct str){t.p + from, t.n - from};
}

/* What to do with a character: itself for nothing. */
typedef uint32_t change_fn(uint32_t cp);

/* Rewrites text from the first character on that `change` alters or that is not well written. */
static struct str rewrite(struct str text, change_fn *change, struct buf *scratch)
{
    bool changed = false;
    size_t kept = 0; /* text[kept, i) is still to be copied */
    for (size_t i = 0; i < text.n;) {
        i += ascii_prefix(rest(text, i));
        if (i == text.n)
            break;
        uint32_t cp;
        unsigned n = utf8_decode(rest(text, i), &cp);
        uint32_t to = change(cp);
        if (to != cp || n != shortest(cp)) {
            if (!changed)
                buf_clear(scratch);
            changed = true;
            buf_add(scratch, text.p + kept, i - kept);
            buf_put_utf8(scratch, to);
            kept = i + n;
        }
        i += n;
    }
    if (!changed)
        return text;
    buf_add(scratch, text.p + kept, text.n - kept);
    return buf_str(scratch);
}

static uint32_t itself(uint32_t cp)
{
    return cp;
}

struct str utf8_repair(struct str text, struct buf *scratch)
{
    return rewrite(text, itself, scratch);
}

/* Characters that came with Unicode 15.0 and 15.1 (DerivedAge.txt), which older libraries don't know, and two
 * oddities. The stand-ins are old characters of the same general category and length that lie in the same
 * explicit ranges of pretok.def. */
static const struct {
    uint32_t first, last, stand_in;
} newer[] = {
    {0x0CF3, 0x0CF3, 0x0CE3},    {0x0ECE, 0x0ECE, 0x0ECD},
    {0x180E, 0x180E, 0x200B}, /* a format character that PCRE2 counts as white space */
    {0x2FFC, 0x2FFF, 0x2FFB},    {0x31EF, 0x31EF, 0x31E3},
    {0xD800, 0xDFFF, 0xE000}, /* surrogates, which a matcher need not take */
    {0x10EFD, 0x10EFF, 0x101FD}, {0x1123F, 0x11240, 0x10280},
    {0x11241, 0x11241, 0x101FD}, {0x11B00, 0x11B09, 0x10100},
    {0x11F00, 0x11F01, 0x101FD}, {0x11F02, 0x11F02, 0x10280},
    {0x11F03, 0x11F03, 0x101FD}, {0x11F04, 0x11F10, 0x10280},
    {0x11F12, 0x11F33, 0x10280}, {0x11F34, 0x11F3A, 0x101FD},
    {0x11F3E, 0x11F42, 0x101FD}, {0x11F43, 0x11F4F, 0x10100},
    {0x11F50, 0x11F59, 0x10107}, {0x1342F, 0x1342F, 0x10280},
    {0x13440, 0x13440, 0x101FD}, {0x13441, 0x13446, 0x10280},
    {0x13447, 0x13455, 0x101FD}, {0x1B132, 0x1B132, 0x10280},
    {0x1B155, 0x1B155, 0x10280}, {0x1D2C0, 0x1D2D3, 0x10107},
    {0x1DF25, 0x1DF2A, 0x10280}, {0x1E030, 0x1E06D, 0x10280},
    {0x1E08F, 0x1E08F, 0x101FD}, {0x1E4D0, 0x1E4EB, 0x10280},
    {0x1E4EC, 0x1E4EF, 0x101FD}, {0x1E4F0, 0x1E4F9, 0x10107},
    {0x1F6DC, 0x1F6DC, 0x10190}, {0x1F774, 0x1F776, 0x10190},
    {0x1F77B, 0x1F77F, 0x10190}, {0x1F7D9, 0x1F7D9, 0x10190},
    {0x1FA75, 0x1FA77, 0x10190}, {0x1FA87, 0x1FA88, 0x10190},
    {0x1FAAD, 0x1FAAF, 0x10190}, {0x1FABB, 0x1FABD, 0x10190},
    {0x1FABF, 0x1FABF, 0x10190}, {0x1FACE, 0x1FACF, 0x10190},
    {0x1FADA, 0x1FADB, 0x10190}, {0x1FAE8, 0x1FAE8, 0x10190},
    {0x1FAF7, 0x1FAF8, 0x10190}, {0x2B739, 0x2B739, 0x2B738},
    {0x2EBF0, 0x2EE5D, 0x10280}, {0x31350, 0x323AF, 0x10280},
};

uint32_t utf8_stand_in(uint32_t cp)
{
    size_t lo = 0, hi = sizeof newer / sizeof *newer;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > newer[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < sizeof newer / sizeof *newer && cp >= newer[lo].first ? newer[lo].stand_in : cp;
}

struct str utf8_for_matching(struct str text, struct buf *scratch)
{
    return rewrite(text, utf8_stand_in, scratch);
}

static bool printable(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* The bytes that are no printable Latin-1 are 0x00-0x20, 0x7F-0xA0 and 0xAD: they get U+0100 and on. */
uint32_t byte_to_char(unsigned char byte)
{
    if (printable(byte))
        return byte;
    return 0x100 + (byte <= 0x20 ? byte : byte == 0xAD ? 0x43 : byte - 0x7Fu + 0x21);
}

int char_to_byte(uint32_t cp)
{
    if (cp < 0x100)
        return printable(cp) ? (int)cp : -1;
    unsigned i = cp - 0x100;
    return i > 0x43 ? -1 : i == 0x43 ? 0xAD : i <= 0x20 ? (int)i : (int)(i - 0x21 + 0x7F);
}

/* Length of the beginning of a character at the very end of the bytes that more bytes could complete. */
static size_t open_end(struct str t)
{
    for (size_t back = 1; back <= 3 && back <= t.n; back++) {
        const unsigned char *p = (const unsigned char *)t.p + t.n - back;
        if ((*p & 0xC0) == 0x80)
            continue;
        if (*p < 0xC2 || *p > 0xF4 || utf8_length(*p) <= back)
            return 0;
        /* E0, ED, F0 and F4 ask for a second byte in part of the range only */
        if (back > 1 && ((*p == 0xE0 && p[1] < 0xA0) || (*p == 0xED && p[1] > 0x9F) ||
                         (*p == 0xF0 && p[1] < 0x90) || (*p == 0xF4 && p[1] > 0x8F)))
            return 0;
        return back;
    }
    return 0;
}

void utf8_stream_add(struct utf8_stream *s, struct str bytes, struct buf *out)
{
    size_t from = out->n;
    buf_add(out, s->held, (size_t)s->n);
    buf_add(out, bytes.p, bytes.n);
    if (out->failed)
        return;
    s->n = 0;
    size_t hold = open_end((struct str){out->p + from, out->n - from});
    if (!hold)
        return;
    out->n -= hold;
    memcpy(s->held, out->p + out->n, hold);
    s->n = (int)hold;
    out->p[out->n] = '\0';
}

void utf8_stream_end(struct utf8_stream *s, struct buf *out)
{
    buf_add(out, s->held, (size_t)s->n);
    s->n = 0;
}
