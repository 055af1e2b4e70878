/* One value as one C number or string, wherever the key was found. Return 0 or -1; errors name the key only.
 */
#ifndef GGUF_VALUE_H
#define GGUF_VALUE_H

#include "gguf/gguf.h"

int value_u32(const struct gguf_kv *kv, uint32_t *out, struct err *err);
int value_f32(const struct gguf_kv *kv, float *out, struct err *err);
int value_bool(const struct gguf_kv *kv, bool *out, struct err *err);
int value_string(const struct gguf_kv *kv, struct str *out, struct err *err);

#endif
