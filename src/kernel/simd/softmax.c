/* Softmax and its logarithm over dimension 1 of plain tensors, and their gradients, in f32 or bf16.
 */
#include "kernel/simd/softmax.h"

static double fit(kolo_kernel_spec *spec) {
    double bytes = (double)kolo_tensor_bytes(&spec->out[0]);
    if (!kolo_simd_supports(spec) || !kolo_spec_is_plain(spec)) return -1;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    return kolo_kernel_seconds(0, bytes, 1);
}

/* Narrow rows, and the forward pass of samples of one strip, whose exponentials are kept. */
static bool writes_past_the_cache(const kolo_call *call, const kolo_simd_softmax_table *table,
                                  const kolo_simd_softmax_job *job) {
    const int64_t sample = job->count * job->inner;
    const bool forward = call->spec->op == &kolo_op_softmax;
    if (job->bf16) return false;
    if (job->inner == 1) {
        return job->count <= table->narrow && kolo_simd_writes_past(call, KOLO_SIMD_LINE);
    }
    return forward && !job->log && job->inner <= table->strip && sample <= table->kept &&
           kolo_simd_writes_past(call, sample);
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_shape *shape = &spec->out[0].shape;
    const kolo_simd_softmax_table *table = KOLO_ISA_PICK(kolo_simd_softmax);
    kolo_simd_softmax_job job = {
        .a = call->in[0],
        .y = call->in[spec->n_in - 1],
        .out = call->out[0],
        .n = shape->dim[0],
        .count = shape->dim[1],
        .inner = kolo_shape_count(shape) / (shape->dim[0] * shape->dim[1]),
        .log = spec->attr[KOLO_SOFTMAX_LOG].i != 0,
        .bf16 = kolo_simd_is_bf16(spec),
    };
    job.past = writes_past_the_cache(call, table, &job);
    int64_t strips = job.inner == 1 ? 1 : (job.inner + table->strip - 1) / table->strip;
    kolo_kernel_parallel(spec->threads, job.n * strips,
                         spec->op == &kolo_op_softmax ? table->forward : table->backward, &job);
}

const kolo_kernel kolo_simd_softmax = {
    .name = "simd_softmax", .op = &kolo_op_softmax, .fit = fit, .run = run};
const kolo_kernel kolo_simd_softmax_bwd = {
    .name = "simd_softmax_bwd", .op = &kolo_op_softmax_bwd, .fit = fit, .run = run};
