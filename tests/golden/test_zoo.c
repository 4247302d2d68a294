/* Every convolutional network of the zoo against torchvision: three steps from the same parameters
 * on the same batches give the same losses and move parameters and running statistics alike, and
 * then give the same loss in evaluation, all as near to f64 as PyTorch's own f32 is. (The deepest
 * networks blow rounding up.) tools/golden/make_zoo.py makes zoo.json; what it does not store both
 * sides draw from one formula. */
#include "base/file.h"
#include "support/fewer.h"
#include "support/formula.h"
#include "support/golden.h"
#include "support/support.h"
#include "train/session/session.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

static json_t *golden;

static double setting(const char *key) {
    return json_number_value(json_object_get(json_object_get(golden, "settings"), key));
}

/* ---- one network ---- */

typedef struct network {
    const json_t *json;
    const char *name;
    kolo_field fields[2];
    int classes;
    int64_t batch;
    uint8_t *images; /* of all steps */
    int32_t *labels;
} network;

static network network_of(const json_t *json) {
    network n = {.json = json,
                 .name = json_string_value(json_object_get(json, "model")),
                 .batch = json_integer_value(json_object_get(json, "batch"))};
    const json_t *sample = json_object_get(json, "sample");
    kolo_field *x = &n.fields[KOLO_FIELD_X], *y = &n.fields[KOLO_FIELD_Y];
    *x = (kolo_field){.name = "x", .dtype = KOLO_DTYPE_U8, .shape = {3, {0}}};
    *y = (kolo_field){.name = "y", .dtype = KOLO_DTYPE_I32};
    n.classes = (int)setting("classes");
    for (int i = 0; i < 3; i++) {
        x->shape.dim[i] = json_integer_value(json_array_get(sample, (size_t)i));
        x->mean[i] = (float)setting("mean");
        x->std[i] = (float)setting("std");
    }
    bool maps = strncmp(n.name, "deeplab", 7) == 0;
    if (maps) y->shape = kolo_shape_2(x->shape.dim[1], x->shape.dim[2]);
    int64_t pixels = STEPS * n.batch * kolo_shape_count(&x->shape);
    int64_t labels = STEPS * n.batch * kolo_shape_count(&y->shape);
    n.images = kolo_alloc((size_t)pixels);
    n.labels = kolo_alloc((size_t)labels * sizeof *n.labels);
    assert_true(n.images && n.labels);
    uint64_t image_hash = formula_hash("", "images"), label_hash = formula_hash("", "labels");
    for (int64_t i = 0; i < pixels; i++) n.images[i] = (uint8_t)(formula_bits(image_hash, i) >> 56);
    for (int64_t i = 0; i < labels; i++) {
        double u = formula_uniform(label_hash, i);
        n.labels[i] =
            maps ? (int32_t)floor(u * (n.classes + 1)) - 1 : (int32_t)floor(u * n.classes);
    }
    return n;
}

static kolo_batch batch_of(const network *n, int step) {
    return (kolo_batch){
        .count = n->batch,
        .global_count = n->batch,
        .n_fields = 2,
        .fields = n->fields,
        .data = {n->images + step * n->batch * kolo_shape_count(&n->fields[0].shape),
                 n->labels + step * n->batch * kolo_shape_count(&n->fields[1].shape)},
    };
}

static float *read_entry(const kolo_store *store, const kolo_store_entry *entry) {
    float *copy = kolo_alloc((size_t)kolo_shape_count(&entry->canon) * sizeof *copy);
    assert_non_null(copy);
    if (store) kolo_store_read(store, entry, copy);
    return copy;
}

static void set_start(kolo_store *store) {
    for (int e = 0; e < kolo_store_count(store); e++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, e);
        if (!kolo_store_entry_is_model(entry)) continue;
        float *start = read_entry(NULL, entry);
        for (int64_t i = 0; i < kolo_shape_count(&entry->canon); i++) {
            start[i] = formula_start(entry->name, &entry->canon, i);
        }
        kolo_store_write(store, entry, start);
        kolo_free(start);
    }
}

/* What the steps changed in entries of a kind: its norm, and its sum under the probe's draws by
 * that. */
static void measure_moves(const kolo_store *store, kolo_value_kind kind, double *moved,
                          double *probe) {
    double squares = 0, sum = 0;
    for (int e = 0; e < kolo_store_count(store); e++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, e);
        if (!kolo_store_entry_is_model(entry) || entry->kind != kind) continue;
        float *end = read_entry(store, entry);
        uint64_t probes = formula_hash("probe.", entry->name);
        for (int64_t i = 0; i < kolo_shape_count(&entry->canon); i++) {
            double change = (double)end[i] - (double)formula_start(entry->name, &entry->canon, i);
            squares += change * change;
            sum += change * (2 * formula_uniform(probes, i) - 1);
        }
        kolo_free(end);
    }
    *moved = sqrt(squares);
    *probe = squares > 0 ? sum / *moved : 0;
}

/* Number i under `key`, against what it should be. */
static void check(const network *n, kolo_kernel_set kernels, const char *key, int i, double got) {
    golden_check(n->json, kernels, key, i, got, (golden_bound){1e-4, 4});
}

static void train(const network *n, kolo_kernel_set kernels) {
    kolo_session_config opts = {
        .model = n->name,
        .model_options = json_string_value(json_object_get(n->json, "options")),
        .sample = n->fields[KOLO_FIELD_X].shape,
        .label = n->fields[KOLO_FIELD_Y].shape,
        .classes = n->classes,
        .batch = n->batch,
        .plan = {.kernels = kernels,
                 .optimizer.momentum = setting("momentum"),
                 .optimizer.weight_decay = setting("weight_decay")},
    };
    kolo_session *session;
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    ASSERT_OK(kolo_session_init(session, 1));
    set_start(kolo_session_store(session));
    kolo_sums sums;
    for (int step = 0; step < STEPS; step++) {
        kolo_batch batch = batch_of(n, step);
        ASSERT_OK(kolo_session_step_batch(
            session, &batch, json_number_value(json_object_get(n->json, "lr")), &sums));
        check(n, kernels, "losses", step, kolo_sums_loss(&sums));
    }
    for (int i = 0; i < 2; i++) {
        double moved, probe;
        kolo_value_kind kind = i == 0 ? KOLO_VALUE_PARAM : KOLO_VALUE_STATE;
        measure_moves(kolo_session_store(session), kind, &moved, &probe);
        check(n, kernels, "moved", i, moved);
        check(n, kernels, "probe", i, probe);
    }
    kolo_batch batch = batch_of(n, 0);
    ASSERT_OK(kolo_session_evaluate_batch(session, &batch, &sums));
    check(n, kernels, "evaluated", 0, kolo_sums_loss(&sums));
    kolo_session_destroy(session);
}

/* The deepest on the best kernels alone: reference kernels take their time. Under sanitizers all:
 * what reference kernels read and write shows in the tests of ops. */
static void three_steps_are_those_of_torchvision(void **state) {
    golden = json_load_file(KOLO_SOURCE_DIR "/tests/golden/zoo.json", 0, NULL);
    const json_t *networks = json_object_get(golden, "networks");
    assert_int_equal(json_array_size(networks), 8);
    for (size_t i = 0; i < json_array_size(networks); i++) {
        network n = network_of(json_array_get(networks, i));
        train(&n, KOLO_KERNELS_DIRECT);
        bool deep = strstr(n.name, "101") || strstr(n.name, "50");
        if (!deep && TEST_FEWER(false, true)) train(&n, KOLO_KERNELS_REF);
        kolo_free(n.images);
        kolo_free(n.labels);
    }
    json_decref(golden);
}

TEST_MAIN(test_zoo) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(three_steps_are_those_of_torchvision)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
