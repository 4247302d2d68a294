/* kolo bench ps: pushes and pulls between workers and servers. */
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/run_on_ranks.h"
#include "cli/options/sizes.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"
#include "kolo/bench.h"

static void add_table(kolo_text *t, const kolo_comm *comm, const kolo_bench_ps_row *rows, int n) {
    kolo_text_add(t, "push and pull, %d workers, %d servers%s, transport %s\n\n", rows[0].workers,
                  rows[0].servers, rows[0].servers == kolo_comm_size(comm) ? " (each worker)" : "",
                  kolo_comm_transport(comm));
    kolo_text_add(t, "%11s %6s %10s %10s %10s %9s %10s %7s\n", "bytes", "iters", "us median",
                  "us min", "us max", "GB/s", "bound GB/s", "% bound");
    for (int i = 0; i < n; i++) {
        const kolo_bench_ps_row *r = &rows[i];
        kolo_text_add(t, "%11zu %6d %10.2f %10.2f %10.2f %9.3f %10.3f %7.1f\n", r->bytes,
                      r->iterations, r->us_median, r->us_min, r->us_max, r->gigabytes_per_s,
                      r->copy_gigabytes_per_s, 100 * r->gigabytes_per_s / r->copy_gigabytes_per_s);
    }
    kolo_text_add(t, "\nbound, where ranks share memory: the same copies by all ranks at the same "
                     "time, without messages\n");
}

/* What all results begin with. */
static void open_json(kolo_json *j, const kolo_comm *comm, int workers, int servers) {
    kolo_json_object(j, NULL);
    kolo_json_int(j, "ranks", kolo_comm_size(comm));
    kolo_json_int(j, "workers", workers);
    kolo_json_int(j, "servers", servers);
    kolo_json_string(j, "transport", kolo_comm_transport(comm));
}

static void add_json(kolo_text *t, const kolo_comm *comm, const kolo_bench_ps_row *rows, int n) {
    kolo_json j = {.out = t, .indent = 2};
    open_json(&j, comm, rows[0].workers, rows[0].servers);
    kolo_json_array(&j, "rows");
    for (int i = 0; i < n; i++) {
        kolo_json_object(&j, NULL);
        kolo_json_int(&j, "bytes", (int64_t)rows[i].bytes);
        kolo_json_int(&j, "iterations", rows[i].iterations);
        kolo_json_double(&j, "us_median", rows[i].us_median);
        kolo_json_double(&j, "us_min", rows[i].us_min);
        kolo_json_double(&j, "us_max", rows[i].us_max);
        kolo_json_double(&j, "gigabytes_per_s", rows[i].gigabytes_per_s);
        kolo_json_double(&j, "copy_gigabytes_per_s", rows[i].copy_gigabytes_per_s);
        kolo_json_close(&j);
    }
    kolo_json_close(&j);
    kolo_json_close(&j);
}

/* ---- rows of a table ---- */

static void add_rows_table(kolo_text *t, const kolo_comm *comm, const kolo_bench_table_row *rows,
                           int n, int width) {
    kolo_text_add(t,
                  "rows of %d floats, millions per second and worker, %d workers, %d servers%s, "
                  "transport %s\n\n",
                  width, rows[0].workers, rows[0].servers,
                  rows[0].servers == kolo_comm_size(comm) ? " (each worker)" : "",
                  kolo_comm_transport(comm));
    kolo_text_add(t, "%11s %8s %6s %9s %9s %11s %9s %7s\n", "bytes", "rows", "iters", "pull",
                  "push", "pull, push", "bound", "% bound");
    for (int i = 0; i < n; i++) {
        const kolo_bench_table_row *r = &rows[i];
        kolo_text_add(t, "%11zu %8zu %6d %9.3f %9.3f %11.3f %9.3f %7.1f\n", r->bytes, r->batch,
                      r->iterations, r->pulled, r->pushed, r->both, r->copied,
                      100 * r->both / r->copied);
    }
    kolo_text_add(t, "\nbound: a look into an index and a copy of the row to a batch, and back, by "
                     "all servers\n");
}

static void add_rows_json(kolo_text *t, const kolo_comm *comm, const kolo_bench_table_row *rows,
                          int n, int width) {
    kolo_json j = {.out = t, .indent = 2};
    open_json(&j, comm, rows[0].workers, rows[0].servers);
    kolo_json_int(&j, "width", width);
    kolo_json_array(&j, "rows");
    for (int i = 0; i < n; i++) {
        kolo_json_object(&j, NULL);
        kolo_json_int(&j, "bytes", (int64_t)rows[i].bytes);
        kolo_json_int(&j, "batch", (int64_t)rows[i].batch);
        kolo_json_int(&j, "iterations", rows[i].iterations);
        kolo_json_double(&j, "pulled_millions_per_s", rows[i].pulled);
        kolo_json_double(&j, "pushed_millions_per_s", rows[i].pushed);
        kolo_json_double(&j, "both_millions_per_s", rows[i].both);
        kolo_json_double(&j, "copied_millions_per_s", rows[i].copied);
        kolo_json_close(&j);
    }
    kolo_json_close(&j);
    kolo_json_close(&j);
}

static kolo_status bench_rows(kolo_comm *comm, kolo_options *o, const size_t *sizes, int n) {
    kolo_bench_table_row rows[MAX_SIZES];
    const kolo_bench_table_opts opts = {
        .sizes = kolo_options_given(o, "sizes") ? sizes : NULL,
        .n_sizes = n,
        .servers = (int)kolo_options_int(o, "servers"),
        .width = (size_t)kolo_options_int(o, "width"),
        .rows = (uint64_t)kolo_options_int(o, "table-rows"),
        .budget_ms = (int64_t)(1000 * kolo_options_float(o, "seconds")),
    };
    int n_rows = MAX_SIZES;
    KOLO_TRY(kolo_bench_table(comm, &opts, rows, &n_rows));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    kolo_text table = {0}, json = {0};
    add_rows_table(&table, comm, rows, n_rows, (int)opts.width);
    add_rows_json(&json, comm, rows, n_rows, (int)opts.width);
    kolo_status status = output_result(&table, kolo_options_text(o, "json"), &json);
    kolo_text_fini(&table);
    kolo_text_fini(&json);
    return status;
}

/* ---- steps ---- */

static void add_steps_table(kolo_text *t, const kolo_comm *comm,
                            const kolo_bench_parameters_row *rows, int n) {
    kolo_text_add(t, "steps of bsp, %d workers, %d servers, transport %s\n\n", rows[0].workers,
                  rows[0].servers, kolo_comm_transport(comm));
    kolo_text_add(t, "%11s %7s %6s %10s %10s %10s %10s %7s %8s %8s %9s %9s\n", "bytes", "buckets",
                  "steps", "us median", "us min", "us max", "bound us", "% bound", "sent",
                  "received", "update ns", "bound ns");
    for (int i = 0; i < n; i++) {
        const kolo_bench_parameters_row *r = &rows[i];
        kolo_text_add(t,
                      "%11zu %7d %6d %10.2f %10.2f %10.2f %10.2f %7.1f %8.4f %8.4f %9.3f %9.3f\n",
                      r->bytes, r->buckets, r->steps, r->us_median, r->us_min, r->us_max,
                      r->bound_us, 100 * r->bound_us / r->us_median, r->sent / (double)r->bytes,
                      r->received / (double)r->bytes, r->update_ns, r->update_bound_ns);
    }
    const int workers = rows[0].workers;
    kolo_text_add(
        t,
        "\nbound of a step, where ranks share memory: it reads %d gradients, reads and "
        "writes the parameters, and copies them to %d workers, as many bytes as %.1f "
        "copies; at %.2f GB/s, which all ranks copy at the same time\n"
        "bound of an update, of one parameter: 12 bytes, at the rate of copies by the "
        "owners alone\nsent, received: bytes between hosts over those of the parameters\n",
        workers, workers, (3 * workers + 2) / 2.0, rows[n - 1].copy_gigabytes_per_s);
}

static void add_steps_json(kolo_text *t, const kolo_comm *comm,
                           const kolo_bench_parameters_row *rows, int n) {
    kolo_json j = {.out = t, .indent = 2};
    open_json(&j, comm, rows[0].workers, rows[0].servers);
    kolo_json_array(&j, "rows");
    for (int i = 0; i < n; i++) {
        kolo_json_object(&j, NULL);
        kolo_json_int(&j, "bytes", (int64_t)rows[i].bytes);
        kolo_json_int(&j, "buckets", rows[i].buckets);
        kolo_json_int(&j, "steps", rows[i].steps);
        kolo_json_double(&j, "us_median", rows[i].us_median);
        kolo_json_double(&j, "us_min", rows[i].us_min);
        kolo_json_double(&j, "us_max", rows[i].us_max);
        kolo_json_double(&j, "sent", rows[i].sent);
        kolo_json_double(&j, "copy_gigabytes_per_s", rows[i].copy_gigabytes_per_s);
        kolo_json_double(&j, "bound_us", rows[i].bound_us);
        kolo_json_double(&j, "received", rows[i].received);
        kolo_json_double(&j, "update_ns", rows[i].update_ns);
        kolo_json_double(&j, "update_bound_ns", rows[i].update_bound_ns);
        kolo_json_close(&j);
    }
    kolo_json_close(&j);
    kolo_json_close(&j);
}

static kolo_status bench_steps(kolo_comm *comm, kolo_options *o, const size_t *sizes, int n) {
    kolo_bench_parameters_row rows[MAX_SIZES];
    const kolo_bench_parameters_opts opts = {
        .sizes = kolo_options_given(o, "sizes") ? sizes : NULL,
        .n_sizes = n,
        .servers = (int)kolo_options_int(o, "servers"),
        .apart = kolo_options_flag(o, "apart"),
        .buckets = (int)kolo_options_int(o, "step-buckets"), /* 0: not given */
        .budget_ms = (int64_t)(1000 * kolo_options_float(o, "seconds")),
    };
    int n_rows = MAX_SIZES;
    KOLO_TRY(kolo_bench_parameters(comm, &opts, rows, &n_rows));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    kolo_text table = {0}, json = {0};
    add_steps_table(&table, comm, rows, n_rows);
    add_steps_json(&json, comm, rows, n_rows);
    kolo_status status = output_result(&table, kolo_options_text(o, "json"), &json);
    kolo_text_fini(&table);
    kolo_text_fini(&json);
    return status;
}

static kolo_status bench_ps_as_rank(kolo_comm *comm, int threads, kolo_options *o) {
    size_t sizes[MAX_SIZES];
    kolo_bench_ps_row rows[MAX_SIZES];
    kolo_bench_ps_opts opts = {
        .sizes = sizes,
        .servers = (int)kolo_options_int(o, "servers"),
        .private_buffers = kolo_options_flag(o, "private"),
        .budget_ms = (int64_t)(1000 * kolo_options_float(o, "seconds")),
    };
    KOLO_TRY(sizes_parse(kolo_options_text(o, "sizes"), KOLO_DTYPE_F32, sizes, &opts.n_sizes));
    if (kolo_options_int(o, "width") > 0) return bench_rows(comm, o, sizes, opts.n_sizes);
    if (kolo_options_flag(o, "bsp")) return bench_steps(comm, o, sizes, opts.n_sizes);
    int n_rows = MAX_SIZES;
    KOLO_TRY(kolo_bench_ps(comm, &opts, rows, &n_rows));
    if (kolo_comm_rank(comm) != 0) return KOLO_OK;
    kolo_text table = {0}, json = {0};
    add_table(&table, comm, rows, n_rows);
    add_json(&json, comm, rows, n_rows);
    kolo_status status = output_result(&table, kolo_options_text(o, "json"), &json);
    kolo_text_fini(&table);
    kolo_text_fini(&json);
    return status;
}

int cmd_bench_ps(kolo_options *o) {
    size_t sizes[MAX_SIZES];
    int n;
    kolo_status status = sizes_parse(kolo_options_text(o, "sizes"), KOLO_DTYPE_F32, sizes, &n);
    if (status != KOLO_OK) return report_failure(status);
    ranks_opts opts = ranks_opts_of(o, "ranks");
    opts.threads = 1;
    opts.no_bind = true;
    return run_on_ranks(o, &opts, bench_ps_as_rank);
}
