/* LSTM and its gradient, one time step after the other; shift. */
#include "kernel/ref/ref.h"

#include <math.h>
#include <string.h>

enum { INPUT, FORGET, CELL, OUTPUT }; /* gates, H of each */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* One sample: rows of 4H gates, rows of H for h and c. */
static void forward_sample(const double *gx, const double *w, const double *b, int64_t length,
                           int64_t hidden, double *h, double *gates, double *c) {
    for (int64_t t = 0; t < length; t++) {
        const double *before = t > 0 ? h + (t - 1) * hidden : NULL;
        double *gate = gates + t * 4 * hidden;
        for (int64_t i = 0; i < 4 * hidden; i++) {
            double sum = gx[t * 4 * hidden + i] + b[i];
            for (int64_t k = 0; before && k < hidden; k++) sum += before[k] * w[i * hidden + k];
            gate[i] = i / hidden == CELL ? tanh(sum) : sigmoid(sum);
        }
        for (int64_t i = 0; i < hidden; i++) {
            double old = t > 0 ? c[(t - 1) * hidden + i] : 0;
            double now = gate[FORGET * hidden + i] * old +
                         gate[INPUT * hidden + i] * gate[CELL * hidden + i];
            c[t * hidden + i] = now;
            h[t * hidden + i] = gate[OUTPUT * hidden + i] * tanh(now);
        }
    }
}

static void lstm(const kolo_call *call) {
    const int64_t *dim = call->spec->out[0].shape.dim;
    int64_t sample = dim[1] * dim[2];
    for (int64_t n = 0; n < dim[0]; n++) {
        forward_sample((const double *)call->in[0] + 4 * n * sample, call->in[1], call->in[2],
                       dim[1], dim[2], (double *)call->out[0] + n * sample,
                       (double *)call->out[1] + 4 * n * sample,
                       (double *)call->out[2] + n * sample);
    }
}

/* dc [H] is the cell's gradient from the following time step. */
static void backward_sample(const double *dh, const double *gates, const double *c, const double *w,
                            int64_t length, int64_t hidden, double *dc, double *dgx) {
    memset(dc, 0, sizeof(double) * (size_t)hidden);
    for (int64_t t = length - 1; t >= 0; t--) {
        const double *gate = gates + t * 4 * hidden, *after = dgx + (t + 1) * 4 * hidden;
        double *d = dgx + t * 4 * hidden;
        for (int64_t i = 0; i < hidden; i++) {
            double in = gate[INPUT * hidden + i], forget = gate[FORGET * hidden + i];
            double cell = gate[CELL * hidden + i], out = gate[OUTPUT * hidden + i];
            double old = t > 0 ? c[(t - 1) * hidden + i] : 0, th = tanh(c[t * hidden + i]);
            double to_h = dh[t * hidden + i];
            for (int64_t k = 0; t + 1 < length && k < 4 * hidden; k++) {
                to_h += after[k] * w[k * hidden + i];
            }
            double to_c = dc[i] + to_h * out * (1 - th * th);
            d[INPUT * hidden + i] = to_c * cell * in * (1 - in);
            d[FORGET * hidden + i] = to_c * old * forget * (1 - forget);
            d[CELL * hidden + i] = to_c * in * (1 - cell * cell);
            d[OUTPUT * hidden + i] = to_h * th * out * (1 - out);
            dc[i] = to_c * forget;
        }
    }
}

/* Scratch memory: that of kolo_ref_run, then dc. */
static kolo_status prepare_bwd(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    KOLO_TRY(kolo_ref_prepare(spec, state, scratch_bytes));
    *scratch_bytes += sizeof(double) * (size_t)spec->in[0].shape.dim[2];
    return KOLO_OK;
}

static void lstm_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    int64_t sample = dim[1] * dim[2];
    void *none = NULL;
    size_t offset = 0;
    (void)kolo_ref_prepare(call->spec, &none, &offset); /* cannot fail: it only counts bytes */
    double *dc = (double *)((char *)call->scratch + offset);
    for (int64_t n = 0; n < dim[0]; n++) {
        backward_sample((const double *)call->in[0] + n * sample,
                        (const double *)call->in[1] + 4 * n * sample,
                        (const double *)call->in[2] + n * sample, call->in[3], dim[1], dim[2], dc,
                        (double *)call->out[0] + 4 * n * sample);
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
