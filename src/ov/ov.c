/* OpenVINO over its C API: the core, compiling a model from IR text, and one inference request whose inputs
 * are the caller's memory. */
#include "ov/ov.h"

#include "base/mem.h"
#include "base/str.h"
#include "ov/delta_op.h"
#include "ov/experts_op.h"
#include "ov/linear_op.h"
#include "ov/node_info.h"

#include <openvino/c/openvino.h>
#include <stdio.h>
#include <stdlib.h>

/* ov_core_compile_model is variadic; this many key/value pairs are always passed, and counted. */
enum { MAX_PROPS = 16 };

struct ov_runtime {
    ov_core_t *core;
};

struct input {
    const char *name;
    ov_tensor_t *tensor; /* over the caller's memory; NULL before the first bind */
    void *data;
    int rank;
    int64_t dims[OV_MAX_RANK];
};

struct node_time {
    const char *type;
    int64_t us, calls;
};

struct ov_program {
    ov_compiled_model_t *compiled;
    ov_infer_request_t *request;
    struct arena names;
    struct input *inputs;
    size_t n_inputs;
    const char **outputs;
    size_t n_outputs;
    ov_tensor_t *output; /* of the last ov_output */
    struct node_time *times;
    size_t n_times;
};

/* OpenVINO's messages are several lines of file names and checks; the last one says what is wrong. */
static int fail(struct err *err, const char *doing)
{
    const char *text = ov_get_last_err_msg();
    const char *line = text ? text : "";
    for (const char *p = line; *p; p++) {
        if (*p == '\n' && p[1] && p[1] != '\n')
            line = p + 1;
    }
    size_t n = strcspn(line, "\n");
    return err_set(err, ERR_DEVICE, "OpenVINO: %s: %.*s", doing, (int)(n < 300 ? n : 300), line);
}

static const struct elem {
    ov_element_type_e type;
    int bits;
} elems[] = {
    [OV_ELEM_F32] = {F32, 32}, [OV_ELEM_F16] = {F16, 16}, [OV_ELEM_BF16] = {BF16, 16},
    [OV_ELEM_I64] = {I64, 64}, [OV_ELEM_I32] = {I32, 32}, [OV_ELEM_I8] = {I8, 8},
    [OV_ELEM_U8] = {U8, 8},    [OV_ELEM_U4] = {U4, 4},    [OV_ELEM_OTHER] = {DYNAMIC, 0},
};

int ov_elem_bits(enum ov_elem e)
{
    return elems[e].bits;
}

static enum ov_elem elem_of(ov_element_type_e type)
{
    for (int e = 0; e < OV_ELEM_OTHER; e++) {
        if (elems[e].type == type)
            return (enum ov_elem)e;
    }
    return OV_ELEM_OTHER;
}

struct ov_runtime *ov_open(struct err *err)
{
    struct ov_runtime *rt = xcalloc(1, sizeof *rt);
    if (ov_core_create(&rt->core) != OK) {
        fail(err, "start");
        free(rt);
        return NULL;
    }
    /* Loading the CPU plugin registers the operation sets "extension" and "ie_internal_opset" that IR may
     * name; a machine without it can still use other devices, so a failure here is not the end. */
    char *name = NULL;
    if (ov_core_get_property(rt->core, "CPU", "FULL_DEVICE_NAME", &name) == OK)
        ov_free(name);
    if (ov_linear_op_register(rt->core) < 0 || ov_experts_op_register(rt->core) < 0 ||
        ov_delta_op_register(rt->core) < 0) {
        err_set(err, ERR_DEVICE, "OpenVINO: an operation of our own can't be registered");
        ov_close(rt);
        return NULL;
    }
    return rt;
}

void ov_close(struct ov_runtime *rt)
{
    if (!rt)
        return;
    ov_core_free(rt->core);
    free(rt);
}

const char *ov_version(void)
{
    static char text[64];
    ov_version_t v;
    if (!text[0] && ov_get_openvino_version(&v) == OK) {
        snprintf(text, sizeof text, "%s", v.buildNumber);
        ov_version_free(&v);
    }
    return text;
}

int ov_each_device(struct ov_runtime *rt, void (*fn)(const char *name, const char *full_name, void *user),
                   void *user, struct err *err)
{
    ov_available_devices_t devices;
    if (ov_core_get_available_devices(rt->core, &devices) != OK)
        return fail(err, "list devices");
    for (size_t i = 0; i < devices.size; i++) {
        char *full = NULL;
        if (ov_core_get_property(rt->core, devices.devices[i], "FULL_DEVICE_NAME", &full) != OK)
            full = NULL;
        fn(devices.devices[i], full ? full : "", user);
        if (full)
            ov_free(full);
    }
    ov_available_devices_free(&devices);
    return 0;
}

/* Names of all inputs or outputs, in the order of their indices. */
static const char **port_names(struct ov_program *p, bool input, size_t *n, struct err *err)
{
    ov_status_e s = input ? ov_compiled_model_inputs_size(p->compiled, n)
                          : ov_compiled_model_outputs_size(p->compiled, n);
    if (s != OK) {
        fail(err, "count ports");
        return NULL;
    }
    const char **names = arena_alloc(&p->names, (*n + 1) * sizeof *names);
    for (size_t i = 0; i < *n; i++) {
        ov_output_const_port_t *port = NULL;
        char *name = NULL;
        s = input ? ov_compiled_model_input_by_index(p->compiled, i, &port)
                  : ov_compiled_model_output_by_index(p->compiled, i, &port);
        if (s != OK || ov_port_get_any_name(port, &name) != OK) {
            ov_output_const_port_free(port);
            fail(err, "name ports");
            return NULL;
        }
        names[i] = arena_strndup(&p->names, name, strlen(name));
        ov_free(name);
        ov_output_const_port_free(port);
    }
    return names;
}

static int name_ports(struct ov_program *p, struct err *err)
{
    const char **names = port_names(p, true, &p->n_inputs, err);
    if (!names)
        return -1;
    p->inputs = arena_alloc(&p->names, (p->n_inputs + 1) * sizeof *p->inputs);
    for (size_t i = 0; i < p->n_inputs; i++)
        p->inputs[i].name = names[i];
    p->outputs = port_names(p, false, &p->n_outputs, err);
    return p->outputs ? 0 : -1;
}

static ov_compiled_model_t *compile(struct ov_runtime *rt, ov_model_t *model, const char *device,
                                    const struct ov_prop *props, size_t n, struct err *err)
{
    const char *a[2 * MAX_PROPS] = {0};
    if (n > MAX_PROPS) {
        err_set(err, ERR_USAGE, "more than %d OpenVINO properties", MAX_PROPS);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        a[2 * i] = props[i].key;
        a[2 * i + 1] = props[i].value;
    }
    ov_compiled_model_t *compiled = NULL;
    if (ov_core_compile_model(rt->core, model, device, 2 * n, &compiled, a[0], a[1], a[2], a[3], a[4], a[5],
                              a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17],
                              a[18], a[19], a[20], a[21], a[22], a[23], a[24], a[25], a[26], a[27], a[28],
                              a[29], a[30], a[31]) != OK) {
        char doing[96];
        snprintf(doing, sizeof doing, "compile for device %.64s", device);
        fail(err, doing);
        return NULL;
    }
    return compiled;
}

/* The model object, with the node info that its attention nodes need. */
static ov_model_t *read_model(struct ov_runtime *rt, struct str xml, void *blob, size_t blob_size,
                              struct err *err)
{
    ov_model_t *model = NULL;
    ov_tensor_t *weights = NULL;
    ov_shape_t shape;
    int64_t size = (int64_t)blob_size;
    if (ov_shape_create(1, &size, &shape) != OK) {
        fail(err, "shape");
        return NULL;
    }
    if (ov_tensor_create_from_host_ptr(U8, shape, blob, &weights) != OK ||
        ov_core_read_model_from_memory_buffer(rt->core, xml.p, xml.n, weights, &model) != OK) {
        fail(err, "read the graph");
    } else if (ov_node_info_apply(model) < 0) {
        err_set(err, ERR_DEVICE, "OpenVINO: node info of the graph is no number");
        ov_model_free(model);
        model = NULL;
    }
    ov_tensor_free(weights);
    ov_shape_free(&shape);
    return model;
}

struct ov_program *ov_compile(struct ov_runtime *rt, const char *device, struct str xml, void *blob,
                              size_t blob_size, const struct linear *linears, size_t n_linears,
                              const struct experts *experts, size_t n_experts, const struct ov_prop *props,
                              size_t n_props, struct err *err)
{
    struct ov_program *p = xcalloc(1, sizeof *p);
    ov_linear_table_use(linears, n_linears);
    ov_experts_table_use(experts, n_experts);
    ov_model_t *model = read_model(rt, xml, blob, blob_size, err);
    ov_linear_table_use(NULL, 0);
    ov_experts_table_use(NULL, 0);
    if (!model)
        goto failed;
    p->compiled = compile(rt, model, device, props, n_props, err);
    ov_model_free(model);
    if (!p->compiled || name_ports(p, err) < 0)
        goto failed;
    if (ov_compiled_model_create_infer_request(p->compiled, &p->request) != OK) {
        fail(err, "create the inference request");
        goto failed;
    }
    return p;
failed:
    ov_program_free(p);
    return NULL;
}

void ov_program_free(struct ov_program *p)
{
    if (!p)
        return;
    ov_tensor_free(p->output);
    for (size_t i = 0; i < p->n_inputs && p->inputs; i++)
        ov_tensor_free(p->inputs[i].tensor);
    if (p->request)
        ov_infer_request_free(p->request);
    if (p->compiled)
        ov_compiled_model_free(p->compiled);
    arena_release(&p->names);
    free(p->times);
    free(p);
}

static struct input *find_input(const struct ov_program *p, const char *name, size_t *index)
{
    for (size_t i = 0; i < p->n_inputs; i++) {
        if (strcmp(p->inputs[i].name, name) == 0) {
            *index = i;
            return &p->inputs[i];
        }
    }
    return NULL;
}

int ov_input_port(const struct ov_program *p, const char *name, struct ov_port *out, struct err *err)
{
    size_t index;
    ov_output_const_port_t *port = NULL;
    ov_partial_shape_t shape = {0};
    ov_element_type_e type;
    int result = -1;
    if (!find_input(p, name, &index))
        return err_set(err, ERR_DEVICE, "the compiled graph has no input %s", name);
    if (ov_compiled_model_input_by_index(p->compiled, index, &port) != OK ||
        ov_port_get_partial_shape(port, &shape) != OK || ov_port_get_element_type(port, &type) != OK) {
        fail(err, name);
        goto done;
    }
    if (shape.rank.min != shape.rank.max || shape.rank.max > OV_MAX_RANK) {
        err_set(err, ERR_DEVICE, "the compiled graph leaves the rank of input %s open", name);
        goto done;
    }
    out->elem = elem_of(type);
    out->rank = (int)shape.rank.max;
    for (int i = 0; i < out->rank; i++)
        out->dims[i] = shape.dims[i].min == shape.dims[i].max ? shape.dims[i].max : -1;
    result = 0;
done:
    if (shape.dims)
        ov_partial_shape_free(&shape);
    ov_output_const_port_free(port);
    return result;
}

int ov_bind(struct ov_program *p, const char *name, enum ov_elem elem, int rank, const int64_t *dims,
            void *data, struct err *err)
{
    size_t index;
    struct input *in = find_input(p, name, &index);
    if (!in)
        return err_set(err, ERR_DEVICE, "the compiled graph has no input %s", name);
    if (in->tensor && in->data == data && in->rank == rank &&
        memcmp(in->dims, dims, (size_t)rank * sizeof *dims) == 0)
        return 0;

    ov_shape_t shape = {0}; /* which is a scalar's; ov_shape_create refuses rank 0 */
    ov_tensor_t *tensor = NULL;
    if (rank > 0 && ov_shape_create(rank, dims, &shape) != OK)
        return fail(err, name);
    ov_status_e s = ov_tensor_create_from_host_ptr(elems[elem].type, shape, data, &tensor);
    if (rank > 0)
        ov_shape_free(&shape);
    if (s != OK || ov_infer_request_set_input_tensor_by_index(p->request, index, tensor) != OK) {
        ov_tensor_free(tensor);
        return fail(err, name);
    }
    ov_tensor_free(in->tensor);
    in->tensor = tensor;
    in->data = data;
    in->rank = rank;
    memcpy(in->dims, dims, (size_t)rank * sizeof *dims);
    return 0;
}

int ov_infer(struct ov_program *p, struct err *err)
{
    if (ov_infer_request_infer(p->request) != OK)
        return fail(err, "inference");
    return 0;
}

const float *ov_output(struct ov_program *p, const char *name, size_t *n, struct err *err)
{
    for (size_t i = 0; i < p->n_outputs; i++) {
        if (strcmp(p->outputs[i], name) != 0)
            continue;
        void *data = NULL;
        ov_element_type_e type;
        ov_tensor_free(p->output);
        p->output = NULL;
        if (ov_infer_request_get_output_tensor_by_index(p->request, i, &p->output) != OK ||
            ov_tensor_get_element_type(p->output, &type) != OK || ov_tensor_get_size(p->output, n) != OK ||
            ov_tensor_data(p->output, &data) != OK) {
            fail(err, name);
            return NULL;
        }
        if (type != F32) {
            err_set(err, ERR_DEVICE, "the compiled graph gives output %s in a type other than f32", name);
            return NULL;
        }
        return data;
    }
    err_set(err, ERR_DEVICE, "the compiled graph has no output %s", name);
    return NULL;
}

/* ---- profile ---- */

static struct node_time *time_of(struct ov_program *p, const char *type)
{
    for (size_t i = 0; i < p->n_times; i++) {
        if (strcmp(p->times[i].type, type) == 0)
            return &p->times[i];
    }
    p->times = xrealloc(p->times, (p->n_times + 1) * sizeof *p->times);
    p->times[p->n_times] = (struct node_time){arena_strndup(&p->names, type, strlen(type)), 0, 0};
    return &p->times[p->n_times++];
}

void ov_profile_add(struct ov_program *p)
{
    ov_profiling_info_list_t list;
    if (ov_infer_request_get_profiling_info(p->request, &list) != OK)
        return;
    for (size_t i = 0; i < list.size; i++) {
        const ov_profiling_info_t *info = &list.profiling_infos[i];
        if (info->status != EXECUTED)
            continue;
        char type[128];
        snprintf(type, sizeof type, "%s (%s)", info->node_type, info->exec_type);
        struct node_time *t = time_of(p, type);
        t->us += info->real_time;
        t->calls++;
    }
    ov_profiling_info_list_free(&list);
}

static int by_time(const void *a, const void *b)
{
    const struct node_time *x = a, *y = b;
    return (x->us < y->us) - (x->us > y->us);
}

void ov_profile_print(struct ov_program *p, struct buf *out)
{
    int64_t total = 0;
    for (size_t i = 0; i < p->n_times; i++)
        total += p->times[i].us;
    if (total == 0)
        return;
    qsort(p->times, p->n_times, sizeof *p->times, by_time);
    buf_printf(out, "%10s %6s %9s  %s\n", "ms", "%", "runs", "node type (implementation)");
    for (size_t i = 0; i < p->n_times; i++) {
        const struct node_time *t = &p->times[i];
        buf_printf(out, "%10.2f %6.1f %9lld  %s\n", (double)t->us / 1e3,
                   100.0 * (double)t->us / (double)total, (long long)t->calls, t->type);
    }
}
