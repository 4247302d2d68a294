/* Embedding with its gradients, on plain tensors (loops: token.isa.c). */
#include "kernel/simd/token.h"

#include "kernel/simd/pointwise.h"

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    double bytes = 0;
    for (int i = 0; i < spec->n_in; i++) bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    for (int i = 0; i < spec->n_out; i++) bytes += (double)kolo_tensor_bytes(&spec->out[i]);
    return kolo_kernel_seconds(0, bytes, 2);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const kolo_simd_token_table **table = kolo_alloc(sizeof *table);
    if (!table) return KOLO_NOMEM(sizeof *table);
    *table = KOLO_ISA_PICK(kolo_simd_token);
    *state = table;
    *scratch_bytes = 0;
    return KOLO_OK;
}

static int64_t slices_of(int64_t channels) {
    return (channels + KOLO_SIMD_SLICE - 1) / KOLO_SIMD_SLICE;
}

static void set_ranges(const kolo_attr *attr, kolo_simd_embedding_job *job) {
    const int64_t length = attr[KOLO_EMBEDDING_LENGTH].i;
    job->jump = kolo_position_jump(attr[KOLO_EMBEDDING_POSITION].i, length, job->length);
    job->half = length > 0 ? job->length / 2 : job->length;
}

static void run_embedding(const kolo_call *call) {
    const kolo_simd_token_table *const *table = call->state;
    const kolo_kernel_spec *spec = call->spec;
    const int64_t *dim = spec->out[0].shape.dim;
    kolo_simd_embedding_job job = {
        .tokens = dim[0] * dim[1],
        .length = dim[1],
        .channels = dim[2],
        .rows = spec->in[0].shape.dim[0],
        .first = spec->attr[KOLO_EMBEDDING_FIRST].i,
        .ids = call->in[1],
        .table = call->in[0],
        .positions = spec->n_in > 2 ? (const float *)call->in[2] +
                                          spec->attr[KOLO_EMBEDDING_POSITION].i * dim[2]
                                    : NULL,
        .out = call->out[0],
    };
    set_ranges(spec->attr, &job);
    kolo_kernel_parallel(spec->threads, job.tokens, (*table)->embedding, &job);
}

static void run_embedding_bwd(const kolo_call *call) {
    const kolo_simd_token_table *const *table = call->state;
    const kolo_kernel_spec *spec = call->spec;
    const int64_t *dim = spec->in[0].shape.dim;
    bool ids = spec->op == &kolo_op_embedding_bwd;
    kolo_simd_embedding_job job = {
        .tokens = dim[0] * dim[1],
        .length = dim[1],
        .channels = dim[2],
        .rows = spec->out[0].shape.dim[0],
        .first = spec->attr[ids ? KOLO_EMBEDDING_FIRST : KOLO_EMBEDDING_POSITION].i,
        .ids = ids ? call->in[1] : NULL,
        .dy = call->in[0],
        .out = call->out[0],
    };
    set_ranges(spec->attr, &job);
    if (ids) {
        kolo_kernel_parallel(spec->threads, slices_of(dim[2]), (*table)->embedding_bwd, &job);
    } else {
        kolo_kernel_parallel(spec->threads, job.rows, (*table)->position_bwd, &job);
    }
}

KOLO_SIMD_KERNEL(embedding, run_embedding);
KOLO_SIMD_KERNEL(embedding_bwd, run_embedding_bwd);
KOLO_SIMD_KERNEL(position_bwd, run_embedding_bwd);
