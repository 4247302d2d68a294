/* What a run came to: a table for people, JSON for programs. */
#include "cli/output/result.h"

#include "base/integer.h"
#include "base/json.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void add_row(kolo_text *t, const char *name, const char *fmt, ...) KOLO_PRINTF(3, 4);
static void add_row(kolo_text *t, const char *name, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    kolo_text_add(t, "%-18s", name);
    kolo_text_addv(t, fmt, args);
    kolo_text_add(t, "\n");
    va_end(args);
}

/* A loss, its parts where it has two, and what steps it is of. */
static void add_loss(kolo_text *t, const char *name, double loss, const kolo_train_result *r,
                     double next, int64_t steps) {
    char parts[64] = "", of[48] = "";
    if (r->pairs) {
        snprintf(parts, sizeof parts, " = %.4f of tokens + %.4f of next sentences", loss - next,
                 next);
    }
    if (steps > 1) snprintf(of, sizeof of, ", mean of the last %" PRId64 " steps", steps);
    add_row(t, name, "%.4f%s%s", loss, parts, of);
}

static void add_table(kolo_text *t, const kolo_train_result *r, const result_about *about) {
    add_row(t, "model", "%s%s%" PRId64 " parameters", about->model ? about->model : "",
            about->model ? ", " : "", r->parameters);
    if (about->data) add_row(t, "data", "%s", about->data);
    char times[32] = "";
    if (about->accumulate > 1) snprintf(times, sizeof times, "%" PRId64 " x ", about->accumulate);
    add_row(t, "workers", "%d, threads %d each, batch %s%" PRId64 " each", r->workers, r->threads,
            times, about->batch);
    if (about->trained) {
        add_row(t, "trained", "%" PRId64 " steps, %" PRId64 " epochs, %" PRId64 " samples",
                r->steps, r->epochs, r->samples);
        add_loss(t, "training loss", r->final_loss, r, r->final_next_loss,
                 kolo_min_i64(r->steps, KOLO_LAST_STEPS));
        if (r->losses_checked > 0) {
            add_row(t, "losses checked",
                    "of the first %" PRId64 " steps: taken again as by kolo train, the same bits",
                    r->losses_checked);
        }
    }
    if (r->test_accuracy >= 0) {
        add_loss(t, "test loss", r->test_loss, r, r->test_next_loss, 0);
        if (r->test_perplexity > 0) add_row(t, "test perplexity", "%.4g", r->test_perplexity);
        add_row(t, "test accuracy", "%.4f", r->test_accuracy);
        if (r->test_mean_iou >= 0) add_row(t, "test mean IoU", "%.4f", r->test_mean_iou);
        if (r->pairs) {
            add_row(t, "of next sentences", "accuracy %.4f", r->test_next_accuracy);
        }
    }
    if (about->trained) {
        add_row(t, "training time", "%.2f s", r->train_seconds);
        if (r->step_ms_median > 0) add_row(t, "step, median", "%.3f ms", r->step_ms_median);
    }
    add_row(t, "samples/s", "%.0f", r->samples_per_second);
    add_row(t, "peak memory", "%.0f MiB", (double)r->peak_rss_bytes / (1 << 20));
    if (about->out) add_row(t, "written to", "%s", about->out);
}

static void add_json(kolo_text *t, const kolo_train_result *r, const result_about *about) {
    kolo_json j = {.out = t, .indent = 2};
    char hash[24];
    snprintf(hash, sizeof hash, "%016" PRIx64, r->parameter_hash);
    kolo_json_object(&j, NULL);
    if (about->model) kolo_json_string(&j, "model", about->model);
    kolo_json_string(&j, "data", about->data);
    kolo_json_int(&j, "workers", r->workers);
    kolo_json_int(&j, "threads", r->threads);
    kolo_json_int(&j, "batch", about->batch);
    if (about->trained) kolo_json_int(&j, "accumulate", about->accumulate);
    kolo_json_int(&j, "parameters", r->parameters);
    kolo_json_int(&j, "steps", r->steps);
    kolo_json_int(&j, "epochs", r->epochs);
    kolo_json_int(&j, "samples", r->samples);
    if (about->trained) {
        kolo_json_double(&j, "first_loss", r->first_loss);
        kolo_json_double(&j, "final_loss", r->final_loss);
        if (r->pairs) {
            kolo_json_double(&j, "final_masked_loss", r->final_loss - r->final_next_loss);
            kolo_json_double(&j, "final_next_loss", r->final_next_loss);
            kolo_json_double(&j, "final_next_accuracy", r->final_next_accuracy);
        }
        if (r->losses_checked > 0) kolo_json_int(&j, "losses_checked", r->losses_checked);
    }
    kolo_json_double(&j, "test_loss", r->test_accuracy >= 0 ? r->test_loss : NAN);
    if (r->test_perplexity > 0) kolo_json_double(&j, "test_perplexity", r->test_perplexity);
    kolo_json_double(&j, "test_accuracy", r->test_accuracy >= 0 ? r->test_accuracy : NAN);
    if (r->test_mean_iou >= 0) kolo_json_double(&j, "test_mean_iou", r->test_mean_iou);
    if (r->pairs && r->test_accuracy >= 0) {
        kolo_json_double(&j, "test_masked_loss", r->test_loss - r->test_next_loss);
        kolo_json_double(&j, "test_next_loss", r->test_next_loss);
        kolo_json_double(&j, "test_next_accuracy", r->test_next_accuracy);
    }
    if (about->trained) {
        kolo_json_double(&j, "train_seconds", r->train_seconds);
        kolo_json_double(&j, "step_ms_median", r->step_ms_median > 0 ? r->step_ms_median : NAN);
    }
    kolo_json_double(&j, "samples_per_second", r->samples_per_second);
    kolo_json_int(&j, "peak_rss_bytes", r->peak_rss_bytes);
    kolo_json_string(&j, "parameter_hash", hash);
    kolo_json_close(&j);
}

kolo_status result_report(const kolo_train_result *result, const result_about *about,
                          const char *json) {
    kolo_text table = {0}, text = {0};
    add_table(&table, result, about);
    add_json(&text, result, about);
    kolo_status status = cli_report(&table, json, &text);
    kolo_text_fini(&table);
    kolo_text_fini(&text);
    return status;
}
