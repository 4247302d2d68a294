#pragma once
/* The kernels of all families (ref, simd, dnn) and what this build and processor can do. */

#include "kernel/kernel.h"

/* Kernel number i of all, in no particular order; NULL past the last. */
const kolo_kernel *kolo_kernel_at(size_t i);
/* True for reference kernels. */
bool kolo_kernel_is_ref(const kolo_kernel *kernel);

/* ARG, with what is missing, when the best kernels have no bf16 with this instruction set, that of
 * kolo_isa_best. (The reference kernels have it everywhere.) With it tensors are kept in bf16;
 * where kolo_kernel_has_bf16 convolutions and linear layers compute in it too, all else in f32. */
kolo_status kolo_kernel_check_bf16(kolo_isa isa);
/* Whether oneDNN multiplies bf16 by instructions of this processor: AVX512-BF16, perhaps AMX. */
bool kolo_kernel_has_bf16(void);
/* Test hook: for this thread it does from now on, by emulation (on AVX-512); or, with `on` false,
 * as it is. */
void kolo_kernel_pin_bf16(bool on);

/* Appends what the kernels are made of here: "avx2, oneDNN 2.6.3". */
void kolo_kernel_describe(kolo_text *text);
