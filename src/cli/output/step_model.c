/* Predicted and measured times of a step. */
#include "cli/output/step_model.h"

#include "base/compiler.h"
#include "base/json.h"
#include "cli/output/output.h"
#include "cli/output/result.h"

#include <inttypes.h>
#include <math.h>

enum { OFF = 10 }; /* percent: the error of a step above which a term is named */

/* Of the measured time, in percent; NaN where nothing was measured. */
static double error_of(double predicted, double measured) {
    return measured > 0 ? 100 * (predicted / measured - 1) : NAN;
}

/* The term of the step whose prediction is the most wrong. */
static kolo_time most_wrong(const kolo_step_model *p) {
    static const kolo_time terms[] = {KOLO_TIME_INPUT, KOLO_TIME_FORWARD, KOLO_TIME_BACKWARD,
                                      KOLO_TIME_EXPOSED, KOLO_TIME_UPDATE};
    kolo_time worst = terms[0];
    double most = 0;
    for (size_t i = 0; i < KOLO_COUNT(terms); i++) {
        const double error = fabs(p->predicted.ms[terms[i]] - p->measured.ms[terms[i]]);
        if (error > most) worst = terms[i];
        most = fmax(most, error);
    }
    return worst;
}

/* Names that term where the step is off. */
static void add_verdict(kolo_text *t, const kolo_step_model *p) {
    const double error = error_of(p->predicted.ms[KOLO_TIME_STEP], p->measured_median_ms);
    const kolo_time worst = most_wrong(p);
    if (!(fabs(error) > OFF)) return;
    kolo_text_add(t, "off by more than %d %%: the most in %s, %+.3f ms\n", OFF,
                  kolo_time_name(worst), p->predicted.ms[worst] - p->measured.ms[worst]);
}

static void add_times(kolo_text *t, const kolo_step_model *p) {
    kolo_text_add(t, "%-22s %12s %12s %9s\n", "ms", "predicted", "measured", "error");
    for (int i = 0; i < KOLO_TIMES; i++) {
        if (i == KOLO_TIME_OTHER) continue; /* not predicted */
        double a = p->predicted.ms[i], b = p->measured.ms[i];
        kolo_text_add(t, "%-22s %12.3f %12.3f %8.1f%%\n", kolo_time_name((kolo_time)i), a, b,
                      error_of(a, b));
    }
    double step = p->predicted.ms[KOLO_TIME_STEP];
    kolo_text_add(t, "%-22s %12.3f %12.3f %8.1f%%\n", "step, median", step, p->measured_median_ms,
                  error_of(step, p->measured_median_ms));
    add_verdict(t, p);
}

static void add_buckets(kolo_text *t, const kolo_step_model *p) {
    kolo_text_add(t, "\n%-22s %8s %12s %12s %12s %12s\n", "buckets, predicted", "n", "sums", "work",
                  "exposed", "step");
    for (int i = 0; i < KOLO_MODELLED_BUCKETS; i++) {
        const kolo_modelled_buckets *b = &p->buckets[i];
        kolo_text_add(t, "%-22s %8d %12.3f %12.3f %12.3f %12.3f\n", b->name, b->buckets, b->sums_ms,
                      b->work_ms, b->exposed_ms, b->step_ms);
    }
    kolo_text_add(t, "best, bytes:");
    for (int i = 0; i < p->n_best; i++) kolo_text_add(t, " %zu", p->best_bytes[i]);
    kolo_text_add(t, "\n");
}

static void add_table(kolo_text *t, const kolo_step_model *p, const char *model) {
    kolo_text_add(t, "model             %s, batch %" PRId64 " each\n", model, p->batch);
    kolo_text_add(t, "workers           %d, threads %d each\n", p->workers, p->threads);
    if (p->regions > 0) kolo_text_add(t, "lanes             in %d regions\n", p->regions);
    kolo_text_add(t, "sums              %.1f us + %.1f us per MiB\n", p->fixed_us, p->us_per_mib);
    kolo_text_add(t, "work in them      %.1f us + %.1f us per MiB, of the processors of kernels\n",
                  p->work_fixed_us, p->work_us_per_mib);
    kolo_text_add(t, "slowest worker    its kernels take %.3f of the mean\n", p->slowest);
    if (p->shared) kolo_text_add(t, "updates           sum the gradients of all workers\n");
    result_add_memory(t, &p->memory);
    kolo_text_add(t, "\n");
    add_times(t, p);
    add_buckets(t, p);
}

static void add_json_times(kolo_json *j, const char *key, const kolo_step_time *time) {
    kolo_json_object(j, key);
    for (int i = 0; i < KOLO_TIMES; i++) {
        kolo_json_double(j, kolo_time_name((kolo_time)i), time->ms[i]);
    }
    kolo_json_close(j);
}

static void add_json(kolo_text *t, const kolo_step_model *p, const char *model) {
    kolo_json j = {.out = t, .indent = 2};
    kolo_json_object(&j, NULL);
    kolo_json_string(&j, "model", model);
    kolo_json_int(&j, "batch", p->batch);
    kolo_json_int(&j, "workers", p->workers);
    kolo_json_int(&j, "threads", p->threads);
    kolo_json_int(&j, "lane_regions", p->regions);
    kolo_json_double(&j, "sum_fixed_us", p->fixed_us);
    kolo_json_double(&j, "sum_us_per_mib", p->us_per_mib);
    kolo_json_double(&j, "work_fixed_us", p->work_fixed_us);
    kolo_json_double(&j, "work_us_per_mib", p->work_us_per_mib);
    kolo_json_bool(&j, "shared", p->shared);
    result_add_json_memory(&j, &p->memory);
    kolo_json_double(&j, "slowest_over_mean", p->slowest);
    kolo_json_double(&j, "backward_kernels_ms", p->backward_kernels_ms);
    add_json_times(&j, "predicted_ms", &p->predicted);
    add_json_times(&j, "measured_ms", &p->measured);
    kolo_json_double(&j, "measured_step_ms_median", p->measured_median_ms);
    kolo_json_string(&j, "most_wrong", kolo_time_name(most_wrong(p)));
    kolo_json_array(&j, "buckets");
    for (int i = 0; i < KOLO_MODELLED_BUCKETS; i++) {
        const kolo_modelled_buckets *b = &p->buckets[i];
        kolo_json_object(&j, NULL);
        kolo_json_string(&j, "name", b->name);
        kolo_json_int(&j, "buckets", b->buckets);
        kolo_json_double(&j, "sums_ms", b->sums_ms);
        kolo_json_double(&j, "work_ms", b->work_ms);
        kolo_json_double(&j, "exposed_ms", b->exposed_ms);
        kolo_json_double(&j, "step_ms", b->step_ms);
        kolo_json_close(&j);
    }
    kolo_json_close(&j);
    kolo_json_array(&j, "best_bytes");
    for (int i = 0; i < p->n_best; i++) kolo_json_int(&j, NULL, (int64_t)p->best_bytes[i]);
    kolo_json_close(&j);
    kolo_json_array(&j, "gradients");
    for (int i = 0; i < p->n_gradients; i++) {
        kolo_json_object(&j, NULL);
        kolo_json_int(&j, "bytes", (int64_t)p->gradient_bytes[i]);
        kolo_json_double(&j, "ready_ms", p->ready_ms[i]);
        kolo_json_close(&j);
    }
    kolo_json_close(&j);
    kolo_json_close(&j);
}

kolo_status step_model_report(const kolo_step_model *prediction, const char *model,
                              const char *json) {
    kolo_text table = {0}, text = {0};
    add_table(&table, prediction, model);
    add_json(&text, prediction, model);
    kolo_status status = output_result(&table, json, &text);
    kolo_text_fini(&table);
    kolo_text_fini(&text);
    return status;
}
