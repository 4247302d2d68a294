/* Elementwise functions of one input and their gradients, in f32 or bf16. All tensors share one
 * layout. It may have padding if the function gives zero for zeros. */
#include "kernel/simd/unary.h"

#include <math.h>
#include <stddef.h>

#define ROW(name) {&kolo_op_##name, offsetof(kolo_simd_unary_table, name)},
static const struct {
    const kolo_op *op;
    size_t at; /* of its loop in the table */
} rows[] = {KOLO_UNARY_LIST(KOLO_UNARY_OP, ROW)};

static kolo_kernel_loop loop_of(const kolo_op *op) {
    size_t i = 0;
    while (rows[i].op != op) i++;
    const char *table = (const char *)KOLO_ISA_PICK(kolo_simd_unary);
    return *(const kolo_kernel_loop *)(const void *)(table + rows[i].at);
}

static kolo_simd_unary_job job_of(const kolo_kernel_spec *spec) {
    return (kolo_simd_unary_job){.p = (float)spec->attr[KOLO_UNARY_P].f,
                                 .q = (float)spec->attr[KOLO_UNARY_Q].f};
}

static bool keeps_zero(const kolo_kernel_spec *spec) {
    const float zero = 0;
    float y = 1;
    kolo_simd_unary_job job = job_of(spec);
    job.a = job.v = &zero;
    job.out = &y;
    loop_of(spec->op)(&job, 0, 0, 1);
    return y == 0 && !signbit(y);
}

static double fit(kolo_kernel_spec *spec) {
    const kolo_tensor *y = &spec->out[0];
    double bytes = (double)kolo_tensor_bytes(y);
    if (!kolo_simd_supports(spec)) return -1;
    for (int i = 0; i < spec->n_in; i++) {
        if (!kolo_layout_equal(&spec->in[i].layout, &y->layout)) return -1;
        bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    }
    bool padded = kolo_tensor_elements(y) != kolo_shape_count(&y->shape);
    if (padded && !keeps_zero(spec)) return -1;
    return kolo_kernel_seconds(0, bytes, 2);
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    kolo_simd_unary_job job = job_of(spec);
    job.a = call->in[0];
    job.v = call->in[spec->n_in - 1];
    job.out = call->out[0];
    job.bf16 = kolo_simd_is_bf16(spec);
    kolo_kernel_parallel(spec->threads, kolo_tensor_elements(&spec->out[0]), loop_of(spec->op),
                         &job);
}

#define KERNEL(op_name)                       \
    const kolo_kernel kolo_simd_##op_name = { \
        .name = "simd_" #op_name, .op = &kolo_op_##op_name, .fit = fit, .run = run};
KOLO_UNARY_LIST(KOLO_UNARY_OP, KERNEL)
