#pragma once
/* Runs one kernel on a spec and compares it with the reference kernel of the same op. */
#include "kernel/kernel.h"
#include "support/support.h"

/* The op of the name; fails the test when there is none. */
const kolo_op *test_op(const char *name);
/* The kernel of the name, or NULL when the build has none. */
const kolo_kernel *test_kernel(const char *name);

/* Fills a spec with inputs of the shapes (f32; labels and indices are integers) in the named
 * layouts
 * ("any": left open; NULL: plain). The same for outputs, whose shapes the op infers. Fails the test
 * when the op rejects them. */
void test_kernel_spec(kolo_kernel_spec *spec, const kolo_op *op, const kolo_attr *attr, int n_in,
                      const kolo_shape *in, const char *const *in_layouts, int n_out,
                      const char *const *out_layouts, int threads);

/* Turns the inputs that the op accepts in bf16, and its outputs, to bf16; input `kept` stays f32
 * (-1: none). Layouts stay. */
void test_kernel_in_bf16(kolo_kernel_spec *spec, int kept);

/* Prepares, binds and runs a kernel that fits the spec on random numbers. Fails the test unless
 * - each f32 output is within `tolerance` (relative L2) of the reference's, each bf16 output within
 *   that plus the rounding to bf16, and each u8 output is equal;
 * - padding of outputs is zero; inputs and the guard bytes after each output are unchanged;
 * - binding writes nothing;
 * - a second run with other garbage in the scratch memory is bitwise equal, and so is a run with
 * the output in place of an input that it may overwrite. */
void test_kernel_against_reference(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                                   double tolerance);
/* The same with the given inputs, in plain layout; NULL: random numbers. */
void test_kernel_on(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                    const void *const *inputs, double tolerance);
/* The same of a kernel that fits, which completes the layouts of the spec. */
void test_kernel_fitting(const kolo_kernel *kernel, kolo_kernel_spec *spec,
                         const void *const *inputs, double tolerance);
/* `count` integers from [from, below), at most 4096, valid until the next call. */
int32_t *test_integers(int64_t count, int64_t from, int64_t below, uint64_t seed);
/* Runs `body` with each instruction set that this machine has, with one thread and with three;
 * under sanitizers with one and three in turn. */
void test_each_set(void (*body)(int threads));
/* Runs a kernel that fits the spec once on random numbers in its layouts; returns output 0 in its
 * layout, which the caller frees. */
void *test_kernel_result(const kolo_kernel *kernel, const kolo_kernel_spec *spec);
/* The same of another output. */
void *test_kernel_output(const kolo_kernel *kernel, const kolo_kernel_spec *spec, int output);
/* As test_kernel_result with the given inputs, in plain layout; NULL: random numbers. */
void *test_kernel_result_on(const kolo_kernel *kernel, const kolo_kernel_spec *spec,
                            const void *const *inputs);
/* Relative L2 distance of output 0 between a kernel that fits the spec and the reference on the
 * same random numbers. */
double test_kernel_error(const kolo_kernel *kernel, const kolo_kernel_spec *spec);
