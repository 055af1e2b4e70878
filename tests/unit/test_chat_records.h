/* Golden files of the chat tests: records "key LENGTH\n" text "\n". */
#ifndef TEST_CHAT_RECORDS_H
#define TEST_CHAT_RECORDS_H

#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

static inline struct buf read_file(const char *path)
{
    struct buf text = {0};
    char piece[65536];
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(1);
    }
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_add(&text, piece, n);
    fclose(f);
    return text;
}

struct record {
    struct str key, text;
};

/* The record at *at, which moves behind it; false at the end. */
static inline bool next_record(const struct buf *file, size_t *at, struct record *r)
{
    if (*at >= file->n)
        return false;
    char *rest;
    r->key = (struct str){file->p + *at, strcspn(file->p + *at, " ")};
    r->text.n = strtoul(r->key.p + r->key.n, &rest, 10);
    r->text.p = rest + 1;
    *at = (size_t)(r->text.p - file->p) + r->text.n + 1;
    return true;
}

#endif
