/* What the rooms outside need not know about value types: their names and sizes in a file. */
#ifndef GGUF_TYPES_H
#define GGUF_TYPES_H

#include <stdint.h>

struct value_type_info {
    const char *name;
    uint32_t size; /* bytes; 0 for strings and arrays, whose size is in the file */
};

/* NULL for an unknown id. */
const struct value_type_info *value_type_info(uint32_t type);

#endif
