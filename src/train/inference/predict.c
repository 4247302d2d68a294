/* Prediction: the outputs of a trained model for the samples of a data set, in its order. */
#include "base/integer.h"
#include "data/prefetch.h"
#include "data/safetensors/safetensors.h"
#include "kolo/session.h"
#include "train/inference/trained.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct prediction {
    kolo_predict_opts opts; /* resolved */
    kolo_trained trained;
    kolo_safetensors_writer *file; /* of `out`; NULL: none */
    kolo_prediction now;
    float *values;   /* of a batch; with a file, of all samples */
    int32_t *labels; /* with a file, of all samples */
} prediction;

/* The values of one sample, of an output of `count` samples. Outputs that have several rows for
 * each sample have them in one dimension: [count * T, classes]. */
static kolo_status shape_of_sample(const char *output, const kolo_shape *whole, int64_t count,
                                   kolo_shape *sample) {
    char text[KOLO_SHAPE_TEXT];
    if (whole->rank == 0 || whole->dim[0] % count != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "output \"%s\" is %s for %" PRId64 " samples, not values of each sample: "
                         "predict another, such as logits",
                         output, kolo_shape_text(whole, text), count);
    }
    int64_t rows = whole->dim[0] / count;
    *sample = (kolo_shape){0};
    if (rows > 1) sample->dim[sample->rank++] = rows;
    for (int i = 1; i < whole->rank; i++) sample->dim[sample->rank++] = whole->dim[i];
    return KOLO_OK;
}

/* Memory for the values of a batch, or of all samples. */
static kolo_status allocate(prediction *p, const kolo_shape *sample, int64_t count) {
    const kolo_dataset_info *data = kolo_dataset_describe(p->trained.dataset);
    p->now.shape = *sample;
    p->now.label = data->fields[KOLO_FIELD_Y].shape;
    int64_t samples = p->file ? p->opts.samples : count;
    size_t bytes = (size_t)(samples * kolo_shape_count(sample)) * sizeof *p->values;
    size_t label_bytes = (size_t)(samples * kolo_shape_count(&p->now.label)) * sizeof *p->labels;
    p->values = kolo_alloc(bytes);
    p->labels = p->file ? kolo_alloc(label_bytes) : NULL;
    if (!p->values || (p->file && !p->labels)) return KOLO_NOMEM(bytes + label_bytes);
    return KOLO_OK;
}

/* Probabilities and JSON would hide it. */
static kolo_status check_numbers(const prediction *p, int64_t each) {
    const kolo_prediction *now = &p->now;
    for (int64_t i = 0; i < now->count * each; i++) {
        if (!isnan(now->values[i])) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s: output \"%s\" of sample %" PRId64
                         " has NaN: the run diverged, or the weights are damaged",
                         p->trained.opts.checkpoint, p->opts.output, now->first + i / each);
    }
    return KOLO_OK;
}

static kolo_status predict_batch(prediction *p, const kolo_batch *batch) {
    kolo_session *session = p->trained.session;
    kolo_prediction *now = &p->now;
    kolo_shape whole, sample;
    KOLO_TRY(kolo_session_predict(session, batch, p->opts.output, NULL, 0, &whole));
    KOLO_TRY(shape_of_sample(p->opts.output, &whole, batch->count, &sample));
    if (!p->values) KOLO_TRY(allocate(p, &sample, batch->count));
    const int64_t each = kolo_shape_count(&sample), labels = kolo_shape_count(&now->label);
    float *to = p->values + (p->file ? now->first * each : 0);
    now->values = to;
    bool classes = batch->fields[KOLO_FIELD_Y].dtype == KOLO_DTYPE_I32;
    now->labels = classes ? batch->data[KOLO_FIELD_Y] : NULL;
    now->count = batch->count;
    size_t bytes = (size_t)(batch->count * each) * sizeof *to;
    KOLO_TRY(kolo_session_predict(session, batch, p->opts.output, to, bytes, NULL));
    KOLO_TRY(check_numbers(p, each));
    if (p->file && classes) {
        memcpy(p->labels + now->first * labels, now->labels,
               (size_t)(batch->count * labels) * sizeof *p->labels);
    }
    if (p->opts.sink) KOLO_TRY(p->opts.sink(p->opts.arg, now));
    now->first += batch->count;
    return KOLO_OK;
}

/* Adds a first dimension. */
static kolo_shape stacked(int64_t count, const kolo_shape *sample) {
    kolo_shape s = {.rank = sample->rank + 1, .dim = {count}};
    for (int i = 0; i < sample->rank; i++) s.dim[i + 1] = sample->dim[i];
    return s;
}

static kolo_status write_file(prediction *p) {
    if (!p->file) return KOLO_OK;
    kolo_shape values = stacked(p->opts.samples, &p->now.shape);
    kolo_shape labels = stacked(p->opts.samples, &p->now.label);
    KOLO_TRY(kolo_safetensors_add(p->file, p->opts.output, KOLO_DTYPE_F32, &values, p->values));
    if (p->now.labels) {
        KOLO_TRY(kolo_safetensors_add(p->file, "labels", KOLO_DTYPE_I32, &labels, p->labels));
    }
    return kolo_safetensors_finish(p->file);
}

static kolo_status predict_all(prediction *p) {
    const int64_t most = kolo_dataset_describe(p->trained.dataset)->count;
    if (p->opts.samples < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%" PRId64 " samples to predict", p->opts.samples);
    }
    if (p->opts.samples == 0 || p->opts.samples > most) p->opts.samples = most;
    if (p->opts.out) KOLO_TRY(kolo_safetensors_create(p->opts.out, &p->file));
    const kolo_loader_opts loader_opts = {
        .dataset = p->trained.dataset,
        .global_batch = kolo_min_i64(p->trained.opts.batch, p->opts.samples),
        .no_shuffle = true,
        .threads = p->trained.opts.loader_threads,
    };
    kolo_loader *loader;
    KOLO_TRY(kolo_loader_create(&loader_opts, &loader));
    kolo_status status = KOLO_OK;
    while (status == KOLO_OK && p->now.first < p->opts.samples) {
        kolo_batch batch;
        status = kolo_loader_next(loader, &batch);
        if (status != KOLO_OK) break;
        int64_t count = kolo_min_i64(batch.count, p->opts.samples - p->now.first);
        if (count < batch.count) batch = kolo_batch_part(&batch, 0, count);
        status = predict_batch(p, &batch);
    }
    kolo_loader_destroy(loader);
    return status == KOLO_OK ? write_file(p) : status;
}

kolo_status kolo_predict(const kolo_eval_opts *model, const kolo_predict_opts *opts) {
    prediction p = {.opts = opts ? *opts : (kolo_predict_opts){0}};
    if (!p.opts.output) p.opts.output = "logits";
    kolo_status status = kolo_trained_open(model, NULL, &p.trained);
    if (status == KOLO_OK) status = predict_all(&p);
    kolo_safetensors_destroy(p.file);
    kolo_free(p.values);
    kolo_free(p.labels);
    kolo_trained_close(&p.trained);
    return status;
}
