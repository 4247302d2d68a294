/* Threads that prepare oneDNN kernels at the same time: oneDNN creates one descriptor at a time. */
#define _GNU_SOURCE
#include "kernel/select/select.h"
#include "support/kernel_check.h"

#include <stdio.h>

#if KOLO_HAS_DNNL
#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 4, PAUSE_US = 200 };

/* Calls of oneDNN that create descriptors. The two functions below take the place of the library's,
 * and count while `counts` is set. */
static atomic_bool counts;
static atomic_int inside, calls, overlaps;

static void enter(void) {
    if (!counts) return;
    calls++;
    if (inside++ > 0) overlaps++;
    usleep(PAUSE_US); /* others come in, unless they are kept out */
}

static void leave(void) {
    if (counts) inside--;
}

dnnl_status_t dnnl_primitive_desc_create(dnnl_primitive_desc_t *primitive_desc,
                                         const_dnnl_op_desc_t op_desc,
                                         const_dnnl_primitive_attr_t attr, dnnl_engine_t engine,
                                         const_dnnl_primitive_desc_t hint_forward_primitive_desc) {
    dnnl_status_t (*real)(dnnl_primitive_desc_t *, const_dnnl_op_desc_t,
                          const_dnnl_primitive_attr_t, dnnl_engine_t, const_dnnl_primitive_desc_t);
    *(void **)&real = dlsym(RTLD_NEXT, "dnnl_primitive_desc_create");
    enter();
    const dnnl_status_t status =
        real(primitive_desc, op_desc, attr, engine, hint_forward_primitive_desc);
    leave();
    return status;
}

dnnl_status_t dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t *reorder_primitive_desc,
                                                 const dnnl_memory_desc_t *src_desc,
                                                 dnnl_engine_t src_engine,
                                                 const dnnl_memory_desc_t *dst_desc,
                                                 dnnl_engine_t dst_engine,
                                                 const_dnnl_primitive_attr_t attr) {
    dnnl_status_t (*real)(dnnl_primitive_desc_t *, const dnnl_memory_desc_t *, dnnl_engine_t,
                          const dnnl_memory_desc_t *, dnnl_engine_t, const_dnnl_primitive_attr_t);
    *(void **)&real = dlsym(RTLD_NEXT, "dnnl_reorder_primitive_desc_create");
    enter();
    const dnnl_status_t status =
        real(reorder_primitive_desc, src_desc, src_engine, dst_desc, dst_engine, attr);
    leave();
    return status;
}

/* A convolution, its weight gradient, a linear layer and a reorder. */
static const kolo_attr conv[KOLO_MAX_ATTRS] = {{1}, {1}, {1}, {1}, {1}, {1}, {1}};
static const kolo_attr sized[KOLO_MAX_ATTRS] = {
    {1}, {1}, {1}, {1}, {1}, {1}, {1}, [KOLO_CONV_SIZE_H] = {3}, [KOLO_CONV_SIZE_W] = {3}};
static const struct {
    const char *kernel;
    const kolo_op *op;
    const kolo_attr *attr;
    kolo_shape in[2];
    int n_in;
    const char *in_layouts[2], *out_layout;
} cases[] = {
    {"dnn_conv2d",
     &kolo_op_conv2d,
     conv,
     {{4, {2, 16, 9, 7}}, {4, {24, 16, 3, 3}}},
     2,
     {"acdb", "abcd"},
     "acdb"},
    {"dnn_conv2d_bwd_weights",
     &kolo_op_conv2d_bwd_weights,
     sized,
     {{4, {2, 24, 9, 7}}, {4, {2, 16, 9, 7}}},
     2,
     {"acdb", "acdb"},
     "abcd"},
    {"dnn_linear", &kolo_op_linear, NULL, {{2, {12, 40}}, {2, {17, 40}}}, 2, {"ab", "ab"}, "ab"},
    {"dnn_reorder", &kolo_op_reorder, NULL, {{4, {2, 16, 9, 7}}}, 1, {"abcd"}, "acdb"},
};

static kolo_kernel_spec specs[KOLO_COUNT(cases)];

static void *prepare_all(void *arg) {
    for (size_t i = 0; i < ROUNDS * KOLO_COUNT(cases); i++) {
        kolo_kernel_spec spec = specs[i % KOLO_COUNT(cases)];
        const kolo_kernel *kernel = test_kernel(cases[i % KOLO_COUNT(cases)].kernel);
        void *state = NULL;
        size_t bytes = 0;
        if (kernel->fit(&spec) >= 0 && kernel->prepare(&spec, &state, &bytes) != KOLO_OK) {
            return "a kernel that fits cannot be prepared";
        }
        kernel->release(state);
    }
    return NULL;
}

static void one_descriptor_is_created_at_a_time(void **state) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        test_kernel_spec(&specs[i], cases[i].op, cases[i].attr, cases[i].n_in, cases[i].in,
                         cases[i].in_layouts, 1, &cases[i].out_layout, 1);
    }
    counts = true;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, prepare_all, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *error = NULL;
        pthread_join(threads[i], &error);
        if (error) fail_msg("%s", (const char *)error);
    }
    counts = false;
    /* At least one for each kernel, by `fit` and by `prepare`. */
    assert_true(calls >= 2 * THREADS * ROUNDS * (int)KOLO_COUNT(cases));
    assert_int_equal(overlaps, 0);
}
#endif

TEST_MAIN(test_dnn_threads) {
#if KOLO_HAS_DNNL
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_descriptor_is_created_at_a_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    puts("skip: built without oneDNN");
    return 77;
#endif
}
