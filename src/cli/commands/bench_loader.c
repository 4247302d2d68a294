/* kolo bench loader: what reading, decoding and augmenting the samples of a data set costs. */
#include "base/json.h"
#include "base/process.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"
#include "kolo/data.h"

#include <stdint.h>

/* The cores that the loader of a step needs which takes `rate` samples/s. */
static void add_cores(const kolo_loader_bench *b, double rate, kolo_text *table, kolo_json *json) {
    if (rate <= 0) return;
    const double cores = rate * b->loader_seconds_per_sample;
    kolo_text_add(table, "for %.0f samples/s: %.3g cores, besides those that train\n", rate, cores);
    kolo_json_double(json, "cores", cores);
}

static void add_results(const kolo_loader_bench *b, const kolo_loader_bench_opts *opts,
                        kolo_text *table, kolo_json *json) {
    const double n = (double)b->samples;
    double all = 0;
    kolo_text_add(table, "%-10s %18s %16s\n", "stage", "samples/s per core", "us per sample");
    kolo_json_array(json, "stages");
    for (int s = 0; s <= KOLO_LOADER_STAGES; s++) {
        const bool total = s == KOLO_LOADER_STAGES;
        const char *name = total ? "all" : kolo_loader_stage_name((kolo_loader_stage)s);
        const double seconds = total ? all : b->seconds[s];
        if (!total) all += seconds;
        if (seconds <= 0) continue; /* the data set has no such stage */
        kolo_text_add(table, "%-10s %18.0f %16.2f\n", name, n / seconds, 1e6 * seconds / n);
        kolo_json_object(json, NULL);
        kolo_json_string(json, "stage", name);
        kolo_json_double(json, "samples_per_second_per_core", n / seconds);
        kolo_json_double(json, "us_per_sample", 1e6 * seconds / n);
        kolo_json_close(json);
    }
    kolo_json_close(json);
    const int threads = opts->threads > 0 ? opts->threads : 0;
    kolo_text_add(table,
                  "\na loader with %d thread%s: %.0f samples/s, %.2f us of processor time each\n",
                  threads, threads == 1 ? "" : "s", b->loader_samples_per_second,
                  1e6 * b->loader_seconds_per_sample);
    kolo_json_int(json, "loader_threads", threads);
    kolo_json_double(json, "loader_samples_per_second", b->loader_samples_per_second);
    kolo_json_double(json, "loader_us_per_sample", 1e6 * b->loader_seconds_per_sample);
}

static kolo_status bench_dataset(kolo_options *o, kolo_text *table, kolo_json *json) {
    const kolo_dataset_opts required = train_opts_no_model();
    const int threads = train_opts_loader_threads(o);
    const kolo_loader_bench_opts opts = {
        .augment = kolo_options_text(o, "augment"),
        .batch = kolo_options_int(o, "batch"),
        .threads = threads ? threads : 1,
        .budget_ms = (int64_t)(1000 * kolo_options_float(o, "seconds")),
    };
    kolo_dataset *dataset;
    kolo_loader_bench result;
    KOLO_TRY(
        kolo_dataset_open_for(kolo_options_text(o, "data"), KOLO_SPLIT_TRAIN, &required, &dataset));
    kolo_status status = kolo_bench_loader(dataset, &opts, &result);
    kolo_dataset_close(dataset);
    KOLO_TRY(status);
    kolo_json_object(json, NULL);
    kolo_json_string(json, "data", kolo_options_text(o, "data"));
    add_results(&result, &opts, table, json);
    if (kolo_options_given(o, "rate"))
        add_cores(&result, kolo_options_float(o, "rate"), table, json);
    kolo_json_close(json);
    return KOLO_OK;
}

int cmd_bench_loader(kolo_options *o) {
    kolo_status status = output_check_json(kolo_options_text(o, "json"));
    if (status != KOLO_OK) return report_failure(status);
    kolo_text table = {0}, text = {0};
    kolo_json json = {.out = &text, .indent = 2};
    status = bench_dataset(o, &table, &json);
    if (status == KOLO_OK) status = output_result(&table, kolo_options_text(o, "json"), &text);
    kolo_text_fini(&table);
    kolo_text_fini(&text);
    return status == KOLO_OK ? 0 : report_failure(status);
}
