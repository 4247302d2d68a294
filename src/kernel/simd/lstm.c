/* LSTM and its gradient (loops: lstm.isa.c), and shift. The recurrent weights are packed into
 * tiles once; each time step is then one matrix product for all samples, followed by the gates. */

#include "kernel/simd/lstm.h"

#include <string.h>

enum { LSTM_GX, LSTM_W, LSTM_B };
enum { BWD_DH, BWD_GATES, BWD_C, BWD_W };

typedef struct lstm_state {
    const kolo_simd_lstm_table *loops;
    int64_t panels, packed, product; /* of the weights; floats of both in scratch memory */
} lstm_state;

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    kolo_tensor out[KOLO_MAX_IO];
    for (int i = 0; i < spec->n_out; i++) out[i] = spec->out[i];
    kolo_cost cost =
        spec->op->cost(&(kolo_shape_query){spec->attr, spec->n_in, spec->in, spec->n_out, out});
    return kolo_kernel_seconds(cost.flops, cost.bytes, 0.5);
}

/* Of h, or of dh: N,T,H. */
static const int64_t *dims_of(const kolo_kernel_spec *spec) {
    return spec->op == &kolo_op_lstm ? spec->out[0].shape.dim : spec->in[BWD_DH].shape.dim;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    lstm_state *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    const int64_t *dim = dims_of(spec);
    int64_t columns = spec->op == &kolo_op_lstm ? 4 * dim[2] : dim[2];
    s->loops = KOLO_ISA_PICK(kolo_simd_lstm);
    s->panels = (columns + s->loops->tile - 1) / s->loops->tile;
    int64_t padded = s->panels * s->loops->tile;
    s->packed = padded * (spec->op == &kolo_op_lstm ? dim[2] : 4 * dim[2]);
    s->product = dim[0] * padded;
    *scratch_bytes = sizeof(float) * (size_t)(s->packed + s->product + dim[0] * dim[2]);
    *state = s;
    return KOLO_OK;
}

static kolo_simd_lstm_job job_of(const kolo_call *call) {
    const lstm_state *s = call->state;
    const int64_t *dim = dims_of(call->spec);
    float *scratch = call->scratch;
    return (kolo_simd_lstm_job){
        .samples = dim[0],
        .length = dim[1],
        .hidden = dim[2],
        .packed = scratch,
        .product = scratch + s->packed,
        .pitch = s->panels * s->loops->tile,
        .dc = scratch + s->packed + s->product,
    };
}

static void run_forward(const kolo_call *call) {
    const lstm_state *s = call->state;
    int threads = call->spec->threads;
    kolo_simd_lstm_job job = job_of(call);
    job.gx = call->in[LSTM_GX];
    job.w = call->in[LSTM_W];
    job.b = call->in[LSTM_B];
    job.h = call->out[0];
    job.gates = call->out[1];
    job.c = call->out[2];
    kolo_kernel_parallel(threads, s->panels, s->loops->pack, &job);
    for (job.step = 0; job.step < job.length; job.step++) {
        if (job.step > 0) kolo_kernel_parallel(threads, s->panels, s->loops->multiply, &job);
        kolo_kernel_parallel(threads, job.samples, s->loops->gates, &job);
    }
}

static void run_backward(const kolo_call *call) {
    const lstm_state *s = call->state;
    int threads = call->spec->threads;
    kolo_simd_lstm_job job = job_of(call);
    job.dh = call->in[BWD_DH];
    job.gates = call->in[BWD_GATES];
    job.c = call->in[BWD_C];
    job.w = call->in[BWD_W];
    job.dgx = call->out[0];
    kolo_kernel_parallel(threads, s->panels, s->loops->pack_bwd, &job);
    for (job.step = job.length - 1; job.step >= 0; job.step--) {
        if (job.step < job.length - 1) {
            kolo_kernel_parallel(threads, s->panels, s->loops->multiply_bwd, &job);
        }
        kolo_kernel_parallel(threads, job.samples, s->loops->gates_bwd, &job);
    }
}

KOLO_SIMD_KERNEL(lstm, run_forward);
KOLO_SIMD_KERNEL(lstm_bwd, run_backward);

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
