/* Recurrent layers that the graph has no op for, as ops of each step: RNN, GRU whose reset gate is
 * before the product, LSTM with peepholes or coupled gates, and other activations. */
#include "onnx/import/ops.h"
#include "onnx/import/recurrent.h"

#include <inttypes.h>
#include <string.h>

typedef kolo_value (*onnx_activation)(kolo_graph *g, kolo_value x);

/* ---- parts of inputs ---- */

kolo_value onnx_of_samples(onnx_call *c, const onnx_layer *l, kolo_value v) {
    kolo_value first = kolo_slice(c->g, kolo_slice(c->g, l->in[RNN_X], 1, 0, 1), 2, 0, 1);
    return kolo_add(c->g, kolo_scale(c->g, kolo_stop_gradient(c->g, first), 0), v);
}

kolo_value onnx_part_of(onnx_call *c, kolo_value v, int axis, int d) {
    kolo_shape s = kolo_value_shape(c->g, v);
    if (s.dim[axis] > 1) v = kolo_slice(c->g, v, axis, d, 1);
    s.rank--;
    memmove(s.dim + axis, s.dim + axis + 1, (size_t)(s.rank - axis) * sizeof *s.dim);
    return onnx_as(c, v, s);
}

/* ---- steps ---- */

static const struct {
    const char *name;
    onnx_activation function;
} activations[] = {
    {"Sigmoid", kolo_sigmoid},
    {"Tanh", kolo_tanh},
    {"Relu", kolo_relu},
};

/* The function that an activation of direction d is; NULL: none of the graph. */
static onnx_activation find_activation(const onnx_call *c, const onnx_layer *l, int d, int k) {
    const Onnx__AttributeProto *a = onnx_attribute(c, "activations");
    const size_t at = (size_t)d * (size_t)l->kind->n_activations + (size_t)k;
    const char *name = l->kind->activations[k];
    size_t length = strlen(name);
    if (a && at < a->n_strings) {
        name = (const char *)a->strings[at].data;
        length = a->strings[at].len;
    }
    for (size_t i = 0; i < KOLO_COUNT(activations); i++) {
        const bool same =
            strlen(activations[i].name) == length && memcmp(activations[i].name, name, length) == 0;
        if (same) return activations[i].function;
    }
    return NULL;
}

/* ---- one direction ---- */

/* What the steps read, in the order of ONNX. */
typedef struct steps {
    onnx_call *c;
    const onnx_layer *l;
    onnx_activation f[RNN_ACTIVATIONS];
    kolo_value x;       /* products with the inputs and biases, [N,T,gates H] */
    kolo_value r, bias; /* [gates H,H]; the bias of the recurrent product of a GRU's last gate, or
                           none */
    kolo_value peep;    /* [3 H], or none */
    kolo_value h, cell; /* [N,H] */
} steps;

/* Columns of gate k in v [N,gates H]. */
static kolo_value gate_of(const steps *s, kolo_value v, int k) {
    return kolo_slice(s->c->g, v, 1, k * s->l->hidden, s->l->hidden);
}

/* h R^T of gates [first, first + n). */
static kolo_value product(const steps *s, kolo_value h, int first, int n) {
    const int64_t H = s->l->hidden;
    const bool all = n == s->l->kind->gates;
    const kolo_value r = all ? s->r : kolo_slice(s->c->g, s->r, 0, first * H, n * H);
    return kolo_linear(s->c->g, h, r);
}

static void step_rnn(steps *s, kolo_value x) {
    s->h = s->f[0](s->c->g, kolo_add(s->c->g, x, product(s, s->h, 0, 1)));
}

static void step_gru(steps *s, kolo_value x) {
    enum { UPDATE, RESET, NEW };
    kolo_graph *g = s->c->g;
    const kolo_value both = product(s, s->h, UPDATE, 2);
    const kolo_value z = s->f[0](g, kolo_add(g, gate_of(s, x, UPDATE), gate_of(s, both, UPDATE)));
    const kolo_value r = s->f[0](g, kolo_add(g, gate_of(s, x, RESET), gate_of(s, both, RESET)));
    kolo_value part;
    if (s->l->late_reset) {
        part = product(s, s->h, NEW, 1);
        if (kolo_value_ok(s->bias)) part = kolo_add(g, part, s->bias);
        part = kolo_mul(g, r, part);
    } else {
        part = product(s, kolo_mul(g, r, s->h), NEW, 1);
    }
    const kolo_value n = s->f[1](g, kolo_add(g, gate_of(s, x, NEW), part));
    s->h = kolo_add(g, n, kolo_mul(g, z, kolo_sub(g, s->h, n))); /* (1 - z) n + z h */
}

/* Gate k, with peephole `peep` of the cell. */
static kolo_value lstm_gate(const steps *s, kolo_value x, int k, int peep, kolo_value cell) {
    kolo_graph *g = s->c->g;
    const int64_t H = s->l->hidden;
    kolo_value y = gate_of(s, x, k);
    if (kolo_value_ok(s->peep)) {
        y = kolo_add(g, y, kolo_mul(g, cell, kolo_slice(g, s->peep, 0, peep * H, H)));
    }
    return s->f[0](g, y);
}

static void step_lstm(steps *s, kolo_value x) {
    enum { INPUT, OUTPUT, FORGET, CELL };
    kolo_graph *g = s->c->g;
    const kolo_value all = kolo_add(g, x, product(s, s->h, 0, 4));
    const kolo_value in = lstm_gate(s, all, INPUT, 0, s->cell);
    const kolo_value forget = s->l->input_forget ? kolo_add_number(g, kolo_scale(g, in, -1), 1)
                                                 : lstm_gate(s, all, FORGET, 2, s->cell);
    const kolo_value fresh = kolo_mul(g, in, s->f[1](g, gate_of(s, all, CELL)));
    s->cell = kolo_add(g, kolo_mul(g, forget, s->cell), fresh);
    s->h = kolo_mul(g, lstm_gate(s, all, OUTPUT, 1, s->cell), s->f[2](g, s->cell));
}

static kolo_status zeros(onnx_call *c, const kolo_shape *shape, kolo_value *v) {
    const int64_t count = kolo_shape_count(shape);
    float *f = NULL;
    KOLO_TRY(onnx_floats(c, count, &f));
    memset(f, 0, (size_t)count * sizeof *f);
    return onnx_table(c, "zeros", shape, f, v);
}

/* A state of direction d as [N,H]. */
static kolo_status state_of(onnx_call *c, const onnx_layer *l, int in, int d, kolo_value *v) {
    if (kolo_value_ok(l->in[in])) {
        *v = onnx_part_of(c, l->in[in], 1, d);
        return kolo_graph_check(c->g);
    }
    const kolo_shape one = kolo_shape_3(1, 1, l->hidden);
    KOLO_TRY(zeros(c, &one, v));
    *v = onnx_as(c, onnx_of_samples(c, l, *v), kolo_shape_2(l->samples, l->hidden));
    return kolo_graph_check(c->g);
}

/* The biases of both products are one, but for that of a GRU whose reset gate is behind it. */
static kolo_status prepare(steps *s, int d, kolo_value x) {
    onnx_call *c = s->c;
    const onnx_layer *l = s->l;
    const int64_t rows = l->kind->gates * l->hidden;
    const kolo_value w = onnx_part_of(c, l->in[RNN_W], 0, d);
    s->r = onnx_part_of(c, l->in[RNN_R], 0, d);
    s->bias = s->peep = KOLO_NONE;
    if (kolo_value_ok(l->in[RNN_B])) {
        const kolo_value all = onnx_part_of(c, l->in[RNN_B], 0, d);
        const int64_t joined = l->late_reset ? 2 * l->hidden : rows;
        kolo_value b = kolo_slice(c->g, all, 0, 0, rows);
        kolo_value more = kolo_slice(c->g, all, 0, rows, joined);
        if (l->late_reset) {
            s->bias = kolo_slice(c->g, all, 0, rows + joined, l->hidden);
            more = kolo_pad(c->g, more, 0, 0, l->hidden);
        }
        s->x = kolo_linear_bias(c->g, x, w, kolo_add(c->g, b, more));
    } else {
        s->x = kolo_linear(c->g, x, w);
    }
    if (kolo_value_ok(l->in[RNN_PEEPHOLES])) s->peep = onnx_part_of(c, l->in[RNN_PEEPHOLES], 0, d);
    KOLO_TRY(state_of(c, l, RNN_STATE, d, &s->h));
    return l->kind->states > 1 ? state_of(c, l, RNN_CELL, d, &s->cell) : kolo_graph_check(c->g);
}

kolo_status onnx_run_steps(onnx_call *c, const onnx_layer *l, int d, kolo_value x, kolo_value *h,
                           kolo_value *cells) {
    steps s = {.c = c, .l = l, .f = {kolo_sigmoid, kolo_tanh, kolo_tanh}, .cell = KOLO_NONE};
    const kolo_shape one = kolo_shape_3(l->samples, 1, l->hidden);
    const kolo_shape of_gates = kolo_shape_2(l->samples, l->kind->gates * l->hidden);
    kolo_value *all_h = NULL, *all_cells = NULL;
    for (int k = 0; k < l->kind->n_activations; k++) {
        s.f[k] = find_activation(c, l, d, k);
        if (!s.f[k]) return ONNX_FAIL(c, "attribute activations: function %d", k);
    }
    KOLO_TRY(onnx_copies(c, l->steps, &all_h));
    KOLO_TRY(onnx_copies(c, l->steps, &all_cells));
    KOLO_TRY(prepare(&s, d, x));
    for (int64_t t = 0; t < l->steps; t++) {
        const kolo_value now = onnx_as(c, kolo_slice(c->g, s.x, 1, t, 1), of_gates);
        (l->kind->gates == 4 ? step_lstm : l->kind->gates == 3 ? step_gru : step_rnn)(&s, now);
        all_h[t] = onnx_as(c, s.h, one);
        if (l->kind->states > 1) all_cells[t] = onnx_as(c, s.cell, one);
    }
    *h = kolo_concat_along(c->g, all_h, (int)l->steps, 1);
    if (l->kind->states > 1) *cells = kolo_concat_along(c->g, all_cells, (int)l->steps, 1);
    return kolo_graph_check(c->g);
}
