/* GGUF files: metadata and tensor directory over a read-only map.
 *
 * Format: github.com/ggml-org/ggml docs/gguf.md, versions 2 and 3, little-endian. Everything is read through
 * a bounds-checked cursor; nothing is trusted: lengths, counts, offsets, alignment, duplicate names, and that
 * every tensor's bytes lie inside its file. A split model (`…-00001-of-00003.gguf`) is opened by any of its
 * parts and appears as one directory; the metadata is the first part's.
 *
 * All strings and arrays point into the map and live as long as the struct gguf. A struct gguf is read-only
 * after gguf_open and may be shared between threads. */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* GGML tensor types; ids are the file's. Sizes are in types.def. */
enum ggml_type {
#define GGML_TYPE(id, name, block, bytes) GGML_##name = id,
#include "gguf/types.def"
#undef GGML_TYPE
};

struct ggml_type_info {
    const char *name; /* "Q4_K"; NULL for an id that is not in use */
    uint32_t block;   /* elements in a block, along the first dimension */
    uint32_t bytes;   /* bytes of a block */
};

/* NULL for an unknown id. */
const struct ggml_type_info *ggml_type_info(uint32_t type);

enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_kv {
    struct str key;
    enum gguf_value_type type; /* for an array: of its elements */
    bool is_array;             /* arrays of arrays are refused */
    uint64_t n;                /* elements; 1 for a scalar */
    const uint8_t *data;       /* unaligned scalars, or strings one after the other (u64 length, bytes) */
    const struct str *strings; /* type GGUF_STRING: n slices */
};

#define GGUF_MAX_DIMS 4

struct gguf_tensor {
    struct str name;
    uint32_t type; /* enum ggml_type, always a known one */
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS]; /* elements, fastest dimension first; 1 beyond n_dims */
    uint64_t size;              /* bytes; 0 where a dimension is 0 */
    const uint8_t *data;
    uint32_t part;   /* which file of a split model */
    uint64_t offset; /* of data in that file */
};

struct gguf;

/* Errors name the file, and the key or tensor where there is one. */
struct gguf *gguf_open(const char *path, struct err *err);
/* The same over memory that the caller keeps alive (tests, fuzzing). Splits are refused. */
struct gguf *gguf_open_memory(const void *data, size_t n, struct err *err);
void gguf_close(struct gguf *g);

/* Replaces the value of a key, or adds the key: "KEY=TYPE:VALUE" with TYPE int, float, bool (true or false)
 * or str, as llama.cpp's --override-kv. Call it before anything else looks at keys: pointers to a struct
 * gguf_kv don't survive it. -1 with ERR_USAGE and a text that names the spec; then nothing has changed. */
int gguf_override(struct gguf *g, const char *spec, struct err *err);

const char *gguf_path(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_file_size(const struct gguf *g); /* bytes, all parts together */
/* File descriptor of a part, -1 for memory; owned by the struct gguf. */
int gguf_fd(const struct gguf *g, uint32_t part);
/* 0, or -1 with an error when a part was cut, grew or was written to since it was opened (a file that
 * replaces it under its name does no harm). Tensors are read from the map at all times, and behind the end of
 * a file that was cut there is nothing to read: the process ends by SIGBUS, unless the program has called
 * cut_files_read_as_zeros (base/cut.h). Ask before a longer use, and after it. */
int gguf_changed(const struct gguf *g, struct err *err);
/* Lets the kernel read the tensor data ahead, while the caller does something else. */
void gguf_want_pages(const struct gguf *g);

size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL when absent */

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Element i of a value. The caller keeps i < n. Numbers convert to the wider form: any integer or bool for
 * _i64 (a u64 beyond it gives INT64_MAX), any number for _f64; otherwise 0, and the empty string. */
int64_t gguf_i64_at(const struct gguf_kv *kv, uint64_t i);
double gguf_f64_at(const struct gguf_kv *kv, uint64_t i);
struct str gguf_str_at(const struct gguf_kv *kv, uint64_t i);

/* Scalars by key. Return 1 and set *out when the key is there with a fitting type and in range, 0 when it is
 * absent (*out untouched, so set the default first), -1 with an error naming file and key otherwise. Fitting
 * is any integer type for _u32, any number for _f32, and the type itself for the others. */
int gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *err);
int gguf_f32(const struct gguf *g, const char *key, float *out, struct err *err);
int gguf_bool(const struct gguf *g, const char *key, bool *out, struct err *err);
int gguf_string(const struct gguf *g, const char *key, struct str *out, struct err *err);
/* The text of a scalar or of the first elements of an array, for people; cut to fit. */
void gguf_kv_print(const struct gguf_kv *kv, char *out, size_t size);

#endif
