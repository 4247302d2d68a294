/* The sum of all elements in any layout without padding, and its gradient. */
#include "graph/ops/ops.h"
#include "kernel/simd/pointwise.h"
#include "kernel/simd/simd.h"

static bool is_dense(const kolo_tensor *t) {
    return kolo_tensor_elements(t) == kolo_shape_count(&t->shape);
}

static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        if (!is_dense(t)) return -1;
        bool shape_only = spec->op == &kolo_op_sum_bwd && i == 1;
        if (!shape_only) bytes += (double)kolo_tensor_bytes(t);
    }
    return kolo_kernel_seconds(0, bytes, 2);
}

static kolo_status prepare_sum(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    (void)state;
    *scratch_bytes = sizeof(float) * (size_t)kolo_square_blocks(kolo_tensor_elements(&spec->in[0]));
    return KOLO_OK;
}

static void run_sum(const kolo_call *call) {
    kolo_simd_block_job job = {
        .x = call->in[0],
        .count = kolo_tensor_elements(&call->spec->in[0]),
        .sums = call->scratch,
    };
    const int64_t blocks = kolo_square_blocks(job.count);
    kolo_kernel_parallel(call->spec->threads, blocks, KOLO_ISA_PICK(kolo_simd_point)->sum, &job);
    double total = 0;
    for (int64_t i = 0; i < blocks; i++) total += (double)job.sums[i];
    *(float *)call->out[0] = (float)total;
}

static void run_sum_bwd(const kolo_call *call) {
    const kolo_simd_fill_job job = {.number = *(const float *)call->in[0], .to = call->out[0]};
    kolo_kernel_parallel(call->spec->threads, kolo_tensor_elements(&call->spec->out[0]),
                         KOLO_ISA_PICK(kolo_simd_point)->fill, &job);
}

const kolo_kernel kolo_simd_sum = {
    .name = "simd_sum",
    .op = &kolo_op_sum,
    .fit = fit,
    .prepare = prepare_sum,
    .run = run_sum,
    .release = kolo_free,
};
const kolo_kernel kolo_simd_sum_bwd = {
    .name = "simd_sum_bwd", .op = &kolo_op_sum_bwd, .fit = fit, .run = run_sum_bwd};
