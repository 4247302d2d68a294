/* Loops of the LSTM: packing of the weights, the product of a time step, the gates. */
#include "kernel/simd/lstm.h"

#include "kernel/simd/math.h"
#include "kernel/simd/tile.h"

enum { INPUT, FORGET, CELL, OUTPUT }; /* gates, H of each */

INLINE vf get(const float *p, int64_t n) { return n >= VL ? load(p) : load_part(p, n); }
INLINE void put(float *p, vf v, int64_t n) {
    if (n >= VL) {
        store(p, v);
    } else {
        store_part(p, v, n);
    }
}

/* ---- forwards: h[t-1] w^T, four gates for each channel ---- */

static void pack_weights(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lstm_job *job = arg;
    int64_t n = job->hidden;
    pack_transposed(job->w + begin * TILE * n, n, kolo_min_i64(end * TILE, 4 * n) - begin * TILE, n,
                    job->packed + begin * TILE * n, n * TILE);
}

static void multiply_step(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lstm_job *job = arg;
    const product p = {
        .rows = job->samples,
        .inner = job->hidden,
        .a = job->h + (job->step - 1) * job->hidden,
        .row = job->length * job->hidden,
        .step = 1,
        .b = job->packed,
        .panel = job->hidden * TILE,
        .c = job->product,
        .pitch = job->pitch,
    };
    multiply(&p, begin, end);
}

/* The pre-activation of gate `gate` for channels from c on. */
INLINE vf raw(const kolo_simd_lstm_job *job, const float *gx, const float *of_h, int gate,
              int64_t c, int64_t n) {
    int64_t at = gate * job->hidden + c;
    vf x = get(gx + at, n) + get(job->b + at, n);
    return of_h ? x + get(of_h + at, n) : x;
}

static void gates_step(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lstm_job *job = arg;
    int64_t hidden = job->hidden;
    for (int64_t i = begin; i < end; i++) {
        int64_t token = i * job->length + job->step;
        const float *gx = job->gx + token * 4 * hidden;
        const float *of_h = job->step > 0 ? job->product + i * job->pitch : NULL;
        float *gate = job->gates + token * 4 * hidden, *cell = job->c + token * hidden;
        float *h = job->h + token * hidden;
        for (int64_t c = 0; c < hidden; c += VL) {
            int64_t n = hidden - c;
            vf in = sigmoid(raw(job, gx, of_h, INPUT, c, n));
            vf forget = sigmoid(raw(job, gx, of_h, FORGET, c, n));
            vf new = hyperbolic_tangent(raw(job, gx, of_h, CELL, c, n));
            vf out = sigmoid(raw(job, gx, of_h, OUTPUT, c, n));
            vf old = job->step > 0 ? get(cell - hidden + c, n) : splat(0);
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

/* ---- backwards: dgx[t+1] w, then the gates' gradients ---- */

static void pack_weights_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lstm_job *job = arg;
    int64_t n = job->hidden;
    pack(job->w + begin * TILE, 4 * n, kolo_min_i64(end * TILE, n) - begin * TILE, n,
         job->packed + begin * TILE * 4 * n, 4 * n * TILE);
}

static void multiply_step_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lstm_job *job = arg;
    const product p = {
        .rows = job->samples,
        .inner = 4 * job->hidden,
        .a = job->dgx + (job->step + 1) * 4 * job->hidden,
        .row = job->length * 4 * job->hidden,
        .step = 1,
        .b = job->packed,
        .panel = 4 * job->hidden * TILE,
        .c = job->product,
        .pitch = job->pitch,
    };
    multiply(&p, begin, end);
}

static void gates_step_bwd(const void *arg, int part, int64_t begin, int64_t end) {
    const kolo_simd_lstm_job *job = arg;
    int64_t hidden = job->hidden;
    bool last = job->step == job->length - 1;
    for (int64_t i = begin; i < end; i++) {
        int64_t token = i * job->length + job->step;
        const float *gate = job->gates + token * 4 * hidden, *cell = job->c + token * hidden;
        const float *from_after = job->product + i * job->pitch;
        float *d = job->dgx + token * 4 * hidden, *dc = job->dc + i * hidden;
        for (int64_t c = 0; c < hidden; c += VL) {
            int64_t n = hidden - c;
            vf in = get(gate + INPUT * hidden + c, n), forget = get(gate + FORGET * hidden + c, n);
            vf new = get(gate + CELL * hidden + c, n), out = get(gate + OUTPUT * hidden + c, n);
            vf old = job->step > 0 ? get(cell - hidden + c, n) : splat(0);
            vf th = hyperbolic_tangent(get(cell + c, n)),
               to_h = get(job->dh + token * hidden + c, n);
            if (!last) to_h += get(from_after + c, n);
            vf to_c = to_h * out * (1.0f - th * th);
            if (!last) to_c += get(dc + c, n);
            put(d + INPUT * hidden + c, to_c * new *in *(1.0f - in), n);
            put(d + FORGET * hidden + c, to_c * old * forget * (1.0f - forget), n);
            put(d + CELL * hidden + c, to_c * in * (1.0f - new *new), n);
            put(d + OUTPUT * hidden + c, to_h * th * out * (1.0f - out), n);
            put(dc + c, to_c * forget, n);
        }
    }
}

const kolo_simd_lstm_table KOLO_ISA_SYMBOL(kolo_simd_lstm) = {
    .pack = pack_weights,
    .multiply = multiply_step,
    .gates = gates_step,
    .pack_bwd = pack_weights_bwd,
    .multiply_bwd = multiply_step_bwd,
    .gates_bwd = gates_step_bwd,
    .tile = TILE,
};
