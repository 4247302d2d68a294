/* Shared by the tests of oneDNN kernels. */
#include "support/dnn_check.h"

#if KOLO_HAS_DNNL
#include "kernel/dnn/dnn.h"

#include <string.h>

static void no_primitive_is_a_reference(const kolo_kernel *kernel, const kolo_kernel_spec *spec) {
    void *state = NULL;
    size_t scratch = 0;
    ASSERT_OK(kernel->prepare(spec, &state, &scratch));
    const kolo_dnn_plan *plan = state;
    int primitives = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        if (!plan->steps[i].desc) continue;
        const char *impl = kolo_dnn_impl(plan->steps[i].desc);
        if (strncmp(impl, "ref", 3) == 0) fail_msg("%s runs %s", kernel->name, impl);
        primitives++;
    }
    assert_true(primitives >= 1);
    kernel->release(state);
}

/* The kernel rounds an f32 x beside bf16 to eight bits; products of bf16 are exact in f32. */
static double tolerance_of(const kolo_kernel_spec *spec) {
    bool narrows = spec->n_in > 1 && spec->in[0].dtype != spec->in[1].dtype;
    return narrows ? 8e-3 : 1e-5;
}

bool test_dnn_kernel(const char *name, kolo_kernel_spec *spec) {
    const kolo_kernel *kernel = test_kernel(name);
    assert_non_null(kernel);
    if (kernel->fit(spec) < 0) return false;
    for (int i = 0; i < spec->n_in; i++) assert_false(kolo_layout_is_open(&spec->in[i]));
    no_primitive_is_a_reference(kernel, spec);
    test_kernel_against_reference(kernel, spec, tolerance_of(spec));
    return true;
}
#else
bool test_dnn_kernel(const char *name, kolo_kernel_spec *spec) { return false; }
#endif
