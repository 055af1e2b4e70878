/* Any bytes as a GGUF file. What opens is read from end to end: every value, every byte of every tensor. */
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "fuzz_gguf: %s\n", what);
        abort();
    }
}

static unsigned sum; /* keeps the reads */

static void read_kv(const struct gguf *g, const struct gguf_kv *kv)
{
    static const size_t sizes[] = {0, 1, 2, 4, 7, 8, 16, 33, 300};
    char key[128], text[300];
    struct err err = ERR_INIT;
    uint32_t u;
    float f;
    bool b;
    struct str s;
    check(kv->type != GGUF_ARRAY && (kv->is_array || kv->n == 1) && kv->key.n > 0, "a kv that cannot be");
    for (uint64_t i = 0; i < kv->n; i++) {
        sum += (unsigned)gguf_i64_at(kv, i) + (gguf_f64_at(kv, i) > 0);
        s = gguf_str_at(kv, i);
        for (size_t j = 0; j < s.n; j++)
            sum += (unsigned char)s.p[j];
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gguf_kv_print(kv, text, sizes[i]);
        check(sizes[i] == 0 || strlen(text) < sizes[i], "a print over its space");
    }
    snprintf(key, sizeof key, "%.*s", STR_ARG(kv->key));
    if (strlen(key) == kv->key.n)
        check(gguf_find(g, key) == kv, "a key that is not found");
    gguf_u32(g, key, &u, &err);
    gguf_f32(g, key, &f, &err);
    gguf_bool(g, key, &b, &err);
    gguf_string(g, key, &s, &err);
}

static void read_tensor(const struct gguf *g, const struct gguf_tensor *t)
{
    char name[128];
    const struct ggml_type_info *info = ggml_type_info(t->type);
    check(info && t->n_dims <= GGUF_MAX_DIMS && t->ne[0] % info->block == 0, "a tensor that cannot be");
    check(t->size == t->ne[0] / info->block * info->bytes * t->ne[1] * t->ne[2] * t->ne[3],
          "a size that is wrong");
    for (uint64_t i = 0; i < t->size; i++)
        sum += t->data[i];
    snprintf(name, sizeof name, "%.*s", STR_ARG(t->name));
    if (strlen(name) == t->name.n)
        check(gguf_find_tensor(g, name) == t, "a tensor that is not found");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct gguf *g = gguf_open_memory(data, size, &err);
    check(!g == (err.code != ERR_NONE) && !g == (err.text[0] != '\0'), "an error that is not told");
    if (!g)
        return 0;
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        read_kv(g, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        read_tensor(g, gguf_tensor_at(g, i));
    gguf_close(g);
    return 0;
}
