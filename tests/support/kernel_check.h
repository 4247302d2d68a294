#pragma once
/* Runs one kernel on a spec and compares it with the reference kernel of the same op. */
#include "kernel/kernel.h"
#include "support/support.h"

/* The kernel of that name, or NULL when the build has none. */
const kolo_kernel *test_kernel(const char *name);

/* Fills a spec: inputs of these shapes (f32, but labels and indices) in the layouts of that name
 * ("any": open; NULL: plain; the same for the outputs, whose shapes come from the op). Fails the
 * test when the op refuses. */
void test_kernel_spec(kolo_kernel_spec *spec, const kolo_op *op, const kolo_attr *attr, int n_in,
                      const kolo_shape *in, const char *const *in_layouts, int n_out,
                      const char *const *out_layouts, int threads);

/* Makes bf16 what the op of a spec takes in it, and what it then makes; input `kept` stays f32 (-1:
 * none). Layouts stay. */
void test_kernel_in_bf16(kolo_kernel_spec *spec, int kept);

/* Prepares, binds and runs a kernel that fits the spec on random numbers and fails the test unless:
 * each f32 output is within `tolerance` (relative L2) of the reference's, each bf16 output within
 * it and what rounding to bf16 adds, and each u8 output equal;
 * padding of outputs holds zeros, inputs and the bytes after each output are as before; binding
 * wrote nothing; a second run on other scratch garbage gives the same bits, and so does one with
 * the output on an input that it may overwrite. */
void test_kernel_against_reference(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                                   double tolerance);
/* The same with these inputs, in plain layout; NULL: random numbers. */
void test_kernel_on(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                    const void *const *inputs, double tolerance);
/* Runs a kernel that fits the spec once, on random numbers in its layouts; gives output 0, in its
 * layout, for the caller to free. */
void *test_kernel_result(const kolo_kernel *kernel, const kolo_kernel_spec *spec);
/* Relative L2 distance of output 0 between a kernel that fits the spec and the reference, both on
 * the same random numbers. */
double test_kernel_error(const kolo_kernel *kernel, const kolo_kernel_spec *spec);
