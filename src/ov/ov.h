/* OpenVINO: the only room that includes its headers. A model goes in as IR text and a blob of constants,
 * tensors are bound by name to memory that the caller owns, a step is one inference.
 *
 * Errors carry OpenVINO's own last line. Nothing here is thread-safe except creating several objects. */
#ifndef OV_OV_H
#define OV_OV_H

#include "base/buf.h"
#include "base/err.h"
#include "kernels/experts.h"
#include "kernels/linear.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ov_elem {
    OV_ELEM_F32,
    OV_ELEM_F16,
    OV_ELEM_BF16,
    OV_ELEM_I64,
    OV_ELEM_I32,
    OV_ELEM_I8,
    OV_ELEM_U8,
    OV_ELEM_U4,
    OV_ELEM_OTHER
};

/* Bits of an element; 0 for OV_ELEM_OTHER. */
int ov_elem_bits(enum ov_elem e);

struct ov_prop {
    const char *key, *value;
};

/* ---- core: one per process is enough ---- */
struct ov_runtime;
struct ov_runtime *ov_open(struct err *err);
void ov_close(struct ov_runtime *rt);
const char *ov_version(void);
/* Device names; calls fn for each. */
int ov_each_device(struct ov_runtime *rt, void (*fn)(const char *name, const char *full_name, void *user),
                   void *user, struct err *err);

/* ---- program: a compiled model with its one inference request ---- */
struct ov_program;

/* `blob` is read during compilation and whenever the plugin packs weights for a new kind of step, so it must
 * outlive the program; so must `linears`, the products with GGUF blocks that the graph's GgufLinear nodes
 * refer to by index (NULL, 0: there are none), and `experts`, those of its GgufExperts nodes. */
struct ov_program *ov_compile(struct ov_runtime *rt, const char *device, struct str xml, void *blob,
                              size_t blob_size, const struct linear *linears, size_t n_linears,
                              const struct experts *experts, size_t n_experts, const struct ov_prop *props,
                              size_t n_props, struct err *err);
void ov_program_free(struct ov_program *p);

#define OV_MAX_RANK 8
struct ov_port {
    enum ov_elem elem;
    int rank;
    int64_t dims[OV_MAX_RANK]; /* -1: decided at run time */
};
/* -1 and an error when there is no such input. */
int ov_input_port(const struct ov_program *p, const char *name, struct ov_port *out, struct err *err);

/* Binds an input to `data`, which the caller keeps alive until it is bound to something else. A second bind
 * of the same name with the same data and shape costs nothing. */
int ov_bind(struct ov_program *p, const char *name, enum ov_elem elem, int rank, const int64_t *dims,
            void *data, struct err *err);
int ov_infer(struct ov_program *p, struct err *err);
/* The f32 output by name: data valid until the next inference. */
const float *ov_output(struct ov_program *p, const char *name, size_t *n, struct err *err);

/* Adds this inference's time by node type (needs PERF_COUNT); text for people. */
void ov_profile_add(struct ov_program *p);
void ov_profile_print(struct ov_program *p, struct buf *out);

#endif
