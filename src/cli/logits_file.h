/* The file llama-perplexity writes with --kl-divergence-base:
 *   "_logits_"  int32 n_ctx  int32 n_vocab  int32 n_chunk  int32 tokens[n_chunk * n_ctx]
 *   then for every scored position of every chunk a row as score.h describes it.
 * All little-endian, as the machines are that we run on. */
#ifndef CLI_LOGITS_FILE_H
#define CLI_LOGITS_FILE_H

#include "grappa.h"

#include <stdio.h>

struct logits_file {
    FILE *f;
    const char *path;
    int32_t n_ctx, n_vocab, n_chunk;
    grappa_token *tokens; /* [n_chunk * n_ctx] of a file that is read; owned */
};

/* Positions of a chunk that are scored: all that have a successor in its second half. */
static inline int32_t scored_positions(int32_t n_ctx)
{
    return n_ctx - 1 - n_ctx / 2;
}

/* Opens and checks the whole header, and that all rows are there. -1 on failure; close is due either way. */
int logits_file_read(struct logits_file *l, const char *path, struct grappa_err *err);
int logits_file_read_rows(struct logits_file *l, uint16_t *rows, size_t n, struct grappa_err *err);

/* Writes the header; n_ctx, n_vocab and n_chunk are set. */
int logits_file_write(struct logits_file *l, const char *path, const grappa_token *tokens,
                      struct grappa_err *err);
int logits_file_write_rows(struct logits_file *l, const uint16_t *rows, size_t n, struct grappa_err *err);

/* -1 when what was written did not arrive. */
int logits_file_close(struct logits_file *l, struct grappa_err *err);

#endif
