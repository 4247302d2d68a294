#pragma once
/* The table of kernel families (ref, simd, dnn), and the capabilities of this build on this
 * processor. */

#include "kernel/kernel.h"

/* Kernel number i over all families; NULL past the end. */
const kolo_kernel *kolo_kernel_at(size_t i);
/* The same without the reference kernels (kernel/ref/table.h). */
const kolo_kernel *kolo_fast_kernel_at(size_t i);
/* True for reference kernels. */
bool kolo_kernel_is_ref(const kolo_kernel *kernel);
/* Test hook: adds kernels to the table on this thread, borrowed; n 0: none. */
void kolo_kernel_pin_more(const kolo_kernel *kernels, size_t n);

/* Whether devices of a kind, NULL for the CPU, run a kernel. */
bool kolo_kernel_runs_on(const kolo_kernel *kernel, const struct kolo_device_kind *device);
/* UNSUPPORTED, naming both: no kernel of the op in the set runs on devices of a kind. */
kolo_status kolo_kernel_check_device(kolo_kernel_set set, const kolo_op *op,
                                     const struct kolo_device_kind *device);
/* The same for the ops of a graph and its device. */
kolo_status kolo_kernel_check_graph(kolo_kernel_set set, const kolo_graph *g);

/* ARG, naming the missing features, when the optimized kernels do not support bf16 on
 * instruction set `isa`. (The reference kernels support it everywhere.) Tensors are then stored
 * in bf16; convolutions and linear layers also compute in bf16 where kolo_kernel_has_bf16,
 * everything else computes in f32. */
kolo_status kolo_kernel_check_bf16(kolo_isa isa);
/* True when oneDNN multiplies bf16 natively on this processor: AVX512-BF16, possibly AMX. */
bool kolo_kernel_has_bf16(void);
/* Test hook: makes kolo_kernel_has_bf16 true on this thread (oneDNN emulates it on AVX-512);
 * `on` false restores the detected value. */
void kolo_kernel_pin_bf16(bool on);

/* Appends the instruction set and the library version: "avx2, oneDNN 2.6.3". */
void kolo_kernel_describe(kolo_text *text);
