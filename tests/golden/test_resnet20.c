/* resnet20 against PyTorch: three steps from the same parameters on the same batches give the same
 * losses, parameters and running statistics, and then the same loss in evaluation; with reference
 * and with the best kernels. tools/golden/make_resnet20.py makes resnet20.safetensors. */
#include "data/safetensors/safetensors.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, BATCH = 16, PIXELS = 3 * 16 * 16, MAX_NUMBERS = 1 << 14 };

static const char golden_path[] = KOLO_SOURCE_DIR "/tests/golden/resnet20.safetensors";
static const double tolerance = 1e-4;

static kolo_safetensors *golden;

static double setting(const char *key) {
    return strtod(kolo_safetensors_metadata(golden, key), NULL);
}

/* The golden copy ("start" or "end") of an entry, aligned. */
static const float *numbers_of(const char *when, const kolo_store_entry *entry) {
    static float copy[MAX_NUMBERS];
    char name[64];
    snprintf(name, sizeof name, "%s.%s", when, entry->name);
    const kolo_safetensors_entry *stored = kolo_safetensors_find(golden, name);
    if (!stored) fail_msg("the file lacks %s", name);
    assert_true(kolo_shape_equal(&stored->shape, &entry->canon));
    assert_in_range(stored->bytes, 1, sizeof copy);
    memcpy(copy, stored->data, stored->bytes);
    return copy;
}

static kolo_batch batch_of(int step, const kolo_field *fields, int32_t labels[BATCH]) {
    const uint8_t *images = kolo_safetensors_find(golden, "images")->data;
    const int32_t *all = kolo_safetensors_find(golden, "labels")->data;
    memcpy(labels, (const char *)all + (size_t)step * BATCH * sizeof *labels,
           BATCH * sizeof *labels);
    return (kolo_batch){
        .count = BATCH,
        .global_count = BATCH,
        .n_fields = 2,
        .fields = fields,
        .data = {images + (size_t)step * BATCH * PIXELS, labels},
    };
}

static void check_store(const kolo_store *store, kolo_kernel_set kernels) {
    int statistics = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        static float got[MAX_NUMBERS];
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (!kolo_store_entry_is_model(entry)) continue;
        statistics += entry->kind == KOLO_VALUE_STATE;
        kolo_store_read(store, entry, got);
        size_t count = (size_t)kolo_shape_count(&entry->canon);
        double distance = test_relative_l2_f32(got, numbers_of("end", entry), count);
        if (!(distance < tolerance)) {
            fail_msg("kernels %d: %s differs by %g", kernels, entry->name, distance);
        }
    }
    assert_int_equal(statistics, 2 * 19);
}

static void check_number(double got, const char *name, int i, kolo_kernel_set kernels) {
    double should;
    const kolo_safetensors_entry *stored = kolo_safetensors_find(golden, name);
    memcpy(&should, (const char *)stored->data + (size_t)i * sizeof should, sizeof should);
    if (!(fabs(got - should) < tolerance * should)) {
        fail_msg("kernels %d: %s %d is %.9g, not %.9g", kernels, name, i, got, should);
    }
}

static void train(kolo_kernel_set kernels) {
    kolo_field fields[] = {{"x", KOLO_DTYPE_U8, {3, {3, 16, 16}}, .mean = {0}},
                           {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    for (int c = 0; c < 3; c++) {
        fields[0].mean[c] = (float)setting("mean");
        fields[0].std[c] = (float)setting("std");
    }
    kolo_session_config opts = {
        .model = "resnet20",
        .model_options = kolo_safetensors_metadata(golden, "options"),
        .sample = fields[0].shape,
        .classes = 10,
        .batch = BATCH,
        .plan = {.kernels = kernels,
                 .optimizer.momentum = setting("momentum"),
                 .optimizer.weight_decay = setting("weight_decay")},
    };
    kolo_session *session;
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    kolo_store *store = kolo_session_store(session);
    ASSERT_OK(kolo_session_init(session, 1));
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (!kolo_store_entry_is_model(entry)) continue;
        kolo_store_write(store, entry, numbers_of("start", entry));
    }
    int32_t labels[BATCH];
    kolo_batch batch;
    kolo_sums sums;
    for (int step = 0; step < STEPS; step++) {
        batch = batch_of(step, fields, labels);
        ASSERT_OK(kolo_session_step_batch(session, &batch, setting("lr"), &sums));
        check_number(sums.metric[KOLO_METRIC_LOSS] / BATCH, "losses", step, kernels);
    }
    check_store(store, kernels);
    batch = batch_of(0, fields, labels);
    ASSERT_OK(kolo_session_evaluate_batch(session, &batch, &sums));
    check_number(sums.metric[KOLO_METRIC_LOSS] / BATCH, "evaluated", 0, kernels);
    kolo_session_destroy(session);
}

static void three_steps_are_those_of_pytorch(void **state) {
    ASSERT_OK(kolo_safetensors_open(golden_path, &golden));
    train(KOLO_KERNELS_REF);
    train(KOLO_KERNELS_DIRECT);
    train(KOLO_KERNELS_BEST);
    kolo_safetensors_close(golden);
}

TEST_MAIN(test_resnet20) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(three_steps_are_those_of_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
