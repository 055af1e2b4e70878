/* GGUF files of keys, built in memory: small vocabularies for tests and fuzz targets. */
#ifndef TESTS_VOCAB_BUILD_H
#define TESTS_VOCAB_BUILD_H

#include "vocab/vocab.h"

struct file {
    struct buf data;
    uint64_t n;
};

static inline void add_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, 8);
}

static inline void add_u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, 4);
}

static inline void add_str(struct buf *b, const char *z)
{
    add_u64(b, strlen(z));
    buf_puts(b, z);
}

static inline void file_begin(struct file *f)
{
    *f = (struct file){0};
    buf_puts(&f->data, "GGUF");
    add_u32(&f->data, 3);
    add_u64(&f->data, 0);
    add_u64(&f->data, 0); /* number of keys, set by load */
}

static inline void key(struct file *f, const char *name, uint32_t type)
{
    f->n++;
    add_str(&f->data, name);
    add_u32(&f->data, type);
}

static inline void key_str(struct file *f, const char *name, const char *value)
{
    key(f, name, 8);
    add_str(&f->data, value);
}

static inline void key_u32(struct file *f, const char *name, uint32_t value)
{
    key(f, name, 4);
    add_u32(&f->data, value);
}

static inline void key_bool(struct file *f, const char *name, bool value)
{
    key(f, name, 7);
    buf_putc(&f->data, value);
}

/* Strings up to NULL. */
static inline void key_strs(struct file *f, const char *name, const char *const *values)
{
    size_t n = 0;
    while (values[n])
        n++;
    key(f, name, 9);
    add_u32(&f->data, 8);
    add_u64(&f->data, n);
    for (size_t i = 0; i < n; i++)
        add_str(&f->data, values[i]);
}

/* One digit for each element, as i32 (type 5). */
static inline void key_digits(struct file *f, const char *name, const char *digits)
{
    key(f, name, 9);
    add_u32(&f->data, 5);
    add_u64(&f->data, strlen(digits));
    for (; *digits; digits++)
        add_u32(&f->data, (uint32_t)(*digits - '0'));
}

/* An array of u8. */
static inline void key_bytes(struct file *f, const char *name, const void *bytes, size_t n)
{
    key(f, name, 9);
    add_u32(&f->data, 0);
    add_u64(&f->data, n);
    buf_add(&f->data, bytes, n);
}

/* The bytes, good until the file is released. */
static inline struct str file_bytes(struct file *f)
{
    memcpy(f->data.p + 16, &f->n, 8);
    return buf_str(&f->data);
}

#endif
