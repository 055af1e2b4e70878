/* The formats of llama-bench: a table for people, and csv, json and jsonl with its field names. Fields that
 * mean nothing here hold the values llama-bench has when they were not set. Ours come last: load_s,
 * peak_bytes, openvino_version. */
#include "cli/bench.h"

#include "base/par.h"
#include "cli/common.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef GRAPPA_COMMIT
#define GRAPPA_COMMIT GRAPPA_VERSION
#endif

/* ---- statistics ---- */

/* Mean and the deviation of a sample; one value deviates by nothing. */
static void mean_and_deviation(const double *v, size_t n, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    *mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        squares += (v[i] - *mean) * (v[i] - *mean);
    *deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

static double tokens_per_s(const struct bench_result *r, size_t i)
{
    return r->ns[i] ? 1e9 * (r->n_prompt + r->n_gen) / (double)r->ns[i] : 0;
}

void bench_stats(const struct bench_result *r, struct bench_stats *out)
{
    double *v = xcalloc(r->n + 1, sizeof *v);
    for (size_t i = 0; i < r->n; i++)
        v[i] = (double)r->ns[i];
    mean_and_deviation(v, r->n, &out->avg_ns, &out->stddev_ns);
    for (size_t i = 0; i < r->n; i++)
        v[i] = tokens_per_s(r, i);
    mean_and_deviation(v, r->n, &out->avg_ts, &out->stddev_ts);
    free(v);
}

/* ---- fields ---- */

/* The processor's name, as Linux knows it. */
static const char *cpu_name(void)
{
    static char name[128];
    FILE *f = *name ? NULL : fopen("/proc/cpuinfo", "r");
    char line[512];
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!colon)
            continue;
        colon += 1 + strspn(colon + 1, " ");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(name, sizeof name, "%.*s", (int)sizeof name - 1, colon);
        break;
    }
    if (f)
        fclose(f);
    return name;
}

static const char *gpu_name(const struct bench_result *r)
{
    static struct grappa_device devices[64];
    int n = strcmp(r->device, "CPU") == 0 ? 0 : grappa_devices(devices, 64, NULL);
    for (int i = 0; i < n && i < 64; i++) {
        if (strcmp(devices[i].name, r->device) == 0)
            return devices[i].full_name;
    }
    return "";
}

static int threads_of(const struct bench_result *r)
{
    return r->n_threads > 0 ? r->n_threads : par_cpus();
}

/* One value of a result. */
struct field {
    const char *name;
    enum { FIELD_TEXT, FIELD_WHOLE, FIELD_FLAG, FIELD_REAL } kind;
    const char *text;
    int64_t whole;
    double real;
};

/* TEXT, WHOLE, FLAG, REAL: name, value; `r` is the result, `s` its statistics. */
#define BENCH_FIELDS(TEXT, WHOLE, FLAG, REAL)                                                                \
    TEXT(build_commit, GRAPPA_COMMIT)                                                                        \
    WHOLE(build_number, 0)                                                                                   \
    TEXT(cpu_info, cpu_name())                                                                               \
    TEXT(gpu_info, gpu_name(r))                                                                              \
    TEXT(backends, "OPENVINO")                                                                               \
    TEXT(model_filename, r->model)                                                                           \
    TEXT(model_type, r->file.type)                                                                           \
    WHOLE(model_size, r->file.size)                                                                          \
    WHOLE(model_n_params, r->file.n_params)                                                                  \
    WHOLE(n_batch, r->n_batch)                                                                               \
    WHOLE(n_ubatch, r->n_ubatch)                                                                             \
    WHOLE(n_threads, threads_of(r))                                                                          \
    TEXT(cpu_mask, "0x0")                                                                                    \
    FLAG(cpu_strict, false)                                                                                  \
    WHOLE(poll, 50)                                                                                          \
    TEXT(type_k, r->type_k)                                                                                  \
    TEXT(type_v, r->type_v)                                                                                  \
    WHOLE(n_gpu_layers, -1)                                                                                  \
    WHOLE(n_cpu_moe, 0)                                                                                      \
    TEXT(split_mode, "layer")                                                                                \
    WHOLE(main_gpu, 0)                                                                                       \
    FLAG(no_kv_offload, false)                                                                               \
    WHOLE(flash_attn, -1)                                                                                    \
    TEXT(devices, r->device)                                                                                 \
    TEXT(tensor_split, "0.00")                                                                               \
    TEXT(tensor_buft_overrides, "none")                                                                      \
    TEXT(load_mode, "auto")                                                                                  \
    TEXT(lazy_mode, "auto")                                                                                  \
    FLAG(embeddings, false)                                                                                  \
    WHOLE(no_op_offload, 0)                                                                                  \
    FLAG(no_host, false)                                                                                     \
    FLAG(repack, r->repack)                                                                                  \
    WHOLE(fit_target, 0)                                                                                     \
    WHOLE(fit_min_ctx, 0)                                                                                    \
    WHOLE(n_prompt, r->n_prompt)                                                                             \
    WHOLE(n_gen, r->n_gen)                                                                                   \
    WHOLE(n_depth, r->n_depth)                                                                               \
    TEXT(test_time, r->test_time)                                                                            \
    WHOLE(avg_ns, s->avg_ns)                                                                                 \
    WHOLE(stddev_ns, s->stddev_ns)                                                                           \
    REAL(avg_ts, s->avg_ts)                                                                                  \
    REAL(stddev_ts, s->stddev_ts)                                                                            \
    REAL(load_s, r->load_s)                                                                                  \
    WHOLE(peak_bytes, r->peak_bytes)                                                                         \
    TEXT(openvino_version, grappa_openvino_version())

enum {
    N_FIELDS = 0
#define COUNT(name, value) +1
    BENCH_FIELDS(COUNT, COUNT, COUNT, COUNT)
#undef COUNT
};

static void make_fields(const struct bench_result *r, const struct bench_stats *s, struct field out[N_FIELDS])
{
#define TEXT(name, value)  {#name, FIELD_TEXT, value, 0, 0},
#define WHOLE(name, value) {#name, FIELD_WHOLE, NULL, (int64_t)(value), 0},
#define FLAG(name, value)  {#name, FIELD_FLAG, NULL, (value), 0},
#define REAL(name, value)  {#name, FIELD_REAL, NULL, 0, (value)},
    const struct field fields[N_FIELDS] = {BENCH_FIELDS(TEXT, WHOLE, FLAG, REAL)};
#undef TEXT
#undef WHOLE
#undef FLAG
#undef REAL
    memcpy(out, fields, sizeof fields);
}

/* ---- csv ---- */

static void csv_header(FILE *f)
{
    static const char names[] =
#define NAME(name, value) "," #name
        BENCH_FIELDS(NAME, NAME, NAME, NAME)
#undef NAME
        ;
    fprintf(f, "%s\n", names + 1);
}

static void csv_text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

static void csv_result(FILE *f, const struct bench_result *r, const struct bench_stats *s)
{
    struct field fields[N_FIELDS];
    make_fields(r, s, fields);
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (i)
            fputc(',', f);
        if (fields[i].kind == FIELD_TEXT)
            csv_text(f, fields[i].text);
        else if (fields[i].kind == FIELD_REAL)
            fprintf(f, "\"%f\"", fields[i].real);
        else
            fprintf(f, "\"%" PRId64 "\"", fields[i].whole);
    }
    fputc('\n', f);
}

/* ---- json ---- */

static json_t *json_field(const struct field *f)
{
    json_t *text = NULL;
    switch (f->kind) {
    case FIELD_TEXT:
        text = json_string(f->text); /* a file's name may be anything but UTF-8 */
        return text ? text : json_null();
    case FIELD_WHOLE:
        return json_integer((json_int_t)f->whole);
    case FIELD_FLAG:
        return json_boolean(f->whole);
    default:
        return json_real(f->real);
    }
}

static void json_result(FILE *f, const struct bench_result *r, const struct bench_stats *s,
                        const char *before, size_t flags, const char *after)
{
    json_t *root = json_object(), *ns = json_array(), *ts = json_array();
    struct field fields[N_FIELDS];
    make_fields(r, s, fields);
    for (size_t i = 0; i < N_FIELDS; i++)
        json_object_set_new(root, fields[i].name, json_field(&fields[i]));
    for (size_t i = 0; i < r->n; i++) {
        json_array_append_new(ns, json_integer((json_int_t)r->ns[i]));
        json_array_append_new(ts, json_real(tokens_per_s(r, i)));
    }
    json_object_set_new(root, "samples_ns", ns);
    json_object_set_new(root, "samples_ts", ts);
    fputs(before, f);
    json_dumpf(root, f, flags | JSON_REAL_PRECISION(12));
    fputs(after, f);
    json_decref(root);
}

/* ---- md ---- */

enum column_id {
    COL_MODEL,
    COL_SIZE,
    COL_PARAMS,
    COL_BACKEND,
    COL_THREADS,
    COL_BATCH,
    COL_UBATCH,
    COL_TYPE_K,
    COL_TYPE_V,
    COL_DEVICE,
    COL_TEST,
    COL_TS,
    N_COLUMNS
};

/* Titles and widths of llama-bench's table; a negative width is flush left. */
static const struct {
    const char *title;
    int width;
} columns[N_COLUMNS] = {
    [COL_MODEL] = {"model", -30},     [COL_SIZE] = {"size", 10},      [COL_PARAMS] = {"params", 10},
    [COL_BACKEND] = {"backend", -10}, [COL_THREADS] = {"threads", 7}, [COL_BATCH] = {"n_batch", 7},
    [COL_UBATCH] = {"n_ubatch", 8},   [COL_TYPE_K] = {"type_k", 6},   [COL_TYPE_V] = {"type_v", 6},
    [COL_DEVICE] = {"dev", -12},      [COL_TEST] = {"test", 15},      [COL_TS] = {"t/s", 20},
};

static bool is_only(const struct ints *v, int32_t only)
{
    return v->n == 1 && v->v[0] == only;
}

/* Columns that only repeat a default are left out. */
static bool has_column(const struct options *o, enum column_id c)
{
    switch (c) {
    case COL_BATCH:
        return !is_only(&o->bench_batch, 2048);
    case COL_UBATCH:
        return !is_only(&o->bench_ubatch, 512);
    case COL_TYPE_K:
        return o->bench_type_k.n > 0;
    case COL_TYPE_V:
        return o->bench_type_v.n > 0;
    case COL_DEVICE:
        return o->bench_devices.n > 0;
    default:
        return true;
    }
}

static void md_header(const struct bench_printer *p)
{
    fputc('|', p->f);
    for (int c = 0; c < N_COLUMNS; c++) {
        if (has_column(p->o, (enum column_id)c))
            fprintf(p->f, " %*s |", columns[c].width, columns[c].title);
    }
    fputs("\n|", p->f);
    for (int c = 0; c < N_COLUMNS; c++) {
        if (!has_column(p->o, (enum column_id)c))
            continue;
        fputc(' ', p->f);
        for (int i = 1; i < abs(columns[c].width); i++)
            fputc('-', p->f);
        fprintf(p->f, "%c |", columns[c].width > 0 ? ':' : '-');
    }
    fputc('\n', p->f);
}

static void test_name(const struct bench_result *r, char *out, size_t size)
{
    int n;
    if (r->n_gen == 0)
        n = snprintf(out, size, "pp%d", r->n_prompt);
    else if (r->n_prompt == 0)
        n = snprintf(out, size, "tg%d", r->n_gen);
    else
        n = snprintf(out, size, "pp%d+tg%d", r->n_prompt, r->n_gen);
    if (r->n_depth > 0)
        snprintf(out + n, size - (size_t)n, " @ d%d", r->n_depth);
}

static void cell_text(const struct bench_result *r, const struct bench_stats *s, enum column_id c, char *out,
                      size_t size)
{
    double mib = (double)r->file.size / (1 << 20), millions = (double)r->file.n_params / 1e6;
    switch (c) {
    case COL_MODEL:
        snprintf(out, size, "%s", r->file.type);
        break;
    case COL_SIZE:
        snprintf(out, size, mib < 1024 ? "%.2f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
        break;
    case COL_PARAMS:
        snprintf(out, size, millions < 1e3 ? "%.2f M" : "%.2f B", millions < 1e3 ? millions : millions / 1e3);
        break;
    case COL_BACKEND:
        snprintf(out, size, "OPENVINO");
        break;
    case COL_THREADS:
        snprintf(out, size, "%d", threads_of(r));
        break;
    case COL_BATCH:
        snprintf(out, size, "%d", r->n_batch);
        break;
    case COL_UBATCH:
        snprintf(out, size, "%d", r->n_ubatch);
        break;
    case COL_TYPE_K:
        snprintf(out, size, "%s", r->type_k);
        break;
    case COL_TYPE_V:
        snprintf(out, size, "%s", r->type_v);
        break;
    case COL_DEVICE:
        snprintf(out, size, "%s", r->device);
        break;
    case COL_TEST:
        test_name(r, out, size);
        break;
    default:
        snprintf(out, size, "%.2f ± %.2f", s->avg_ts, s->stddev_ts);
    }
}

static void md_result(const struct bench_printer *p, const struct bench_result *r,
                      const struct bench_stats *s)
{
    fputc('|', p->f);
    for (int c = 0; c < N_COLUMNS; c++) {
        char cell[256];
        if (!has_column(p->o, (enum column_id)c))
            continue;
        cell_text(r, s, (enum column_id)c, cell, sizeof cell);
        fprintf(p->f, " %*s |", columns[c].width + (c == COL_TS), cell); /* ± is two bytes */
    }
    fputc('\n', p->f);
}

/* Below the table, since its columns are llama-bench's. */
static void md_note(struct bench_printer *p, const struct bench_result *r)
{
    buf_printf(&p->notes, "load: %s %.2f s\n", r->file.type, r->load_s);
}

static void md_footer(struct bench_printer *p)
{
    fprintf(p->f, "\nbuild: %s (%d)\nOpenVINO: %s\n%s", GRAPPA_COMMIT, 0, grappa_openvino_version(),
            p->notes.n ? p->notes.p : "");
    if (p->n)
        fprintf(p->f, "peak memory: %.2f MiB\n", (double)p->peak_bytes / (1 << 20));
}

/* ---- */

static bool is_format(const struct bench_printer *p, const char *format)
{
    return strcmp(p->format, format) == 0;
}

static void flush(const struct bench_printer *p)
{
    if (p->f == stdout)
        out_flush();
    else
        fflush(p->f);
}

void bench_print_header(struct bench_printer *p)
{
    if (is_format(p, "md"))
        md_header(p);
    else if (is_format(p, "csv"))
        csv_header(p->f);
    else if (is_format(p, "json"))
        fputs("[\n", p->f);
    flush(p);
}

void bench_print_result(struct bench_printer *p, const struct bench_result *r)
{
    struct bench_stats s;
    bench_stats(r, &s);
    if (is_format(p, "md"))
        md_result(p, r, &s);
    else if (is_format(p, "csv"))
        csv_result(p->f, r, &s);
    else if (is_format(p, "json"))
        json_result(p->f, r, &s, p->n ? ",\n" : "", JSON_INDENT(2), "");
    else if (is_format(p, "jsonl"))
        json_result(p->f, r, &s, "", 0, "\n");
    if (is_format(p, "md") && r->loaded_anew)
        md_note(p, r);
    p->peak_bytes = r->peak_bytes;
    p->n++;
    flush(p);
}

void bench_print_footer(struct bench_printer *p)
{
    if (is_format(p, "md"))
        md_footer(p);
    else if (is_format(p, "json"))
        fputs("\n]\n", p->f);
    flush(p);
    buf_release(&p->notes);
}
