#pragma once
/* Shared by the reference kernels.
 *
 * Each kernel is written once, in f64: kolo_ref_run widens f32 and bf16 inputs into scratch
 * memory, runs the body on doubles and rounds the outputs. An f32 result is thus the f64 result
 * rounded once; f64 tensors are used in place, i32 and u8 tensors are passed through. Plain
 * layouts only, loops as in the formulas, one thread. */

#include "kernel/kernel.h"

/* Fits plain f32, bf16 or f64 tensors, with an estimate so large that any other kernel that fits
 * is preferred. */
double kolo_ref_fit(kolo_kernel_spec *spec);
kolo_status kolo_ref_prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes);
/* Runs `body` with doubles in place of all floating-point tensors. */
void kolo_ref_run(const kolo_call *call, void (*body)(const kolo_call *call));

/* The scratch memory of a kernel that asks for more than kolo_ref_prepare does: what is behind. */
void *kolo_ref_scratch(const kolo_call *call);

/* The estimate of reference kernels: a thousandth of the nominal machine's speed. */
double kolo_ref_seconds(const kolo_kernel_spec *spec);

/* GELU of one value. */
double kolo_ref_gelu_at(double x, bool by_tanh);

/* What `relu` of batch normalization (KOLO_NORM_RELU) makes of v. */
static inline double kolo_ref_clip(double v, int64_t relu) {
    if (relu && v < 0) return 0;
    return relu > 1 && v > (double)relu ? (double)relu : v;
}
/* Whether it lets the gradient at v pass. */
static inline bool kolo_ref_passes(double v, int64_t relu) {
    return v > 0 && !(relu > 1 && v >= (double)relu);
}

/* The row (table.h) of a kernel whose `run` calls kolo_ref_run with its body. */
#define KOLO_REF_KERNEL(kernel_name, kernel_op, kernel_run)                           \
    {                                                                                 \
        .name = (kernel_name), .op = (kernel_op), .fit = kolo_ref_fit,                \
        .prepare = kolo_ref_prepare, .run = (kernel_run), .release = kolo_ref_release \
    }
/* There is no state to free. */
void kolo_ref_release(void *state);
