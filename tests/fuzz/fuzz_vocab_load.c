/* Vocabularies from files that may be anything: loading must end in a vocabulary or an error, and whatever
 * loads must take texts and give back pieces. */
#include "vocab/vocab.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const texts[] = {"Hello, it's 1990 <s> a<|im_end|> b",
                                        "\xE2\x96\x81\n\n \xFF\xC3\xA9 \t", ""};
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open_memory(data, size, &err);
    struct vocab *v = g ? vocab_new(g, &err) : NULL;
    if (!v && err.code == ERR_NONE)
        abort();
    for (size_t i = 0; v && i < sizeof texts / sizeof *texts; i++) {
        struct token_list ids = {0};
        struct buf out = {0};
        vocab_tokenize(v, str_of(texts[i]), i != 1, i != 1, &ids, NULL);
        for (size_t k = 0; k < ids.n; k++) {
            if (ids.p[k] < 0 || ids.p[k] >= vocab_n_tokens(v))
                abort();
        }
        vocab_detokenize(v, ids.p, ids.n, i == 0, i != 2, &out);
        free(ids.p);
        buf_release(&out);
    }
    for (token_id t = -1; v && t < 300; t++) {
        struct buf out = {0};
        vocab_piece(v, t, 1, true, &out);
        vocab_is_eog(v, t);
        if (vocab_find(v, vocab_text(v, t)) >= vocab_n_tokens(v))
            abort();
        buf_release(&out);
    }
    vocab_free(v);
    gguf_close(g);
    return 0;
}
