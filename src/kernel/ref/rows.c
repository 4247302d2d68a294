/* Row-sparse gradients of embedding tables, and the optimizer updates that use them. Updates may
 * run in place. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

/* Sums the rows of each id that occurs, in ascending order of ids. */
static void sum_rows(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    int64_t room = spec->out[0].shape.dim[0], channels = spec->out[0].shape.dim[1];
    int64_t count = kolo_shape_count(&spec->in[1].shape);
    const double *x = call->in[0];
    const int32_t *ids = call->in[1];
    double *rows = call->out[0];
    int32_t *found = call->out[1];
    memset(rows, 0, sizeof(double) * (size_t)(room * channels));
    for (int64_t k = 0, last = -1; k < room; k++) {
        int64_t next = spec->attr[KOLO_ROWS_TABLE].i, end = next;
        for (int64_t i = 0; i < count; i++) {
            if (ids[i] > last && ids[i] < next) next = ids[i];
        }
        found[k] = next < end ? (int32_t)next : -1;
        for (int64_t i = 0; i < count && next < end; i++) {
            if (ids[i] != next) continue;
            for (int64_t c = 0; c < channels; c++) rows[k * channels + c] += x[i * channels + c];
        }
        last = next;
    }
}

/* Output i starts as a copy of input `from`. */
static double *copy(const kolo_call *call, int i, int from) {
    size_t count = (size_t)kolo_shape_count(&call->spec->out[i].shape);
    if (call->out[i] != call->in[from])
        memcpy(call->out[i], call->in[from], count * sizeof(double));
    return call->out[i];
}

static void sgd_rows(const kolo_call *call) {
    int64_t room = call->spec->in[1].shape.dim[0], channels = call->spec->in[1].shape.dim[1];
    const double *rows = call->in[1], lr = *(const double *)call->in[3];
    const int32_t *ids = call->in[2];
    double *w = copy(call, 0, 0);
    for (int64_t k = 0; k < room && ids[k] >= 0; k++) {
        for (int64_t c = 0; c < channels; c++) {
            w[ids[k] * channels + c] -= lr * rows[k * channels + c];
        }
    }
}

/* Kingma, Ba, "Adam", ICLR 2015, the form at the end of section 2, as PyTorch's SparseAdam. */
static void adam_rows(const kolo_call *call) {
    int64_t room = call->spec->in[1].shape.dim[0], channels = call->spec->in[1].shape.dim[1];
    const kolo_attr *attr = call->spec->attr;
    const double *rows = call->in[1], lr = *(const double *)call->in[3];
    const int32_t *ids = call->in[2];
    double update = *(const double *)call->in[4];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    double step = lr * sqrt(1 - pow(beta2, update)) / (1 - pow(beta1, update));
    double *w = copy(call, 0, 0), *m = copy(call, 1, 5), *v = copy(call, 2, 6);
    for (int64_t k = 0; k < room && ids[k] >= 0; k++) {
        for (int64_t c = 0; c < channels; c++) {
            int64_t i = ids[k] * channels + c;
            double g = rows[k * channels + c];
            m[i] = beta1 * m[i] + (1 - beta1) * g;
            v[i] = beta2 * v[i] + (1 - beta2) * g * g;
            w[i] -= step * m[i] / (sqrt(v[i]) + attr[KOLO_ADAM_EPS].f);
        }
    }
}

static void run_sum_rows(const kolo_call *call) { kolo_ref_run(call, sum_rows); }
static void run_sgd_rows(const kolo_call *call) { kolo_ref_run(call, sgd_rows); }
static void run_adam_rows(const kolo_call *call) { kolo_ref_run(call, adam_rows); }

const kolo_kernel kolo_ref_embedding_bwd_rows =
    KOLO_REF_KERNEL("ref_embedding_bwd_rows", &kolo_op_embedding_bwd_rows, run_sum_rows);
const kolo_kernel kolo_ref_merge_rows =
    KOLO_REF_KERNEL("ref_merge_rows", &kolo_op_merge_rows, run_sum_rows);
const kolo_kernel kolo_ref_sgd_rows =
    KOLO_REF_KERNEL("ref_sgd_rows", &kolo_op_sgd_rows, run_sgd_rows);
const kolo_kernel kolo_ref_adam_rows =
    KOLO_REF_KERNEL("ref_adam_rows", &kolo_op_adam_rows, run_adam_rows);
