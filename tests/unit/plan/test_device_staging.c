/* Memory of the host for a device: as large as what crosses in a step, and the tensors of the store
 * cross one at a time. */
#include "base/memory.h"
#include "kolo/dump.h"
#include "plan/internal.h"
#include "support/layers.h"
#include "support/support.h"

#include <string.h>

enum { LAYERS = 8, WIDTH = 1024, MIB = 1 << 20, HUGE_PAGES = 8 };

/* Below: one tensor in both banks, and a huge page at each end of a region. */
static void assert_staged(const kolo_store *store, const char *when) {
    const size_t most = 2 * (size_t)WIDTH * WIDTH * sizeof(float) + HUGE_PAGES * 2 * (size_t)MIB;
    const size_t staged = kolo_regions_staged(store->regions);
    if (staged > most) fail_msg("%s: %zu MiB are staged", when, staged / MIB);
}

static void tensors_are_staged_one_at_a_time(void **state) {
    const kolo_plan_opts opts = {.train = true, .optimizer.momentum = 0.9};
    kolo_device *device;
    kolo_store *store;
    kolo_graph *g;
    kolo_plan *plan;
    ASSERT_OK(kolo_device_open("fake", 0, &device));
    ASSERT_OK(kolo_store_create(device, &store));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    layers_build(g, 1, WIDTH, LAYERS);
    ASSERT_OK(kolo_plan_compile(g, &opts, store, NULL, &plan));
    ASSERT_OK(kolo_store_init(store, 3));
    assert_staged(store, "after kolo_store_init");
    *(int32_t *)kolo_plan_input(plan, "y", NULL) = 1;
    kolo_plan_set_scalar(plan, "lr", 0.01);
    kolo_plan_set_scalar(plan, "grad_scale", 1);
    ASSERT_OK(kolo_plan_run(plan));
    assert_staged(store, "after a step");
    (void)kolo_store_hash(store);
    assert_staged(store, "after kolo_store_hash");
    float *tensor = kolo_alloc((size_t)WIDTH * WIDTH * sizeof *tensor);
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        ASSERT_OK(kolo_store_read(store, entry, tensor));
        ASSERT_OK(kolo_store_write(store, entry, tensor));
    }
    assert_staged(store, "after reads and writes");
    assert_true(store->bytes > 60 * (size_t)MIB);
    kolo_free(tensor);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_device_close(device);
}

/* What was released and staged again is what the device has. */
static void staging_changes_no_value(void **state) {
    enum { N = 1 << 18 };
    kolo_device *device;
    kolo_regions *regions;
    char *at;
    ASSERT_OK(kolo_device_open("fake", 0, &device));
    ASSERT_OK(kolo_regions_create(device, &regions));
    ASSERT_OK(kolo_regions_map(regions, NULL, N, &at));
    char *host = kolo_regions_host(regions, at);
    for (int i = 0; i < N; i++) host[i] = (char)(i % 125);
    kolo_regions_push(regions, at, N);
    ASSERT_OK(kolo_regions_wait(regions));
    kolo_regions_release(regions, at, N);
    assert_int_equal(host[N / 2], 0);
    for (int part = 0; part < 4; part++) {
        const char *data = kolo_regions_stage(regions, at + part * (N / 4), N / 4);
        for (int i = 0; i < N / 4; i++) {
            if (data[i] != (char)((part * (N / 4) + i) % 125)) fail_msg("byte %d", i);
        }
        if (part > 0) assert_int_equal(host[N / 8], 0); /* of the first part */
    }
    kolo_regions_unmap(regions, at);
    kolo_regions_destroy(regions);
    kolo_device_close(device);
}

/* The plan is that of the CPU, and a line more. */
static void a_dump_states_what_is_staged(void **state) {
    static const char staged[] = "staging on the host: ";
    kolo_dump_opts opts = {.what = KOLO_DUMP_PLAN,
                           .model = "mlp",
                           .model_options = "hidden=32",
                           .batch = 4,
                           .ranks = 2};
    char *on_cpu, *on_device;
    size_t exchanged, values, parameter;
    ASSERT_OK(kolo_dump(&opts, &on_cpu));
    opts.device = "fake";
    opts.share = true; /* no effect */
    ASSERT_OK(kolo_dump(&opts, &on_device));
    char *line = strstr(on_device, staged);
    assert_non_null(line);
    assert_null(strstr(on_cpu, staged));
    assert_int_equal(sscanf(line + strlen(staged),
                            "%zu exchanged, %zu of scalars, inputs and outputs, %zu for a "
                            "parameter at a time, bytes\n",
                            &exchanged, &values, &parameter),
                     3);
    assert_int_equal(parameter, 2 * sizeof(float) * 784 * 32); /* the first weights, both banks */
    assert_in_range(values, 4 * 784 * sizeof(float), 5 * 784 * sizeof(float)); /* the images */
    char *end = strchr(line, '\n') + 1;
    memmove(line, end, strlen(end) + 1);
    assert_string_equal(on_device, on_cpu);
    kolo_dump_free(on_cpu);
    kolo_dump_free(on_device);
    opts.device = "gpu";
    assert_int_equal(kolo_dump(&opts, &on_cpu), KOLO_ERR_ARG);
}

TEST_MAIN(test_device_staging) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_staged_one_at_a_time),
        cmocka_unit_test(staging_changes_no_value),
        cmocka_unit_test(a_dump_states_what_is_staged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
