/* mask_tokens. */
#include "kernel/mask_tokens.h"
#include "kernel/ref/ref.h"

static void body(const kolo_call *call) {
    kolo_kernel_mask_tokens(call, *(const double *)call->in[0], *(const double *)call->in[1]);
}
static void run(const kolo_call *call) { kolo_ref_run(call, body); }

const kolo_kernel kolo_ref_mask_tokens =
    KOLO_REF_KERNEL("ref_mask_tokens", &kolo_op_mask_tokens, run);
