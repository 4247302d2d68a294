#pragma once
/* bf16 via f32: runs a node with bf16 tensors on the best f32 kernel, between conversions in
 * scratch memory. For ops without a (fast) bf16 kernel. */

#include "kernel/kernel.h"

/* Has no op of its own: fits every op that has a kernel for the f32 form of the spec. */
extern const kolo_kernel kolo_via_f32_kernel;

/* Test hook: limits the converted copies of a slice to `bytes` on this thread; 0: the default. */
void kolo_via_f32_pin_slice(size_t bytes);
