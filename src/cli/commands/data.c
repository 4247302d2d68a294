/* kolo data info | verify | head | pack | ledger: data sets, and the samples that a run has used.
 */
#include "kolo/data.h"

#include "base/memory.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/stop_signals.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 8 /* elements */ };

static bool has_one(const kolo_options *o, const char *what) {
    if (o->n_rest == 1) return true;
    fprintf(stderr, "kolo: 'kolo %s' takes %s\n", o->command->name, what);
    return false;
}

static kolo_status open_split(const kolo_options *o, kolo_split which, kolo_dataset **dataset) {
    const kolo_dataset_opts required = train_opts_no_model();
    return kolo_dataset_open_for(o->rest[0], which, &required, dataset);
}

/* Prints the text, also that of before a failure. */
static int print(kolo_status status, kolo_text *text) {
    const kolo_status printed = text->length > 0 && !text->failed ? output_print(text) : KOLO_OK;
    if (status == KOLO_OK) status = printed;
    kolo_text_fini(text);
    return status == KOLO_OK ? 0 : report_failure(status);
}

/* ---- info ---- */

static size_t sample_bytes(const kolo_dataset_info *info) {
    size_t bytes = 0;
    for (int f = 0; f < info->n_fields; f++) {
        const kolo_field *field = &info->fields[f];
        bytes += (size_t)kolo_shape_count(&field->shape) * kolo_dtype_bytes(field->dtype);
    }
    return bytes;
}

static void add_fields(const kolo_dataset_info *info, kolo_text *text) {
    for (int f = 0; f < info->n_fields; f++) {
        const kolo_field *field = &info->fields[f];
        char shape[KOLO_SHAPE_TEXT];
        kolo_text_add(text, "%-10s %s %s", field->name, kolo_dtype_name(field->dtype),
                      kolo_shape_text(&field->shape, shape));
        const int64_t channels = field->shape.rank == 3 ? field->shape.dim[0] : 1;
        for (int64_t c = 0; c < channels && field->dtype == KOLO_DTYPE_U8; c++) {
            kolo_text_add(text, "%s%.4g / %.4g", c ? ", " : "; mean / std ", (double)field->mean[c],
                          (double)field->std[c]);
        }
        kolo_text_add(text, "\n");
    }
}

int cmd_data_info(kolo_options *o) {
    kolo_text text = {0};
    int opened = 0;
    if (!has_one(o, "a data set")) return 2;
    for (int s = 0; s < KOLO_SPLIT_COUNT; s++) {
        const char *name = kolo_split_name((kolo_split)s);
        kolo_dataset *d;
        kolo_status status = open_split(o, (kolo_split)s, &d);
        if (status == KOLO_ERR_ARG && (s == 0 || opened > 0)) { /* without this split */
            kolo_text_add(&text, "%-10s none: %s\n", name, kolo_last_error());
            continue;
        }
        if (status != KOLO_OK) return print(status, &text);
        const kolo_dataset_info *info = kolo_dataset_describe(d);
        if (opened++ == 0) {
            kolo_text_add(&text, "%-10s %s\n", "kind", info->name);
            if (*info->place) kolo_text_add(&text, "%-10s %s\n", "place", info->place);
            if (info->classes < INT32_MAX) {
                kolo_text_add(&text, "%-10s %d\n", "classes", info->classes);
            }
            add_fields(info, &text);
        }
        const double bytes = (double)sample_bytes(info);
        if (info->count == KOLO_STREAM_SAMPLES) {
            kolo_text_add(&text, "%-10s a stream of samples of %.0f bytes\n", name, bytes);
            kolo_dataset_close(d);
            continue;
        }
        kolo_text_add(&text, "%-10s %" PRId64 " samples of %.0f bytes, %.1f MiB\n", name,
                      info->count, bytes, bytes * (double)info->count / (1 << 20));
        kolo_dataset_close(d);
    }
    return print(text.failed ? KOLO_NOMEM(text.length) : KOLO_OK, &text);
}

/* ---- verify ---- */

static void report(void *arg, const char *line) {
    printf("%s: %s\n", (const char *)arg, line);
    fflush(stdout);
}

/* *damaged grows. */
static kolo_status verify_split(const kolo_options *o, kolo_split which, int64_t *damaged) {
    const kolo_verify_opts opts = {.threads = (int)kolo_options_int(o, "loader-threads"),
                                   .report = report,
                                   .arg = (void *)kolo_split_name(which)};
    kolo_dataset *d;
    int64_t found = 0;
    KOLO_TRY(open_split(o, which, &d));
    kolo_status status = kolo_dataset_verify(d, &opts, &found);
    if (status == KOLO_OK) {
        printf("%s: %" PRId64 " samples, %" PRId64 " damaged\n", kolo_split_name(which),
               kolo_dataset_describe(d)->count, found);
    }
    kolo_dataset_close(d);
    *damaged += found;
    return status;
}

int cmd_data_verify(kolo_options *o) {
    const int wanted = kolo_options_choice(o, "split");
    int64_t damaged = 0;
    if (!has_one(o, "a data set")) return 2;
    for (int s = 0; s < KOLO_SPLIT_COUNT; s++) {
        if (wanted != KOLO_SPLIT_COUNT && wanted != s) continue;
        const kolo_status status = verify_split(o, (kolo_split)s, &damaged);
        if (status != KOLO_OK) return report_failure(status);
    }
    return damaged > 0;
}

/* ---- head ---- */

static double element(const kolo_field *field, const void *data, int64_t i) {
    switch (field->dtype) {
    case KOLO_DTYPE_F32:
        return (double)((const float *)data)[i];
    case KOLO_DTYPE_F64:
        return ((const double *)data)[i];
    case KOLO_DTYPE_U8:
        return ((const uint8_t *)data)[i];
    case KOLO_DTYPE_I8:
        return ((const int8_t *)data)[i];
    case KOLO_DTYPE_I32:
        return ((const int32_t *)data)[i];
    case KOLO_DTYPE_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return NAN;
    }
}

/* The elements of a field, or the first ones of many integers; else their statistics. */
static void add_values(const kolo_field *field, const void *data, kolo_text *text) {
    const int64_t n = kolo_shape_count(&field->shape);
    const bool list = n <= SHOWN || (field->dtype == KOLO_DTYPE_I32 && field->shape.rank == 1);
    double least = INFINITY, most = -INFINITY, sum = 0, squares = 0;
    kolo_text_add(text, "  %s", field->name);
    for (int64_t i = 0; list && i < n && i < SHOWN; i++) {
        const bool real = field->dtype == KOLO_DTYPE_F32 || field->dtype == KOLO_DTYPE_F64;
        kolo_text_add(text, real ? " %.9g" : " %.0f", element(field, data, i));
    }
    if (list) {
        kolo_text_add(text, "%s", n > SHOWN ? " ..." : "");
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double x = element(field, data, i);
        least = fmin(least, x);
        most = fmax(most, x);
        sum += x;
        squares += x * x;
    }
    const double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
    kolo_text_add(text, " %.6g to %.6g, mean %.5g, std %.5g", least, most, mean,
                  sqrt(fmax(variance, 0)));
}

static kolo_status add_sample(const kolo_dataset *d, int64_t index, void *const *data,
                              kolo_text *text) {
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    KOLO_TRY(kolo_dataset_gather(d, &index, 1, data));
    kolo_text_add(text, "sample %" PRId64, index);
    for (int f = 0; f < info->n_fields; f++) add_values(&info->fields[f], data[f], text);
    kolo_text_add(text, "\n");
    return KOLO_OK;
}

static kolo_status show(const kolo_options *o, const kolo_dataset *d, kolo_text *text) {
    const kolo_dataset_info *info = kolo_dataset_describe(d);
    int64_t n = kolo_options_int(o, "samples");
    if (n > info->count) n = info->count;
    int64_t *order = kolo_alloc((size_t)n * sizeof *order);
    char *sample = kolo_alloc(sample_bytes(info) + KOLO_MAX_FIELDS * sizeof(double)), *at = sample;
    void *data[KOLO_MAX_FIELDS] = {NULL};
    kolo_status status = order && sample ? KOLO_OK : KOLO_NOMEM(sample_bytes(info));
    for (int f = 0; f < info->n_fields && status == KOLO_OK; f++) {
        const kolo_field *field = &info->fields[f];
        const size_t bytes =
            (size_t)kolo_shape_count(&field->shape) * kolo_dtype_bytes(field->dtype);
        data[f] = at;
        at += (bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
    }
    if (status == KOLO_OK) {
        status = kolo_dataset_order(d, (uint64_t)kolo_options_int(o, "seed"), 0, n, order);
    }
    for (int64_t i = 0; i < n && status == KOLO_OK; i++) {
        status = add_sample(d, order[i], data, text);
    }
    kolo_free(order);
    kolo_free(sample);
    return status;
}

int cmd_data_head(kolo_options *o) {
    kolo_text text = {0};
    kolo_dataset *d;
    if (!has_one(o, "a data set")) return 2;
    kolo_status status = open_split(o, (kolo_split)kolo_options_choice(o, "split"), &d);
    if (status != KOLO_OK) return report_failure(status);
    add_fields(kolo_dataset_describe(d), &text);
    status = show(o, d, &text);
    kolo_dataset_close(d);
    if (status == KOLO_OK && text.failed) status = KOLO_NOMEM(text.length);
    return print(status, &text);
}

/* ---- pack ---- */

static bool is_stopped(void *arg) {
    (void)arg;
    return stop_signals_asked() != 0;
}

int cmd_data_pack(kolo_options *o) {
    const int which = kolo_options_choice(o, "split");
    const kolo_pack_opts opts = {.decoded = kolo_options_flag(o, "decoded"),
                                 .no_train = which == KOLO_SPLIT_TEST,
                                 .no_test = which == KOLO_SPLIT_TRAIN,
                                 .replace = kolo_options_flag(o, "replace"),
                                 .seekable = kolo_options_flag(o, "seekable"),
                                 .stopped = is_stopped};
    if (!has_one(o, "a data set")) return 2;
    stop_signals_ask();
    const kolo_status status = kolo_dataset_pack(o->rest[0], &opts, kolo_options_text(o, "out"));
    if (status == KOLO_OK) return 0;
    const int code = report_failure(status), signal = stop_signals_asked();
    return signal > 0 ? 128 + signal : code;
}

/* ---- ledger ---- */

int cmd_data_ledger(kolo_options *o) {
    char *made = NULL;
    bool exact = false;
    if (!has_one(o, "the FILE of --ledger")) return 2;
    kolo_status status = kolo_ledger_check(o->rest[0], &exact, &made);
    if (status != KOLO_OK) return report_failure(status);
    kolo_text text = {0};
    kolo_text_add(&text, "%s", made);
    kolo_ledger_text_free(made);
    const int failed = print(KOLO_OK, &text);
    return failed ? failed : !exact;
}
