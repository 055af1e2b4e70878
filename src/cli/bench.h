/* What `grappa bench` measured, and the formats it is written in. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "cli/options.h"

#include "base/buf.h"

#include <stdio.h>

/* One test: what was asked for, and the samples. */
struct bench_result {
    const char *model, *device, *type_k, *type_v; /* types as given, or "default" */
    int32_t n_batch, n_ubatch, n_threads;         /* threads 0: OpenVINO's choice */
    int32_t n_prompt, n_gen, n_depth;
    bool repack;
    struct grappa_file_info file;
    char test_time[32];  /* RFC 3339 */
    double load_s;       /* of the model */
    bool loaded_anew;    /* for this test */
    uint64_t peak_bytes; /* of the process so far */
    const uint64_t *ns;  /* [n] */
    size_t n;
};

struct bench_stats {
    double avg_ns, stddev_ns, avg_ts, stddev_ts; /* ts: tokens per second */
};
void bench_stats(const struct bench_result *r, struct bench_stats *out);

struct bench_printer {
    const char *format; /* md, csv, json, jsonl, none */
    FILE *f;
    const struct options *o;
    size_t n; /* results so far */
    uint64_t peak_bytes;
    struct buf notes; /* md: what is told below the table */
};

void bench_print_header(struct bench_printer *p);
void bench_print_result(struct bench_printer *p, const struct bench_result *r);
void bench_print_footer(struct bench_printer *p);

/* grappa bench -npl: sequences at a time, in llama-batched-bench's table. Returns the exit status. */
int bench_batched(const struct options *o);

#endif
