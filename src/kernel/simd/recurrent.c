/* LSTM, GRU and their gradients (loops: recurrent.isa.c), time steps of an LSTM, and shift. The
 * recurrent weights are packed into tiles once; each time step is then one matrix product for all
 * samples, followed by the gates. */

#include "kernel/simd/recurrent.h"

#include "graph/ops/lstm.h"

#include <string.h>

enum { GX, W, B, H0, C0 };
enum { BWD_DH, BWD_GATES, LSTM_BWD_C, LSTM_BWD_W, LSTM_BWD_C0 };
enum { GRU_BWD_Q = 2, GRU_BWD_H, GRU_BWD_W, GRU_BWD_H0 };

typedef struct recurrent_state {
    const kolo_simd_recurrent_table *table;
    const kolo_simd_recurrent_loops *loops;
    int64_t n_gates;
    int64_t panels, packed, product; /* of the weights; floats of both in scratch memory */
} recurrent_state;

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    kolo_tensor out[KOLO_MAX_IO];
    for (int i = 0; i < spec->n_out; i++) out[i] = spec->out[i];
    kolo_cost cost = spec->op->cost(
        &(kolo_shape_query){spec->attr, spec->n_in, spec->in, spec->n_out, out, spec->op});
    return kolo_kernel_seconds(cost.flops, cost.bytes, 0.5);
}

static bool is_lstm(const kolo_kernel_spec *spec) {
    return spec->op == &kolo_op_lstm || spec->op == &kolo_op_lstm_bwd;
}
static bool is_forward(const kolo_kernel_spec *spec) {
    return spec->op == &kolo_op_lstm || spec->op == &kolo_op_gru;
}

/* Of h, or of dh: N,T,H. */
static const int64_t *dims_of(const kolo_kernel_spec *spec) {
    return is_forward(spec) ? spec->out[0].shape.dim : spec->in[BWD_DH].shape.dim;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    recurrent_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    const int64_t *dim = dims_of(spec);
    s->n_gates = is_lstm(spec) ? 4 : 3;
    const int64_t gates = s->n_gates * dim[2];
    s->table = KOLO_ISA_PICK(kolo_simd_recurrent);
    s->loops = is_lstm(spec) ? &s->table->lstm : &s->table->gru;
    s->panels = ((is_forward(spec) ? gates : dim[2]) + s->table->tile - 1) / s->table->tile;
    const int64_t padded = s->panels * s->table->tile;
    s->packed = padded * (is_forward(spec) ? dim[2] : gates);
    s->product = dim[0] * padded;
    *scratch_bytes = sizeof(float) * (size_t)(s->packed + s->product + dim[0] * dim[2]);
    *state = s;
    return KOLO_OK;
}

static kolo_simd_recurrent_job job_of(const kolo_call *call) {
    const recurrent_state *s = call->state;
    const int64_t *dim = dims_of(call->spec);
    float *scratch = call->scratch;
    return (kolo_simd_recurrent_job){
        .samples = dim[0],
        .length = dim[1],
        .hidden = dim[2],
        .n_gates = s->n_gates,
        .kept = dim[1],
        .packed = scratch,
        .product = scratch + s->packed,
        .pitch = s->panels * s->table->tile,
        .carry = scratch + s->packed + s->product,
    };
}

/* Input i; NULL: there is none. */
static const float *input(const kolo_call *call, int i) {
    return i < call->spec->n_in ? call->in[i] : NULL;
}

static void run_forward(const kolo_call *call) {
    const recurrent_state *s = call->state;
    const int threads = call->spec->threads;
    const bool lstm = is_lstm(call->spec);
    kolo_simd_recurrent_job job = job_of(call);
    job.gx = call->in[GX];
    job.w = call->in[W];
    job.b = call->in[B];
    job.h0 = input(call, H0);
    job.c0 = input(call, C0);
    job.h = call->out[0];
    job.gates = call->out[1];
    job.c = lstm ? call->out[2] : NULL;
    job.q = lstm ? NULL : call->out[2];
    kolo_kernel_parallel(threads, s->panels, s->table->pack, &job);
    for (job.step = 0; job.step < job.length; job.step++) {
        job.follows = job.step > 0 || job.h0;
        if (job.follows) {
            kolo_kernel_parallel(threads, s->panels, s->table->multiply, &job);
        }
        kolo_kernel_parallel(threads, job.samples, s->loops->gates, &job);
    }
}

static void steps_bwd(const kolo_call *call, kolo_simd_recurrent_job *job) {
    const recurrent_state *s = call->state;
    const int threads = call->spec->threads;
    kolo_kernel_parallel(threads, s->panels, s->table->pack_bwd, job);
    for (job->step = job->length - 1; job->step >= 0; job->step--) {
        job->follows = job->step < job->length - 1;
        if (job->follows) {
            kolo_kernel_parallel(threads, s->panels, s->table->multiply_bwd, job);
        }
        kolo_kernel_parallel(threads, job->samples, s->loops->gates_bwd, job);
    }
}

/* dh0 = dgh[0] w, plus the carry of each channel or not. */
static void before_first(const kolo_call *call, kolo_simd_recurrent_job *job, float *dh0,
                         bool with_carry) {
    const recurrent_state *s = call->state;
    job->step = -1;
    kolo_kernel_parallel(call->spec->threads, s->panels, s->table->multiply_bwd, job);
    for (int64_t n = 0; n < job->samples; n++) {
        for (int64_t i = 0; i < job->hidden; i++) {
            const float carry = with_carry ? job->carry[n * job->hidden + i] : 0;
            dh0[n * job->hidden + i] = job->product[n * job->pitch + i] + carry;
        }
    }
}

static void run_lstm_bwd(const kolo_call *call) {
    kolo_simd_recurrent_job job = job_of(call);
    job.dh = call->in[BWD_DH];
    job.gates = call->in[BWD_GATES];
    job.c = call->in[LSTM_BWD_C];
    job.w = call->in[LSTM_BWD_W];
    job.c0 = input(call, LSTM_BWD_C0);
    job.dgx = job.dgh = call->out[0];
    steps_bwd(call, &job);
    if (!job.c0) return;
    before_first(call, &job, call->out[1], false);
    memcpy(call->out[2], job.carry, sizeof(float) * (size_t)(job.samples * job.hidden));
}

static void run_gru_bwd(const kolo_call *call) {
    kolo_simd_recurrent_job job = job_of(call);
    job.dh = call->in[BWD_DH];
    job.gates = call->in[BWD_GATES];
    job.q = call->in[GRU_BWD_Q];
    job.h = call->in[GRU_BWD_H];
    job.w = call->in[GRU_BWD_W];
    job.h0 = input(call, GRU_BWD_H0);
    job.dgx = call->out[0];
    job.dgh = call->out[1];
    steps_bwd(call, &job);
    if (job.h0) before_first(call, &job, call->out[2], true);
}

KOLO_SIMD_KERNEL(lstm, run_forward);
KOLO_SIMD_KERNEL(lstm_bwd, run_lstm_bwd);
KOLO_SIMD_KERNEL(gru, run_forward);
KOLO_SIMD_KERNEL(gru_bwd, run_gru_bwd);

/* ---- time steps ---- */

static void run_cell(const kolo_call *call) {
    enum { CELL_GX, CELL_B, CELL_PRODUCT, CELL_BEFORE };
    const kolo_kernel_spec *spec = call->spec;
    const int64_t *dim = spec->out[0].shape.dim;
    const kolo_simd_recurrent_job job = {
        .samples = dim[0],
        .length = spec->in[CELL_GX].shape.dim[1],
        .hidden = dim[2],
        .n_gates = 4,
        .step = spec->attr[KOLO_LSTM_CELL_STEP].i,
        .kept = 1,
        .follows = spec->n_in > CELL_PRODUCT,
        .gx = call->in[CELL_GX],
        .b = call->in[CELL_B],
        .c0 = input(call, CELL_BEFORE),
        .product = spec->n_in > CELL_PRODUCT ? call->in[CELL_PRODUCT] : NULL,
        .pitch = 4 * dim[2],
        .h = call->out[0],
        .gates = call->out[1],
        .c = call->out[2],
    };
    const kolo_simd_recurrent_table *table = KOLO_ISA_PICK(kolo_simd_recurrent);
    kolo_kernel_parallel(spec->threads, job.samples, table->lstm.gates, &job);
}

static void run_cell_bwd(const kolo_call *call) {
    enum { CELL_DH, CELL_GATES, CELL_C, CELL_TO_H, CELL_DC };
    const kolo_kernel_spec *spec = call->spec;
    const int64_t *dim = spec->in[CELL_DH].shape.dim;
    const bool follows = spec->n_in > CELL_DC; /* another time step does */
    const kolo_simd_recurrent_job job = {
        .samples = dim[0],
        .length = dim[1],
        .hidden = dim[2],
        .n_gates = 4,
        .step = spec->attr[KOLO_LSTM_CELL_STEP].i,
        .kept = 1,
        .follows = follows,
        .dh = call->in[CELL_DH],
        .gates = call->in[CELL_GATES],
        .c = call->in[CELL_C],
        .c0 = spec->n_in % 2 == 0 ? call->in[spec->n_in - 1] : NULL,
        .product = follows ? call->in[CELL_TO_H] : NULL,
        .pitch = dim[2],
        .dgx = call->out[0],
        .carry = call->out[1],
    };
    const kolo_simd_recurrent_table *table = KOLO_ISA_PICK(kolo_simd_recurrent);
    if (follows) memcpy(job.carry, call->in[CELL_DC], kolo_tensor_bytes(&spec->out[1]));
    kolo_kernel_parallel(spec->threads, job.samples, table->lstm.gates_bwd, &job);
}

const kolo_kernel kolo_simd_lstm_cell = {
    .name = "simd_lstm_cell", .op = &kolo_op_lstm_cell, .fit = fit, .run = run_cell};
const kolo_kernel kolo_simd_lstm_cell_bwd = {
    .name = "simd_lstm_cell_bwd", .op = &kolo_op_lstm_cell_bwd, .fit = fit, .run = run_cell_bwd};

/* ---- shift ---- */

static double fit_shift(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 2 * (double)kolo_tensor_bytes(&spec->in[0]), 2);
}

static void run_shift(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    bool back = call->spec->attr[KOLO_SHIFT_BACK].i != 0;
    size_t row = sizeof(float) * (size_t)dim[2], sample = row * (size_t)dim[1];
    for (int64_t n = 0; n < dim[0]; n++) {
        const char *x = (const char *)call->in[0] + (size_t)n * sample;
        char *y = (char *)call->out[0] + (size_t)n * sample;
        memcpy(y + (back ? 0 : row), x + (back ? row : 0), sample - row);
        memset(y + (back ? sample - row : 0), 0, row);
    }
}

const kolo_kernel kolo_simd_shift = {
    .name = "simd_shift", .op = &kolo_op_shift, .fit = fit_shift, .run = run_shift};
