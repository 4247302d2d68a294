/* mask_tokens. */
#include "kernel/mask_tokens.h"
#include "kernel/ref/ref.h"

const kolo_kernel kolo_ref_mask_tokens =
    KOLO_REF_KERNEL("ref_mask_tokens", &kolo_op_mask_tokens, kolo_kernel_mask_tokens);
