/* LARS and LAMB, when all tensors share one layout (loops: pointwise.isa.c). */
#include "graph/ops/ops.h"
#include "kernel/simd/pointwise.h"
#include "kernel/simd/simd.h"

#include <math.h>

/* Vectors of block sums are plain; all else shares the layout of w. */
static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32)) return -1;
    for (int i = 0; i < spec->n_in + spec->n_out; i++) {
        const kolo_tensor *t = i < spec->n_in ? &spec->in[i] : &spec->out[i - spec->n_in];
        bool tensor = kolo_shape_equal(&t->shape, &spec->in[0].shape);
        if (tensor && !kolo_layout_equal(&t->layout, &spec->in[0].layout)) return -1;
        bytes += (double)kolo_tensor_bytes(t);
    }
    return kolo_kernel_seconds(0, bytes, 2);
}

/* The norm whose block sums are input i. */
static double norm_of(const kolo_call *call, int i) {
    const float *blocks = call->in[i];
    double sum = 0;
    for (int64_t b = 0; b < call->spec->in[i].shape.dim[0]; b++) sum += (double)blocks[b];
    return sqrt(sum);
}

static void run(const kolo_call *call, kolo_kernel_loop loop, const void *job) {
    kolo_kernel_parallel(call->spec->threads, kolo_tensor_elements(&call->spec->in[0]), loop, job);
}

static void run_lars(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    double rate = (double)*(const float *)call->in[2], decay = attr[KOLO_LARS_WEIGHT_DECAY].f;
    if (call->spec->n_in > 4) {
        double of_w = norm_of(call, 4), of_g = norm_of(call, 5);
        double trust = attr[KOLO_LARS_TRUST].f;
        if (of_w > 0 && of_g > 0) rate *= trust * of_w / (of_g + decay * of_w);
    }
    const kolo_simd_lars_job job = {
        .w = call->in[0],
        .g = call->in[1],
        .v = call->in[3],
        .w_next = call->out[0],
        .v_next = call->out[1],
        .momentum = (float)attr[KOLO_LARS_MOMENTUM].f,
        .decay = (float)decay,
        .rate = (float)rate,
    };
    run(call, KOLO_ISA_PICK(kolo_simd_point)->lars, &job);
}

static void run_lamb(const kolo_call *call) {
    const kolo_attr *attr = call->spec->attr;
    double update = (double)*(const float *)call->in[2];
    double beta1 = attr[KOLO_ADAM_BETA1].f, beta2 = attr[KOLO_ADAM_BETA2].f;
    const kolo_simd_lamb_job job = {
        .w = call->in[0],
        .g = call->in[1],
        .m = call->in[3],
        .v = call->in[4],
        .m_next = call->out[0],
        .v_next = call->out[1],
        .u = call->out[2],
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .eps = (float)attr[KOLO_ADAM_EPS].f,
        .decay = (float)attr[KOLO_ADAM_WEIGHT_DECAY].f,
        .widen = (float)(1 / (1 - pow(beta1, update))),
        .narrow = (float)(1 / sqrt(1 - pow(beta2, update))),
    };
    run(call, KOLO_ISA_PICK(kolo_simd_point)->lamb, &job);
}

static void run_lamb_step(const kolo_call *call) {
    double rate = (double)*(const float *)call->in[2];
    if (call->spec->n_in > 3) {
        double of_w = norm_of(call, 3), of_u = norm_of(call, 4);
        if (of_w > 0 && of_u > 0) rate *= of_w / of_u;
    }
    const kolo_simd_sgd_job job = {.w = call->in[0],
                                   .g = kolo_simd_gradient(call, 1),
                                   .w_next = call->out[0],
                                   .lr = (float)rate};
    run(call, KOLO_ISA_PICK(kolo_simd_point)->sgd_plain, &job);
}

const kolo_kernel kolo_simd_lars = {
    .name = "simd_lars", .op = &kolo_op_lars, .fit = fit, .run = run_lars};
const kolo_kernel kolo_simd_lamb = {
    .name = "simd_lamb", .op = &kolo_op_lamb, .fit = fit, .run = run_lamb};
const kolo_kernel kolo_simd_lamb_step = {
    .name = "simd_lamb_step", .op = &kolo_op_lamb_step, .fit = fit, .run = run_lamb_step};
