/* The activation snake and its gradient, the latter an op of its own: dy, x, alpha -> dx, dalpha.
 */
#include "support/snake.h"

#include <math.h>
#include <string.h>

static double get(const kolo_custom_tensor *t, const void *data, int64_t i) {
    return t->dtype == KOLO_DTYPE_F64 ? ((const double *)data)[i]
                                      : (double)((const float *)data)[i];
}

static void set(const kolo_custom_tensor *t, void *data, int64_t i, double to) {
    if (t->dtype == KOLO_DTYPE_F64) {
        ((double *)data)[i] = to;
    } else {
        ((float *)data)[i] = (float)to;
    }
}

/* The channel of element i. */
static int64_t channel(const kolo_shape *x, int64_t i) {
    int64_t inner = 1;
    for (int d = 2; d < x->rank; d++) inner *= x->dim[d];
    return i / inner % x->dim[1];
}

static kolo_status shape(const kolo_custom_shapes *s) {
    if (s->in[0].shape.rank < 2 || s->in[1].shape.rank != 1 ||
        s->in[1].shape.dim[0] != s->in[0].shape.dim[1]) {
        return kolo_error_set(KOLO_ERR_ARG, "alpha has one number for each channel");
    }
    s->out[0] = s->in[0];
    return KOLO_OK;
}

static void run(const kolo_custom_call *c) {
    for (int64_t i = 0; i < kolo_shape_count(&c->in[0].shape); i++) {
        double x = get(&c->in[0], c->in_data[0], i);
        double a = get(&c->in[1], c->in_data[1], channel(&c->in[0].shape, i));
        set(&c->out[0], c->out_data[0], i, x + sin(a * x) * sin(a * x) / a);
    }
}

static void grad(kolo_graph *g, const kolo_custom_node *n, const kolo_value *d_out,
                 const bool *wants, kolo_value *d_in) {
    kolo_custom(g, "snake_bwd", (kolo_value[]){d_out[0], n->in[0], n->in[1]}, 3, NULL, d_in);
}

static kolo_status shape_bwd(const kolo_custom_shapes *s) {
    s->out[0] = s->in[1];
    s->out[1] = s->in[2];
    return KOLO_OK;
}

static size_t sums(const kolo_custom_shapes *s) {
    return (size_t)s->in[1].shape.dim[1] * sizeof(double);
}

static void run_bwd(const kolo_custom_call *c) {
    const kolo_shape *shape_x = &c->in[1].shape;
    double *d_alpha = c->scratch;
    memset(d_alpha, 0, (size_t)shape_x->dim[1] * sizeof *d_alpha);
    for (int64_t i = 0; i < kolo_shape_count(shape_x); i++) {
        double dy = get(&c->in[0], c->in_data[0], i), x = get(&c->in[1], c->in_data[1], i);
        double a = get(&c->in[2], c->in_data[2], channel(shape_x, i)), s = sin(a * x);
        set(&c->out[0], c->out_data[0], i, dy * (1 + sin(2 * a * x)));
        d_alpha[channel(shape_x, i)] += dy * (x * sin(2 * a * x) / a - s * s / (a * a));
    }
    for (int64_t k = 0; k < shape_x->dim[1]; k++) set(&c->out[1], c->out_data[1], k, d_alpha[k]);
}

static const kolo_custom_op snake = {
    .version = KOLO_CUSTOM_OP_VERSION,
    .name = "snake",
    .n_in = 2,
    .n_out = 1,
    .index = "nc*,c->nc*",
    .shape = shape,
    .run = run,
    .grad = grad,
};
static const kolo_custom_op snake_whole = {
    .version = KOLO_CUSTOM_OP_VERSION,
    .name = "snake_whole",
    .n_in = 2,
    .n_out = 1,
    .shape = shape,
    .run = run,
    .grad = grad,
};
static const kolo_custom_op snake_bwd = {
    .version = KOLO_CUSTOM_OP_VERSION,
    .name = "snake_bwd",
    .n_in = 3,
    .n_out = 2,
    .index = "nc*,nc*,c->nc*,c",
    .linear = 1,
    .shape = shape_bwd,
    .run = run_bwd,
    .scratch_bytes = sums,
};

kolo_value snake_of(kolo_graph *g, kolo_value x, kolo_value alpha, bool whole) {
    kolo_value y;
    const kolo_custom_op *op = whole ? &snake_whole : &snake;
    if (kolo_custom_op_register(op) != KOLO_OK || kolo_custom_op_register(&snake_bwd) != KOLO_OK) {
        return (kolo_value){.id = -1};
    }
    kolo_custom(g, op->name, (kolo_value[]){x, alpha}, 2, NULL, &y);
    return y;
}
