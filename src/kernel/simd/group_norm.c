/* Group normalization and its gradient, on plain tensors in f32 or bf16 (loops: group_norm.isa.c).
 * The gradients of the parameters are added up over the samples in order, so that results do not
 * depend on the threads. */
#include "kernel/simd/group_norm.h"

static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!kolo_simd_supports(spec) || !kolo_spec_is_plain(spec)) return -1;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    return kolo_kernel_seconds(0, bytes, 2);
}

static kolo_simd_group_norm_job job_on(const kolo_kernel_spec *spec, const kolo_tensor *x) {
    const int64_t *dim = x->shape.dim;
    return (kolo_simd_group_norm_job){.samples = dim[0],
                                      .groups = dim[1],
                                      .channels = dim[2],
                                      .pixels = dim[3],
                                      .bf16 = kolo_simd_is_bf16(spec)};
}

/* Loops write a channel at a time, or a group where the channels have no parameters. */
static bool writes_past_the_cache(const kolo_call *call, const kolo_simd_group_norm_job *job) {
    const int64_t run = job->pixels * (job->gamma ? 1 : job->channels);
    return !job->bf16 && kolo_simd_writes_past(call, run);
}

static void run_forward(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    kolo_simd_group_norm_job job = job_on(spec, &spec->in[0]);
    job.eps = (float)spec->attr[KOLO_LAYER_NORM_EPS].f;
    job.x = call->in[0];
    job.gamma = spec->n_in > 1 ? call->in[1] : NULL;
    job.beta = spec->n_in > 1 ? call->in[2] : NULL;
    job.out = call->out[0];
    job.mean = call->out[1];
    job.rstd = call->out[2];
    job.past = writes_past_the_cache(call, &job);
    kolo_kernel_parallel(spec->threads, job.samples * job.groups,
                         KOLO_ISA_PICK(kolo_simd_group_norm)->forward, &job);
}

static kolo_status prepare_bwd(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const int64_t *dim = spec->in[1].shape.dim;
    *state = NULL;
    *scratch_bytes = spec->n_in > 4 ? 2 * sizeof(float) * (size_t)(dim[0] * dim[1] * dim[2]) : 0;
    return KOLO_OK;
}

static void run_bwd(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_simd_group_norm_table *table = KOLO_ISA_PICK(kolo_simd_group_norm);
    kolo_simd_group_norm_job job = job_on(spec, &spec->in[1]);
    const int64_t of_sample = job.groups * job.channels;
    job.dy = call->in[0];
    job.x = call->in[1];
    job.mean = call->in[2];
    job.rstd = call->in[3];
    job.out = call->out[0];
    if (spec->n_in > 4) {
        job.gamma = call->in[4];
        job.of_h = call->scratch;
        job.of_dy = job.of_h + job.samples * of_sample;
        job.dgamma = call->out[1];
        job.dbeta = call->out[2];
    }
    job.past = writes_past_the_cache(call, &job);
    kolo_kernel_parallel(spec->threads, job.samples * job.groups, table->backward, &job);
    if (job.gamma) kolo_kernel_parallel(spec->threads, of_sample, table->sums, &job);
}

const kolo_kernel kolo_simd_group_norm = {
    .name = "simd_group_norm", .op = &kolo_op_group_norm, .fit = fit, .run = run_forward};
const kolo_kernel kolo_simd_group_norm_bwd = {
    .name = "simd_group_norm_bwd",
    .op = &kolo_op_group_norm_bwd,
    .fit = fit,
    .prepare = prepare_bwd,
    .run = run_bwd,
    .release = kolo_free,
};
