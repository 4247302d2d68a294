/* Elementwise losses and their gradients, when both tensors share a layout without padding (the
 * cross-entropy of a padded zero is not zero). */
#include "kernel/simd/elementwise_loss.h"

#include "kernel/simd/simd.h"

static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bytes += (double)kolo_tensor_bytes(t);
        if (t->shape.rank == 0) continue;
        if (!kolo_layout_equal(&t->layout, &spec->in[0].layout)) return -1;
        if (kolo_tensor_elements(t) != kolo_shape_count(&t->shape)) return -1;
    }
    return kolo_kernel_seconds(0, bytes, 2);
}

static int64_t blocks_of(const kolo_kernel_spec *spec) {
    int64_t count = kolo_shape_count(&spec->in[0].shape);
    return (count + KOLO_SIMD_LOSS_BLOCK - 1) / KOLO_SIMD_LOSS_BLOCK;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    (void)state;
    *scratch_bytes = sizeof(float) * (size_t)blocks_of(spec);
    return KOLO_OK;
}

static kolo_simd_losses_job job_of(const kolo_call *call) {
    return (kolo_simd_losses_job){
        .x = call->in[0],
        .target = call->in[1],
        .count = kolo_shape_count(&call->spec->in[0].shape),
        .delta = (float)call->spec->attr[KOLO_ELEMENTWISE_LOSS_DELTA].f,
    };
}

static void run(const kolo_call *call) {
    kolo_simd_losses_job job = job_of(call);
    const int64_t blocks = blocks_of(call->spec);
    const int64_t kind = call->spec->attr[KOLO_ELEMENTWISE_LOSS_KIND].i;
    job.sums = call->scratch;
    kolo_kernel_parallel(call->spec->threads, blocks,
                         KOLO_ISA_PICK(kolo_simd_losses)->forward[kind], &job);
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) sum += (double)job.sums[i];
    *(float *)call->out[0] = (float)sum;
}

static void run_bwd(const kolo_call *call) {
    kolo_simd_losses_job job = job_of(call);
    const int64_t kind = call->spec->attr[KOLO_ELEMENTWISE_LOSS_KIND].i;
    job.dloss = *(const float *)call->in[2];
    job.dx = call->out[0];
    kolo_kernel_parallel(call->spec->threads, job.count,
                         KOLO_ISA_PICK(kolo_simd_losses)->backward[kind], &job);
}

const kolo_kernel kolo_simd_elementwise_loss = {
    .name = "simd_elementwise_loss",
    .op = &kolo_op_elementwise_loss,
    .fit = fit,
    .prepare = prepare,
    .run = run,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_elementwise_loss_bwd = {
    .name = "simd_elementwise_loss_bwd",
    .op = &kolo_op_elementwise_loss_bwd,
    .fit = fit,
    .run = run_bwd,
};
