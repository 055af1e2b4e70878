/* Logits files: everything in the header is checked against the file's length before anything is allocated.
 */
#include "cli/logits_file.h"

#include "cli/common.h"
#include "cli/score.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = "_logits_";

static int cut_off(const struct logits_file *l, struct grappa_err *err)
{
    return cli_error(err, 1, "%s: the file is cut off", l->path);
}

static int write_failed(const struct logits_file *l, struct grappa_err *err)
{
    return cli_error(err, 1, "can't write %s: %s", l->path, strerror(errno ? errno : EIO));
}

/* Whether tokens and rows fit what is left of the file. */
static int check_length(struct logits_file *l, size_t *n_tokens, struct grappa_err *err)
{
    long here = ftell(l->f), end = -1;
    if (here >= 0 && fseek(l->f, 0, SEEK_END) == 0)
        end = ftell(l->f);
    if (here < 0 || end < 0 || fseek(l->f, here, SEEK_SET))
        return cli_error(err, 1, "%s: must be a file that can be read at any place", l->path);
    size_t token_bytes, row_bytes, all;
    size_t rows = (size_t)l->n_chunk;
    bool fits = mul_size((size_t)l->n_ctx, (size_t)l->n_chunk, n_tokens) &&
                mul_size(*n_tokens, sizeof *l->tokens, &token_bytes) &&
                mul_size(rows, (size_t)scored_positions(l->n_ctx), &rows) &&
                mul_size(rows, score_row_u16(l->n_vocab) * sizeof(uint16_t), &row_bytes) &&
                add_size(token_bytes, row_bytes, &all) && all <= (size_t)(end - here);
    return fits ? 0 : cut_off(l, err);
}

int logits_file_read(struct logits_file *l, const char *path, struct grappa_err *err)
{
    char start[sizeof magic];
    int32_t head[3];
    size_t n = 0;
    *l = (struct logits_file){.f = fopen(path, "rb"), .path = path};
    if (!l->f)
        return cli_error(err, 1, "can't read %s: %s", path, strerror(errno));
    if (fread(start, 1, sizeof start, l->f) != sizeof start || memcmp(start, magic, sizeof magic) != 0)
        return cli_error(err, 1, "%s: not a file of logits", path);
    if (fread(head, sizeof *head, 3, l->f) != 3)
        return cut_off(l, err);
    l->n_ctx = head[0];
    l->n_vocab = head[1];
    l->n_chunk = head[2];
    if (l->n_ctx < 4 || l->n_vocab < 1 || l->n_chunk < 1)
        return cli_error(err, 1, "%s: %d chunks of %d positions with %d logits can't be", path, l->n_chunk,
                         l->n_ctx, l->n_vocab);
    if (check_length(l, &n, err))
        return -1;
    l->tokens = malloc(n * sizeof *l->tokens);
    if (!l->tokens)
        return cli_error(err, 1, "out of memory");
    if (fread(l->tokens, sizeof *l->tokens, n, l->f) != n)
        return cut_off(l, err);
    for (size_t i = 0; i < n; i++) {
        if (l->tokens[i] < 0 || l->tokens[i] >= l->n_vocab)
            return cli_error(err, 1, "%s: token %d is none of the %d in its vocabulary", path, l->tokens[i],
                             l->n_vocab);
    }
    return 0;
}

int logits_file_read_rows(struct logits_file *l, uint16_t *rows, size_t n, struct grappa_err *err)
{
    return fread(rows, score_row_u16(l->n_vocab) * sizeof *rows, n, l->f) == n ? 0 : cut_off(l, err);
}

int logits_file_write(struct logits_file *l, const char *path, const grappa_token *tokens,
                      struct grappa_err *err)
{
    l->path = path;
    l->f = fopen(path, "wb");
    if (!l->f)
        return cli_error(err, 1, "can't write %s: %s", path, strerror(errno));
    int32_t head[3] = {l->n_ctx, l->n_vocab, l->n_chunk};
    size_t n = (size_t)l->n_ctx * (size_t)l->n_chunk;
    errno = 0;
    if (fwrite(magic, 1, sizeof magic, l->f) != sizeof magic || fwrite(head, sizeof *head, 3, l->f) != 3 ||
        fwrite(tokens, sizeof *tokens, n, l->f) != n)
        return write_failed(l, err);
    return 0;
}

int logits_file_write_rows(struct logits_file *l, const uint16_t *rows, size_t n, struct grappa_err *err)
{
    errno = 0;
    if (fwrite(rows, score_row_u16(l->n_vocab) * sizeof *rows, n, l->f) != n)
        return write_failed(l, err);
    return 0;
}

int logits_file_close(struct logits_file *l, struct grappa_err *err)
{
    int status = l->f ? close_output(l->f, l->path, err) : 0;
    free(l->tokens);
    *l = (struct logits_file){0};
    return status;
}
