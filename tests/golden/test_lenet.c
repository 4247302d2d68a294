/* lenet against PyTorch: ten steps from the same parameters on the same batches give the same
 * losses and parameters, with reference and with the best kernels, on one rank and on two. And the
 * plan of that training against the text in lenet.plan.txt; after a change that is meant to alter
 * plans, write it anew with
 *
 *     KOLO_GOLDEN_UPDATE=1 test_lenet
 *
 * and look at what changed. tools/golden/make_lenet.py makes lenet.safetensors. */
#include "base/file.h"
#include "data/safetensors/safetensors.h"
#include "kolo/dump.h"
#include "support/ranks.h"
#include "support/support.h"
#include "train/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 10, BATCHES = 2, BATCH = 64, PIXELS = 28 * 28, PARAMETERS = 61706, ENTRIES = 10 };

static const char golden_path[] = KOLO_SOURCE_DIR "/tests/golden/lenet.safetensors";
static const char plan_path[] = KOLO_SOURCE_DIR "/tests/golden/lenet.plan.txt";
static const double tolerance = 1e-4;

/* ---- ten steps ---- */

typedef struct setting {
    int ranks;
    kolo_kernel_set kernels;
} setting;

typedef struct outcome {
    double losses[STEPS];
    float parameters[PARAMETERS];
} outcome;

static double number_of(const kolo_safetensors *golden, const char *key) {
    return strtod(kolo_safetensors_metadata(golden, key), NULL);
}

/* The golden copy ("start" or "end") of an entry, or NULL. */
static const kolo_safetensors_entry *golden_entry(const kolo_safetensors *golden, const char *when,
                                                  const kolo_store_entry *entry) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", when, entry->name);
    const kolo_safetensors_entry *stored = kolo_safetensors_find(golden, name);
    return stored && kolo_shape_equal(&stored->shape, &entry->canon) ? stored : NULL;
}

static kolo_status set_start(const kolo_safetensors *golden, kolo_store *store) {
    static _Thread_local float copy[PARAMETERS];
    int found = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (entry->kind != KOLO_VALUE_PARAM) continue;
        const kolo_safetensors_entry *stored = golden_entry(golden, "start", entry);
        if (!stored) return KOLO_FAIL(KOLO_ERR_FORMAT, "the file lacks start.%s", entry->name);
        memcpy(copy, stored->data, stored->bytes);
        kolo_store_write(store, entry, copy);
        found++;
    }
    return found == ENTRIES ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%d parameters", found);
}

/* Concatenates the parameters in the order of the store, which is the model's. */
static void get_parameters(const kolo_store *store, float *to) {
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (entry->kind != KOLO_VALUE_PARAM) continue;
        kolo_store_read(store, entry, to);
        to += kolo_shape_count(&entry->canon);
    }
}

static kolo_status train(kolo_session *session, const kolo_safetensors *golden, kolo_comm *comm,
                         outcome *result) {
    static const kolo_shape sample = {3, {1, 28, 28}};
    const uint8_t *images = kolo_safetensors_find(golden, "images")->data;
    const char *labels = kolo_safetensors_find(golden, "labels")->data;
    const kolo_field fields[] = {{"x", KOLO_DTYPE_U8, sample,
                                  .mean = {(float)number_of(golden, "mean")},
                                  .std = {(float)number_of(golden, "std")}},
                                 {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    int64_t n = BATCH / kolo_comm_size(comm), first = n * kolo_comm_rank(comm);
    for (int k = 0; k < STEPS; k++) {
        int64_t at = k % BATCHES * BATCH + first;
        int32_t own_labels[BATCH];
        memcpy(own_labels, labels + at * (int64_t)sizeof *own_labels, sizeof own_labels[0] * n);
        kolo_batch batch = {
            .count = n,
            .global_count = BATCH,
            .n_fields = 2,
            .fields = fields,
            .data = {images + at * PIXELS, own_labels},
        };
        kolo_sums sums;
        KOLO_TRY(kolo_session_step_batch(session, &batch, number_of(golden, "lr"), &sums));
        result->losses[k] = sums.metric[KOLO_METRIC_LOSS] / BATCH;
    }
    get_parameters(kolo_session_store(session), result->parameters);
    return KOLO_OK;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    kolo_safetensors *golden;
    kolo_session *session = NULL;
    KOLO_TRY(kolo_safetensors_open(golden_path, &golden));
    kolo_session_config opts = {
        .model = "lenet",
        .sample = {3, {1, 28, 28}},
        .classes = 10,
        .batch = BATCH / s->ranks,
        .plan = {.kernels = s->kernels,
                 .optimizer.momentum = number_of(golden, "momentum"),
                 .optimizer.weight_decay = number_of(golden, "weight_decay"),
                 .bucket_bytes = 64 << 10},
    };
    kolo_status status = kolo_session_create_for(&opts, comm, &session);
    if (status == KOLO_OK) status = set_start(golden, kolo_session_store(session));
    if (status == KOLO_OK) status = train(session, golden, comm, result);
    kolo_session_destroy(session);
    kolo_safetensors_close(golden);
    return status;
}

/* Parameters of the file in the model's order, by way of a session's store. */
static void golden_parameters(const char *when, float *to) {
    static const char *const names[ENTRIES] = {
        "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
        "fc1.bias",     "fc2.weight", "fc2.bias",     "fc3.weight", "fc3.bias",
    };
    kolo_safetensors *golden;
    ASSERT_OK(kolo_safetensors_open(golden_path, &golden));
    size_t bytes = 0;
    for (int i = 0; i < ENTRIES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", when, names[i]);
        const kolo_safetensors_entry *stored = kolo_safetensors_find(golden, name);
        assert_non_null(stored);
        memcpy((char *)to + bytes, stored->data, stored->bytes);
        bytes += stored->bytes;
    }
    assert_int_equal(bytes, PARAMETERS * sizeof(float));
    kolo_safetensors_close(golden);
}

static void golden_losses(double losses[STEPS]) {
    kolo_safetensors *golden;
    ASSERT_OK(kolo_safetensors_open(golden_path, &golden));
    memcpy(losses, kolo_safetensors_find(golden, "losses")->data, STEPS * sizeof(double));
    kolo_safetensors_close(golden);
}

static void ten_steps_are_those_of_pytorch(void **state) {
    static const setting settings[] = {
        {1, KOLO_KERNELS_REF},
        {2, KOLO_KERNELS_REF},
        {1, KOLO_KERNELS_DIRECT},
        {2, KOLO_KERNELS_DIRECT},
    };
    static float start[PARAMETERS], end[PARAMETERS];
    static outcome results[2];
    double losses[STEPS];
    golden_parameters("start", start);
    golden_parameters("end", end);
    golden_losses(losses);
    /* The run goes far enough for the comparison to mean something. */
    assert_true(test_relative_l2_f32(start, end, PARAMETERS) > 100 * tolerance);
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        const setting *s = &settings[i];
        rank_job job = {
            .n = s->ranks,
            .transport = RANKS_THREAD,
            .body = body,
            .arg = s,
            .arg_bytes = sizeof *s,
            .results = results,
            .result_bytes = sizeof *results,
        };
        ASSERT_OK(run_rank_job(&job));
        for (int rank = 0; rank < s->ranks; rank++) {
            double in_losses = test_relative_l2_f64(results[rank].losses, losses, STEPS);
            double in_end = test_relative_l2_f32(results[rank].parameters, end, PARAMETERS);
            if (!(in_losses < tolerance && in_end < tolerance)) {
                fail_msg("%d ranks, kernels %d: losses differ by %g, parameters by %g", s->ranks,
                         s->kernels, in_losses, in_end);
            }
        }
    }
}

/* ---- the plan ---- */

static void the_plan_is_that_of_the_file(void **state) {
    kolo_dump_opts opts = {
        .what = KOLO_DUMP_PLAN,
        .model = "lenet",
        .batch = BATCH,
        .optimizer.momentum = 0.9,
        .optimizer.weight_decay = 5e-4,
        .bucket_bytes = 64 << 10,
        .reference_kernels = true,
    };
    char *text, *golden;
    size_t bytes;
    ASSERT_OK(kolo_dump(&opts, &text));
    if (getenv("KOLO_GOLDEN_UPDATE")) ASSERT_OK(kolo_file_write(plan_path, text, strlen(text)));
    ASSERT_OK(kolo_file_read(plan_path, 1 << 20, &golden, &bytes));
    assert_string_equal(text, golden);
    kolo_free(golden);
    kolo_dump_free(text);
}

TEST_MAIN(test_lenet) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_steps_are_those_of_pytorch),
        cmocka_unit_test(the_plan_is_that_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
