/* Softmax cross-entropy, its gradient, accuracy and confusion matrix, on logits in any layout of
 * kolo_simd_image, with one label per position (loops: loss.isa.c). Parallel over positions; the
 * results per position are then summed in order, so the sums do not depend on the thread count. */

#include "kernel/simd/loss.h"

#include <string.h>

enum { LOGITS, LABELS, DLOSS };

typedef struct loss_state {
    const kolo_simd_loss_table *table;
    kolo_simd_image image;
    int64_t places; /* of all images */
} loss_state;

/* The input that has the weights of the classes; 0: none has. */
static int weights_of(const kolo_kernel_spec *spec) {
    const int last = spec->op == &kolo_op_softmax_xent_bwd ? 3 : 2;
    return spec->n_in > last ? last : 0;
}

static double fit(kolo_kernel_spec *spec) {
    kolo_simd_image image;
    const kolo_tensor *x = &spec->in[LOGITS];
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_simd_image_of(x, &image)) return -1;
    if (weights_of(spec) && spec->attr[KOLO_LOSS_SMOOTHING].f > 0) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bool alike = t->shape.rank == x->shape.rank && t->shape.rank > 2;
        if (alike ? !kolo_layout_equal(&t->layout, &x->layout) : !kolo_layout_is_plain(&t->layout))
            return -1;
    }
    double elements = (double)kolo_tensor_elements(x);
    bool rows = image.inner == image.c;
    return kolo_kernel_seconds(20 * elements, 8 * elements, rows ? 0.3 : 0.1);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    loss_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->table = KOLO_ISA_PICK(kolo_simd_loss);
    KOLO_ASSERT(kolo_simd_image_of(&spec->in[LOGITS], &s->image));
    s->places = kolo_shape_count(&spec->in[LABELS].shape);
    *state = s;
    *scratch_bytes =
        sizeof(float) * (size_t)(2 * s->places + spec->threads * 2 * spec->in[LOGITS].shape.dim[1]);
    return KOLO_OK;
}

static kolo_simd_loss_job job_of(const kolo_call *call) {
    const loss_state *s = call->state;
    const kolo_attr *attr = call->spec->attr;
    const int weights = weights_of(call->spec);
    return (kolo_simd_loss_job){
        .image = s->image,
        .in = call->in[LOGITS],
        .labels = call->in[LABELS],
        .has_ignore_index = attr[KOLO_LOSS_HAS_IGNORE_INDEX].i,
        .ignore_index = (int32_t)attr[KOLO_LOSS_IGNORE_INDEX].i,
        .smoothing = (float)attr[KOLO_LOSS_SMOOTHING].f,
        .weights = weights ? call->in[weights] : NULL,
        .per_position = call->scratch,
        .predicted = call->scratch,
        .rows = (float *)call->scratch + 2 * s->places,
    };
}

static float sum_places(const float *per_position, int64_t places) {
    double sum = 0;
    for (int64_t i = 0; i < places; i++) sum += per_position[i];
    return (float)sum;
}

static void run_softmax_xent(const kolo_call *call) {
    const loss_state *s = call->state;
    kolo_simd_loss_job job = job_of(call);
    job.out = call->out[1];
    if (call->spec->attr[KOLO_LOSS_COUNT].i) job.correct = job.per_position + s->places;
    kolo_kernel_parallel(call->spec->threads, s->places, s->table->softmax_xent, &job);
    *(float *)call->out[0] = sum_places(job.per_position, s->places);
    if (job.correct) *(float *)call->out[2] = sum_places(job.correct, s->places);
}

static void run_softmax_xent_bwd(const kolo_call *call) {
    const loss_state *s = call->state;
    kolo_simd_loss_job job = job_of(call);
    job.out = call->out[0];
    job.dloss = call->in[DLOSS];
    kolo_kernel_parallel(call->spec->threads, s->places, s->table->softmax_xent_bwd, &job);
}

static void run_accuracy(const kolo_call *call) {
    const loss_state *s = call->state;
    kolo_simd_loss_job job = job_of(call);
    kolo_kernel_parallel(call->spec->threads, s->places, s->table->accuracy, &job);
    *(float *)call->out[0] = sum_places(job.per_position, s->places);
}

static void run_confusion(const kolo_call *call) {
    const loss_state *s = call->state;
    kolo_simd_loss_job job = job_of(call);
    int64_t classes = s->image.c;
    float *counts = call->out[0];
    kolo_kernel_parallel(call->spec->threads, s->places, s->table->predict, &job);
    memset(counts, 0, sizeof *counts * (size_t)(classes * classes));
    for (int64_t i = 0; i < s->places; i++) {
        int64_t label = kolo_simd_label(&job, i);
        if (label >= 0) counts[label * classes + job.predicted[i]]++;
    }
}

#define LOSS(text, op_name, run_)             \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = text,                         \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare,                   \
        .run = run_,                          \
        .release = kolo_free,                 \
    }
LOSS("simd_softmax_xent", softmax_xent, run_softmax_xent);
LOSS("simd_softmax_xent_bwd", softmax_xent_bwd, run_softmax_xent_bwd);
LOSS("simd_accuracy", accuracy, run_accuracy);
LOSS("simd_confusion", confusion, run_confusion);
