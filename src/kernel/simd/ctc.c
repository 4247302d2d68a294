/* Connectionist temporal classification and its gradient (loops: ctc.isa.c). The losses of the
 * samples are summed in order, so the sum does not depend on the thread count. */
#include "kernel/simd/ctc.h"

enum { LOGITS, LABELS, DLOSS };

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    const double classes = (double)spec->in[LOGITS].shape.dim[2];
    const double states = (double)(2 * spec->in[LABELS].shape.dim[1] + 1);
    const double steps = (double)kolo_tensor_elements(&spec->in[LOGITS]) / classes;
    return kolo_kernel_seconds(20 * steps * (classes + 3 * states), 8 * steps * classes, 0.3);
}

static kolo_simd_ctc_job job_of(const kolo_kernel_spec *spec) {
    const int64_t *dim = spec->in[LOGITS].shape.dim, most = spec->in[LABELS].shape.dim[1];
    return (kolo_simd_ctc_job){
        .steps = dim[1],
        .classes = dim[2],
        .labels_at_most = most,
        .blank = spec->attr[KOLO_CTC_BLANK].i,
        .memory_floats = kolo_simd_ctc_rows(dim[1]) * kolo_simd_ctc_stride(most),
    };
}

/* The losses of the samples, then the memory of the threads. */
static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_ctc_job job = job_of(spec);
    *state = NULL;
    *scratch_bytes = sizeof(double) * (size_t)spec->in[LOGITS].shape.dim[0] +
                     sizeof(float) * (size_t)(job.memory_floats * spec->threads);
    return KOLO_OK;
}

/* The inputs; input `lengths` has the steps of each sample, if it is there. */
static kolo_simd_ctc_job bound_job(const kolo_call *call, int lengths) {
    kolo_simd_ctc_job job = job_of(call->spec);
    job.logits = call->in[LOGITS];
    job.labels = call->in[LABELS];
    job.lengths = call->spec->n_in > lengths ? call->in[lengths] : NULL;
    job.losses = call->scratch;
    job.memory = (float *)(void *)(job.losses + call->spec->in[LOGITS].shape.dim[0]);
    return job;
}

static void run_ctc_loss(const kolo_call *call) {
    const int64_t samples = call->spec->in[LOGITS].shape.dim[0];
    const kolo_simd_ctc_job job = bound_job(call, 2);
    kolo_kernel_parallel(call->spec->threads, samples, KOLO_ISA_PICK(kolo_simd_ctc)->loss, &job);
    double sum = 0;
    for (int64_t n = 0; n < samples; n++) sum += job.losses[n];
    *(float *)call->out[0] = (float)sum;
}

static void run_ctc_loss_bwd(const kolo_call *call) {
    kolo_simd_ctc_job job = bound_job(call, 3);
    job.dloss = call->in[DLOSS];
    job.dlogits = call->out[0];
    kolo_kernel_parallel(call->spec->threads, call->spec->in[LOGITS].shape.dim[0],
                         KOLO_ISA_PICK(kolo_simd_ctc)->loss_bwd, &job);
}

static void release(void *state) { KOLO_ASSERT(!state); }

#define CTC(op_name)                          \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name,             \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare,                   \
        .run = run_##op_name,                 \
        .release = release,                   \
    }
CTC(ctc_loss);
CTC(ctc_loss_bwd);
