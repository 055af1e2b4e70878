/* Well-formed sequences: the lead byte tells the length and what the second byte may be. */
#include "base/utf8.h"

static const struct {
    unsigned char lead_to, second_from, second_to, n;
} forms[] = {
    {0x7F, 0, 0, 1},       {0xC1, 0, 0, 0},       {0xDF, 0x80, 0xBF, 2}, {0xE0, 0xA0, 0xBF, 3},
    {0xEC, 0x80, 0xBF, 3}, {0xED, 0x80, 0x9F, 3}, {0xEF, 0x80, 0xBF, 3}, {0xF0, 0x90, 0xBF, 4},
    {0xF3, 0x80, 0xBF, 4}, {0xF4, 0x80, 0x8F, 4}, {0xFF, 0, 0, 0},
};

size_t utf8_len(const char *p, size_t left)
{
    const unsigned char *c = (const unsigned char *)p;
    size_t form = 0;
    if (left == 0)
        return 0;
    while (c[0] > forms[form].lead_to)
        form++;
    size_t n = forms[form].n;
    if (n <= 1)
        return n;
    if (n > left || c[1] < forms[form].second_from || c[1] > forms[form].second_to)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    }
    return n;
}
