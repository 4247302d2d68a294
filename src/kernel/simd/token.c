/* Layer normalization and embedding with their gradients, on plain tensors (loops: token.isa.c). */
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

static int64_t last_of(const kolo_tensor *t) { return t->shape.dim[t->shape.rank - 1]; }
static int64_t slices_of(int64_t channels) {
    return (channels + KOLO_SIMD_SLICE - 1) / KOLO_SIMD_SLICE;
}

/* ---- layer normalization ---- */

enum { NORM_X, NORM_GAMMA, NORM_BETA };
enum { BWD_DY, BWD_X, BWD_GAMMA, BWD_MEAN, BWD_RSTD };

static void run_layer_norm(const kolo_call *call) {
    const kolo_simd_token_table *const *table = call->state;
    const kolo_kernel_spec *spec = call->spec;
    int64_t channels = last_of(&spec->in[NORM_X]);
    kolo_simd_layer_norm_job job = {
        .channels = channels,
        .rows = kolo_shape_count(&spec->in[NORM_X].shape) / channels,
        .eps = (float)spec->attr[KOLO_LAYER_NORM_EPS].f,
        .x = call->in[NORM_X],
        .gamma = call->in[NORM_GAMMA],
        .beta = call->in[NORM_BETA],
        .out = call->out[0],
        .mean = call->out[1],
        .rstd = call->out[2],
    };
    kolo_kernel_parallel(spec->threads, job.rows, (*table)->layer_norm, &job);
}

static void run_layer_norm_bwd(const kolo_call *call) {
    const kolo_simd_token_table *const *table = call->state;
    const kolo_kernel_spec *spec = call->spec;
    int64_t channels = last_of(&spec->in[BWD_X]);
    kolo_simd_layer_norm_job job = {
        .channels = channels,
        .rows = kolo_shape_count(&spec->in[BWD_X].shape) / channels,
        .dy = call->in[BWD_DY],
        .x = call->in[BWD_X],
        .gamma = call->in[BWD_GAMMA],
        .mean = call->in[BWD_MEAN],
        .rstd = call->in[BWD_RSTD],
        .out = call->out[0],
        .dgamma = call->out[1],
        .dbeta = call->out[2],
    };
    /* The sums come first: dx may alias dy or x. */
    kolo_kernel_parallel(spec->threads, slices_of(channels), (*table)->layer_norm_sums, &job);
    kolo_kernel_parallel(spec->threads, job.rows, (*table)->layer_norm_bwd, &job);
}

/* ---- embedding ---- */

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
        .positions = spec->n_in > 2 ? call->in[2] : NULL,
        .out = call->out[0],
    };
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
        .first = ids ? spec->attr[KOLO_EMBEDDING_FIRST].i : 0,
        .ids = ids ? call->in[1] : NULL,
        .dy = call->in[0],
        .out = call->out[0],
    };
    if (ids) {
        kolo_kernel_parallel(spec->threads, slices_of(dim[2]), (*table)->embedding_bwd, &job);
    } else {
        kolo_kernel_parallel(spec->threads, job.rows, (*table)->position_bwd, &job);
    }
}

KOLO_SIMD_KERNEL(layer_norm, run_layer_norm);
KOLO_SIMD_KERNEL(layer_norm_bwd, run_layer_norm_bwd);
KOLO_SIMD_KERNEL(embedding, run_embedding);
KOLO_SIMD_KERNEL(embedding_bwd, run_embedding_bwd);
KOLO_SIMD_KERNEL(position_bwd, run_embedding_bwd);
