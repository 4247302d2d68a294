/* Loops of LSTM and GRU: packing of the weights, the product of a time step, the gates. */
#include "kernel/simd/recurrent.h"

#include "kernel/simd/math.h"
#include "kernel/simd/tile.h"

enum { INPUT, FORGET, CELL, OUTPUT, LSTM_GATES }; /* gates, H of each */
enum { RESET, UPDATE, NEW, GRU_GATES };

INLINE vf get(const float *p, int64_t n) { return n >= VL ? load(p) : load_part(p, n); }
INLINE void put(float *p, vf v, int64_t n) {
    if (n >= VL) {
        store(p, v);
    } else {
        store_part(p, v, n);
    }
}

/* ---- forwards: h[t-1] w^T, the gates of each channel ---- */

static void pack_weights(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    int64_t n = job->hidden;
    pack_transposed(job->w + begin * TILE * n, n,
                    kolo_min_i64(end * TILE, job->n_gates * n) - begin * TILE, n,
                    job->packed + begin * TILE * n, n * TILE);
}

static void multiply_step(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    const product p = {
        .rows = job->samples,
        .inner = job->hidden,
        .a = job->step > 0 ? job->h + (job->step - 1) * job->hidden : job->h0,
        .row = (job->step > 0 ? job->length : 1) * job->hidden,
        .step = 1,
        .b = job->packed,
        .panel = job->hidden * TILE,
        .c = job->product,
        .pitch = job->pitch,
    };
    multiply(&p, begin, end * TILE);
}

/* The place of a time step in what a layer keeps of all of its steps, or a cell of its own. */
INLINE int64_t kept_at(const kolo_simd_recurrent_job *job, int64_t sample) {
    return sample * job->kept + (job->kept > 1 ? job->step : 0);
}

/* The state before this step at channels from c on: `row` is that of this step, `first` that before
 * the first one of those that are kept, of all samples; NULL: zero. */
INLINE vf state_before(const kolo_simd_recurrent_job *job, const float *row, const float *first,
                       int64_t i, int64_t c, int64_t n) {
    if (job->kept > 1 && job->step > 0) return get(row - job->hidden + c, n);
    return first ? get(first + i * job->hidden + c, n) : splat(0);
}

/* The pre-activation of gate `gate` for channels from c on. */
INLINE vf raw(const kolo_simd_recurrent_job *job, const float *gx, const float *of_h, int gate,
              int64_t c, int64_t n) {
    int64_t at = gate * job->hidden + c;
    vf x = get(gx + at, n) + get(job->b + at, n);
    return of_h ? x + get(of_h + at, n) : x;
}

static void lstm_gates(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    int64_t hidden = job->hidden;
    for (int64_t i = begin; i < end; i++) {
        int64_t token = i * job->length + job->step, at = kept_at(job, i);
        const float *gx = job->gx + token * 4 * hidden;
        const float *of_h = job->follows ? job->product + i * job->pitch : NULL;
        float *gate = job->gates + at * 4 * hidden, *cell = job->c + at * hidden;
        float *h = job->h + at * hidden;
        for (int64_t c = 0; c < hidden; c += VL) {
            int64_t n = hidden - c;
            vf in = sigmoid(raw(job, gx, of_h, INPUT, c, n));
            vf forget = sigmoid(raw(job, gx, of_h, FORGET, c, n));
            vf new = hyperbolic_tangent(raw(job, gx, of_h, CELL, c, n));
            vf out = sigmoid(raw(job, gx, of_h, OUTPUT, c, n));
            vf old = state_before(job, cell, job->c0, i, c, n);
            vf now = mul_add(forget, old, in * new);
            put(gate + INPUT * hidden + c, in, n);
            put(gate + FORGET * hidden + c, forget, n);
            put(gate + CELL * hidden + c, new, n);
            put(gate + OUTPUT * hidden + c, out, n);
            put(cell + c, now, n);
            put(h + c, out * hyperbolic_tangent(now), n);
        }
    }
}

/* ---- backwards: dgh[t+1] w, then the gates' gradients ---- */

static void pack_weights_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    const int64_t n = job->hidden, rows = job->n_gates * n;
    pack(job->w + begin * TILE, rows, kolo_min_i64(end * TILE, n) - begin * TILE, n,
         job->packed + begin * TILE * rows, rows * TILE);
}

static void multiply_step_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    const int64_t rows = job->n_gates * job->hidden;
    const product p = {
        .rows = job->samples,
        .inner = rows,
        .a = job->dgh + (job->step + 1) * rows,
        .row = job->length * rows,
        .step = 1,
        .b = job->packed,
        .panel = rows * TILE,
        .c = job->product,
        .pitch = job->pitch,
    };
    multiply(&p, begin, end * TILE);
}

static void lstm_gates_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    int64_t hidden = job->hidden;
    for (int64_t i = begin; i < end; i++) {
        int64_t token = i * job->length + job->step, at = kept_at(job, i);
        const float *gate = job->gates + at * 4 * hidden, *cell = job->c + at * hidden;
        const float *from_after = job->follows ? job->product + i * job->pitch : NULL;
        float *d = job->dgx + at * 4 * hidden, *dc = job->carry + i * hidden;
        for (int64_t c = 0; c < hidden; c += VL) {
            int64_t n = hidden - c;
            vf in = get(gate + INPUT * hidden + c, n), forget = get(gate + FORGET * hidden + c, n);
            vf new = get(gate + CELL * hidden + c, n), out = get(gate + OUTPUT * hidden + c, n);
            vf old = state_before(job, cell, job->c0, i, c, n);
            vf th = hyperbolic_tangent(get(cell + c, n)),
               to_h = get(job->dh + token * hidden + c, n);
            if (job->follows) to_h += get(from_after + c, n);
            vf to_c = to_h * out * (1.0f - th * th);
            if (job->follows) to_c += get(dc + c, n);
            put(d + INPUT * hidden + c, to_c * new *in *(1.0f - in), n);
            put(d + FORGET * hidden + c, to_c * old * forget * (1.0f - forget), n);
            put(d + CELL * hidden + c, to_c * in * (1.0f - new *new), n);
            put(d + OUTPUT * hidden + c, to_h * th * out * (1.0f - out), n);
            put(dc + c, to_c * forget, n);
        }
    }
}

/* ---- GRU ---- */

static void gru_gates(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    const int64_t hidden = job->hidden;
    for (int64_t i = begin; i < end; i++) {
        const int64_t token = i * job->length + job->step;
        const float *gx = job->gx + token * GRU_GATES * hidden;
        const float *of_h = job->follows ? job->product + i * job->pitch : NULL;
        float *gate = job->gates + token * GRU_GATES * hidden;
        float *h = job->h + token * hidden, *q = job->q + token * hidden;
        for (int64_t c = 0; c < hidden; c += VL) {
            const int64_t n = hidden - c, at = NEW * hidden + c;
            vf reset = sigmoid(raw(job, gx, of_h, RESET, c, n));
            vf update = sigmoid(raw(job, gx, of_h, UPDATE, c, n));
            vf of_state = get(job->b + at, n);
            if (of_h) of_state += get(of_h + at, n);
            vf new = hyperbolic_tangent(mul_add(reset, of_state, get(gx + at, n)));
            vf old = state_before(job, h, job->h0, i, c, n);
            put(gate + RESET * hidden + c, reset, n);
            put(gate + UPDATE * hidden + c, update, n);
            put(gate + at, new, n);
            put(q + c, of_state, n);
            put(h + c, mul_add(update, old - new, new), n);
        }
    }
}

static void gru_gates_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_recurrent_job *job = arg;
    const int64_t hidden = job->hidden;
    for (int64_t i = begin; i < end; i++) {
        const int64_t token = i * job->length + job->step;
        const float *gate = job->gates + token * GRU_GATES * hidden;
        const float *h = job->h + token * hidden, *q = job->q + token * hidden;
        const float *from_after = job->follows ? job->product + i * job->pitch : NULL;
        float *dx = job->dgx + token * GRU_GATES * hidden, *carry = job->carry + i * hidden;
        float *dh = job->dgh + token * GRU_GATES * hidden;
        for (int64_t c = 0; c < hidden; c += VL) {
            const int64_t n = hidden - c;
            vf reset = get(gate + RESET * hidden + c, n),
               update = get(gate + UPDATE * hidden + c, n);
            vf new = get(gate + NEW * hidden + c, n);
            vf old = state_before(job, h, job->h0, i, c, n);
            vf to_h = get(job->dh + token * hidden + c, n);
            if (job->follows) to_h += get(from_after + c, n) + get(carry + c, n);
            vf d_new = to_h * (1.0f - update) * (1.0f - new *new);
            vf d_reset = d_new * get(q + c, n) * reset * (1.0f - reset);
            vf d_update = to_h * (old - new) * update * (1.0f - update);
            put(dx + RESET * hidden + c, d_reset, n);
            put(dx + UPDATE * hidden + c, d_update, n);
            put(dx + NEW * hidden + c, d_new, n);
            put(dh + RESET * hidden + c, d_reset, n);
            put(dh + UPDATE * hidden + c, d_update, n);
            put(dh + NEW * hidden + c, d_new * reset, n);
            put(carry + c, to_h * update, n);
        }
    }
}

const kolo_simd_recurrent_table KOLO_ISA_SYMBOL(kolo_simd_recurrent) = {
    .pack = pack_weights,
    .multiply = multiply_step,
    .pack_bwd = pack_weights_bwd,
    .multiply_bwd = multiply_step_bwd,
    .lstm = {lstm_gates, lstm_gates_bwd},
    .gru = {gru_gates, gru_gates_bwd},
    .tile = TILE,
};
