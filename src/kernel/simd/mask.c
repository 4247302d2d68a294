/* mask_tokens for plans of the fast kernels: the common body, with the estimate of a fast kernel.
 */
#include "kernel/mask_tokens.h"
#include "kernel/simd/simd.h"

static double fit(kolo_kernel_spec *spec) {
    if (!kolo_spec_is_plain(spec)) return -1;
    return kolo_kernel_seconds(0, 5 * (double)kolo_tensor_bytes(&spec->in[2]), 1);
}

const kolo_kernel kolo_simd_mask_tokens = {.name = "simd_mask_tokens",
                                           .op = &kolo_op_mask_tokens,
                                           .fit = fit,
                                           .run = kolo_kernel_mask_tokens};
