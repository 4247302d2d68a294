/* kolo bench: how fast training steps are, with the data in memory; how fast allreduces are. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/job.h"
#include "cli/result.h"
#include "cli/train_opts.h"
#include "kolo/bench.h"

#include <stdio.h>
#include <string.h>

static kolo_status bench_train_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    kolo_train_opts opts;
    kolo_train_result result;
    KOLO_TRY(train_opts_make(o, threads, &opts));
    opts.in_memory = true;
    opts.steps = kolo_options_int(o, "steps");
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

enum { MAX_SIZES = 64 };

/* Reads the list of --sizes: "8,1K,1M". */
static kolo_status parse_sizes(const char *list, size_t sizes[MAX_SIZES], int *n) {
    *n = 0;
    for (const char *at = list;; at++) {
        char word[32];
        int64_t bytes;
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        bool good = length < sizeof word && kolo_parse_bytes(word, &bytes) && bytes > 0;
        if (!good || bytes % sizeof(float) != 0) {
            return KOLO_FAIL(KOLO_ERR_ARG,
                             "--sizes %s: each must be a multiple of 4 bytes, as in 8,64K,1M",
                             list);
        }
        if (*n == MAX_SIZES) return KOLO_FAIL(KOLO_ERR_ARG, "--sizes: at most %d", MAX_SIZES);
        sizes[(*n)++] = (size_t)bytes;
        at += length;
        if (!*at) return KOLO_OK;
    }
}

static void add_table(kolo_text *t, const kolo_comm *comm, const kolo_bench_row *rows, int n) {
    kolo_text_add(t, "allreduce of f32, %d ranks, transport %s\n\n", kolo_comm_size(comm),
                  kolo_comm_transport(comm));
    kolo_text_add(t, "%12s  %-9s %10s %12s %12s %10s %10s\n", "bytes", "algorithm", "iterations",
                  "us median", "us min", "alg GB/s", "bus GB/s");
    for (int i = 0; i < n; i++) {
        const kolo_bench_row *r = &rows[i];
        kolo_text_add(t, "%12zu  %-9s %10d %12.2f %12.2f %10.3f %10.3f\n", r->bytes,
                      kolo_algorithm_name(r->algorithm), r->iterations, r->us_median, r->us_min,
                      r->algbw_gbps, r->busbw_gbps);
    }
}

static void add_json(kolo_text *t, const kolo_comm *comm, const kolo_bench_row *rows, int n) {
    kolo_json j = {.out = t, .indent = 2};
    kolo_json_object(&j, NULL);
    kolo_json_int(&j, "ranks", kolo_comm_size(comm));
    kolo_json_string(&j, "transport", kolo_comm_transport(comm));
    kolo_json_string(&j, "dtype", kolo_dtype_name(KOLO_DTYPE_F32));
    kolo_json_array(&j, "rows");
    for (int i = 0; i < n; i++) {
        kolo_json_object(&j, NULL);
        kolo_json_int(&j, "bytes", (int64_t)rows[i].bytes);
        kolo_json_int(&j, "ranks", rows[i].ranks);
        kolo_json_string(&j, "algorithm", kolo_algorithm_name(rows[i].algorithm));
        kolo_json_int(&j, "iterations", rows[i].iterations);
        kolo_json_double(&j, "us_median", rows[i].us_median);
        kolo_json_double(&j, "us_min", rows[i].us_min);
        kolo_json_double(&j, "algbw_gbps", rows[i].algbw_gbps);
        kolo_json_double(&j, "busbw_gbps", rows[i].busbw_gbps);
        kolo_json_close(&j);
    }
    kolo_json_close(&j);
    kolo_json_close(&j);
}

static kolo_status bench_allreduce_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    size_t sizes[MAX_SIZES];
    kolo_bench_row rows[MAX_SIZES];
    kolo_bench_allreduce_opts opts = {
        .sizes = sizes,
        .algorithm = (kolo_algorithm)kolo_options_choice(o, "algorithm"),
        .private_buffers = kolo_options_flag(o, "private"),
        .dirty = kolo_options_flag(o, "dirty"),
        .budget_ms = (int64_t)(1000 * kolo_options_float(o, "seconds")),
    };
    KOLO_TRY(parse_sizes(kolo_options_text(o, "sizes"), sizes, &opts.n_sizes));
    int n_rows = MAX_SIZES;
    KOLO_TRY(kolo_bench_allreduce(comm, &opts, rows, &n_rows));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    kolo_text table = {0}, json = {0};
    add_table(&table, comm, rows, n_rows);
    add_json(&json, comm, rows, n_rows);
    kolo_status status = cli_report(&table, kolo_options_text(o, "json"), &json);
    kolo_text_fini(&table);
    kolo_text_fini(&json);
    return status;
}

int cmd_bench_allreduce(kolo_options *o) {
    size_t sizes[MAX_SIZES];
    int n;
    if (parse_sizes(kolo_options_text(o, "sizes"), sizes, &n) != KOLO_OK) return cli_fail_usage();
    job_opts opts = job_opts_of(o, "ranks");
    opts.threads = 1;
    opts.no_bind = true; /* it binds ranks itself while it measures */
    return job_run(o, &opts, bench_allreduce_as_rank);
}
