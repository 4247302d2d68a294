/* Recurrent layers: long short-term memory (Hochreiter, Schmidhuber, 1997; the forget gate of Gers
 * et al., 2000) and gated recurrent units (Cho et al., 2014; the reset gate behind the product, as
 * in PyTorch and cuDNN).
 *
 *     lstm   i, f, g, o = gx[t] + w h[t-1] + b        sigmoid of i, f, o; tanh of g
 *            c[t] = f c[t-1] + i g,  h[t] = o tanh(c[t])
 *     gru    r, z = sigmoid(gx[t] + w h[t-1] + b),  q = w h[t-1] + b of the third gate
 *            n = tanh(gx[t] + r q),  h[t] = (1 - z) n + z h[t-1]
 *
 * The contribution of the input to the gates, gx, is one linear layer over all steps; only the
 * product with h[t-1] is sequential. Likewise in the backward pass: lstm_bwd and gru_bwd compute
 * the gradients of the gates step by step, and those of w and b are of a linear layer over h
 * delayed by one step.
 * One time step of lstm, without the product, is in lstm_cell.c. */
#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"
#include "op/lstm_cell.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const no_attrs[] = {NULL}, *const shift_attrs[] = {"back", NULL};
static const char *const lstm_attrs[] = {"units", NULL};

/* The hidden units that a product with w reads: those of all ranks. */
static int64_t units_of(const kolo_shape_query *q, int n_gates, int64_t hidden) {
    const bool divided = n_gates == KOLO_LSTM_GATES && q->attr[KOLO_LSTM_UNITS].i > 0;
    return divided ? q->attr[KOLO_LSTM_UNITS].i : hidden;
}

/* Checks inputs: gates in[0] [N,T,gates H], weights in[w] [gates H,units], bias in[w + 1], from
 * in[state] on states: [N,units] of what w multiplies, that is `h`, else [N,H]. Number -1: there is
 * none. */
typedef struct layer_inputs {
    int gates, w, bias, state, h;
} layer_inputs;

static kolo_status check_inputs(const kolo_shape_query *q, const layer_inputs *i, int64_t samples,
                                int64_t hidden) {
    const int64_t units = units_of(q, i->gates, hidden);
    const kolo_shape w = kolo_shape_2(i->gates * hidden, units);
    const kolo_shape bias = kolo_shape_1(i->gates * hidden);
    if (!kolo_shape_equal(&q->in[i->w].shape, &w)) {
        return KOLO_RULE_FAIL(q, "w must be [%" PRId64 ",%" PRId64 "]", w.dim[0], w.dim[1]);
    }
    if (i->bias >= 0 && !kolo_shape_equal(&q->in[i->bias].shape, &bias)) {
        return KOLO_RULE_FAIL(q, "the bias must have %" PRId64 " elements", bias.dim[0]);
    }
    for (int k = i->state; k < q->n_in; k++) {
        const kolo_shape state = kolo_shape_2(samples, k == i->h ? units : hidden);
        if (kolo_shape_equal(&q->in[k].shape, &state)) continue;
        return KOLO_RULE_FAIL(q, "the initial state must be [%" PRId64 ",%" PRId64 "]", samples,
                              state.dim[1]);
    }
    return KOLO_OK;
}

/* gx, w, b and the state -> h, gates, and a third output like h. */
static kolo_status layer_shape(kolo_shape_query *q, int n_gates, const char *letter) {
    KOLO_TRY(kolo_rule_types(q, "fffff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, letter));
    kolo_shape gates = q->in[0].shape, h = gates;
    if (gates.dim[2] % n_gates != 0) {
        return KOLO_RULE_FAIL(q, "the gates must be %s times H", n_gates == 4 ? "four" : "three");
    }
    h.dim[2] = gates.dim[2] / n_gates;
    KOLO_TRY(check_inputs(q, &(layer_inputs){n_gates, 1, 2, 3, 3}, h.dim[0], h.dim[2]));
    KOLO_TRY(kolo_rule_out(q, 0, q->in[0].dtype, h));
    KOLO_TRY(kolo_rule_out(q, 1, q->in[0].dtype, gates));
    return kolo_rule_out(q, 2, q->in[0].dtype, h);
}

static kolo_status lstm_shape(kolo_shape_query *q) {
    if (q->n_in == 4) return KOLO_RULE_FAIL(q, "an initial state has two parts, h and c");
    return layer_shape(q, 4, "N,T,4H");
}
static kolo_status gru_shape(kolo_shape_query *q) { return layer_shape(q, 3, "N,T,3H"); }

/* dh, gates, `like` inputs like dh, w and the state -> `n_gradients` like the gates, and a gradient
 * of each part of the state. */
static kolo_status bwd_shape(kolo_shape_query *q, int n_gates, int like, int n_gradients,
                             int parts) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,H"));
    for (int i = 0; i < like; i++) KOLO_TRY(kolo_rule_same(q, 0, 2 + i));
    kolo_shape gates = q->in[0].shape;
    const int64_t hidden = gates.dim[2];
    const int w = 2 + like;
    gates.dim[2] *= n_gates;
    if (!kolo_shape_equal(&q->in[1].shape, &gates)) {
        return KOLO_RULE_FAIL(q, "the gates must have %s times the channels of dh",
                              n_gates == 4 ? "four" : "three");
    }
    KOLO_TRY(check_inputs(q, &(layer_inputs){n_gates, w, -1, w + 1, -1}, gates.dim[0], hidden));
    for (int i = 0; i < n_gradients; i++) KOLO_TRY(kolo_rule_out(q, i, q->in[0].dtype, gates));
    if (q->n_in == w + 1) return KOLO_OK;
    for (int i = 0; i < parts; i++) { /* that of h0 first */
        const kolo_shape state =
            kolo_shape_2(gates.dim[0], i == 0 ? units_of(q, n_gates, hidden) : hidden);
        KOLO_TRY(kolo_rule_out(q, n_gradients + i, q->in[0].dtype, state));
    }
    return KOLO_OK;
}

static kolo_status lstm_bwd_shape(kolo_shape_query *q) { return bwd_shape(q, 4, 1, 1, 2); }
static kolo_status gru_bwd_shape(kolo_shape_query *q) { return bwd_shape(q, 3, 2, 2, 1); }

static kolo_status shift_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "f"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static kolo_value shift(kolo_graph *g, kolo_value x, bool back) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_SHIFT_BACK].i = back};
    return kolo_graph_add1(g, &kolo_op_shift, &x, 1, attr);
}

/* h[t-1] at t, h0 (if any) at the first. */
static kolo_value delayed(kolo_graph *g, kolo_value h, kolo_value h0) {
    const kolo_shape s = kolo_value_shape(g, h);
    if (!kolo_value_ok(h0)) return shift(g, h, false);
    kolo_value first = kolo_reshape(g, h0, kolo_shape_3(s.dim[0], 1, s.dim[2]));
    if (s.dim[1] == 1) return first;
    kolo_value rest = kolo_slice(g, h, 1, 0, s.dim[1] - 1);
    return kolo_concat_along(g, (kolo_value[]){first, rest}, 2, 1);
}

bool kolo_lstm_is_divided(const kolo_node *n) {
    const bool is = n->op == &kolo_op_lstm || n->op == &kolo_op_lstm_bwd;
    return is && n->attr[KOLO_LSTM_UNITS].i > 0;
}

/* The states of a layer, of the units of all ranks. */
static kolo_value all_units(kolo_graph *g, const kolo_node *n) {
    if (!kolo_lstm_is_divided(n)) return n->out[0];
    const kolo_value_info *h = kolo_info(g, n->out[0]);
    const kolo_placements from = h->placements;
    kolo_placements to = from;
    kolo_shape shape = h->tensor.shape;
    shape.dim[2] = n->attr[KOLO_LSTM_UNITS].i;
    for (int a = 0; a < g->mesh.n_axes; a++) {
        const bool units = from.axis[a].kind == KOLO_PLACEMENT_SHARDED && from.axis[a].dim == 2;
        if (units) to.axis[a] = (kolo_placement){.kind = KOLO_PLACEMENT_INVARIANT};
    }
    const kolo_tensor tensor = kolo_tensor_plain(h->tensor.dtype, shape);
    return kolo_redistribute_as(g, n->out[0], &from, &to, &tensor);
}

/* Gradients of w and b, by that of w h[t-1] + b. */
static void of_weights(kolo_graph *g, const kolo_node *n, kolo_value dgates, const bool *wants,
                       kolo_value *d_in) {
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_LINEAR_BWD_BIAS].i = 1};
    if (!wants[1] && !wants[2]) return;
    const kolo_value in[] = {dgates,
                             delayed(g, all_units(g, n), n->n_in > 3 ? n->in[3] : KOLO_NONE)};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_linear_bwd_weights, in, 2, attr, out);
    if (wants[1]) d_in[1] = out[0];
    if (wants[2]) d_in[2] = out[1];
}

static bool only_h(kolo_graph *g, const kolo_node *n, const kolo_value *d_out) {
    if (!kolo_value_ok(d_out[1]) && !kolo_value_ok(d_out[2])) return true;
    kolo_graph_set_failed(
        g, KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s: only output h is differentiable", n->op->name));
    return false;
}

static void lstm_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                      kolo_value *d_in) {
    if (!only_h(g, n, d_out)) return;
    const bool state = n->n_in > 3;
    const kolo_value in[] = {d_out[0], n->out[1], n->out[2], n->in[1],
                             state ? n->in[4] : KOLO_NONE};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_lstm_bwd, in, state ? 5 : 4, n->attr, out);
    if (wants[0]) d_in[0] = out[0];
    of_weights(g, n, out[0], wants, d_in);
    for (int i = 3; i < n->n_in; i++) {
        if (wants[i]) d_in[i] = out[i - 2];
    }
}

static void gru_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out, const bool *wants,
                     kolo_value *d_in) {
    if (!only_h(g, n, d_out)) return;
    const bool state = n->n_in > 3;
    const kolo_value in[] = {d_out[0],  n->out[1], n->out[2],
                             n->out[0], n->in[1],  state ? n->in[3] : KOLO_NONE};
    kolo_value out[KOLO_MAX_IO];
    kolo_graph_add(g, &kolo_op_gru_bwd, in, state ? 6 : 5, NULL, out);
    if (wants[0]) d_in[0] = out[0];
    of_weights(g, n, out[1], wants, d_in);
    if (state && wants[3]) d_in[3] = out[2];
}

static void shift_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                       const bool *wants, kolo_value *d_in) {
    if (wants[0]) d_in[0] = shift(g, d_out[0], !n->attr[KOLO_SHIFT_BACK].i);
}

/* The product with w for each token, and about 40 operations for the gates of each channel. */
static kolo_cost cost_of(const kolo_shape_query *q, const kolo_shape *h, int n_gates) {
    const double elements = (double)kolo_shape_count(h);
    return (kolo_cost){elements * (2.0 * n_gates * (double)h->dim[2] + 40), kolo_query_bytes(q)};
}

static kolo_cost lstm_cost(const kolo_shape_query *q) { return cost_of(q, &q->out[0].shape, 4); }
static kolo_cost lstm_bwd_cost(const kolo_shape_query *q) { return cost_of(q, &q->in[0].shape, 4); }
static kolo_cost gru_cost(const kolo_shape_query *q) { return cost_of(q, &q->out[0].shape, 3); }
static kolo_cost gru_bwd_cost(const kolo_shape_query *q) { return cost_of(q, &q->in[0].shape, 3); }

/* Each rank has some of the units, and the states of all of them: what the pass recurrence makes
 * of such a layer. */
static const char *lstm_index(const kolo_attr *attr, int n_in, const kolo_shape *in, char *text) {
    (void)n_in, (void)in, (void)text;
    return attr[KOLO_LSTM_UNITS].i > 0 ? "nT4h,4hH,4h,nH,nh->nTh,nT4h,nTh"
                                       : "nTG,GH,G,nH,nH->nTH,nTG,nTH";
}
static const char *lstm_bwd_index(const kolo_attr *attr, int n_in, const kolo_shape *in,
                                  char *text) {
    (void)n_in, (void)in, (void)text;
    return attr[KOLO_LSTM_UNITS].i > 0 ? "nTh,nT4h,nTh,4hH,nh->nT4h,nH,nh"
                                       : "nTH,nTG,nTH,GH,nH->nTG,nH,nH";
}

const kolo_op kolo_op_lstm = {
    .name = "lstm",
    .index_of = lstm_index,
    .min_in = 3,
    .max_in = 5,
    .layout = {.in = "apppp", .out = "aaa"},
    .attrs = lstm_attrs,
    .shape = lstm_shape,
    .grad = lstm_grad,
    .cost = lstm_cost,
    .bf16 = 1u << 0,
    .sequences = true,
};
const kolo_op kolo_op_lstm_bwd = {
    .name = "lstm_bwd",
    .index_of = lstm_bwd_index,
    .linear = 0x1u,
    .min_in = 4,
    .max_in = 5,
    .layout = {.in = "aaapp", .out = "app"},
    .attrs = lstm_attrs,
    .shape = lstm_bwd_shape,
    .cost = lstm_bwd_cost,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2,
};
const kolo_op kolo_op_gru = {
    .name = "gru",
    .index = "nTG,GH,G,nH->nTH,nTG,nTH",
    .min_in = 3,
    .max_in = 4,
    .layout = {.in = "appp", .out = "aaa"},
    .attrs = no_attrs,
    .shape = gru_shape,
    .grad = gru_grad,
    .cost = gru_cost,
    .bf16 = 1u << 0,
    .sequences = true,
};
const kolo_op kolo_op_gru_bwd = {
    .name = "gru_bwd",
    .index = "nTH,nTG,nTH,nTH,GH,nH->nTG,nTG,nH",
    .linear = 0x1u,
    .min_in = 5,
    .max_in = 6,
    .layout = {.in = "aaaapp", .out = "aap"},
    .attrs = no_attrs,
    .shape = gru_bwd_shape,
    .cost = gru_bwd_cost,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
};
const kolo_op kolo_op_shift = {
    .name = "shift",
    .index = "nTc->nTc",
    .linear = 0x1u,
    .min_in = 1,
    .max_in = 1,
    .layout = {.in = "a", .out = "a"},
    .attrs = shift_attrs,
    .shape = shift_shape,
    .grad = shift_grad,
    .bf16 = 1u << 0,
};

/* ---- builders ---- */

static kolo_value param(kolo_graph *g, const char *name, const char *what, int layer, bool reverse,
                        kolo_shape shape, kolo_init init) {
    char *full = name ? kolo_format("%s.%s_l%d%s", name, what, layer, reverse ? "_reverse" : "")
                      : kolo_strdup("");
    if (!full) {
        kolo_graph_set_failed(g, KOLO_NOMEM(64));
        return KOLO_NONE;
    }
    kolo_value v = kolo_param(g, full, shape, init);
    kolo_free(full);
    return v;
}

/* A layer in one direction. */
static kolo_value direction(kolo_graph *g, const kolo_op *op, kolo_value x, const char *name,
                            int layer, int64_t hidden, bool reverse, const kolo_value *state) {
    const bool known = kolo_value_is_of(g, x) && kolo_info(g, x)->tensor.shape.rank == 3;
    const int64_t inputs = known ? kolo_info(g, x)->tensor.shape.dim[2] : 1; /* x is refused */
    const bool is_lstm = op == &kolo_op_lstm;
    const int64_t n = (is_lstm ? 4 : 3) * hidden;
    kolo_init init = kolo_init_fan_in(hidden);
    kolo_value w_ih = param(g, name, "weight_ih", layer, reverse, kolo_shape_2(n, inputs), init);
    kolo_value w_hh = param(g, name, "weight_hh", layer, reverse, kolo_shape_2(n, hidden), init);
    kolo_value b_ih = param(g, name, "bias_ih", layer, reverse, kolo_shape_1(n), init);
    kolo_value b_hh = param(g, name, "bias_hh", layer, reverse, kolo_shape_1(n), init);
    if (reverse) x = kolo_flip(g, x, 1);
    kolo_value in[5] = {kolo_linear_bias(g, x, w_ih, b_ih), w_hh, b_hh};
    int n_in = 3;
    if (state) in[n_in++] = state[0];
    if (state && is_lstm) in[n_in++] = state[1];
    kolo_value h = kolo_graph_add1(g, op, in, n_in, NULL);
    return reverse ? kolo_flip(g, h, 1) : h;
}

static kolo_value recurrent(kolo_graph *g, const kolo_op *op, kolo_value x, const char *name,
                            int layer, int64_t hidden, const kolo_recurrent_opts *opts) {
    const kolo_recurrent_opts o = opts ? *opts : (kolo_recurrent_opts){0};
    const kolo_value state[2] = {o.h, o.c};
    if (!o.bidirectional) {
        return direction(g, op, x, name, layer, hidden, o.reverse, o.use_state ? state : NULL);
    }
    kolo_value part[2][2] = {{{0}}}, h[2];
    for (int i = 0; i < 2 && o.use_state; i++) {
        if (i == 0 || op == &kolo_op_lstm) {
            kolo_split_along(g, state[i], 1, (const int64_t[]){hidden, hidden}, 2, part[i]);
        }
    }
    for (int d = 0; d < 2; d++) {
        const kolo_value of_direction[2] = {part[0][d], part[1][d]};
        h[d] = direction(g, op, x, name, layer, hidden, d == 1, o.use_state ? of_direction : NULL);
    }
    return kolo_concat_along(g, h, 2, 2);
}

kolo_value kolo_lstm(kolo_graph *g, kolo_value x, const char *name, int layer, int64_t hidden) {
    return recurrent(g, &kolo_op_lstm, x, name, layer, hidden, NULL);
}
kolo_value kolo_lstm_opts(kolo_graph *g, kolo_value x, const char *name, int layer, int64_t hidden,
                          const kolo_recurrent_opts *opts) {
    return recurrent(g, &kolo_op_lstm, x, name, layer, hidden, opts);
}
kolo_value kolo_gru(kolo_graph *g, kolo_value x, const char *name, int layer, int64_t hidden,
                    const kolo_recurrent_opts *opts) {
    return recurrent(g, &kolo_op_gru, x, name, layer, hidden, opts);
}

/* ---- reference ---- */

enum { RESET, UPDATE, NEW, GRU_GATES };

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Sum over k of x[k] w[row][k]; x NULL: 0. */
static double dot(const double *x, const double *w, int64_t row, int64_t hidden) {
    double sum = 0;
    for (int64_t k = 0; x && k < hidden; k++) sum += x[k] * w[row * hidden + k];
    return sum;
}

/* Sum over k of d[k] w[k][column]; d NULL: 0. */
static double dot_column(const double *d, const double *w, int64_t rows, int64_t column,
                         int64_t hidden) {
    double sum = 0;
    for (int64_t k = 0; d && k < rows; k++) sum += d[k] * w[k * hidden + column];
    return sum;
}

/* Sample n of a tensor with `count` numbers a sample; NULL: there is no tensor. */
static const double *sample_of(const void *data, int64_t n, int64_t count) {
    return data ? (const double *)data + n * count : NULL;
}

/* One sample: rows of 4H gates, rows of H for h and c; h0, c0 [H] or NULL. */
static void lstm_sample(const double *gx, const double *w, const double *b, const double *h0,
                        const double *c0, int64_t length, int64_t hidden, double *h, double *gates,
                        double *c) {
    for (int64_t t = 0; t < length; t++) {
        const double *before = t > 0 ? h + (t - 1) * hidden : h0;
        const double *old = t > 0 ? c + (t - 1) * hidden : c0;
        double *gate = gates + t * KOLO_LSTM_GATES * hidden;
        for (int64_t i = 0; i < KOLO_LSTM_GATES * hidden; i++) {
            gate[i] = gx[t * KOLO_LSTM_GATES * hidden + i] + b[i] + dot(before, w, i, hidden);
        }
        kolo_ref_lstm_step(gate, old, hidden, h + t * hidden, c + t * hidden);
    }
}

static void lstm(const kolo_call *call) {
    const int64_t *dim = call->spec->out[0].shape.dim;
    const int64_t sample = dim[1] * dim[2];
    const bool state = call->spec->n_in > 3;
    for (int64_t n = 0; n < dim[0]; n++) {
        lstm_sample((const double *)call->in[0] + KOLO_LSTM_GATES * n * sample, call->in[1],
                    call->in[2], state ? sample_of(call->in[3], n, dim[2]) : NULL,
                    state ? sample_of(call->in[4], n, dim[2]) : NULL, dim[1], dim[2],
                    (double *)call->out[0] + n * sample,
                    (double *)call->out[1] + KOLO_LSTM_GATES * n * sample,
                    (double *)call->out[2] + n * sample);
    }
}

/* dc [H] is the cell's gradient from the following time step; in the end that of c0. */
static void lstm_sample_bwd(const double *dh, const double *gates, const double *c, const double *w,
                            const double *c0, int64_t length, int64_t hidden, double *dc,
                            double *dgx) {
    memset(dc, 0, sizeof(double) * (size_t)hidden);
    for (int64_t t = length - 1; t >= 0; t--) {
        const double *gate = gates + t * KOLO_LSTM_GATES * hidden;
        const double *after = t + 1 < length ? dgx + (t + 1) * KOLO_LSTM_GATES * hidden : NULL;
        double *d = dgx + t * KOLO_LSTM_GATES * hidden;
        for (int64_t i = 0; i < hidden; i++) {
            double old = t > 0 ? c[(t - 1) * hidden + i] : c0 ? c0[i] : 0;
            double to_h =
                dh[t * hidden + i] + dot_column(after, w, KOLO_LSTM_GATES * hidden, i, hidden);
            kolo_ref_lstm_unit_bwd(gate, c[t * hidden + i], old, to_h, hidden, i, &dc[i], d);
        }
    }
}

/* Scratch memory: that of kolo_ref_run, then a row [H]. */
static kolo_status prepare_bwd(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    KOLO_TRY(kolo_ref_prepare(spec, state, scratch_bytes));
    *scratch_bytes += sizeof(double) * (size_t)spec->in[0].shape.dim[2];
    return KOLO_OK;
}

static void lstm_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    const int64_t sample = dim[1] * dim[2];
    const bool state = call->spec->n_in > 4;
    const double *w = call->in[3];
    double *dc = kolo_ref_scratch(call);
    for (int64_t n = 0; n < dim[0]; n++) {
        double *dgx = (double *)call->out[0] + KOLO_LSTM_GATES * n * sample;
        lstm_sample_bwd((const double *)call->in[0] + n * sample,
                        (const double *)call->in[1] + KOLO_LSTM_GATES * n * sample,
                        (const double *)call->in[2] + n * sample, w,
                        state ? sample_of(call->in[4], n, dim[2]) : NULL, dim[1], dim[2], dc, dgx);
        for (int64_t i = 0; i < dim[2] && state; i++) {
            ((double *)call->out[1])[n * dim[2] + i] =
                dot_column(dgx, w, KOLO_LSTM_GATES * dim[2], i, dim[2]);
            ((double *)call->out[2])[n * dim[2] + i] = dc[i];
        }
    }
}

/* ---- GRU ---- */

static void gru_sample(const double *gx, const double *w, const double *b, const double *h0,
                       int64_t length, int64_t hidden, double *h, double *gates, double *q) {
    for (int64_t t = 0; t < length; t++) {
        const double *before = t > 0 ? h + (t - 1) * hidden : h0;
        const double *of_x = gx + t * GRU_GATES * hidden;
        double *gate = gates + t * GRU_GATES * hidden;
        for (int64_t i = 0; i < NEW * hidden; i++) {
            gate[i] = sigmoid(of_x[i] + b[i] + dot(before, w, i, hidden));
        }
        for (int64_t i = 0; i < hidden; i++) {
            const int64_t at = NEW * hidden + i;
            const double part = b[at] + dot(before, w, at, hidden);
            const double now = tanh(of_x[at] + gate[RESET * hidden + i] * part);
            const double z = gate[UPDATE * hidden + i];
            q[t * hidden + i] = part;
            gate[at] = now;
            h[t * hidden + i] = (1 - z) * now + z * (before ? before[i] : 0);
        }
    }
}

static void gru(const kolo_call *call) {
    const int64_t *dim = call->spec->out[0].shape.dim;
    const int64_t sample = dim[1] * dim[2];
    for (int64_t n = 0; n < dim[0]; n++) {
        gru_sample((const double *)call->in[0] + GRU_GATES * n * sample, call->in[1], call->in[2],
                   call->spec->n_in > 3 ? sample_of(call->in[3], n, dim[2]) : NULL, dim[1], dim[2],
                   (double *)call->out[0] + n * sample,
                   (double *)call->out[1] + GRU_GATES * n * sample,
                   (double *)call->out[2] + n * sample);
    }
}

/* The tensors of one sample. */
typedef struct gru_pass {
    const double *dh, *gates, *q, *h, *w, *h0;
    double *dgx, *dgh, *carry; /* carry [H]: of h by its own step after; in the end that of h0 */
} gru_pass;

static void gru_sample_bwd(const gru_pass *p, int64_t length, int64_t hidden) {
    const int64_t row = GRU_GATES * hidden;
    memset(p->carry, 0, sizeof(double) * (size_t)hidden);
    for (int64_t t = length - 1; t >= 0; t--) {
        const double *gate = p->gates + t * row, *before = t > 0 ? p->h + (t - 1) * hidden : p->h0;
        const double *after = t + 1 < length ? p->dgh + (t + 1) * row : NULL;
        double *dx = p->dgx + t * row, *dh = p->dgh + t * row;
        for (int64_t i = 0; i < hidden; i++) {
            double r = gate[RESET * hidden + i], z = gate[UPDATE * hidden + i];
            double n = gate[NEW * hidden + i], old = before ? before[i] : 0;
            double to_h =
                p->dh[t * hidden + i] + p->carry[i] + dot_column(after, p->w, row, i, hidden);
            double dn = to_h * (1 - z) * (1 - n * n);
            dx[RESET * hidden + i] = dh[RESET * hidden + i] =
                dn * p->q[t * hidden + i] * r * (1 - r);
            dx[UPDATE * hidden + i] = dh[UPDATE * hidden + i] = to_h * (old - n) * z * (1 - z);
            dx[NEW * hidden + i] = dn;
            dh[NEW * hidden + i] = dn * r;
            p->carry[i] = to_h * z;
        }
    }
    for (int64_t i = 0; i < hidden; i++) p->carry[i] += dot_column(p->dgh, p->w, row, i, hidden);
}

static void gru_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    const int64_t sample = dim[1] * dim[2];
    const bool state = call->spec->n_in > 5;
    double *carry = kolo_ref_scratch(call);
    for (int64_t n = 0; n < dim[0]; n++) {
        const gru_pass pass = {
            .dh = (const double *)call->in[0] + n * sample,
            .gates = (const double *)call->in[1] + GRU_GATES * n * sample,
            .q = (const double *)call->in[2] + n * sample,
            .h = (const double *)call->in[3] + n * sample,
            .w = call->in[4],
            .h0 = state ? sample_of(call->in[5], n, dim[2]) : NULL,
            .dgx = (double *)call->out[0] + GRU_GATES * n * sample,
            .dgh = (double *)call->out[1] + GRU_GATES * n * sample,
            .carry = state ? (double *)call->out[2] + n * dim[2] : carry,
        };
        gru_sample_bwd(&pass, dim[1], dim[2]);
    }
}

static void ref_shift(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    bool back = call->spec->attr[KOLO_SHIFT_BACK].i;
    const double *x = call->in[0];
    double *y = call->out[0];
    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t t = 0; t < dim[1]; t++) {
            int64_t from = back ? t + 1 : t - 1;
            for (int64_t c = 0; c < dim[2]; c++) {
                *y++ = from < 0 || from == dim[1] ? 0 : x[(n * dim[1] + from) * dim[2] + c];
            }
        }
    }
}

static void run_lstm(const kolo_call *call) { kolo_ref_run(call, lstm); }
static void run_lstm_bwd(const kolo_call *call) { kolo_ref_run(call, lstm_bwd); }
static void run_gru(const kolo_call *call) { kolo_ref_run(call, gru); }
static void run_gru_bwd(const kolo_call *call) { kolo_ref_run(call, gru_bwd); }
static void run_shift(const kolo_call *call) { kolo_ref_run(call, ref_shift); }

const kolo_kernel kolo_ops_recurrent[] = {
    KOLO_REF_KERNEL("ref_lstm", &kolo_op_lstm, run_lstm),
    {
        .name = "ref_lstm_bwd",
        .op = &kolo_op_lstm_bwd,
        .fit = kolo_ref_fit,
        .prepare = prepare_bwd,
        .run = run_lstm_bwd,
        .release = kolo_ref_release,
    },
    KOLO_REF_KERNEL("ref_shift", &kolo_op_shift, run_shift),
    KOLO_REF_KERNEL("ref_gru", &kolo_op_gru, run_gru),
    {
        .name = "ref_gru_bwd",
        .op = &kolo_op_gru_bwd,
        .fit = kolo_ref_fit,
        .prepare = prepare_bwd,
        .run = run_gru_bwd,
        .release = kolo_ref_release,
    },
    {0},
};
