/* grappa inspect: a file's metadata and tensors, and what becomes of them here; or its graph as an IR
 * document. */
#include "cli/common.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

static void print_size(char *out, size_t size, uint64_t bytes)
{
    double mib = (double)bytes / (1 << 20);
    snprintf(out, size, mib < 1024 ? "%.2f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
}

static void print_info(FILE *f, const struct grappa_file_info *i)
{
    char size[32];
    print_size(size, sizeof size, i->size);
    fprintf(f, "file          %s\n", i->path);
    fprintf(f, "architecture  %s%s\n", i->arch, i->supported ? "" : " (does not run here)");
    fprintf(f, "name          %s\n", i->name);
    fprintf(f, "type          %s\n", i->type);
    fprintf(f, "tensors       %s, %.2f M parameters\n", size, (double)i->n_params / 1e6);
    fprintf(f, "GGUF version  %u\n", i->version);
}

static void print_metadata(FILE *f, const struct grappa_file *file)
{
    size_t n = grappa_file_n_kv(file);
    fprintf(f, "\nmetadata: %zu\n", n);
    for (size_t i = 0; i < n; i++) {
        struct grappa_kv kv;
        grappa_file_kv(file, i, &kv);
        fprintf(f, "  %-44s %-14s ", kv.key, kv.type);
        if (strncmp(kv.type, "array", 5) == 0)
            fprintf(f, "%" PRIu64 ": ", kv.n);
        fprintf(f, "%s\n", kv.value);
    }
}

static void print_tensors(FILE *f, const struct grappa_file *file)
{
    size_t n = grappa_file_n_tensors(file);
    fprintf(f, "\ntensors: %zu\n", n);
    for (size_t i = 0; i < n; i++) {
        struct grappa_tensor t;
        char shape[96] = "";
        grappa_file_tensor(file, i, &t);
        for (uint32_t d = 0; d < t.n_dims && d < 4; d++) {
            size_t len = strlen(shape);
            snprintf(shape + len, sizeof shape - len, "%s%" PRIu64, d ? " x " : "", t.ne[d]);
        }
        fprintf(f, "  %-44s %-8s %-24s %s\n", t.name, t.type, shape, t.runs_as);
    }
}

/* ---- JSON ---- */

/* Text of the file as a JSON string; bytes that are no UTF-8 become '?'. */
static json_t *json_text(const char *s)
{
    json_t *j = json_string(s);
    if (j)
        return j;
    char *copy = xstrdup(s);
    for (char *p = copy; *p; p++) {
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    }
    j = json_string(copy);
    free(copy);
    return j;
}

static json_t *json_metadata(const struct grappa_file *file)
{
    json_t *array = json_array();
    for (size_t i = 0; i < grappa_file_n_kv(file); i++) {
        struct grappa_kv kv;
        grappa_file_kv(file, i, &kv);
        json_array_append_new(array, json_pack("{s:o, s:s, s:I, s:o}", "key", json_text(kv.key), "type",
                                               kv.type, "n", (json_int_t)kv.n, "value", json_text(kv.value)));
    }
    return array;
}

static json_t *json_tensors(const struct grappa_file *file)
{
    json_t *array = json_array();
    for (size_t i = 0; i < grappa_file_n_tensors(file); i++) {
        struct grappa_tensor t;
        grappa_file_tensor(file, i, &t);
        json_t *shape = json_array();
        for (uint32_t d = 0; d < t.n_dims && d < 4; d++)
            json_array_append_new(shape, json_integer((json_int_t)t.ne[d]));
        json_array_append_new(array, json_pack("{s:o, s:s, s:o, s:I, s:i, s:o}", "name", json_text(t.name),
                                               "type", t.type, "shape", shape, "size", (json_int_t)t.size,
                                               "part", (int)t.part, "runs_as", json_text(t.runs_as)));
    }
    return array;
}

static void print_json(FILE *f, const char *path, const struct grappa_file *file,
                       const struct grappa_file_info *i, struct grappa_err *err)
{
    json_t *root = json_pack("{s:o, s:o, s:o, s:o, s:b, s:I, s:I, s:i, s:o, s:o}", "file", json_text(i->path),
                             "architecture", json_text(i->arch), "name", json_text(i->name), "type",
                             json_text(i->type), "supported", i->supported, "size", (json_int_t)i->size,
                             "n_params", (json_int_t)i->n_params, "gguf_version", (int)i->version, "metadata",
                             json_metadata(file), "tensors", json_tensors(file));
    if (!root) {
        cli_error(err, 1, "out of memory");
        return;
    }
    char *text = json_dumps(root, JSON_INDENT(2));
    if (text && write_output(f, path, text, strlen(text), err) == 0)
        write_output(f, path, "\n", 1, err);
    free(text);
    json_decref(root);
}

/* ---- */

static void inspect_file(const struct options *o, const struct grappa_file *file, FILE *f,
                         struct grappa_err *err)
{
    struct grappa_file_info info;
    grappa_file_info(file, &info);
    if (o->json) {
        print_json(f, o->output, file, &info, err);
        return;
    }
    print_info(f, &info);
    print_metadata(f, file);
    print_tensors(f, file);
}

int cmd_inspect(const struct options *o)
{
    struct grappa_err err = {0};
    struct grappa_file *file = NULL;
    char *ir = NULL;
    size_t n_ir = 0;
    FILE *f = NULL;
    /* The output is opened last: a file that can't be read must not leave an empty one behind. */
    if (o->show_ir)
        ir = grappa_file_ir(o->model, device_name(o->device), &n_ir, &err);
    else
        file = grappa_file_open(o->model, &err);
    if ((!ir && !file) || !(f = open_output(o->output, &err)))
        goto cleanup;
    if (ir)
        write_output(f, o->output, ir, n_ir, &err);
    else
        inspect_file(o, file, f, &err);
cleanup:
    close_output(f, o->output, &err);
    grappa_file_free(file);
    free(ir);
    return err.exit_status ? cli_fail(&err) : 0;
}
