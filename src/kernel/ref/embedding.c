/* Embedding and its gradients. */
#include "kernel/ref/ref.h"

#include <string.h>

static void embedding(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const double *w = call->in[0], *p = spec->n_in == 3 ? call->in[2] : NULL;
    const int32_t *ids = call->in[1];
    const int64_t *dim = spec->out[0].shape.dim, rows = spec->in[0].shape.dim[0];
    int64_t length = dim[1], channels = dim[2];
    double *y = call->out[0];
    for (int64_t i = 0; i < dim[0] * length; i++) {
        int64_t id = ids[i] - spec->attr[KOLO_EMBEDDING_FIRST].i;
        bool known = id >= 0 && id < rows;
        const int64_t t = kolo_position_of(spec->attr[KOLO_EMBEDDING_POSITION].i,
                                           spec->attr[KOLO_EMBEDDING_LENGTH].i, length, i % length);
        for (int64_t c = 0; c < channels; c++) {
            y[i * channels + c] =
                (known ? w[id * channels + c] : 0) + (p ? p[t * channels + c] : 0);
        }
    }
}

static void embedding_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim, *table = call->spec->out[0].shape.dim;
    const double *dy = call->in[0];
    const int32_t *ids = call->in[1];
    double *dw = call->out[0];
    memset(dw, 0, sizeof(double) * (size_t)(table[0] * table[1]));
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        int64_t id = ids[i] - call->spec->attr[KOLO_EMBEDDING_FIRST].i;
        if (id < 0 || id >= table[0]) continue;
        for (int64_t c = 0; c < dim[2]; c++) dw[id * dim[2] + c] += dy[i * dim[2] + c];
    }
}

static void position_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim, *table = call->spec->out[0].shape.dim;
    const double *dy = call->in[0];
    double *dp = call->out[0];
    const kolo_attr *attr = call->spec->attr;
    memset(dp, 0, sizeof(double) * (size_t)(table[0] * table[1]));
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) {
        const int64_t t = kolo_position_of(attr[KOLO_EMBEDDING_POSITION].i,
                                           attr[KOLO_EMBEDDING_LENGTH].i, dim[1], i % dim[1]);
        for (int64_t c = 0; c < dim[2]; c++) dp[t * dim[2] + c] += dy[i * dim[2] + c];
    }
}

static void run_embedding(const kolo_call *call) { kolo_ref_run(call, embedding); }
static void run_embedding_bwd(const kolo_call *call) { kolo_ref_run(call, embedding_bwd); }
static void run_position_bwd(const kolo_call *call) { kolo_ref_run(call, position_bwd); }

const kolo_kernel kolo_ref_embedding =
    KOLO_REF_KERNEL("ref_embedding", &kolo_op_embedding, run_embedding);
const kolo_kernel kolo_ref_embedding_bwd =
    KOLO_REF_KERNEL("ref_embedding_bwd", &kolo_op_embedding_bwd, run_embedding_bwd);
const kolo_kernel kolo_ref_position_bwd =
    KOLO_REF_KERNEL("ref_position_bwd", &kolo_op_position_bwd, run_position_bwd);
