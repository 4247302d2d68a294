/* LSTM, GRU and their gradients, one time step after the other; shift. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

enum { INPUT, FORGET, CELL, OUTPUT, LSTM_GATES }; /* gates, H of each */
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
        double *gate = gates + t * LSTM_GATES * hidden;
        for (int64_t i = 0; i < LSTM_GATES * hidden; i++) {
            double sum = gx[t * LSTM_GATES * hidden + i] + b[i] + dot(before, w, i, hidden);
            gate[i] = i / hidden == CELL ? tanh(sum) : sigmoid(sum);
        }
        for (int64_t i = 0; i < hidden; i++) {
            double now = gate[FORGET * hidden + i] * (old ? old[i] : 0) +
                         gate[INPUT * hidden + i] * gate[CELL * hidden + i];
            c[t * hidden + i] = now;
            h[t * hidden + i] = gate[OUTPUT * hidden + i] * tanh(now);
        }
    }
}

static void lstm(const kolo_call *call) {
    const int64_t *dim = call->spec->out[0].shape.dim;
    const int64_t sample = dim[1] * dim[2];
    const bool state = call->spec->n_in > 3;
    for (int64_t n = 0; n < dim[0]; n++) {
        lstm_sample((const double *)call->in[0] + LSTM_GATES * n * sample, call->in[1], call->in[2],
                    state ? sample_of(call->in[3], n, dim[2]) : NULL,
                    state ? sample_of(call->in[4], n, dim[2]) : NULL, dim[1], dim[2],
                    (double *)call->out[0] + n * sample,
                    (double *)call->out[1] + LSTM_GATES * n * sample,
                    (double *)call->out[2] + n * sample);
    }
}

/* dc [H] is the cell's gradient from the following time step; in the end that of c0. */
static void lstm_sample_bwd(const double *dh, const double *gates, const double *c, const double *w,
                            const double *c0, int64_t length, int64_t hidden, double *dc,
                            double *dgx) {
    memset(dc, 0, sizeof(double) * (size_t)hidden);
    for (int64_t t = length - 1; t >= 0; t--) {
        const double *gate = gates + t * LSTM_GATES * hidden;
        const double *after = t + 1 < length ? dgx + (t + 1) * LSTM_GATES * hidden : NULL;
        double *d = dgx + t * LSTM_GATES * hidden;
        for (int64_t i = 0; i < hidden; i++) {
            double in = gate[INPUT * hidden + i], forget = gate[FORGET * hidden + i];
            double cell = gate[CELL * hidden + i], out = gate[OUTPUT * hidden + i];
            double old = t > 0 ? c[(t - 1) * hidden + i] : c0 ? c0[i] : 0;
            double th = tanh(c[t * hidden + i]);
            double to_h = dh[t * hidden + i] + dot_column(after, w, LSTM_GATES * hidden, i, hidden);
            double to_c = dc[i] + to_h * out * (1 - th * th);
            d[INPUT * hidden + i] = to_c * cell * in * (1 - in);
            d[FORGET * hidden + i] = to_c * old * forget * (1 - forget);
            d[CELL * hidden + i] = to_c * in * (1 - cell * cell);
            d[OUTPUT * hidden + i] = to_h * th * out * (1 - out);
            dc[i] = to_c * forget;
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
        double *dgx = (double *)call->out[0] + LSTM_GATES * n * sample;
        lstm_sample_bwd((const double *)call->in[0] + n * sample,
                        (const double *)call->in[1] + LSTM_GATES * n * sample,
                        (const double *)call->in[2] + n * sample, w,
                        state ? sample_of(call->in[4], n, dim[2]) : NULL, dim[1], dim[2], dc, dgx);
        for (int64_t i = 0; i < dim[2] && state; i++) {
            ((double *)call->out[1])[n * dim[2] + i] =
                dot_column(dgx, w, LSTM_GATES * dim[2], i, dim[2]);
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

static void shift(const kolo_call *call) {
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
static void run_shift(const kolo_call *call) { kolo_ref_run(call, shift); }

const kolo_kernel kolo_ref_lstm = KOLO_REF_KERNEL("ref_lstm", &kolo_op_lstm, run_lstm);
const kolo_kernel kolo_ref_lstm_bwd = {
    .name = "ref_lstm_bwd",
    .op = &kolo_op_lstm_bwd,
    .fit = kolo_ref_fit,
    .prepare = prepare_bwd,
    .run = run_lstm_bwd,
    .release = kolo_ref_release,
};
const kolo_kernel kolo_ref_shift = KOLO_REF_KERNEL("ref_shift", &kolo_op_shift, run_shift);
const kolo_kernel kolo_ref_gru = KOLO_REF_KERNEL("ref_gru", &kolo_op_gru, run_gru);
const kolo_kernel kolo_ref_gru_bwd = {
    .name = "ref_gru_bwd",
    .op = &kolo_op_gru_bwd,
    .fit = kolo_ref_fit,
    .prepare = prepare_bwd,
    .run = run_gru_bwd,
    .release = kolo_ref_release,
};
