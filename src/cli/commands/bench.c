/* kolo bench: how fast training steps are, with the data in memory; how fast allreduces are. */
#include "kolo/bench.h"

#include "base/json.h"
#include "cli/cli.h"
#include "cli/launcher/job.h"
#include "cli/options/costs_file.h"
#include "cli/options/train_opts.h"
#include "cli/output/result.h"

#include <stdio.h>
#include <string.h>

static kolo_status bench_train_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_train_opts opts;
    kolo_train_result result;
    KOLO_TRY(train_opts_make(o, threads, &opts));
    opts.in_memory = true;
    opts.steps = kolo_options_int(o, "steps");
    opts.lr = kolo_options_float(o, "lr");
    opts.seed = (uint64_t)kolo_options_int(o, "seed");
    KOLO_TRY(kolo_train(comm, &opts, NULL, NULL, &result));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    result_about about = {.model = kolo_options_text(o, "model"),
                          .data = opts.data,
                          .batch = opts.batch,
                          .accumulate = opts.accumulate,
                          .trained = true};
    return result_report(&result, &about, kolo_options_text(o, "json"));
}

int cmd_bench_train(kolo_options *o) {
    job_opts opts = job_opts_of(o, "workers");
    opts.threads = (int)kolo_options_int(o, "threads");
    opts.no_bind = !kolo_options_flag(o, "bind");
    return job_run(o, &opts, bench_train_as_rank);
}

/* ---- allreduce ---- */

kolo_status cli_parse_sizes(const char *list, kolo_dtype dtype, size_t sizes[CLI_SIZES], int *n) {
    *n = 0;
    for (const char *at = list;; at++) {
        char word[32];
        int64_t bytes;
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        bool good = length < sizeof word && kolo_parse_bytes(word, &bytes) && bytes > 0;
        if (!good || (size_t)bytes % kolo_dtype_bytes(dtype) != 0) {
            return KOLO_FAIL(
                KOLO_ERR_ARG,
                "--sizes %s: '%s' must be a whole number of bytes, as 8, or of K, M or "
                "G (1024 bytes, ...), as 64K, that %s elements fill (multiples of %zu "
                "bytes)",
                list, word, kolo_dtype_name(dtype), kolo_dtype_bytes(dtype));
        }
        if (*n == CLI_SIZES) return KOLO_FAIL(KOLO_ERR_ARG, "--sizes: at most %d", CLI_SIZES);
        sizes[(*n)++] = (size_t)bytes;
        at += length;
        if (!*at) return KOLO_OK;
    }
}

static const char *algorithm_of(const kolo_bench_allreduce_opts *opts, const kolo_bench_row *row) {
    return opts->shards > 0 ? "reproducible" : kolo_algorithm_name(row->algorithm);
}

/* The columns of nccl-tests and of the OSU benchmarks, with the median besides their mean. */
static void add_table(kolo_text *t, const kolo_comm *comm, const kolo_bench_allreduce_opts *opts,
                      const char *op, const kolo_bench_row *rows, int n) {
    const char *type = kolo_dtype_name(opts->dtype);
    kolo_text_add(t, "allreduce (%s), %d ranks, transport %s\n\n", op, kolo_comm_size(comm),
                  kolo_comm_transport(comm));
    kolo_text_add(t, "%11s %11s %5s  %-16s %6s %10s %10s %10s %10s %9s %9s\n", "bytes", "count",
                  "type", "algorithm", "iters", "us median", "us mean", "us min", "us max",
                  "alg GB/s", "bus GB/s");
    for (int i = 0; i < n; i++) {
        const kolo_bench_row *r = &rows[i];
        kolo_text_add(t, "%11zu %11zu %5s  %-16s %6d %10.2f %10.2f %10.2f %10.2f %9.3f %9.3f\n",
                      r->bytes, r->bytes / kolo_dtype_bytes(opts->dtype), type,
                      algorithm_of(opts, r), r->iterations, r->us_median, r->us_mean, r->us_min,
                      r->us_max, r->algbw_gigabytes_per_s, r->busbw_gigabytes_per_s);
    }
}

static void add_json(kolo_text *t, const kolo_comm *comm, const kolo_bench_allreduce_opts *opts,
                     const char *op, const kolo_bench_row *rows, int n) {
    kolo_json j = {.out = t, .indent = 2};
    kolo_json_object(&j, NULL);
    kolo_json_int(&j, "ranks", kolo_comm_size(comm));
    kolo_json_string(&j, "transport", kolo_comm_transport(comm));
    kolo_json_string(&j, "dtype", kolo_dtype_name(opts->dtype));
    kolo_json_string(&j, "op", op);
    kolo_json_array(&j, "rows");
    for (int i = 0; i < n; i++) {
        kolo_json_object(&j, NULL);
        kolo_json_int(&j, "bytes", (int64_t)rows[i].bytes);
        kolo_json_int(&j, "ranks", rows[i].ranks);
        kolo_json_string(&j, "algorithm", algorithm_of(opts, &rows[i]));
        kolo_json_int(&j, "iterations", rows[i].iterations);
        kolo_json_double(&j, "us_median", rows[i].us_median);
        kolo_json_double(&j, "us_min", rows[i].us_min);
        kolo_json_double(&j, "us_mean", rows[i].us_mean);
        kolo_json_double(&j, "us_max", rows[i].us_max);
        kolo_json_double(&j, "algbw_gigabytes_per_s", rows[i].algbw_gigabytes_per_s);
        kolo_json_double(&j, "busbw_gigabytes_per_s", rows[i].busbw_gigabytes_per_s);
        kolo_json_close(&j);
    }
    kolo_json_close(&j);
    kolo_json_close(&j);
}

static kolo_status calibrate(kolo_comm *comm) {
    char *path;
    KOLO_TRY(costs_file_path(kolo_comm_rank(comm) == 0, &path));
    kolo_status status = kolo_bench_calibrate(comm, path, 0);
    kolo_free(path);
    return status;
}

static kolo_status bench_allreduce_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    size_t sizes[CLI_SIZES];
    kolo_bench_row rows[CLI_SIZES];
    kolo_bench_allreduce_opts opts = {
        .sizes = sizes,
        .dtype = (kolo_dtype)kolo_options_choice(o, "dtype"),
        .op = (kolo_reduce_op)kolo_options_choice(o, "op"),
        .hosts = (int)kolo_options_int(o, "pretend-hosts"),
        .algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm"),
        .shards = (int)kolo_options_int(o, "shards"),
        .private_buffers = kolo_options_flag(o, "private"),
        .dirty = kolo_options_flag(o, "dirty"),
        .budget_ms = (int64_t)(1000 * kolo_options_float(o, "seconds")),
    };
    KOLO_TRY(cli_parse_sizes(kolo_options_text(o, "sizes"), opts.dtype, sizes, &opts.n_sizes));
    int n_rows = CLI_SIZES;
    if (kolo_options_flag(o, "calibrate")) KOLO_TRY(calibrate(comm));
    KOLO_TRY(kolo_bench_allreduce(comm, &opts, rows, &n_rows));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    kolo_text table = {0}, json = {0};
    const char *op = kolo_reduce_op_name(opts.op);
    add_table(&table, comm, &opts, op, rows, n_rows);
    add_json(&json, comm, &opts, op, rows, n_rows);
    kolo_status status = cli_report(&table, kolo_options_text(o, "json"), &json);
    kolo_text_fini(&table);
    kolo_text_fini(&json);
    return status;
}

int cmd_bench_allreduce(kolo_options *o) {
    size_t sizes[CLI_SIZES];
    int n;
    kolo_dtype dtype = (kolo_dtype)kolo_options_choice(o, "dtype");
    kolo_status status = cli_parse_sizes(kolo_options_text(o, "sizes"), dtype, sizes, &n);
    if (status != KOLO_OK) return cli_fail(status);
    job_opts opts = job_opts_of(o, "ranks");
    opts.threads = 1;
    opts.no_bind = true; /* it binds ranks itself while it measures */
    return job_run(o, &opts, bench_allreduce_as_rank);
}
