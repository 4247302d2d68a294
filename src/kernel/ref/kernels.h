#pragma once
/* The reference kernels: one for each row of KOLO_OP_LIST, called "ref_<name>" in plans, in the
 * file of its op (src/op/). */

#include "graph/ops/ops.h"
#include "kernel/kernel.h"

#define KOLO_REF_DECLARE(name) extern const kolo_kernel kolo_ref_##name;
KOLO_OP_LIST(KOLO_REF_DECLARE)
#undef KOLO_REF_DECLARE
