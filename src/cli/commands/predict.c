/* kolo predict: the outputs of a trained model for the samples of a data set, as JSON lines or as a
 * safetensors file. */
#include "base/file.h"
#include "base/integer.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/options/train_opts.h"
#include "cli/output/output.h"
#include "kolo/train.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char extension[] = ".safetensors";

typedef struct printer {
    const char *output;
    int64_t top;            /* most probable classes of a sample; 0: all values; -1: not given */
    kolo_file_writer *file; /* NULL: standard output */
    kolo_text text;         /* of a batch */
} printer;

/* Prints the `top` most probable of n classes by their logits. */
static void print_top(kolo_json *j, const float *logits, int64_t n, int64_t top) {
    double largest = -INFINITY, sum = 0, before = INFINITY;
    for (int64_t c = 0; c < n; c++) largest = fmax(largest, (double)logits[c]);
    for (int64_t c = 0; c < n; c++) sum += exp((double)logits[c] - largest);
    int64_t last = -1;
    kolo_json_array(j, "top");
    for (int64_t k = 0; k < kolo_min_i64(top, n); k++) {
        int64_t best = -1; /* the next in the order of logits, then of classes */
        for (int64_t c = 0; c < n; c++) {
            double x = (double)logits[c];
            bool later = x < before || (x == before && c > last);
            if (later && (best < 0 || x > (double)logits[best])) best = c;
        }
        if (best < 0) break; /* NaN */
        before = (double)logits[best];
        last = best;
        kolo_json_object(j, NULL);
        kolo_json_int(j, "class", best);
        kolo_json_double(j, "probability", exp(before - largest) / sum);
        kolo_json_close(j);
    }
    kolo_json_close(j);
}

/* Nested arrays by the dimensions from `d` on; returns the end of what was printed. */
static const float *print_values(kolo_json *j, const char *key, const float *values,
                                 const kolo_shape *shape, int d) {
    if (d >= shape->rank || d >= (int)KOLO_COUNT(shape->dim)) {
        kolo_json_double(j, key, (double)*values);
        return values + 1;
    }
    kolo_json_array(j, key);
    for (int64_t i = 0; i < shape->dim[d]; i++) {
        values = print_values(j, NULL, values, shape, d + 1);
    }
    kolo_json_close(j);
    return values;
}

/* Classes are the last dimension, and there are one or more rows of them: the tokens of a window,
 * of which the last predicts the next one. */
static kolo_status check_rows(const printer *p, const kolo_prediction *now) {
    char text[64];
    const kolo_shape *s = &now->shape;
    const bool one = s->rank > 0 && s->dim[s->rank - 1] == 1;
    if (p->top == 0 || ((s->rank == 1 || s->rank == 2) && !one)) return KOLO_OK;
    if (one) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "output \"%s\" has one number for each sample, not classes: omit --top",
                         p->output);
    }
    kolo_text shape = {0};
    for (int i = 0; i < s->rank; i++) {
        kolo_text_add(&shape, "%s%" PRId64, i ? " x " : "", s->dim[i]);
    }
    snprintf(text, sizeof text, "%s", shape.text && s->rank > 0 ? shape.text : "a number");
    kolo_text_fini(&shape);
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "output \"%s\" has %s for each sample, not classes: print all with --top 0, "
                     "or write them with --out FILE%s",
                     p->output, text, extension);
}

static void print_sample(printer *p, const kolo_prediction *now, int64_t i) {
    const kolo_shape *s = &now->shape;
    const int64_t each = kolo_shape_count(s), labels = kolo_shape_count(&now->label);
    const float *values = now->values + i * each;
    kolo_json j = {.out = &p->text};
    kolo_json_object(&j, NULL);
    kolo_json_int(&j, "sample", now->first + i);
    bool last = p->top > 0 && now->label.rank == 1;
    if (now->labels && (now->label.rank == 0 || last)) {
        kolo_json_int(&j, "label", now->labels[(i + 1) * labels - 1]);
    }
    if (p->top > 0) {
        int64_t classes = s->dim[s->rank - 1];
        print_top(&j, values + each - classes, classes, p->top);
    } else {
        (void)print_values(&j, p->output, values, s, 0);
    }
    kolo_json_close(&j);
    kolo_text_add(&p->text, "\n");
}

static kolo_status print_batch(void *arg, const kolo_prediction *now) {
    printer *p = arg;
    if (p->top < 0) { /* logits: classes, if there are several */
        const int last = now->shape.rank - 1;
        p->top = last >= 0 && now->shape.dim[last] == 1 ? 0 : 5;
    }
    KOLO_TRY(check_rows(p, now));
    for (int64_t i = 0; i < now->count; i++) print_sample(p, now, i);
    kolo_status status = p->text.failed ? KOLO_NOMEM(p->text.length) : KOLO_OK;
    if (status == KOLO_OK) {
        status = p->file ? kolo_file_append(p->file, p->text.text, p->text.length)
                         : output_print(&p->text);
    }
    kolo_text_fini(&p->text);
    return status;
}

static kolo_status predict_lines(const kolo_eval_opts *model, kolo_predict_opts *opts, printer *p,
                                 const char *out) {
    opts->sink = print_batch;
    opts->arg = p;
    if (out) KOLO_TRY(kolo_file_create(out, &p->file));
    kolo_status status = kolo_predict(model, opts);
    if (status == KOLO_OK && p->file) return kolo_file_commit(p->file);
    kolo_file_abandon(p->file);
    return status;
}

static kolo_status predict(kolo_options *o) {
    const char *out = kolo_options_text(o, "out");
    kolo_eval_opts model = {.threads = (int)kolo_options_int(o, "threads"),
                            .notice = train_opts_warning};
    kolo_predict_opts opts = {.output = kolo_options_text(o, "output"),
                              .samples = kolo_options_int(o, "samples")};
    KOLO_TRY(train_opts_trained(o, &model));
    if (model.threads == 0) model.threads = kolo_processors();
    size_t length = out ? strlen(out) : 0, tail = sizeof extension - 1;
    if (length > tail && strcmp(out + length - tail, extension) == 0) {
        opts.out = out;
        return kolo_predict(&model, &opts);
    }
    bool classes = strcmp(opts.output, "logits") == 0;
    printer p = {.output = opts.output, .top = classes ? -1 : 0};
    if (kolo_options_given(o, "top")) p.top = kolo_options_int(o, "top");
    return predict_lines(&model, &opts, &p, out);
}

int cmd_predict(kolo_options *o) {
    kolo_status status = predict(o);
    return status == KOLO_OK ? 0 : report_failure(status);
}
