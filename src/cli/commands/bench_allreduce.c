/* kolo bench allreduce: the time of allreduces between ranks. */
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/run_on_ranks.h"
#include "cli/options/costs_file.h"
#include "cli/options/sizes.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"
#include "cli/output/result.h"
#include "kolo/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *algorithm_of(const kolo_bench_allreduce_opts *opts, const kolo_bench_row *row) {
    return opts->shards > 0 ? "reproducible" : kolo_algorithm_name(row->algorithm);
}

/* The columns of nccl-tests and the OSU benchmarks, and the median. */
static void add_table(kolo_text *t, const kolo_comm *comm, const kolo_bench_allreduce_opts *opts,
                      const char *op, const kolo_bench_row *rows, int n) {
    const char *type = kolo_dtype_name(opts->dtype);
    kolo_text_add(t, "allreduce (%s), %d ranks, transport %s\n\n", op, kolo_comm_size(comm),
                  kolo_comm_transport(comm));
    kolo_text_add(t, "%11s %11s %5s  %-16s %6s %10s %10s %10s %10s %9s %9s%s\n", "bytes", "count",
                  "type", "algorithm", "iters", "us median", "us mean", "us min", "us max",
                  "alg GB/s", "bus GB/s", opts->work ? "    us work" : "");
    for (int i = 0; i < n; i++) {
        const kolo_bench_row *r = &rows[i];
        kolo_text_add(t, "%11zu %11zu %5s  %-16s %6d %10.2f %10.2f %10.2f %10.2f %9.3f %9.3f",
                      r->bytes, r->bytes / kolo_dtype_bytes(opts->dtype), type,
                      algorithm_of(opts, r), r->iterations, r->us_median, r->us_mean, r->us_min,
                      r->us_max, r->algbw_gigabytes_per_s, r->busbw_gigabytes_per_s);
        if (opts->work && isnan(r->us_work)) kolo_text_add(t, " %10s", "-");
        if (!isnan(r->us_work)) kolo_text_add(t, " %10.2f", r->us_work);
        kolo_text_add(t, "\n");
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
        if (!isnan(rows[i].us_work)) kolo_json_double(&j, "us_work", rows[i].us_work);
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
    size_t sizes[MAX_SIZES];
    kolo_bench_row rows[MAX_SIZES];
    kolo_bench_allreduce_opts opts = {
        .sizes = sizes,
        .dtype = (kolo_dtype)kolo_options_choice(o, "dtype"),
        .op = (kolo_reduce_op)kolo_options_choice(o, "op"),
        .hosts = (int)kolo_options_int(o, "pretend-hosts"),
        .algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm"),
        .shards = (int)kolo_options_int(o, "shards"),
        .private_buffers = kolo_options_flag(o, "private"),
        .dirty = kolo_options_flag(o, "dirty"),
        .work = kolo_options_flag(o, "work"),
        .budget_ms = (int64_t)(1000 * kolo_options_float(o, "seconds")),
    };
    KOLO_TRY(sizes_parse(kolo_options_text(o, "sizes"), opts.dtype, sizes, &opts.n_sizes));
    int n_rows = MAX_SIZES;
    if (kolo_options_flag(o, "calibrate")) KOLO_TRY(calibrate(comm));
    KOLO_TRY(kolo_bench_allreduce(comm, &opts, rows, &n_rows));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    kolo_text table = {0}, json = {0};
    const char *op = kolo_reduce_op_name(opts.op);
    add_table(&table, comm, &opts, op, rows, n_rows);
    add_json(&json, comm, &opts, op, rows, n_rows);
    kolo_status status = output_result(&table, kolo_options_text(o, "json"), &json);
    kolo_text_fini(&table);
    kolo_text_fini(&json);
    return status;
}

int cmd_bench_allreduce(kolo_options *o) {
    size_t sizes[MAX_SIZES];
    int n;
    kolo_dtype dtype = (kolo_dtype)kolo_options_choice(o, "dtype");
    kolo_status status = sizes_parse(kolo_options_text(o, "sizes"), dtype, sizes, &n);
    if (status != KOLO_OK) return report_failure(status);
    ranks_opts opts = ranks_opts_of(o, "ranks");
    opts.threads = 1;
    opts.no_bind = true; /* the benchmark binds ranks itself */
    return run_on_ranks(o, &opts, bench_allreduce_as_rank);
}
