/* softmax_xent, its backward and accuracy, on plain [N,C]. Rows are dealt to threads; what each row
 * gives is summed afterwards, in order, so that the sum does not depend on the threads. */
#include "kernel/simd/simd.h"

enum { LOGITS, LABELS, DLOSS };

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    if (spec->in[0].shape.rank != 2) return -1;
    double elements = (double)kolo_tensor_elements(&spec->in[0]);
    return kolo_kernel_seconds(20 * elements, 8 * elements, 0.3);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_loss_table **table = kolo_alloc(sizeof *table);
    if (!table) return KOLO_NOMEM(sizeof *table);
    *table = kolo_simd_isa_now()->loss;
    *state = table;
    *scratch_bytes = sizeof(float) * (size_t)spec->in[0].shape.dim[0];
    return KOLO_OK;
}

static kolo_simd_loss_job job_of(const kolo_call *call) {
    return (kolo_simd_loss_job){
        .classes = call->spec->in[0].shape.dim[1],
        .in = call->in[LOGITS],
        .labels = call->in[LABELS],
        .per_row = call->scratch,
    };
}

static float sum_rows(const float *per_row, int64_t rows) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) sum += per_row[i];
    return (float)sum;
}

static void run_softmax_xent(const kolo_call *call) {
    const kolo_simd_loss_table *const *table = call->state;
    kolo_simd_loss_job job = job_of(call);
    int64_t rows = call->spec->in[0].shape.dim[0];
    job.out = call->out[1];
    kolo_simd_parallel(call->spec->threads, rows, (*table)->softmax_xent, &job);
    *(float *)call->out[0] = sum_rows(job.per_row, rows);
}

static void run_softmax_xent_bwd(const kolo_call *call) {
    const kolo_simd_loss_table *const *table = call->state;
    kolo_simd_loss_job job = job_of(call);
    job.out = call->out[0];
    job.dloss = call->in[DLOSS];
    kolo_simd_parallel(call->spec->threads, call->spec->in[0].shape.dim[0],
                       (*table)->softmax_xent_bwd, &job);
}

static void run_accuracy(const kolo_call *call) {
    const kolo_simd_loss_table *const *table = call->state;
    kolo_simd_loss_job job = job_of(call);
    int64_t rows = call->spec->in[0].shape.dim[0];
    kolo_simd_parallel(call->spec->threads, rows, (*table)->accuracy, &job);
    *(float *)call->out[0] = sum_rows(job.per_row, rows);
}

const kolo_kernel kolo_simd_softmax_xent = {
    .name = "simd_softmax_xent",
    .op = &kolo_op_softmax_xent,
    .fit = fit,
    .prepare = prepare,
    .run = run_softmax_xent,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_softmax_xent_bwd = {
    .name = "simd_softmax_xent_bwd",
    .op = &kolo_op_softmax_xent_bwd,
    .fit = fit,
    .prepare = prepare,
    .run = run_softmax_xent_bwd,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_accuracy = {
    .name = "simd_accuracy",
    .op = &kolo_op_accuracy,
    .fit = fit,
    .prepare = prepare,
    .run = run_accuracy,
    .release = kolo_free,
};
