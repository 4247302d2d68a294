/* Devices that run kernels of their own, on a toy kind: the memory and the stream of the fake
 * device, with the loops of the reference kernels as its kernels. A plan takes kernels of its
 * device alone; an op without one is refused by name, before the device has allocated anything. */
#include "base/memory.h"
#include "kernel/ref/table.h"
#include "kernel/select/families.h"
#include "plan/internal.h"
#include "support/plan_nets.h"

#include <string.h>

enum { BATCH = 3, STEPS = 3, MOST = 512 };

static kolo_device_kind toy;
static kolo_kernel *kernels; /* [MOST] */
static int allocations;

static int set_up(void **state) {
    kernels = kolo_alloc(MOST * sizeof *kernels);
    return kernels ? 0 : -1;
}

static int tear_down(void **state) {
    kolo_kernel_pin_more(NULL, 0);
    kolo_free(kernels);
    return 0;
}

/* Faster than every other kernel, so that no estimate keeps it from the CPU. */
static double fit_toy(kolo_kernel_spec *spec) {
    return kolo_reference_of(spec->op)->fit(spec) < 0 ? -1 : 1e-12;
}

/* Registers a toy kernel for every op but one; NULL: for all. */
static void register_kernels(const char *but) {
    const kolo_kernel *reference;
    size_t n = 0;
    for (size_t i = 0; (reference = kolo_reference_at(i)); i++) {
        if (but && strcmp(reference->op->name, but) == 0) continue;
        assert_true(n < MOST);
        kernels[n] = *reference;
        kernels[n].name = "toy";
        kernels[n].fit = fit_toy;
        kernels[n++].device = &toy;
    }
    kolo_kernel_pin_more(kernels, n);
}

static void *alloc_counted(kolo_device *device, size_t bytes) {
    allocations++;
    return kolo_device_fake.alloc(device, bytes);
}

static kolo_device *open_toy(void) {
    kolo_device *device;
    toy = kolo_device_fake;
    toy.name = "toy";
    toy.host_kernels = false;
    toy.alloc = alloc_counted;
    ASSERT_OK(kolo_device_open("fake:0", 0, &device));
    device->kind = &toy;
    allocations = 0;
    return device;
}

/* The losses of some steps, on a device or with NULL on the CPU; fails unless all kernels are of
 * the kind that `kernels_of` is. */
static void train(net build, kolo_device *device, kolo_kernel_set set,
                  const kolo_device_kind *kernels_of, double *losses) {
    const kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9, .kernels = set};
    kolo_store *store;
    ASSERT_OK(kolo_store_create(device, &store));
    kolo_plan *plan = net_compile(build, BATCH, &opts, store);
    for (int i = 0; i < plan->n_steps; i++) {
        assert_ptr_equal(plan->steps[i].kernel->device, kernels_of);
    }
    ASSERT_OK(kolo_store_init(store, 1));
    for (int s = 0; s < STEPS; s++) {
        net_fill(plan, (uint64_t)s);
        ASSERT_OK(kolo_plan_run(plan));
        losses[s] = kolo_plan_scalar(plan, "loss");
    }
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
}

static void a_plan_takes_kernels_of_its_device(void **state) {
    kolo_device *device = open_toy();
    register_kernels(NULL);
    for (size_t i = 0; i < NETS; i++) {
        double expected[STEPS], best[STEPS], got[STEPS];
        train(nets[i].build, NULL, KOLO_KERNELS_REF, NULL, expected);
        train(nets[i].build, NULL, KOLO_KERNELS_BEST, NULL, best);
        train(nets[i].build, device, KOLO_KERNELS_BEST, &toy, got);
        for (int s = 0; s < STEPS; s++) {
            if (!(got[s] - expected[s] < 1e-5 && expected[s] - got[s] < 1e-5)) {
                fail_msg("%s: %g, but %g", nets[i].name, got[s], expected[s]);
            }
        }
    }
    assert_true(allocations > 0);
    kolo_device_close(device);
}

static kolo_status compile(net build, kolo_device *device, kolo_kernel_set set) {
    const kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9, .kernels = set};
    kolo_graph *g;
    kolo_store *store;
    kolo_plan *plan;
    ASSERT_OK(kolo_store_create(device, &store));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    build(g, BATCH);
    const kolo_status status = kolo_plan_compile(g, &opts, store, NULL, &plan);
    if (status == KOLO_OK) kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

static void assert_names(const char *op) {
    char text[64];
    (void)snprintf(text, sizeof text, "%s: no kernel of this build runs on device toy: ", op);
    if (strncmp(kolo_last_error(), text, strlen(text)) != 0) fail_msg("%s", kolo_last_error());
    if (!strstr(kolo_last_error(), "--device cpu")) fail_msg("%s", kolo_last_error());
}

/* Each op of the net in turn: of the forward and backward passes, and updates. */
static void an_op_without_a_kernel_is_refused(void **state) {
    kolo_device *device = open_toy();
    const char *ops[64];
    int n = 0;
    register_kernels(NULL);
    kolo_store *store;
    ASSERT_OK(kolo_store_create(device, &store));
    const kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9};
    kolo_plan *plan = net_compile(net_lenet, BATCH, &opts, store);
    for (int i = 0; i < plan->n_steps; i++) {
        int k = 0;
        while (k < n && strcmp(ops[k], plan->steps[i].all.spec.op->name) != 0) k++;
        if (k == n) ops[n++] = plan->steps[i].all.spec.op->name;
        assert_true(n < 64);
    }
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    assert_true(n > 8);
    allocations = 0;
    for (int k = 0; k < n; k++) {
        register_kernels(ops[k]);
        assert_int_equal(compile(net_lenet, device, KOLO_KERNELS_BEST), KOLO_ERR_UNSUPPORTED);
        assert_names(ops[k]);
        ASSERT_OK(compile(net_lenet, NULL, KOLO_KERNELS_BEST));
    }
    assert_int_equal(allocations, 0);
    kolo_device_close(device);
}

/* They are code of the host. */
static void a_device_does_not_run_reference_kernels(void **state) {
    kolo_device *device = open_toy();
    register_kernels(NULL);
    assert_int_equal(compile(net_mlp, device, KOLO_KERNELS_REF), KOLO_ERR_UNSUPPORTED);
    if (!strstr(kolo_last_error(), "no reference kernel of this build runs on device toy")) {
        fail_msg("%s", kolo_last_error());
    }
    assert_int_equal(allocations, 0);
    kolo_device_close(device);
}

TEST_MAIN(test_device_kernels) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_takes_kernels_of_its_device),
        cmocka_unit_test(an_op_without_a_kernel_is_refused),
        cmocka_unit_test(a_device_does_not_run_reference_kernels),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
