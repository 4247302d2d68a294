#pragma once
/* bf16 by way of f32: runs a node that has bf16 tensors on the f32 kernel that is best for it,
 * between copies in scratch memory. For what no kernel takes in bf16, or none fast. */

#include "kernel/kernel.h"

/* Of no op: it fits any whose f32 form a kernel fits. */
extern const kolo_kernel kolo_via_f32_kernel;

/* Test hook: for this thread copies of a slice are this small, if that can be; 0: as it is. */
void kolo_via_f32_pin_slice(size_t bytes);
