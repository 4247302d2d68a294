/* GELU, its gradient, and element-wise products, in f32 or bf16. All tensors share one layout,
 * which may have padding: each op maps zeros to zeros. */
#include "kernel/simd/activation.h"

#include "kernel/simd/pointwise.h"

static double fit(kolo_kernel_spec *spec) {
    double bytes = 0;
    if (!kolo_simd_supports(spec)) return -1;
    bool sums = spec->op == &kolo_op_gelu_bwd && spec->attr[KOLO_GELU_BWD_BIAS].i;
    if (sums && !kolo_spec_is_plain(spec)) return -1;
    for (int i = 0; i < spec->n_in; i++) {
        if (!kolo_layout_equal(&spec->in[i].layout, &spec->out[0].layout)) return -1;
        bytes += (double)kolo_tensor_bytes(&spec->in[i]);
    }
    return kolo_kernel_seconds(0, bytes + (double)kolo_tensor_bytes(&spec->out[0]), 2);
}

static kolo_kernel_loop loop_of(const kolo_kernel_spec *spec) {
    const kolo_simd_activation_table *t = KOLO_ISA_PICK(kolo_simd_activation);
    const kolo_op *op = spec->op;
    if (op == &kolo_op_gelu) return t->gelu[spec->attr[KOLO_GELU_TANH].i != 0];
    if (op == &kolo_op_gelu_bwd) {
        bool by_tanh = spec->attr[KOLO_GELU_TANH].i != 0;
        return spec->attr[KOLO_GELU_BWD_BIAS].i ? t->gelu_bwd_bias[by_tanh] : t->gelu_bwd[by_tanh];
    }
    return t->mul;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    kolo_kernel_loop *loop = kolo_alloc(sizeof *loop);
    if (!loop) return KOLO_NOMEM(sizeof *loop);
    *loop = loop_of(spec);
    *state = (void *)loop;
    *scratch_bytes = 0;
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_kernel_loop *loop = call->state;
    kolo_simd_pair_job job = {.a = call->in[0],
                              .b = spec->n_in > 1 ? call->in[1] : NULL,
                              .out = call->out[0],
                              .bf16 = kolo_simd_is_bf16(spec)};
    kolo_kernel_parallel(spec->threads, kolo_tensor_elements(&spec->out[0]), *loop, &job);
}

static void run_gelu_bwd(const kolo_call *call) {
    const kolo_kernel_spec *spec = call->spec;
    const kolo_kernel_loop *loop = call->state;
    if (!spec->attr[KOLO_GELU_BWD_BIAS].i) {
        run(call);
        return;
    }
    int64_t channels = spec->out[1].shape.dim[0];
    kolo_simd_gelu_bias_job job = {
        .dy = call->in[0],
        .x = call->in[1],
        .dx = call->out[0],
        .db = call->out[1],
        .rows = kolo_shape_count(&spec->out[0].shape) / channels,
        .channels = channels,
        .bf16 = kolo_simd_is_bf16(spec),
    };
    kolo_kernel_parallel(spec->threads, channels, *loop, &job);
}

KOLO_SIMD_KERNEL(gelu, run);
KOLO_SIMD_KERNEL(gelu_bwd, run_gelu_bwd);
KOLO_SIMD_KERNEL(mul, run);
