/* Layer and root mean square normalization with their gradients, on plain tensors in f32 or bf16
 * (loops: row_norm.isa.c).
 *
 * Backward reads its inputs once. Each block of rows has sums of its own for the parameters'
 * gradients, which are added in order: the blocks depend on the number of rows only, so results do
 * not depend on the threads. */
#include "kernel/simd/row_norm.h"

#include "base/integer.h"
#include "kernel/simd/pointwise.h"

enum { MOST_BLOCKS = 32, FEWEST_ROWS = 32 };

static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!kolo_simd_supports(spec) || !kolo_spec_is_plain(spec)) return -1;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    return kolo_kernel_seconds(0, bytes, 2);
}

/* A job on x [...,C]. */
static kolo_simd_row_norm_job job_on(const kolo_kernel_spec *spec, const kolo_tensor *x) {
    kolo_simd_row_norm_job job = {
        .channels = x->shape.dim[x->shape.rank - 1],
        .centre = spec->op == &kolo_op_layer_norm || spec->op == &kolo_op_layer_norm_bwd,
        .bf16 = kolo_simd_is_bf16(spec),
    };
    job.rows = kolo_shape_count(&x->shape) / job.channels;
    job.each = kolo_max_i64(FEWEST_ROWS, (job.rows + MOST_BLOCKS - 1) / MOST_BLOCKS);
    job.blocks = (job.rows + job.each - 1) / job.each;
    return job;
}

static void run_forward(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    kolo_simd_row_norm_job job = job_on(spec, &spec->in[0]);
    job.eps = (float)spec->attr[KOLO_LAYER_NORM_EPS].f;
    job.x = call->in[0];
    job.gamma = call->in[1];
    job.beta = job.centre ? call->in[2] : NULL;
    job.out = call->out[0];
    job.mean = job.centre ? call->out[1] : NULL;
    job.rstd = call->out[job.centre ? 2 : 1];
    kolo_kernel_parallel(spec->threads, job.rows, KOLO_ISA_PICK(kolo_simd_row_norm)->forward, &job);
}

static kolo_status prepare_bwd(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_row_norm_job job = job_on(spec, &spec->in[1]);
    *state = NULL;
    *scratch_bytes = sizeof(float) * (size_t)(job.blocks * job.channels * (job.centre ? 2 : 1));
    return KOLO_OK;
}

static void run_bwd(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_simd_row_norm_table *table = KOLO_ISA_PICK(kolo_simd_row_norm);
    kolo_simd_row_norm_job job = job_on(spec, &spec->in[1]);
    job.dy = call->in[0];
    job.x = call->in[1];
    job.gamma = call->in[2];
    job.mean = job.centre ? call->in[3] : NULL;
    job.rstd = call->in[job.centre ? 4 : 3];
    job.out = call->out[0];
    job.sums = call->scratch;
    job.dgamma = call->out[1];
    job.dbeta = job.centre ? call->out[2] : NULL;
    const int64_t slices = (job.channels + KOLO_SIMD_SLICE - 1) / KOLO_SIMD_SLICE;
    kolo_kernel_parallel(spec->threads, job.blocks, table->backward, &job);
    kolo_kernel_parallel(spec->threads, slices, table->sums, &job);
}

#define FORWARD(op_name)                      \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name, .op = &kolo_op_##op_name, .fit = fit, .run = run_forward}
#define BACKWARD(op_name)                     \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name,             \
        .op = &kolo_op_##op_name,             \
        .fit = fit,                           \
        .prepare = prepare_bwd,               \
        .run = run_bwd,                       \
        .release = kolo_free,                 \
    }
FORWARD(layer_norm);
FORWARD(rms_norm);
BACKWARD(layer_norm_bwd);
BACKWARD(rms_norm_bwd);
