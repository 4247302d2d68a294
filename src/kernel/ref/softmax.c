/* Softmax and its logarithm over dimension 1, and their gradients. */
#include "kernel/ref/ref.h"

#include <math.h>

/* One softmax: `count` elements, `step` apart. */
typedef void column(const double *a, const double *b, double *out, int64_t count, int64_t step,
                    bool log);

static void forward(const double *x, const double *unused, double *y, int64_t count, int64_t step,
                    bool is_log) {
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < count; c++) most = x[c * step] > most ? x[c * step] : most;
    for (int64_t c = 0; c < count; c++) sum += exp(x[c * step] - most);
    for (int64_t c = 0; c < count; c++) {
        double shifted = x[c * step] - most;
        y[c * step] = is_log ? shifted - log(sum) : exp(shifted) / sum;
    }
}

static void backward(const double *dy, const double *y, double *dx, int64_t count, int64_t step,
                     bool is_log) {
    double sum = 0;
    for (int64_t c = 0; c < count; c++) sum += dy[c * step] * (is_log ? 1 : y[c * step]);
    for (int64_t c = 0; c < count; c++) {
        double of_y = y[c * step];
        dx[c * step] = is_log ? dy[c * step] - exp(of_y) * sum : of_y * (dy[c * step] - sum);
    }
}

static void each_column(const kolo_call *call, column *body) {
    const kolo_shape *shape = &call->spec->out[0].shape;
    const int64_t count = shape->dim[1], step = kolo_shape_count(shape) / (shape->dim[0] * count);
    const double *a = call->in[0], *b = call->in[call->spec->n_in - 1];
    for (int64_t k = 0; k < shape->dim[0] * step; k++) {
        int64_t at = k / step * count * step + k % step;
        body(a + at, b + at, (double *)call->out[0] + at, count, step,
             call->spec->attr[KOLO_SOFTMAX_LOG].i);
    }
}

static void softmax(const kolo_call *call) { each_column(call, forward); }
static void softmax_bwd(const kolo_call *call) { each_column(call, backward); }
static void run_softmax(const kolo_call *call) { kolo_ref_run(call, softmax); }
static void run_softmax_bwd(const kolo_call *call) { kolo_ref_run(call, softmax_bwd); }

const kolo_kernel kolo_ref_softmax = KOLO_REF_KERNEL("ref_softmax", &kolo_op_softmax, run_softmax);
const kolo_kernel kolo_ref_softmax_bwd =
    KOLO_REF_KERNEL("ref_softmax_bwd", &kolo_op_softmax_bwd, run_softmax_bwd);
