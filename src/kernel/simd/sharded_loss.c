/* Softmax cross-entropy of plain logits [N,C] of some of the classes (loops: sharded_loss.isa.c).
 */
#include "kernel/simd/sharded_loss.h"

/* The number of the input with the logits. */
static int logits_of(const kolo_kernel_spec *spec) {
    return spec->op == &kolo_op_class_sums_bwd ? 1 : 0;
}

static double fit(kolo_kernel_spec *spec) {
    const kolo_tensor *logits = &spec->in[logits_of(spec)];
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    if (logits->shape.rank != 2) return -1;
    const double elements = (double)kolo_tensor_elements(logits);
    return kolo_kernel_seconds(20 * elements, 4 * elements, 0.3);
}

static kolo_simd_sharded_loss_job job_of(const kolo_call *call, int logits) {
    const int64_t *dim = call->spec->in[logits].shape.dim;
    return (kolo_simd_sharded_loss_job){
        .rows = dim[0],
        .classes = dim[1],
        .first = call->spec->attr[KOLO_CLASS_FIRST].i,
        .logits = call->in[logits],
        .out = call->out[0],
    };
}

static void run_class_max(const kolo_call *call) {
    kolo_simd_sharded_loss_job job = job_of(call, 0);
    kolo_kernel_parallel(call->spec->threads, job.rows,
                         KOLO_ISA_PICK(kolo_simd_sharded_loss)->class_max, &job);
}

static void run_class_sums(const kolo_call *call) {
    kolo_simd_sharded_loss_job job = job_of(call, 0);
    job.max = call->in[1];
    job.labels = call->in[2];
    kolo_kernel_parallel(call->spec->threads, job.rows,
                         KOLO_ISA_PICK(kolo_simd_sharded_loss)->class_sums, &job);
}

static void run_class_sums_bwd(const kolo_call *call) {
    kolo_simd_sharded_loss_job job = job_of(call, 1);
    job.dsums = call->in[0];
    job.max = call->in[2];
    job.labels = call->in[3];
    kolo_kernel_parallel(call->spec->threads, job.rows,
                         KOLO_ISA_PICK(kolo_simd_sharded_loss)->class_sums_bwd, &job);
}

#define LOSS(op_name)                         \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name,             \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .run = run_##op_name,                 \
    }
LOSS(class_max);
LOSS(class_sums);
LOSS(class_sums_bwd);
