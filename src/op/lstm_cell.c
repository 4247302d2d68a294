/* lstm_cell: one time step of an LSTM layer behind its product, and its gradient. The pass
 * recurrence makes them of a layer whose hidden units are divided over ranks, after the gradient
 * pass. */
#include "op/lstm_cell.h"

#include "graph/ops/lstm.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>

static const char *const cell_attrs[] = {"step", NULL};

/* Input i is [N,1,C]. */
static kolo_status check_step(const kolo_shape_query *q, int i, int64_t samples, int64_t channels) {
    const kolo_shape step = kolo_shape_3(samples, 1, channels);
    if (kolo_shape_equal(&q->in[i].shape, &step)) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "input %d must be [%" PRId64 ",1,%" PRId64 "]", i, samples, channels);
}

/* The attribute "step" is a time step of input 0. */
static kolo_status check_number(const kolo_shape_query *q) {
    const int64_t step = q->attr[KOLO_LSTM_CELL_STEP].i, steps = q->in[0].shape.dim[1];
    if (step >= 0 && step < steps) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "there is no time step %" PRId64 " of %" PRId64, step, steps);
}

static kolo_status cell_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,4H"));
    KOLO_TRY(check_number(q));
    const int64_t samples = q->in[0].shape.dim[0], gates = q->in[0].shape.dim[2];
    const kolo_shape bias = kolo_shape_1(gates), h = kolo_shape_3(samples, 1, gates / 4);
    const kolo_dtype dtype = q->in[0].dtype;
    if (gates % 4 != 0) return KOLO_RULE_FAIL(q, "the gates must be four times H");
    if (!kolo_shape_equal(&q->in[1].shape, &bias)) {
        return KOLO_RULE_FAIL(q, "the bias must have %" PRId64 " elements", gates);
    }
    if (q->n_in == 3) return KOLO_RULE_FAIL(q, "a product needs the cells before it");
    if (q->n_in > 2) KOLO_TRY(check_step(q, 2, samples, gates));
    if (q->n_in > 2) KOLO_TRY(check_step(q, 3, samples, gates / 4));
    KOLO_TRY(kolo_rule_out(q, 0, dtype, h));
    KOLO_TRY(kolo_rule_out(q, 1, dtype, kolo_shape_3(samples, 1, gates)));
    return kolo_rule_out(q, 2, kolo_dtype_wide(dtype), h);
}

static kolo_status cell_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "ffffff"));
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,H"));
    KOLO_TRY(check_number(q));
    const int64_t samples = q->in[0].shape.dim[0], hidden = q->in[0].shape.dim[2];
    const kolo_dtype dtype = q->in[0].dtype;
    KOLO_TRY(check_step(q, 1, samples, 4 * hidden));
    for (int i = 2; i < q->n_in; i++) KOLO_TRY(check_step(q, i, samples, hidden));
    KOLO_TRY(kolo_rule_out(q, 0, dtype, kolo_shape_3(samples, 1, 4 * hidden)));
    return kolo_rule_out(q, 1, kolo_dtype_wide(dtype), kolo_shape_3(samples, 1, hidden));
}

static kolo_cost cell_cost(const kolo_shape_query *q) {
    const double units = (double)kolo_shape_count(&q->out[1].shape); /* four of each, or one */
    return (kolo_cost){40 * units, kolo_query_bytes(q)};
}

const kolo_op kolo_op_lstm_cell = {
    .name = "lstm_cell",
    .index = "nT4h,4h,nU4h,nUh->nUh,nU4h,nUh",
    .min_in = 2,
    .max_in = 4,
    .layout = {.in = "apaa", .out = "aaa"},
    .attrs = cell_attrs,
    .shape = cell_shape,
    .cost = cell_cost,
    .bf16 = 1u << 0 | 1u << 2,
};
const kolo_op kolo_op_lstm_cell_bwd = {
    .name = "lstm_cell_bwd",
    .index = "nTh,nU4h,nUh,nUh,nUh,nUh->nU4h,nUh",
    .min_in = 3,
    .max_in = 6,
    .layout = {.in = "aaaaaa", .out = "aa"},
    .attrs = cell_attrs,
    .shape = cell_bwd_shape,
    .cost = cell_cost,
    .bf16 = 1u << 0 | 1u << 1 | 1u << 3,
};
/* ---- reference ---- */

enum { INPUT, FORGET, CELL, OUTPUT }; /* gates, H of each */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

void kolo_ref_lstm_step(double *gate, const double *old, int64_t hidden, double *h, double *c) {
    for (int64_t i = 0; i < KOLO_LSTM_GATES * hidden; i++) {
        gate[i] = i / hidden == CELL ? tanh(gate[i]) : sigmoid(gate[i]);
    }
    for (int64_t i = 0; i < hidden; i++) {
        c[i] = gate[FORGET * hidden + i] * (old ? old[i] : 0) +
               gate[INPUT * hidden + i] * gate[CELL * hidden + i];
        h[i] = gate[OUTPUT * hidden + i] * tanh(c[i]);
    }
}

void kolo_ref_lstm_unit_bwd(const double *gate, double c, double old, double to_h, int64_t hidden,
                            int64_t i, double *dc, double *d) {
    const double in = gate[INPUT * hidden + i], forget = gate[FORGET * hidden + i];
    const double cell = gate[CELL * hidden + i], out = gate[OUTPUT * hidden + i];
    const double th = tanh(c), to_c = *dc + to_h * out * (1 - th * th);
    d[INPUT * hidden + i] = to_c * cell * in * (1 - in);
    d[FORGET * hidden + i] = to_c * old * forget * (1 - forget);
    d[CELL * hidden + i] = to_c * in * (1 - cell * cell);
    d[OUTPUT * hidden + i] = to_h * th * out * (1 - out);
    *dc = to_c * forget;
}

/* Sample n of a tensor with `count` numbers a sample. */
static const double *sample_of(const void *data, int64_t n, int64_t count) {
    return (const double *)data + n * count;
}

static void cell(const kolo_call *call) {
    enum { GX, BIAS, PRODUCT, BEFORE };
    const int64_t *dim = call->spec->in[GX].shape.dim,
                  step = call->spec->attr[KOLO_LSTM_CELL_STEP].i;
    const int64_t gates = dim[2], hidden = gates / KOLO_LSTM_GATES;
    const double *b = call->in[BIAS];
    const bool follows = call->spec->n_in > PRODUCT;
    for (int64_t n = 0; n < dim[0]; n++) {
        const double *gx = (const double *)call->in[GX] + (n * dim[1] + step) * gates;
        const double *p = follows ? sample_of(call->in[PRODUCT], n, gates) : NULL;
        double *gate = (double *)call->out[1] + n * gates;
        for (int64_t i = 0; i < gates; i++) gate[i] = gx[i] + b[i] + (p ? p[i] : 0);
        kolo_ref_lstm_step(gate, follows ? sample_of(call->in[BEFORE], n, hidden) : NULL, hidden,
                           (double *)call->out[0] + n * hidden,
                           (double *)call->out[2] + n * hidden);
    }
}

static void cell_bwd(const kolo_call *call) {
    enum { DH, OF_GATES, CELLS, TO_H, DC };
    const kolo_kernel_spec *spec = call->spec;
    const int64_t *dim = spec->in[DH].shape.dim, hidden = dim[2],
                  step = spec->attr[KOLO_LSTM_CELL_STEP].i;
    const bool follows = spec->n_in > DC; /* another time step does */
    const double *before = spec->n_in % 2 == 0 ? call->in[spec->n_in - 1] : NULL;
    for (int64_t n = 0; n < dim[0]; n++) {
        const double *gate = sample_of(call->in[OF_GATES], n, KOLO_LSTM_GATES * hidden);
        double *d = (double *)call->out[0] + n * KOLO_LSTM_GATES * hidden;
        for (int64_t i = 0; i < hidden; i++) {
            const int64_t at = n * hidden + i;
            double to_h = ((const double *)call->in[DH])[(n * dim[1] + step) * hidden + i];
            double dc = follows ? ((const double *)call->in[DC])[at] : 0;
            if (follows) to_h += ((const double *)call->in[TO_H])[at];
            kolo_ref_lstm_unit_bwd(gate, ((const double *)call->in[CELLS])[at],
                                   before ? before[at] : 0, to_h, hidden, i, &dc, d);
            ((double *)call->out[1])[at] = dc;
        }
    }
}

static void run_cell(const kolo_call *call) { kolo_ref_run(call, cell); }
static void run_cell_bwd(const kolo_call *call) { kolo_ref_run(call, cell_bwd); }

const kolo_kernel kolo_ops_lstm_cell[] = {
    KOLO_REF_KERNEL("ref_lstm_cell", &kolo_op_lstm_cell, run_cell),
    KOLO_REF_KERNEL("ref_lstm_cell_bwd", &kolo_op_lstm_cell_bwd, run_cell_bwd),
    {0},
};
