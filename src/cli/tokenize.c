/* grappa tokenize: the tokens of a text, with llama-tokenize's options and output. */
#include "cli/common.h"

#include <stdlib.h>

static int read_text(const struct options *o, struct buf *text, struct grappa_err *err)
{
    if (!o->from_stdin)
        return read_prompt(o, true, text, err); /* a newline at the end is a token too */
    if (read_stream(stdin, "stdin", text, err))
        return -1;
    if (text->n && o->escape)
        text->n = unescape(text->p, text->n);
    return 0;
}

static void print_token(const struct grappa_vocab *v, grappa_token t)
{
    char small[256];
    char *piece = small;
    size_t n = grappa_token_piece(v, t, true, small, sizeof small);
    if (n > sizeof small) {
        piece = xmalloc(n);
        n = grappa_token_piece(v, t, true, piece, n);
    }
    printf("%6d -> '", t);
    fwrite(piece, 1, n, stdout);
    printf("'\n");
    if (piece != small)
        free(piece);
}

static void print_tokens(const struct options *o, const struct grappa_vocab *v, const grappa_token *ids,
                         size_t n)
{
    if (o->ids_only) {
        putchar('[');
        for (size_t i = 0; i < n; i++)
            printf("%s%d", i ? ", " : "", ids[i]);
        printf("]\n");
    } else {
        for (size_t i = 0; i < n; i++)
            print_token(v, ids[i]);
    }
    if (o->show_count)
        printf("Total number of tokens: %zu\n", n);
}

int cmd_tokenize(const struct options *o)
{
    struct grappa_err err = {0};
    struct buf text = {0};
    struct grappa_vocab *v = NULL;
    grappa_token *ids = NULL;
    size_t n = 0;
    if (!o->from_stdin && !has_prompt(o)) {
        cli_error(&err, 2, "`tokenize` needs a text: -p TEXT, -f FILE or --stdin");
        goto cleanup;
    }
    v = grappa_vocab_load(o->model, &err);
    if (!v || read_text(o, &text, &err))
        goto cleanup;
    bool add_special = grappa_vocab_add_bos(v) && !o->no_bos;
    ids = grappa_tokenize_new(v, text.p, text.n, add_special, !o->no_parse_special, &n, &err);
    if (ids)
        print_tokens(o, v, ids, n);
cleanup:
    buf_release(&text);
    grappa_vocab_free(v);
    free(ids);
    return err.exit_status ? cli_fail(&err) : 0;
}
