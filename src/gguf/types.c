/* The two type tables of the format: tensor types out of types.def, and value types. */
#include "gguf/types.h"
#include "gguf/gguf.h"

static const struct ggml_type_info tensor_types[] = {
#define GGML_TYPE(id, name, block, bytes) [id] = {#name, block, bytes},
#include "gguf/types.def"
#undef GGML_TYPE
};

static const struct value_type_info value_types[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const struct ggml_type_info *ggml_type_info(uint32_t type)
{
    return type < COUNT(tensor_types) && tensor_types[type].name ? &tensor_types[type] : NULL;
}

const struct value_type_info *value_type_info(uint32_t type)
{
    return type < COUNT(value_types) ? &value_types[type] : NULL;
}
