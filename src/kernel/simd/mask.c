/* mask_tokens with f32 scalars, without the conversions of the reference kernels. */
#include "kernel/mask_tokens.h"
#include "kernel/simd/simd.h"

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_floats_are(spec, KOLO_DTYPE_F32) || !kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 5 * (double)kolo_tensor_bytes(&spec->in[2]), 1);
}
static void run(const kolo_call *call) {
    kolo_kernel_mask_tokens(call, (double)*(const float *)call->in[0],
                            (double)*(const float *)call->in[1]);
}

const kolo_kernel kolo_simd_mask_tokens = {
    .name = "simd_mask_tokens", .op = &kolo_op_mask_tokens, .fit = fit, .run = run};
