/* Large results are written past the cache, with the bits of those that are written in place of an
 * input, which are not. */
#include "base/memory.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"
#include "support/shapes.h"

#include <string.h>

enum { MOST_IN = 5, BYTES = 16 << 20 }; /* from these on a result passes the cache */

#define GROUPS S4(90, 8, 8, 784)
#define PLANES S4(90, 64, 1, 784)

static const struct {
    const kolo_kernel *kernel;
    int n_in, n_out;
    kolo_shape in[MOST_IN];
    kolo_attr attr[KOLO_MAX_ATTRS];
} cases[] = {
    {&kolo_simd_softmax, 1, 1, .in = {S2(90003, 49)}},
    {&kolo_simd_softmax, 1, 1, .in = {S2(90003, 49)}, .attr = {{1}}},
    {&kolo_simd_softmax_bwd, 2, 1, .in = {S2(600005, 7), S2(600005, 7)}},
    {&kolo_simd_softmax, 1, 1, .in = {S3(1400, 64, 49)}},
    {&kolo_simd_group_norm, 3, 3, .in = {GROUPS, S2(8, 8), S2(8, 8)}, .attr = {{.f = 1e-5}}},
    {&kolo_simd_group_norm_bwd, 5, 3, .in = {GROUPS, GROUPS, S2(90, 8), S2(90, 8), S2(8, 8)}},
    {&kolo_simd_group_norm, 1, 3, .in = {PLANES}, .attr = {{.f = 1e-5}}},
    {&kolo_simd_group_norm_bwd, 4, 1, .in = {PLANES, PLANES, S2(90, 64), S2(90, 64)}},
};

/* Runs a kernel; output 0 is at `out`, or in place of input 0. */
static void run(const kolo_kernel *kernel, kolo_call *call, void *out) {
    size_t scratch_bytes = 0;
    call->out[0] = out;
    if (kernel->prepare) ASSERT_OK(kernel->prepare(call->spec, &call->state, &scratch_bytes));
    call->scratch = kolo_alloc(scratch_bytes + 1);
    assert_non_null(call->scratch);
    kernel->run(call);
    if (kernel->release) kernel->release(call->state);
    kolo_free(call->scratch);
}

static void large_results_have_the_same_bits(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_kernel_spec spec;
        kolo_call call = {.spec = &spec};
        test_kernel_spec(&spec, cases[i].kernel->op, cases[i].attr, cases[i].n_in, cases[i].in,
                         NULL, cases[i].n_out, NULL, 2);
        assert_true(cases[i].kernel->fit(&spec) >= 0);
        const size_t bytes = kolo_tensor_bytes(&spec.out[0]);
        assert_true(bytes >= BYTES);
        for (int k = 0; k < spec.n_in; k++) {
            const int64_t count = kolo_tensor_elements(&spec.in[k]);
            float *in = call.in[k] = kolo_pages_map(kolo_tensor_bytes(&spec.in[k]));
            assert_non_null(in);
            for (int64_t e = 0; e < count; e++) in[e] = (float)(e * 7919 % 1013) / 500 - 1;
        }
        for (int k = 1; k < spec.n_out; k++) {
            assert_non_null(call.out[k] = kolo_pages_map(kolo_tensor_bytes(&spec.out[k])));
        }
        char *out = kolo_pages_map(bytes), *first = call.in[0], *kept = kolo_pages_map(bytes);
        assert_non_null(out);
        assert_non_null(kept);
        memcpy(kept, first, bytes);
        for (int isa = 1; isa <= (int)kolo_isa_best(); isa++) {
            kolo_isa_pin(isa);
            memcpy(first, kept, bytes);
            run(cases[i].kernel, &call, out);
            run(cases[i].kernel, &call, first);
            assert_memory_equal(out, first, bytes);
        }
        kolo_isa_pin(-1);
        for (int k = 0; k < spec.n_in; k++) {
            kolo_pages_unmap(call.in[k], kolo_tensor_bytes(&spec.in[k]));
        }
        for (int k = 1; k < spec.n_out; k++) {
            kolo_pages_unmap(call.out[k], kolo_tensor_bytes(&spec.out[k]));
        }
        kolo_pages_unmap(out, bytes);
        kolo_pages_unmap(kept, bytes);
    }
}

TEST_MAIN(test_large_results) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_results_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
