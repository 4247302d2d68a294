/* Chains of tensors beyond the caches, whose pieces are short, have the bits of their links. */
#include "base/memory.h"
#include "graph/ops/chain.h"
#include "graph/ops/ops.h"
#include "kernel/chain.h"
#include "kernel/simd/kernels.h"
#include "support/kernel_check.h"

#include <string.h>

enum { MANY = 2900777, TENSORS = 5 }; /* three of them are more than 32 MiB */

static void run(const kolo_kernel *kernel, const kolo_attr *attr, int n_in, float *const *in,
                float *out) {
    const kolo_shape shape = kolo_shape_1(MANY), shapes[] = {shape, shape};
    kolo_kernel_spec spec;
    kolo_call call = {.spec = &spec, .in = {in[0], in[1]}, .out = {out}};
    size_t scratch_bytes = 0;
    test_kernel_spec(&spec, kernel->op, attr, n_in, shapes, NULL, 1, NULL, 1);
    assert_true(kernel->fit(&spec) >= 0);
    if (kernel->prepare) ASSERT_OK(kernel->prepare(&spec, &call.state, &scratch_bytes));
    call.scratch = kolo_alloc(scratch_bytes + 64);
    assert_non_null(call.scratch);
    kernel->run(&call);
    if (kernel->release) kernel->release(call.state);
    kolo_free(call.scratch);
}

static void large_chains_have_the_bits_of_their_links(void **state) {
    const kolo_chain chain = {
        .n = 2,
        .link = {{.op = &kolo_op_silu, .dtype = KOLO_DTYPE_F32, .n_in = 1, .out = -1},
                 {.op = &kolo_op_mul, .dtype = KOLO_DTYPE_F32, .n_in = 2, .in = {KOLO_MAX_IO, 1}}}};
    const size_t bytes = MANY * sizeof(float);
    float *all = kolo_pages_map(TENSORS * bytes), *t[TENSORS];
    kolo_attr attr[KOLO_MAX_ATTRS];
    static const kolo_attr none[KOLO_MAX_ATTRS];
    assert_non_null(all);
    for (int i = 0; i < TENSORS; i++) t[i] = all + (int64_t)i * MANY;
    for (int64_t k = 0; k < 2 * (int64_t)MANY; k++) all[k] = (float)(k * 7919 % 1013) / 100 - 5;
    assert_true(kolo_chain_write(&chain, attr));
    run(&kolo_simd_silu, none, 1, (float *[]){t[0], NULL}, t[2]);
    run(&kolo_simd_mul, none, 2, (float *[]){t[2], t[1]}, t[3]);
    run(&kolo_simd_chain, attr, 2, (float *[]){t[0], t[1]}, t[4]);
    assert_memory_equal(t[4], t[3], bytes);
    kolo_pages_unmap(all, TENSORS * bytes);
}

TEST_MAIN(test_chain) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_chains_have_the_bits_of_their_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
