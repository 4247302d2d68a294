/* The gradient pass on graphs nobody drew: random ones from the public builder, with branches,
 * diamonds, shared weights, dead ends, all ops and odd sizes, in f64 on reference kernels.
 *
 * Each parameter's gradient is compared with central differences of the loss at random elements and
 * along a random direction. A difference whose two sides see different ReLU signs or pooling
 * winners straddles a kink and is skipped; few may be. Then the same graph is folded (see
 * pass/fold.c) and must give the same loss and gradients. */
#include "base/integer.h"
#include "base/rng.h"
#include "graph/ops/ops.h"
#include "graph/propagate.h"
#include "pass/pass.h"
#include "support/graph_eval.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GRAPHS = 300, MAX_LIVE = 24, CLASSES = 3 };

/* ---- making a graph ---- */

typedef struct maker {
    kolo_graph *g;
    kolo_rng rng;
    uint64_t draws;
    int64_t batch;
    kolo_value live[MAX_LIVE]; /* values to build on */
    int n_live, n_params;
    bool is_param; /* x is a parameter */
    kolo_value loss, labels;
} maker;

static int64_t below(maker *m, int64_t n) {
    return (int64_t)kolo_rng_below(&m->rng, m->draws++, (uint64_t)n);
}

static const kolo_shape *shape_of(const maker *m, kolo_value v) {
    return &kolo_info(m->g, v)->tensor.shape;
}

/* A parameter of that shape: a new one, or by chance one that is used already. */
static kolo_value param(maker *m, kolo_shape shape, int64_t fan_in) {
    for (int32_t v = 0; v < m->g->n_values; v++) {
        const kolo_value_info *info = &m->g->values[v];
        bool same = info->kind == KOLO_VALUE_PARAM && kolo_shape_equal(&info->canon, &shape);
        if (same && below(m, 2)) return (kolo_value){.id = v};
    }
    char name[16];
    snprintf(name, sizeof name, "p%d", m->n_params++);
    return kolo_param(m->g, name, shape, kolo_init_fan_in(fan_in));
}

static kolo_value some_conv(maker *m, kolo_value x) {
    const int64_t *d = shape_of(m, x)->dim;
    int64_t groups = 1 + below(m, 3), kernel[2], dilation[2], pad[2], stride[2];
    if (d[1] % groups) groups = 1;
    for (int a = 0; a < 2; a++) {
        kernel[a] = 1 + below(m, 3);
        dilation[a] = 1 + below(m, 2);
        pad[a] = below(m, 3);
        stride[a] = 1 + below(m, 2);
        if (dilation[a] * (kernel[a] - 1) + 1 > d[2 + a] + 2 * pad[a]) kernel[a] = 1;
    }
    kolo_shape w = kolo_shape_4(groups * (1 + below(m, 3)), d[1] / groups, kernel[0], kernel[1]);
    return kolo_conv2d(m->g, x, param(m, w, w.dim[1] * w.dim[2] * w.dim[3]),
                       &(kolo_conv2d_opts){stride[0], stride[1], pad[0], pad[1], dilation[0],
                                           dilation[1], groups});
}

static kolo_value some_pool(maker *m, kolo_value x) {
    const int64_t *d = shape_of(m, x)->dim;
    kolo_pool2d_opts o = {.kernel_h = kolo_min_i64(1 + below(m, 3), d[2]),
                          .kernel_w = kolo_min_i64(1 + below(m, 3), d[3]),
                          .stride_h = below(m, 3),
                          .stride_w = below(m, 3)};
    o.pad_h = below(m, o.kernel_h / 2 + 1);
    o.pad_w = below(m, o.kernel_w / 2 + 1);
    return below(m, 2) ? kolo_max_pool2d(m->g, x, &o) : kolo_avg_pool2d(m->g, x, &o);
}

static kolo_value some_linear(maker *m, kolo_value x, int64_t out) {
    kolo_shape w = *shape_of(m, x);
    int64_t inner = kolo_shape_count(&w) / w.dim[0];
    w.dim[0] = out;
    if (w.rank == 4 && below(m, 2)) {
        x = kolo_flatten(m->g, x);
        w = kolo_shape_2(out, inner);
    }
    return kolo_linear(m->g, x, param(m, w, inner));
}

static kolo_value some_bias(maker *m, kolo_value x) {
    int64_t channels = shape_of(m, x)->dim[1];
    return kolo_bias(m->g, x, param(m, kolo_shape_1(channels), channels));
}

/* A normalization of the last dimension; the eps keeps gradients small. */
static kolo_value some_norm(maker *m, kolo_value x) {
    char name[16];
    snprintf(name, sizeof name, "n%d", m->n_params++);
    return below(m, 2) ? kolo_rms_norm(m->g, x, name, 0.1) : kolo_layer_norm(m->g, x, name, 0.1);
}

/* x plus any live value of its shape (which may be x itself), or plus max(x, 0). */
static kolo_value some_add(maker *m, kolo_value x) {
    for (int i = 0; i < m->n_live; i++) {
        kolo_value other = m->live[(i + below(m, m->n_live)) % m->n_live];
        if (kolo_shape_equal(shape_of(m, x), shape_of(m, other))) {
            return below(m, 2) ? kolo_add(m->g, x, other) : kolo_add(m->g, other, x);
        }
    }
    return kolo_add(m->g, x, kolo_relu(m->g, x));
}

/* One that keeps numbers small, and has no gradient that grows. */
static kolo_value some_function(maker *m, kolo_value x) {
    switch (below(m, 8)) {
    case 0:
        return kolo_tanh(m->g, x);
    case 1:
        return kolo_leaky_relu(m->g, x, 0.2);
    case 2:
        return kolo_elu(m->g, x, 1.3);
    case 3:
        return kolo_softplus(m->g, x, 0.7);
    case 4:
        return kolo_hardswish(m->g, x);
    case 5:
        return kolo_clamp(m->g, x, -0.31, 0.57);
    case 6:
        return kolo_sqrt(m->g, kolo_exp(m->g, kolo_tanh(m->g, x)));
    default:
        return kolo_square(m->g, kolo_sigmoid(m->g, x));
    }
}

/* A function of x and of a value or parameter that is repeated along some dimensions. */
static kolo_value some_broadcast(maker *m, kolo_value x) {
    kolo_shape part = *shape_of(m, x);
    kolo_value other;
    if (below(m, 2)) { /* statistics of x */
        int axes[KOLO_MAX_RANK], n = 0;
        for (int d = 1; d < part.rank; d++) {
            if (below(m, 2)) axes[n++] = d;
        }
        if (n == 0) axes[n++] = part.rank - 1;
        other = below(m, 2) ? kolo_reduce_mean(m->g, x, axes, n, true)
                            : kolo_reduce_max(m->g, x, axes, n, true);
    } else {
        part.rank = 1 + (int)below(m, part.rank - 1);
        for (int d = 0; d < part.rank; d++) {
            part.dim[d] = shape_of(m, x)->dim[shape_of(m, x)->rank - part.rank + d];
            if (below(m, 3) == 0) part.dim[d] = 1;
        }
        other = param(m, part, 4);
    }
    switch (below(m, 5)) {
    case 0:
        return kolo_sub(m->g, other, x);
    case 1:
        return kolo_minimum(m->g, x, other);
    case 2:
        return kolo_maximum(m->g, other, x);
    case 3:
        return kolo_div(m->g, x, kolo_exp(m->g, kolo_tanh(m->g, other)));
    default:
        return kolo_add(m->g, x, kolo_mul(m->g, other, kolo_tanh(m->g, x)));
    }
}

/* A layer of a few units over x, cut into steps, with or without a state. */
static kolo_value some_recurrent(maker *m, kolo_value x) {
    const kolo_shape s = *shape_of(m, x);
    const int64_t units = 1 + below(m, 2), inputs = s.dim[s.rank - 1];
    const int64_t steps = kolo_shape_count(&s) / s.dim[0] / inputs;
    char name[16];
    if (steps > 12) return some_function(m, x);
    snprintf(name, sizeof name, "r%d", m->n_params++);
    kolo_recurrent_opts o = {.reverse = below(m, 2), .use_state = below(m, 2)};
    kolo_value h = kolo_reshape(m->g, x, kolo_shape_3(s.dim[0], steps, inputs));
    if (o.use_state) {
        kolo_value first = kolo_reduce_mean(m->g, h, (int[]){1, 2}, 2, false);
        first = kolo_reshape(m->g, first, kolo_shape_2(s.dim[0], 1));
        o.h = o.c = units == 1 ? first : kolo_concat(m->g, (kolo_value[]){first, first}, 2);
    }
    return below(m, 2) ? kolo_gru(m->g, h, name, 0, units, &o)
                       : kolo_lstm_opts(m->g, h, name, 0, units, &o);
}

/* Another order or part of x, with its samples first; or a softmax. */
static kolo_value some_view(maker *m, kolo_value x) {
    const kolo_shape shape = *shape_of(m, x);
    const int axis = 1 + (int)below(m, shape.rank - 1);
    const int64_t size = shape.dim[axis], first = below(m, size);
    kolo_value part;
    switch (below(m, 5)) {
    case 0:
        return kolo_transpose(m->g, x, axis, shape.rank - 1);
    case 3:
        return kolo_flip(m->g, x, axis);
    case 1:
        return kolo_softmax(m->g, x, axis);
    case 2:
        return kolo_log_softmax(m->g, x, axis);
    default:
        part = kolo_slice(m->g, x, axis, first, 1 + below(m, size - first));
        return kolo_concat_along(m->g, (kolo_value[]){part, kolo_pad(m->g, x, axis, 1, 0)}, 2,
                                 axis);
    }
}

static kolo_value grow(maker *m, kolo_value x) {
    bool image = shape_of(m, x)->rank == 4;
    switch (below(m, image ? 15 : 10)) {
    case 0:
        return below(m, 2) ? some_bias(m, x) : some_norm(m, x);
    case 1:
        return kolo_relu(m->g, x);
    case 2:
        return some_add(m, x);
    case 3:
        return some_linear(m, x, 1 + below(m, 6));
    case 4:
        return kolo_relu(m->g, some_bias(m, image ? some_conv(m, x) : some_linear(m, x, 5)));
    case 5:
    case 6:
        return some_function(m, x);
    case 7:
        return some_broadcast(m, x);
    case 8:
        return some_view(m, x);
    case 9:
        return some_recurrent(m, x);
    case 10:
        return some_pool(m, x);
    case 11:
        return some_pool(m, kolo_relu(m->g, x));
    case 12:
        return kolo_flatten(m->g, x);
    default:
        return some_conv(m, x);
    }
}

/* The loss: a cross-entropy, by chance with weights of the classes, and by chance with a CTC of
 * a live value's numbers as time steps and classes: of a function of it, since what is added to all
 * logits has no gradient. */
static kolo_value some_loss(maker *m, kolo_value logits) {
    kolo_loss_opts opts = {.use_weights = below(m, 3) == 0};
    if (opts.use_weights) {
        const kolo_init init = {KOLO_INIT_UNIFORM, 1};
        opts.weights =
            kolo_exp(m->g, kolo_frozen_param(m->g, "weights", kolo_shape_1(CLASSES), init));
    }
    kolo_value loss = kolo_softmax_xent_opts(m->g, logits, m->labels, &opts);
    const kolo_value x = m->live[below(m, m->n_live)];
    const int64_t elements = kolo_shape_count(shape_of(m, x)) / m->batch;
    const int64_t classes = shape_of(m, x)->dim[shape_of(m, x)->rank - 1];
    const bool cut = shape_of(m, x)->dim[0] == m->batch && shape_of(m, x)->rank > 1;
    if (!cut || below(m, 2)) return loss;
    kolo_value steps = kolo_reshape(m->g, x, kolo_shape_3(m->batch, elements / classes, classes));
    kolo_value read = kolo_input(m->g, "read", KOLO_DTYPE_I32, kolo_shape_2(m->batch, 2));
    kolo_ctc_opts ctc = {.blank = classes - 1};
    return kolo_add(m->g, loss, kolo_ctc_loss(m->g, kolo_silu(m->g, steps), read, &ctc));
}

/* By chance adds the squares of what experts make of a live value. */
static kolo_value some_experts(maker *m, kolo_value loss) {
    enum { EXPERTS = 3, WIDTH = 2 };
    const kolo_value x = m->live[below(m, m->n_live)];
    const int64_t elements = kolo_shape_count(shape_of(m, x)) / m->batch;
    const int64_t width = shape_of(m, x)->dim[shape_of(m, x)->rank - 1];
    const bool cut = shape_of(m, x)->dim[0] == m->batch && shape_of(m, x)->rank > 1;
    if (!cut || below(m, 3)) return loss;
    const int64_t tokens = elements / width, capacity = 1 + tokens / 2;
    const kolo_init init = kolo_init_fan_in(width);
    kolo_value h = kolo_silu(m->g, kolo_reshape(m->g, x, kolo_shape_3(m->batch, tokens, width)));
    kolo_value gate = kolo_param(m->g, "gate", kolo_shape_2(EXPERTS, width), init);
    kolo_value w = kolo_param(m->g, "experts", kolo_shape_3(EXPERTS, WIDTH, width), init);
    kolo_value p = kolo_softmax(m->g, kolo_linear(m->g, h, gate), 2), route[2];
    kolo_expert_route(m->g, p, 2, capacity, route);
    kolo_value y = kolo_expert_linear(m->g, kolo_expert_dispatch(m->g, h, route[0], capacity), w);
    y = kolo_expert_combine(m->g, y, route[0], kolo_mul(m->g, p, route[1]));
    return kolo_add(m->g, loss, kolo_scale(m->g, kolo_sum(m->g, kolo_square(m->g, y)), 0.01));
}

/* batch 0: drawn. */
static void make_graph(maker *m, uint64_t seed, int64_t batch) {
    *m = (maker){.rng = kolo_rng_make(seed, KOLO_RNG_TEST, 2)};
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &m->g));
    m->batch = 1 + below(m, 3);
    if (batch > 0) m->batch = batch;
    kolo_shape images = kolo_shape_4(m->batch, 1 + below(m, 4), 3 + below(m, 7), 3 + below(m, 7));
    m->is_param = below(m, 3) == 0;
    m->live[m->n_live++] = m->is_param ? kolo_param(m->g, "x", images, kolo_init_fan_in(1))
                                       : kolo_input(m->g, "x", KOLO_DTYPE_F64, images);
    for (int64_t steps = 3 + below(m, 10); steps > 0; steps--) {
        /* Mostly go on with the latest value; by chance branch from an older one. */
        int from = below(m, 3) ? m->n_live - 1 : (int)below(m, m->n_live);
        kolo_value y = grow(m, m->live[from]);
        ASSERT_OK(kolo_graph_check(m->g));
        m->live[m->n_live++] = y;
    }
    kolo_value logits = some_linear(m, m->live[m->n_live - 1], CLASSES);
    for (int64_t heads = below(m, 3); heads > 0; heads--) {
        kolo_value other = m->live[below(m, m->n_live)];
        logits = kolo_add(m->g, logits, some_linear(m, other, CLASSES));
    }
    m->labels = kolo_input(m->g, "labels", KOLO_DTYPE_I32, kolo_shape_1(m->batch));
    m->loss = some_experts(m, some_loss(m, logits));
    kolo_output(m->g, "loss", m->loss);
    kolo_output(m->g, "correct", kolo_accuracy(m->g, logits, m->labels));
    ASSERT_OK(kolo_graph_verify(m->g));
}

/* ---- comparing ---- */

static const double loss_scale = 0.37; /* the seed of the gradient */

/* A graph with its gradient, ready to run. */
typedef struct rig {
    maker m;
    graph_eval e;
    int32_t n_forward;
    uint64_t seed;
} rig;

static bool is_labels(const kolo_value_info *info) {
    return info->kind == KOLO_VALUE_INPUT && info->tensor.dtype == KOLO_DTYPE_I32;
}

static void rig_create(rig *t, uint64_t seed, bool fold) {
    t->seed = seed;
    make_graph(&t->m, seed, 0);
    kolo_graph *g = t->m.g;
    if (fold) {
        ASSERT_OK(kolo_pass_fold(g, true));
        ASSERT_OK(kolo_graph_verify(g));
    }
    t->n_forward = g->n_nodes;
    kolo_value scale = kolo_scalar(g, "scale");
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), scale));
    ASSERT_OK(kolo_graph_verify(g));
    ASSERT_OK(graph_eval_init(&t->e, g, KOLO_KERNELS_REF));
    for (int32_t v = 0; v < g->n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        bool is_param = info->kind == KOLO_VALUE_PARAM;
        if (is_labels(info)) {
            graph_eval_fill_labels(&t->e, (kolo_value){.id = v}, seed, CLASSES);
        } else if (is_param || info->kind == KOLO_VALUE_INPUT) {
            uint64_t key = seed ^ kolo_hash_text(info->name);
            graph_eval_fill(&t->e, (kolo_value){.id = v}, key, is_param ? info->init.scale : 1);
        }
    }
    graph_eval_f64(&t->e, scale)[0] = loss_scale;
    graph_eval_run(&t->e, g->n_nodes);
}

static void rig_destroy(rig *t) {
    graph_eval_fini(&t->e);
    kolo_graph_destroy(t->m.g);
}

static void explain(const rig *t) {
    kolo_text text = {0};
    kolo_graph_print(t->m.g, &text);
    print_error("graph of seed %llu:\n%s\n", (unsigned long long)t->seed, text.text);
    kolo_text_fini(&text);
}

/* Which sides of its kinks the input of an op is on; 0: it has none. */
static uint64_t side_of(const kolo_node *n, double x) {
    if (n->op == &kolo_op_clamp) return 1 + (x > n->attr[0].f) + (x > n->attr[1].f);
    if (n->op == &kolo_op_hardswish) return 1 + (x > -3) + (x > 3);
    return n->op == &kolo_op_leaky_relu || n->op == &kolo_op_elu ? 1 + (x > 0) : 0;
}

/* Which input each element of a minimum or maximum is from. */
static uint64_t taken(const graph_eval *e, const kolo_node *n) {
    const double *x[2] = {graph_eval_f64(e, n->in[0]), graph_eval_f64(e, n->in[1])};
    const kolo_shape *y = &kolo_info(e->g, n->out[0])->tensor.shape;
    uint64_t hash = 0;
    for (int64_t k = 0; k < kolo_shape_count(y); k++) {
        int64_t offset[2] = {0, 0}, stride[2] = {1, 1}, rest = k;
        for (int d = y->rank - 1; d >= 0; d--) {
            for (int i = 0; i < 2; i++) {
                const kolo_shape *in = &kolo_info(e->g, n->in[i])->tensor.shape;
                int dim = kolo_binary_dim(n->attr, i, in, y->rank, d);
                if (dim < 0) continue;
                offset[i] += rest % y->dim[d] * stride[i];
                stride[i] *= in->dim[dim];
            }
            rest /= y->dim[d];
        }
        hash = hash * 31 + (x[0][offset[0]] > x[1][offset[1]]);
    }
    return hash;
}

/* Which elements are maxima: the sum of the places of those equal to one. */
static uint64_t winners(const graph_eval *e, const kolo_node *n) {
    const double *x = graph_eval_f64(e, n->in[0]), *y = graph_eval_f64(e, n->out[0]);
    uint64_t hash = 0;
    for (int64_t i = 0; i < graph_eval_count(e, n->out[0]); i++) {
        for (int64_t k = 0; k < graph_eval_count(e, n->in[0]); k++) {
            if (x[k] == y[i]) hash = hash * 31 + (uint64_t)k;
        }
    }
    return hash;
}

/* The loss, and a hash of which side of each kink it was computed on. */
static double forward(rig *t, uint64_t *side) {
    const kolo_graph *g = t->m.g;
    graph_eval_run(&t->e, t->n_forward);
    *side = 0;
    for (int32_t i = 0; i < t->n_forward; i++) {
        const kolo_node *n = g->nodes[i];
        int64_t count = graph_eval_count(&t->e, n->out[0]);
        if (n->op == &kolo_op_max_pool2d) {
            uint64_t winners = kolo_hash_bytes(t->e.data[n->out[1].id], (size_t)count);
            *side = *side * 31 + winners;
        } else if (n->op == &kolo_op_expert_route) {
            uint64_t places =
                kolo_hash_bytes(t->e.data[n->out[0].id], (size_t)count * sizeof(int32_t));
            *side = *side * 31 + places;
        } else if (n->op == &kolo_op_relu) {
            const double *y = graph_eval_f64(&t->e, n->out[0]);
            for (int64_t k = 0; k < count; k++) *side = *side * 31 + (y[k] > 0);
        } else if (n->op == &kolo_op_minimum || n->op == &kolo_op_maximum) {
            *side = *side * 31 + taken(&t->e, n);
        } else if (n->op == &kolo_op_reduce_max) {
            *side = *side * 31 + winners(&t->e, n);
        } else if (side_of(n, 0) > 0) {
            const double *x = graph_eval_f64(&t->e, n->in[0]);
            for (int64_t k = 0; k < count; k++) *side = *side * 31 + side_of(n, x[k]);
        }
    }
    return graph_eval_f64(&t->e, t->m.loss)[0];
}

typedef struct counters {
    int checks, kinks, without_gradient, shared, ops[256];
} counters;

/* Compares the gradient of parameter p along `direction`, of unit length, with the difference
 * quotient. A ReLU or maximum of several values has kinks everywhere near; so the step is small. */
static void check_direction(rig *t, kolo_value p, const double *direction, const double *gradient,
                            counters *sum) {
    const double step = 1e-5;
    int64_t count = graph_eval_count(&t->e, p);
    double *x = graph_eval_f64(&t->e, p), *old = kolo_alloc((size_t)count * sizeof *x);
    assert_non_null(old);
    memcpy(old, x, (size_t)count * sizeof *x);
    uint64_t side_up, side_down;
    for (int64_t i = 0; i < count; i++) x[i] = old[i] + step * direction[i];
    double up = forward(t, &side_up);
    for (int64_t i = 0; i < count; i++) x[i] = old[i] - step * direction[i];
    double down = forward(t, &side_down);
    memcpy(x, old, (size_t)count * sizeof *x);
    kolo_free(old);
    sum->checks++;
    if (side_up != side_down) {
        sum->kinks++;
        return;
    }
    double numeric = loss_scale * (up - down) / (2 * step), along = 0, length = 0;
    for (int64_t i = 0; i < count; i++) {
        along += gradient[i] * direction[i];
        length += gradient[i] * gradient[i];
    }
    if (!(fabs(numeric - along) <= 1e-6 * sqrt(length) + 1e-8)) {
        explain(t);
        fail_msg("seed %llu, %s: slope %.12g, by differences %.12g", (unsigned long long)t->seed,
                 kolo_info(t->m.g, p)->name, along, numeric);
    }
}

static void check_param(rig *t, kolo_value p, counters *sum) {
    int64_t count = graph_eval_count(&t->e, p);
    kolo_value grad = kolo_info(t->m.g, p)->grad;
    double *direction = kolo_zalloc((size_t)count * sizeof *direction);
    double *gradient = kolo_zalloc((size_t)count * sizeof *gradient);
    assert_true(direction && gradient);
    if (kolo_value_ok(grad)) {
        memcpy(gradient, graph_eval_f64(&t->e, grad), (size_t)count * sizeof *gradient);
    } else {
        sum->without_gradient++; /* the loss does not depend on it: checked against zeros */
    }
    for (int i = 0; i < 3; i++) {
        int64_t k = below(&t->m, count);
        direction[k] = 1;
        check_direction(t, p, direction, gradient, sum);
        direction[k] = 0;
    }
    double length = 0;
    for (int64_t i = 0; i < count; i++) {
        direction[i] = kolo_rng_normal(&t->m.rng, t->m.draws++);
        length += direction[i] * direction[i];
    }
    for (int64_t i = 0; i < count; i++) direction[i] /= sqrt(length);
    check_direction(t, p, direction, gradient, sum);
    kolo_free(direction);
    kolo_free(gradient);
}

static void count_ops(const rig *t, counters *sum) {
    const kolo_graph *g = t->m.g;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int k = 0; kolo_ops[k]; k++) sum->ops[k] += g->nodes[i]->op == kolo_ops[k];
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        int uses = 0;
        for (int32_t i = 0; i < t->n_forward && g->values[v].kind == KOLO_VALUE_PARAM; i++) {
            for (int k = 0; k < g->nodes[i]->n_in; k++) uses += g->nodes[i]->in[k].id == v;
        }
        sum->shared += uses > 1;
    }
}

static void gradients_equal_differences(void **state) {
    counters sum = {0};
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        rig t;
        rig_create(&t, seed, false);
        count_ops(&t, &sum);
        for (int32_t v = 0; v < t.m.g->n_values; v++) {
            const kolo_value_info *info = &t.m.g->values[v];
            bool is_trained = info->kind == KOLO_VALUE_PARAM && !info->frozen;
            if (is_trained) check_param(&t, (kolo_value){.id = v}, &sum);
        }
        rig_destroy(&t);
    }
    /* The graphs were what they should be. */
    assert_true(sum.checks > 10 * GRAPHS);
    assert_in_range(sum.kinks, 0, sum.checks / 50);
    assert_true(sum.shared > GRAPHS / 4);
    assert_in_range(sum.without_gradient, 1, sum.checks / 10);
    static const kolo_op *const wanted[] = {
        &kolo_op_conv2d,
        &kolo_op_conv2d_bwd_data,
        &kolo_op_conv2d_bwd_weights,
        &kolo_op_max_pool2d,
        &kolo_op_max_pool2d_bwd,
        &kolo_op_avg_pool2d,
        &kolo_op_linear,
        &kolo_op_avg_pool2d_bwd,
        &kolo_op_linear_bwd_weights,
        &kolo_op_bias,
        &kolo_op_linear_bwd_data,
        &kolo_op_softmax_xent_bwd,
        &kolo_op_ctc_loss_bwd,
        &kolo_op_relu,
        &kolo_op_relu_bwd,
        &kolo_op_bias_bwd,
        &kolo_op_add,
        &kolo_op_flatten,
        &kolo_op_reshape,
        &kolo_op_sub,
        &kolo_op_div,
        &kolo_op_broadcast_mul,
        &kolo_op_minimum,
        &kolo_op_maximum,
        &kolo_op_less,
        &kolo_op_sum,
        &kolo_op_sum_bwd,
        &kolo_op_reduce_max,
        &kolo_op_permute,
        &kolo_op_flip,
        &kolo_op_softmax_bwd,
        &kolo_op_concat,
        &kolo_op_window,
        &kolo_op_equal,
        &kolo_op_tanh_bwd,
        &kolo_op_leaky_relu_bwd,
        &kolo_op_elu_bwd,
        &kolo_op_softplus,
        &kolo_op_hardswish_bwd,
        &kolo_op_clamp_bwd,
        &kolo_op_sqrt_bwd,
        &kolo_op_exp_bwd,
        &kolo_op_pow_bwd,
        &kolo_op_lstm_bwd,
        &kolo_op_gru_bwd,
        &kolo_op_expert_dispatch,
        &kolo_op_expert_combine,
        &kolo_op_expert_products,
    };
    for (size_t i = 0; i < KOLO_COUNT(wanted); i++) {
        for (int k = 0; kolo_ops[k]; k++) {
            if (kolo_ops[k] == wanted[i] && sum.ops[k] < 10) {
                fail_msg("only %d nodes of %s", sum.ops[k], kolo_ops[k]->name);
            }
        }
    }
}

static void folding_keeps_loss_and_gradients(void **state) {
    int folded = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        rig a, b;
        rig_create(&a, seed, false);
        rig_create(&b, seed, true);
        folded += b.n_forward < a.n_forward;
        assert_true(b.n_forward <= a.n_forward);
        double loss_a = graph_eval_f64(&a.e, kolo_graph_output(a.m.g, "loss"))[0];
        double loss_b = graph_eval_f64(&b.e, kolo_graph_output(b.m.g, "loss"))[0];
        if (!(fabs(loss_a - loss_b) <= 1e-12 * fabs(loss_a))) {
            explain(&b);
            fail_msg("seed %llu: loss %.17g, folded %.17g", (unsigned long long)seed, loss_a,
                     loss_b);
        }
        assert_true(graph_eval_f64(&a.e, kolo_graph_output(a.m.g, "correct"))[0] ==
                    graph_eval_f64(&b.e, kolo_graph_output(b.m.g, "correct"))[0]);
        for (int32_t v = 0; v < a.m.g->n_values; v++) {
            const kolo_value_info *p = &a.m.g->values[v];
            if (p->kind != KOLO_VALUE_PARAM) continue;
            kolo_value same = kolo_graph_find(b.m.g, p->name), grad = kolo_info(b.m.g, same)->grad;
            assert_int_equal(kolo_value_ok(p->grad), kolo_value_ok(grad));
            if (!kolo_value_ok(grad)) continue;
            size_t count = (size_t)graph_eval_count(&b.e, grad);
            const double *was = graph_eval_f64(&a.e, p->grad);
            double distance = test_relative_l2_f64(graph_eval_f64(&b.e, grad), was, count);
            if (!(distance <= 1e-11)) {
                explain(&b);
                fail_msg("seed %llu, %s: folding moves the gradient by %g",
                         (unsigned long long)seed, p->name, distance);
            }
        }
        rig_destroy(&a);
        rig_destroy(&b);
    }
    assert_true(folded > GRAPHS / 4);
}

/* ---- placements ---- */

enum { SHARDS = 2, WHOLE_BATCH = 3 };
static const int64_t shard_sizes[SHARDS] = {2, 1}, shard_firsts[SHARDS] = {0, 2};

/* A graph with its gradient on a mesh of dp=`ranks`, with placements, ready to be filled. */
static void sharded_create(rig *t, uint64_t seed, int64_t batch, int ranks) {
    const kolo_mesh mesh = {1, {{"dp", ranks}}};
    t->seed = seed;
    make_graph(&t->m, seed, batch);
    kolo_graph *g = t->m.g;
    kolo_value scale = kolo_scalar(g, "scale");
    ASSERT_OK(kolo_pass_fold(g, true));
    ASSERT_OK(kolo_pass_shard(g, &mesh));
    ASSERT_OK(kolo_pass_gradient(g, kolo_graph_output(g, "loss"), scale));
    ASSERT_OK(kolo_graph_propagate(g));
    ASSERT_OK(graph_eval_init(&t->e, g, KOLO_KERNELS_REF));
    graph_eval_f64(&t->e, scale)[0] = loss_scale;
}

/* The position of element i of the part of dimension d that begins at `first`, in the whole. */
static int64_t position(const kolo_shape *whole, const kolo_shape *part, int d, int64_t first,
                        int64_t i) {
    int64_t inner = 1;
    for (int k = d + 1; k < part->rank; k++) inner *= part->dim[k];
    int64_t row = i / inner, outer = row / part->dim[d], at = row % part->dim[d];
    return (outer * whole->dim[d] + first + at) * inner + i % inner;
}

static double element(const rig *t, int32_t v, int64_t i) {
    const void *data = t->e.data[v];
    switch (t->m.g->values[v].tensor.dtype) {
    case KOLO_DTYPE_F64:
        return ((const double *)data)[i];
    case KOLO_DTYPE_I32:
        return ((const int32_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

/* Compares what the shards hold of a value with the whole, by its placement. */
static void check_value(const rig *whole, const rig *shards, int32_t v, int counts[3]) {
    const kolo_value_info *all = &whole->m.g->values[v];
    const kolo_placement *p = &shards[0].m.g->values[v].placements.axis[0];
    int64_t count = kolo_shape_count(&all->tensor.shape);
    double *have = kolo_zalloc((size_t)(count + 1) * sizeof *have);
    assert_non_null(have);
    bool sharded = p->kind == KOLO_PLACEMENT_SHARDED, sum = p->kind == KOLO_PLACEMENT_PARTIAL;
    counts[sharded ? 0 : sum ? 1 : 2]++;
    for (int r = 0; r < SHARDS; r++) {
        const kolo_shape *part = &shards[r].m.g->values[v].tensor.shape;
        /* of the dimension: samples may have been merged with others */
        int64_t scale = sharded ? all->tensor.shape.dim[p->dim] / WHOLE_BATCH : 0;
        for (int64_t i = 0; i < kolo_shape_count(part); i++) {
            int64_t at =
                sharded ? position(&all->tensor.shape, part, p->dim, shard_firsts[r] * scale, i)
                        : i;
            double x = element(&shards[r], v, i);
            have[at] = sum ? have[at] + x : x;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        double want = element(whole, v, i);
        if (fabs(have[i] - want) <= 1e-9 * fmax(1, fabs(want))) continue;
        explain(&shards[0]);
        fail_msg("seed %llu, value %d, element %d: %.12g of the shards, %.12g of the whole",
                 (unsigned long long)whole->seed, (int)v, (int)i, have[i], want);
    }
    kolo_free(have);
}

/* Each shard of the samples, run alone, holds of every value, forwards and backwards, what its
 * placement states. */
static void shards_hold_what_placements_state(void **state) {
    int counts[3] = {0};
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        rig whole, shards[SHARDS];
        sharded_create(&whole, seed, WHOLE_BATCH, 1);
        if (whole.m.is_param) { /* samples that are parameters are not sharded */
            rig_destroy(&whole);
            continue;
        }
        for (int r = 0; r < SHARDS; r++) sharded_create(&shards[r], seed, shard_sizes[r], SHARDS);
        const kolo_graph *g = whole.m.g;
        for (int32_t v = 0; v < g->n_values; v++) {
            const kolo_value_info *info = &g->values[v];
            kolo_value value = {.id = v};
            if (is_labels(info)) {
                graph_eval_fill_labels(&whole.e, value, seed, CLASSES);
            } else if (info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_INPUT) {
                graph_eval_fill(&whole.e, value, seed ^ kolo_hash_text(info->name), 1);
            } else {
                continue;
            }
            for (int r = 0; r < SHARDS; r++) {
                const kolo_tensor *t = &shards[r].m.g->values[v].tensor;
                size_t first = 0, bytes = kolo_tensor_bytes(t);
                if (info->kind == KOLO_VALUE_INPUT) {
                    first = bytes / (size_t)shard_sizes[r] * (size_t)shard_firsts[r];
                }
                memcpy(shards[r].e.data[v], (const char *)whole.e.data[v] + first, bytes);
            }
        }
        graph_eval_run(&whole.e, g->n_nodes);
        for (int r = 0; r < SHARDS; r++) graph_eval_run(&shards[r].e, shards[r].m.g->n_nodes);
        for (int32_t v = 0; v < g->n_values; v++) {
            if (g->values[v].kind == KOLO_VALUE_TEMP) check_value(&whole, shards, v, counts);
        }
        for (int r = 0; r < SHARDS; r++) rig_destroy(&shards[r]);
        rig_destroy(&whole);
    }
    assert_true(counts[0] > 1000 && counts[1] > 500);
}

/* A flatten of a vector makes a matrix of one column, which a linear layer needs. */
static void folding_keeps_a_flatten_of_vectors(void **state) {
    kolo_graph *g;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_1(5));
    kolo_value w = kolo_param(g, "w", kolo_shape_2(3, 1), kolo_init_fan_in(1));
    kolo_output(g, "y", kolo_linear(g, kolo_flatten(g, x), w));
    ASSERT_OK(kolo_pass_fold(g, true));
    ASSERT_OK(kolo_graph_verify(g));
    kolo_graph_destroy(g);
}

/* What the gradient reads is kept to train, and only then. */
static void folding_keeps_what_gelu_needs(void **state) {
    for (int train = 0; train < 2; train++) {
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(5, 7));
        kolo_value w = kolo_param(g, "w", kolo_shape_2(3, 7), kolo_init_fan_in(7));
        kolo_value b = kolo_param(g, "b", kolo_shape_1(3), kolo_init_fan_in(7));
        kolo_output(g, "y", kolo_gelu(g, kolo_linear_bias(g, x, w, b), true));
        ASSERT_OK(kolo_pass_fold(g, train));
        ASSERT_OK(kolo_graph_verify(g));
        assert_int_equal(g->n_nodes, 1);
        assert_ptr_equal(g->nodes[0]->op, &kolo_op_linear_gelu);
        assert_int_equal(g->nodes[0]->n_out, train ? 2 : 1);
        assert_int_equal(g->nodes[0]->attr[KOLO_LINEAR_GELU_TANH].i, 1);
        assert_int_equal(kolo_graph_output(g, "y").id, g->nodes[0]->out[0].id);
        kolo_graph_destroy(g);
    }
}

/* The loss counts what it is right about, where the count is of the same logits and labels, with
 * the same ones ignored. */
static void folding_counts_with_the_loss(void **state) {
    const kolo_loss_opts ignoring = {.has_ignore_index = true, .ignore_index = 3};
    for (int c = 0; c < 4; c++) {
        const kolo_loss_opts *of_loss = c % 2 ? &ignoring : NULL;
        const kolo_loss_opts *of_count = c / 2 ? &ignoring : NULL;
        const bool folded = of_loss == of_count;
        kolo_graph *g;
        ASSERT_OK(kolo_graph_create(NULL, &g));
        kolo_value x = kolo_param(g, "x", kolo_shape_2(5, 7), kolo_init_fan_in(7));
        kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(5));
        kolo_output(g, "loss", kolo_softmax_xent_opts(g, x, y, of_loss));
        kolo_output(g, "correct", kolo_accuracy_opts(g, x, y, of_count));
        ASSERT_OK(kolo_pass_fold(g, true));
        ASSERT_OK(kolo_graph_verify(g));
        assert_int_equal(g->n_nodes, folded ? 1 : 2);
        assert_int_equal(g->nodes[0]->n_out, folded ? 3 : 2);
        assert_int_equal(kolo_graph_output(g, "correct").id,
                         folded ? g->nodes[0]->out[2].id : g->nodes[1]->out[0].id);
        kolo_graph_destroy(g);
    }
}

TEST_MAIN(test_random_graphs) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_differences),
        cmocka_unit_test(folding_keeps_loss_and_gradients),
        cmocka_unit_test(shards_hold_what_placements_state),
        cmocka_unit_test(folding_keeps_a_flatten_of_vectors),
        cmocka_unit_test(folding_keeps_what_gelu_needs),
        cmocka_unit_test(folding_counts_with_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
