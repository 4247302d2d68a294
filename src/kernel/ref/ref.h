#pragma once
/* What the reference kernels share.
 *
 * Each is written once, in double: kolo_ref_run widens f32 and bf16 inputs into scratch memory,
 * runs the body on doubles and rounds its outputs, so that an f32 result is the exact one rounded
 * once, and f64 tensors are used where they lie. Tensors of i32 and u8 pass as they are. Plain
 * layouts only; loops as the formulas are written; one thread. */

#include "kernel/ref/kernels.h"

/* Fits plain f32 or f64 tensors, at a time so long that any other kernel that fits is preferred. */
double kolo_ref_fit(kolo_kernel_spec *spec);
kolo_status kolo_ref_prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes);
/* Runs `body`, which sees doubles in place of floats. */
void kolo_ref_run(const kolo_call *call, void (*body)(const kolo_call *call));

/* The time of reference kernels: a thousandth of what the nominal machine does. */
double kolo_ref_seconds(const kolo_kernel_spec *spec);

/* gelu of one number. */
double kolo_ref_gelu_at(double x, bool by_tanh);

/* A kernel of the usual kind: `run` calls kolo_ref_run with its body. */
#define KOLO_REF_KERNEL(kernel_name, kernel_op, kernel_run)                           \
    {                                                                                 \
        .name = (kernel_name), .op = (kernel_op), .fit = kolo_ref_fit,                \
        .prepare = kolo_ref_prepare, .run = (kernel_run), .release = kolo_ref_release \
    }
/* Nothing was made, nothing is freed. */
void kolo_ref_release(void *state);
