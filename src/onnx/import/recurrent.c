/* LSTM, GRU and RNN, by the ops of the graph or step by step. Weights stay as the file has them, so
 * that they can be trained under its names; the graph takes their gates in its own order. */
#include "onnx/import/recurrent.h"

#include "graph/ops/ops.h"
#include "onnx/import/ops.h"

#include <inttypes.h>
#include <string.h>

static const onnx_recurrence kinds[] = {
    {"LSTM", &kolo_op_lstm, 4, {0, 2, 3, 1}, 2, 3, {"Sigmoid", "Tanh", "Tanh"}},
    {"GRU", &kolo_op_gru, 3, {1, 0, 2}, 1, 2, {"Sigmoid", "Tanh"}},
    {"RNN", NULL, 1, {0}, 1, 1, {"Tanh"}},
};

/* ---- checks ---- */

/* Whether the activations are those of the op. */
static bool has_usual_activations(const onnx_call *c, const onnx_layer *l) {
    const Onnx__AttributeProto *a = onnx_attribute(c, "activations");
    for (size_t k = 0; a && k < a->n_strings; k++) {
        const char *want = l->kind->activations[k % (size_t)l->kind->n_activations];
        const ProtobufCBinaryData *is = &a->strings[k];
        if (is->len != strlen(want) || memcmp(is->data, want, is->len) != 0) return false;
    }
    return true;
}

/* Whether the op of the graph computes the layer. */
static bool has_op(const onnx_call *c, const onnx_layer *l) {
    const bool early_reset = l->kind->op == &kolo_op_gru && !l->late_reset;
    return l->kind->op && !early_reset && !l->input_forget && !onnx_has(c, RNN_PEEPHOLES) &&
           has_usual_activations(c, l);
}

static void read_attributes(const onnx_call *c, onnx_layer *l) {
    l->reverse = onnx_text_is(c, "direction", "reverse", false);
    l->directions = onnx_text_is(c, "direction", "bidirectional", false) ? 2 : 1;
    l->batch_first = onnx_int(c, "layout", 0) != 0;
    l->late_reset = l->kind->gates == 3 && onnx_int(c, "linear_before_reset", 0) != 0;
    l->input_forget = l->kind->gates == 4 && onnx_int(c, "input_forget", 0) != 0;
}

/* ---- sequences of different lengths ---- */

/* What a table has for sequences of T steps of which `length` count, at k. */
typedef float of_length(int64_t T, int64_t length, int64_t k);
static float is_inside(int64_t T, int64_t length, int64_t k) { return k < length; }
static float is_last(int64_t T, int64_t length, int64_t k) { return k == length - 1; }
/* A matrix [T,T] that reverses the steps which count. */
static float turns(int64_t T, int64_t length, int64_t k) {
    const int64_t row = k / T;
    return k % T == (row < length ? length - 1 - row : row);
}

/* A matrix [rows,columns] for each sample, by the length of its sequence. */
static kolo_status by_length(onnx_call *c, const onnx_layer *l, of_length *element, int64_t rows,
                             int64_t columns, kolo_value *v) {
    const int64_t width = rows * columns;
    const kolo_shape shape = kolo_shape_2(l->steps + 1, width);
    kolo_value lengths, table;
    float *f = NULL;
    KOLO_TRY(onnx_value(c, RNN_LENGTHS, &lengths));
    KOLO_TRY(onnx_floats(c, host_count(&shape, HOST_MOST), &f));
    for (int64_t k = 0; k < shape.dim[0] * width; k++) {
        f[k] = element(l->steps, k / width, k % width);
    }
    KOLO_TRY(onnx_table(c, "lengths", &shape, f, &table));
    const kolo_value ids = onnx_as(c, lengths, kolo_shape_2(l->samples, 1));
    *v = onnx_as(c, kolo_embedding(c->g, table, ids, KOLO_NONE),
                 kolo_shape_3(l->samples, rows, columns));
    return kolo_graph_check(c->g);
}

/* Lengths are an input of integers, or constants that are T. */
static kolo_status read_lengths(onnx_call *c, onnx_layer *l) {
    if (!onnx_has(c, RNN_LENGTHS)) return KOLO_OK;
    const onnx_item *item = c->in[RNN_LENGTHS];
    const kolo_shape s = onnx_shape(c, RNN_LENGTHS);
    for (int64_t k = 0; k < item->tensor.count && item->constant; k++) {
        if (host_number(&item->tensor, k) == (double)l->steps) continue;
        return ONNX_FAIL(c, "input sequence_lens: sequences of constant different lengths");
    }
    if (item->constant) return KOLO_OK;
    if (s.rank != 1 || s.dim[0] != l->samples ||
        kolo_value_dtype(c->g, item->value) != KOLO_DTYPE_I32) {
        return ONNX_FAIL(c, "input sequence_lens must be an input of integers [N]");
    }
    KOLO_TRY(by_length(c, l, is_inside, l->steps, 1, &l->inside));
    KOLO_TRY(by_length(c, l, is_last, l->steps, 1, &l->last));
    if (!l->reverse && l->directions == 1) return KOLO_OK;
    return by_length(c, l, turns, l->steps, l->steps, &l->turn);
}

/* x [N,T,...] with its steps in reverse order, those that count first. */
static kolo_value reversed(onnx_call *c, const onnx_layer *l, kolo_value x) {
    if (!kolo_value_ok(l->turn)) return kolo_flip(c->g, x, 1);
    return kolo_matmul(c->g, l->turn, x, false, false);
}

static kolo_status check_shape(const onnx_call *c, int i, kolo_shape want) {
    const kolo_shape is = onnx_shape(c, i);
    char text[2][KOLO_SHAPE_TEXT];
    if (kolo_shape_equal(&is, &want)) return KOLO_OK;
    return ONNX_FAIL(c, "input %d is %s, not %s", i, kolo_shape_text(&is, text[0]),
                     kolo_shape_text(&want, text[1]));
}

/* ---- inputs ---- */

/* Exporters store a state of zeros as an initializer, which is not to be trained. */
static bool is_zero(const onnx_item *item) {
    for (int64_t k = 0; k < item->tensor.count && item->constant; k++) {
        if (host_number(&item->tensor, k) != 0) return false;
    }
    return item->constant;
}

static kolo_status read_x(onnx_call *c, onnx_layer *l) {
    KOLO_TRY(onnx_value(c, RNN_X, &l->in[RNN_X]));
    if (kolo_value_shape(c->g, l->in[RNN_X]).rank != 3) return ONNX_FAIL(c, "input X: [T,N,I]");
    if (!l->batch_first) l->in[RNN_X] = kolo_transpose(c->g, l->in[RNN_X], 0, 1);
    const kolo_shape x = kolo_value_shape(c->g, l->in[RNN_X]);
    l->samples = x.dim[0];
    l->steps = x.dim[1];
    return kolo_graph_check(c->g);
}

static kolo_status read_weights(onnx_call *c, onnx_layer *l) {
    const int64_t inputs = kolo_value_shape(c->g, l->in[RNN_X]).dim[2];
    if (onnx_shape(c, RNN_R).rank != 3) return ONNX_FAIL(c, "input R: [directions,gates H,H]");
    l->hidden = onnx_shape(c, RNN_R).dim[2];
    const int64_t rows = l->kind->gates * l->hidden;
    KOLO_TRY(check_shape(c, RNN_W, kolo_shape_3(l->directions, rows, inputs)));
    KOLO_TRY(check_shape(c, RNN_R, kolo_shape_3(l->directions, rows, l->hidden)));
    if (onnx_has(c, RNN_B)) KOLO_TRY(check_shape(c, RNN_B, kolo_shape_2(l->directions, 2 * rows)));
    for (int i = RNN_W; i <= RNN_B; i++) {
        if (onnx_has(c, i)) KOLO_TRY(onnx_value(c, i, &l->in[i]));
    }
    if (!onnx_has(c, RNN_PEEPHOLES)) return KOLO_OK;
    KOLO_TRY(check_shape(c, RNN_PEEPHOLES, kolo_shape_2(l->directions, 3 * l->hidden)));
    return onnx_value(c, RNN_PEEPHOLES, &l->in[RNN_PEEPHOLES]);
}

/* A state as [N,directions,H], none where it is zero. A constant may be of one sample. */
static kolo_status read_state(onnx_call *c, onnx_layer *l, int i) {
    if (!onnx_has(c, i) || is_zero(c->in[i])) return KOLO_OK;
    KOLO_TRY(onnx_value(c, i, &l->in[i]));
    if (kolo_value_shape(c->g, l->in[i]).rank != 3)
        return ONNX_FAIL(c, "a state: [directions,N,H]");
    if (!l->batch_first) l->in[i] = kolo_transpose(c->g, l->in[i], 0, 1);
    const kolo_shape want = kolo_shape_3(l->samples, l->directions, l->hidden);
    kolo_shape is = kolo_value_shape(c->g, l->in[i]);
    if (is.dim[0] == 1 && !c->in[i]->batched) {
        l->in[i] = onnx_of_samples(c, l, l->in[i]);
        is = kolo_value_shape(c->g, l->in[i]);
    }
    char text[2][KOLO_SHAPE_TEXT];
    if (kolo_shape_equal(&is, &want)) return KOLO_OK;
    return ONNX_FAIL(c, "a state of %s, not %s", kolo_shape_text(&is, text[0]),
                     kolo_shape_text(&want, text[1]));
}

/* A state that the other one of an LSTM lacks. */
static kolo_status zero_state(onnx_call *c, const onnx_layer *l, kolo_value *v) {
    const kolo_value other =
        kolo_value_ok(l->in[RNN_STATE]) ? l->in[RNN_STATE] : l->in[RNN_STATE + 1];
    *v = kolo_scale(c->g, kolo_stop_gradient(c->g, other), 0);
    return kolo_graph_check(c->g);
}

static kolo_status read_states(onnx_call *c, onnx_layer *l) {
    for (int k = 0; k < l->kind->states; k++) KOLO_TRY(read_state(c, l, RNN_STATE + k));
    const bool any = kolo_value_ok(l->in[RNN_STATE]) || kolo_value_ok(l->in[RNN_STATE + 1]);
    for (int k = 0; k < l->kind->states && any; k++) {
        if (!kolo_value_ok(l->in[RNN_STATE + k])) KOLO_TRY(zero_state(c, l, &l->in[RNN_STATE + k]));
    }
    return KOLO_OK;
}

/* ---- one direction ---- */

/* The gates of rows [first, first + gates H) in our order. */
static kolo_value ordered(onnx_call *c, const onnx_layer *l, kolo_value rows, int64_t first) {
    kolo_value gate[4];
    for (int k = 0; k < l->kind->gates; k++) {
        gate[k] = kolo_slice(c->g, rows, 0, first + l->kind->order[k] * l->hidden, l->hidden);
    }
    return kolo_concat_along(c->g, gate, l->kind->gates, 0);
}

static kolo_status biases(onnx_call *c, const onnx_layer *l, int d, kolo_value out[2]) {
    const int64_t rows = l->kind->gates * l->hidden;
    if (kolo_value_ok(l->in[RNN_B])) {
        const kolo_value both = onnx_part_of(c, l->in[RNN_B], 0, d);
        for (int k = 0; k < 2; k++) out[k] = ordered(c, l, both, k * rows);
        return KOLO_OK;
    }
    float *f = NULL;
    const kolo_shape shape = kolo_shape_1(rows);
    KOLO_TRY(onnx_floats(c, rows, &f));
    memset(f, 0, (size_t)rows * sizeof *f);
    KOLO_TRY(onnx_table(c, "zeros", &shape, f, &out[0]));
    out[1] = out[0];
    return KOLO_OK;
}

/* h [N,T,H], and of an LSTM c: out[2] of the op. */
static kolo_status run_direction(onnx_call *c, const onnx_layer *l, int d, kolo_value *h,
                                 kolo_value *cell) {
    const bool reverse = l->reverse || d == 1;
    kolo_value b[2] = {KOLO_NONE, KOLO_NONE}, x = l->in[RNN_X], in[5], out[KOLO_MAX_IO];
    int n = 3;
    if (reverse) x = reversed(c, l, x);
    if (!has_op(c, l)) {
        KOLO_TRY(onnx_run_steps(c, l, d, x, h, cell));
        if (reverse) *h = reversed(c, l, *h);
        return kolo_graph_check(c->g);
    }
    KOLO_TRY(biases(c, l, d, b));
    in[0] = kolo_linear_bias(c->g, x, ordered(c, l, onnx_part_of(c, l->in[RNN_W], 0, d), 0), b[0]);
    in[1] = ordered(c, l, onnx_part_of(c, l->in[RNN_R], 0, d), 0);
    in[2] = b[1];
    for (int k = 0; k < l->kind->states && kolo_value_ok(l->in[RNN_STATE]); k++) {
        in[n++] = onnx_part_of(c, l->in[RNN_STATE + k], 1, d);
    }
    kolo_graph_add(c->g, l->kind->op, in, n, NULL, out);
    *h = reverse ? reversed(c, l, out[0]) : out[0];
    *cell = out[2]; /* in the order of the computation */
    return kolo_graph_check(c->g);
}

/* ---- outputs ---- */

static bool is_wanted(const onnx_call *c, int i) {
    return i < c->n_out && *onnx_text(c->node->output[i]);
}

/* Values of the directions as one, along a new dimension at `axis`. */
static kolo_value joined(onnx_call *c, const onnx_layer *l, const kolo_value *v, int axis) {
    kolo_value part[2] = {KOLO_NONE, KOLO_NONE};
    KOLO_ASSERT(l->directions == 1 || l->directions == 2);
    for (int d = 0; d < l->directions; d++) {
        kolo_shape s = kolo_value_shape(c->g, v[d]);
        memmove(s.dim + axis + 1, s.dim + axis, (size_t)(s.rank - axis) * sizeof *s.dim);
        s.dim[axis] = 1;
        s.rank++;
        part[d] = onnx_as(c, v[d], s);
    }
    return l->directions == 1 ? part[0] : kolo_concat_along(c->g, part, l->directions, axis);
}

/* Step t of [N,T,H], as [N,H]. */
static kolo_value step_of(onnx_call *c, const onnx_layer *l, kolo_value v, int64_t t) {
    return onnx_as(c, kolo_slice(c->g, v, 1, t, 1), kolo_shape_2(l->samples, l->hidden));
}

/* The last step that counts. */
static kolo_value last_of(onnx_call *c, const onnx_layer *l, kolo_value v) {
    const int steps = 1;
    if (!kolo_value_ok(l->last)) return step_of(c, l, v, l->steps - 1);
    return kolo_reduce_sum(c->g, kolo_mul(c->g, v, l->last), &steps, 1, false);
}

/* States [N,H] of the directions as [directions,N,H], or with layout 1 as [N,directions,H]. */
static kolo_value state_of(onnx_call *c, const onnx_layer *l, const kolo_value *v) {
    const kolo_value all = joined(c, l, v, 1);
    return l->batch_first ? all : kolo_transpose(c->g, all, 0, 1);
}

static kolo_status set_outputs(onnx_call *c, const onnx_layer *l, const kolo_value *h,
                               const kolo_value *cell) {
    kolo_value steps[2] = {KOLO_NONE, KOLO_NONE}, last[2] = {KOLO_NONE, KOLO_NONE};
    kolo_value last_cell[2] = {KOLO_NONE, KOLO_NONE};
    for (int d = 0; d < l->directions; d++) {
        const bool reverse = l->reverse || d == 1;
        const kolo_value counted =
            kolo_value_ok(l->inside) ? kolo_mul(c->g, h[d], l->inside) : h[d];
        steps[d] = l->batch_first ? counted : kolo_transpose(c->g, counted, 0, 1);
        if (is_wanted(c, 1)) last[d] = reverse ? step_of(c, l, counted, 0) : last_of(c, l, h[d]);
        if (is_wanted(c, 2)) last_cell[d] = last_of(c, l, cell[d]);
    }
    if (is_wanted(c, 0)) {
        KOLO_TRY(onnx_set(c, 0, joined(c, l, steps, l->batch_first ? 2 : 1)));
    }
    if (is_wanted(c, 1)) KOLO_TRY(onnx_set(c, 1, state_of(c, l, last)));
    if (is_wanted(c, 2)) KOLO_TRY(onnx_set(c, 2, state_of(c, l, last_cell)));
    return KOLO_OK;
}

kolo_status onnx_map_recurrent(onnx_call *c) {
    size_t k = 0;
    onnx_layer l = {0};
    kolo_value h[2] = {KOLO_NONE, KOLO_NONE}, cell[2] = {KOLO_NONE, KOLO_NONE};
    while (strcmp(kinds[k].name, c->node->op_type) != 0) k++;
    l.kind = &kinds[k];
    l.inside = l.last = l.turn = KOLO_NONE;
    for (size_t i = 0; i < KOLO_COUNT(l.in); i++) l.in[i] = KOLO_NONE;
    read_attributes(c, &l);
    KOLO_TRY(read_x(c, &l));
    KOLO_TRY(read_lengths(c, &l));
    KOLO_TRY(read_weights(c, &l));
    KOLO_TRY(read_states(c, &l));
    for (int d = 0; d < l.directions; d++) KOLO_TRY(run_direction(c, &l, d, &h[d], &cell[d]));
    return set_outputs(c, &l, h, cell);
}
