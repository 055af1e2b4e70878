/* Grammars, schemas, regular expressions and triggers of any bytes: no crash, no endless work, an error has a
 * text. The first byte of the input says which language, then come the source and, after a NUL, a text to
 * write with it. */
#include "sampler/grammar.h"

#include "../unit/test_sampler_vocab.h"

#include <stdint.h>

#define END 256

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct grammar_vocab *shared(void)
{
    static const char *const words[] = {"</s>", "ab", "\": ", "true", "{\"", "123", " ", "\xe2\x82"};
    static struct vocab v;
    static struct grammar_vocab *gv;
    if (gv)
        return gv;
    for (int b = 0; b < END; b++)
        buf_putc(&v.text[b], (char)b);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        buf_puts(&v.text[END + i], words[i]);
    v.n = END + sizeof words / sizeof words[0];
    v.eog = END;
    return gv = grammar_vocab_new(&v, NULL);
}

/* Tokens that the grammar allows, those of the text where it can be, else the next that may follow. */
static void write_text(struct grammar *g, const char *text, size_t n)
{
    for (size_t i = 0; i < n && i < 64; i++) {
        const uint32_t *mask = grammar_mask(g);
        token_id t = (unsigned char)text[i];
        for (int k = 0; mask && k <= END + 7 && !(mask[t / 32] >> (t % 32) & 1); k++)
            t = (t + 1) % (END + 8);
        if (mask && !(mask[t / 32] >> (t % 32) & 1))
            abort(); /* a mask always leaves something */
        if (t == END)
            return;
        grammar_accept(g, t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum grammar_type types[] = {GRAMMAR_GBNF, GRAMMAR_JSON_SCHEMA, GRAMMAR_REGEX, GRAMMAR_LARK};
    if (size < 1)
        return 0;
    struct err err = ERR_INIT;
    struct buf source = {0};
    buf_puts(&source, "");
    buf_add(&source, data + 1, size - 1);
    const char *text = source.p + strlen(source.p);
    size_t n = source.n - (size_t)(text - source.p);
    const char *pattern = source.p;
    struct grammar_params p = {.type = types[data[0] % 4], .source = source.p, .lazy = data[0] & 4};
    p.trigger_patterns = p.trigger_words = &pattern;
    p.n_trigger_patterns = data[0] & 4 ? 1 : 0;
    p.n_trigger_words = data[0] & 8 ? 1 : 0;
    struct grammar *g = grammar_new(shared(), &p, &err);
    if (!g && (err.code != ERR_USAGE || err.text[0] == '\0'))
        abort();
    if (g) {
        write_text(g, text, n);
        grammar_reset(g);
        write_text(g, "{\"a\": [1, true]}", 16);
    }
    grammar_free(g);
    buf_release(&source);
    return 0;
}
