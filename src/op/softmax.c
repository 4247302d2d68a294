/* Softmax and its logarithm over dimension 1, with their gradients, which read the output. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <math.h>

static const char *const attrs[] = {"log", NULL};

static kolo_status softmax_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ff"));
    if (q->n_in == 2) KOLO_TRY(kolo_rule_same(q, 0, 1));
    if (q->in[0].shape.rank < 2) {
        return KOLO_RULE_FAIL(q, "x must have two or more dimensions: N,C,...");
    }
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void softmax_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                         const bool *wants, kolo_value *d_in) {
    const kolo_value in[] = {d_out[0], n->out[0]};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_softmax_bwd, in, 2, n->attr);
}

static kolo_cost softmax_cost(const kolo_shape_query *q) {
    return (kolo_cost){20.0 * (double)kolo_shape_count(&q->in[0].shape), kolo_query_bytes(q)};
}

const kolo_op kolo_op_softmax = {
    .name = "softmax",
    .index = "nC*->nC*",
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "p", .out = "p"},
    .attrs = attrs,
    .shape = softmax_shape,
    .grad = softmax_grad,
    .cost = softmax_cost,
    .overwrite = 1u << 0,
    .bf16 = 1u << 0,
    .samples = {.in = 0x1u, .out = 0x1u},
};
const kolo_op kolo_op_softmax_bwd = {
    .name = "softmax_bwd",
    .index = "nC*,nC*->nC*",
    .linear = 0x1u,
    .min_in = 2,
    .max_in = 2,
    .layout = {.in = "pp", .out = "p"},
    .attrs = attrs,
    .shape = softmax_shape,
    .cost = softmax_cost,
    .overwrite = 1u << 0 | 1u << 1,
    .bf16 = 1u << 0 | 1u << 1,
    .samples = {.in = 0x3u, .out = 0x1u},
};

/* ---- reference ---- */

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

const kolo_kernel kolo_ops_softmax[] = {
    KOLO_REF_KERNEL("ref_softmax", &kolo_op_softmax, run_softmax),
    KOLO_REF_KERNEL("ref_softmax_bwd", &kolo_op_softmax_bwd, run_softmax_bwd),
    {0},
};
