/* Networks of the zoo against torchvision's, Hugging Face's and other PyTorch ones: parameter
 * counts of the full sizes; logits and gradients of small ones in f64, on reference kernels, to the
 * last digits; five steps and an evaluation in f32, as near to f64 as PyTorch's f32 is.
 * tools/golden/make_models.py makes models.json; what it does not store both sides draw from one
 * formula. */
#include "base/file.h"
#include "data/dataset.h"
#include "pass/pass.h"
#include "support/fewer.h"
#include "support/formula.h"
#include "support/golden.h"
#include "support/graph_eval.h"
#include "support/support.h"
#include "train/checkpoint/weights.h"
#include "train/session/session.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 5, NONE = 3 };

#define GOLDEN KOLO_SOURCE_DIR "/tests/golden/models"

static json_t *golden;

static double setting(const char *key) {
    return json_number_value(json_object_get(json_object_get(golden, "settings"), key));
}

/* ---- one network ---- */

typedef struct network {
    const json_t *json;
    const char *name, *options;
    const kolo_model *model;
    kolo_field fields[3];
    int n_fields, classes;
    bool texts;
    int64_t batch, rows;
    void *data[3]; /* of all steps, by field: images u8, tokens i32 or numbers f32; labels; ids */
} network;

/* Element i of a field: what the names draw. */
static void draw(const network *n, int field, int64_t i) {
    static const char *const names[][3] = {
        {"images", "labels"}, {"tokens", "labels"}, {"numbers", "labels", "ids"}};
    const kolo_field *f = &n->fields[field];
    const kolo_dtype x = n->fields[KOLO_FIELD_X].dtype;
    const int kind = x == KOLO_DTYPE_U8 ? 0 : x == KOLO_DTYPE_I32 ? 1 : 2;
    const uint64_t hash = formula_hash("", names[kind][field]);
    const double u = formula_uniform(hash, i);
    int32_t whole = (int32_t)floor(u * n->classes);
    if (field == KOLO_FIELD_IDS && n->texts) { /* below 0: no feature */
        whole = (int32_t)floor(u * (double)(n->rows + NONE)) - NONE;
    } else if (field == KOLO_FIELD_IDS) { /* in its table */
        whole = (int32_t)floor(u * (double)n->rows) + (int32_t)(n->rows * (i % f->shape.dim[0]));
    }
    if (f->dtype == KOLO_DTYPE_U8) {
        ((uint8_t *)n->data[field])[i] = (uint8_t)(formula_bits(hash, i) >> 56);
    } else if (f->dtype == KOLO_DTYPE_I32) {
        ((int32_t *)n->data[field])[i] = whole;
    } else {
        ((float *)n->data[field])[i] = (float)(field == KOLO_FIELD_X ? 2 * u - 1 : floor(u * 2));
    }
}

static network network_of(const json_t *json) {
    network n = {.json = json,
                 .name = json_string_value(json_object_get(json, "model")),
                 .options = json_string_value(json_object_get(json, "options")),
                 .batch = json_integer_value(json_object_get(json, "batch"))};
    const json_t *sample = json_object_get(json, "sample");
    kolo_field *x = &n.fields[KOLO_FIELD_X], *y = &n.fields[KOLO_FIELD_Y];
    ASSERT_OK(kolo_model_find(n.name, &n.model));
    kolo_dataset_opts data;
    ASSERT_OK(kolo_model_window(n.model, n.options, &data));
    const bool tokens = data.context > 0, clicks = data.categories > 0;
    n.texts = data.features > 0;
    n.rows = data.rows;
    *x = (kolo_field){.name = "x",
                      .dtype = tokens              ? KOLO_DTYPE_I32
                               : clicks || n.texts ? KOLO_DTYPE_F32
                                                   : KOLO_DTYPE_U8};
    *y = (kolo_field){.name = "y", .dtype = clicks ? KOLO_DTYPE_F32 : KOLO_DTYPE_I32};
    n.fields[2] = (kolo_field){.name = "ids",
                               .dtype = KOLO_DTYPE_I32,
                               .shape = kolo_shape_1(data.categories + data.features)};
    n.n_fields = clicks || n.texts ? 3 : 2;
    n.classes = (int)setting(tokens ? "vocabulary" : "classes");
    x->shape.rank = (int)json_array_size(sample);
    for (int i = 0; i < x->shape.rank; i++) {
        x->shape.dim[i] = json_integer_value(json_array_get(sample, (size_t)i));
        x->mean[i] = (float)setting("mean");
        x->std[i] = (float)setting("std");
    }
    if (tokens) y->shape = x->shape;
    if (n.model->label_maps) y->shape = kolo_shape_2(x->shape.dim[1], x->shape.dim[2]);
    for (int f = 0; f < n.n_fields; f++) {
        const int64_t count = STEPS * n.batch * kolo_shape_count(&n.fields[f].shape);
        n.data[f] = kolo_alloc((size_t)count * kolo_dtype_bytes(n.fields[f].dtype));
        assert_non_null(n.data[f]);
        for (int64_t i = 0; i < count; i++) draw(&n, f, i);
    }
    return n;
}

static void fini_network(network *n) {
    for (int f = 0; f < n->n_fields; f++) kolo_free(n->data[f]);
}

static void counts_are_those_of_the_references(void) {
    const json_t *networks = json_object_get(golden, "networks");
    for (size_t i = 0; i < json_array_size(networks); i++) {
        const json_t *json = json_array_get(networks, i);
        const kolo_model *m;
        kolo_graph *g;
        ASSERT_OK(kolo_model_find(json_string_value(json_object_get(json, "model")), &m));
        ASSERT_OK(kolo_graph_create(NULL, &g));
        ASSERT_OK(m->build(g, &(kolo_model_opts){1, m->sample, m->classes, NULL}));
        assert_int_equal(kolo_graph_parameters(g),
                         json_integer_value(json_object_get(json, "parameters")));
        kolo_graph_destroy(g);
    }
}

/* ---- logits and gradients in f64 ---- */

/* Norm, and sum under the probe's draws, against the pair in the file. */
static void check_pair(const network *n, const json_t *pair, const char *name, const double *got,
                       int64_t count) {
    double squares = 0, sum = 0;
    uint64_t probe = formula_hash("probe.", name);
    for (int64_t i = 0; i < count; i++) {
        squares += got[i] * got[i];
        sum += got[i] * (2 * formula_uniform(probe, i) - 1);
    }
    double norm = json_number_value(json_array_get(pair, 0));
    double want = json_number_value(json_array_get(pair, 1));
    /* A bias in front of a normalization has no gradient but rounding. */
    double most = 1e-9 * norm + 1e-14;
    if (!json_is_array(pair) || !(fabs(sqrt(squares) - norm) <= most && fabs(sum - want) <= most)) {
        fail_msg("%s: %s has the norm %.12g and the probe %.12g, not %.12g and %.12g", n->name,
                 name, sqrt(squares), sum, norm, want);
    }
}

static void fill(const graph_eval *e, const network *n) {
    for (int32_t v = 0; v < e->g->n_values; v++) {
        const kolo_value_info *info = &e->g->values[v];
        const kolo_value value = {.id = v};
        int64_t count = graph_eval_count(e, value);
        if (info->kind == KOLO_VALUE_PARAM || info->kind == KOLO_VALUE_STATE) {
            for (int64_t i = 0; i < count; i++) {
                graph_eval_f64(e, value)[i] = (double)formula_start(info->name, &info->canon, i);
            }
        }
        if (info->kind != KOLO_VALUE_INPUT) continue;
        int f = 0;
        while (strcmp(n->fields[f].name, info->name) != 0) assert_true(++f < n->n_fields);
        if (n->fields[f].dtype == KOLO_DTYPE_I32) {
            memcpy(graph_eval_i32(e, value), n->data[f], (size_t)count * sizeof(int32_t));
            continue;
        }
        const bool bytes = n->fields[f].dtype == KOLO_DTYPE_U8;
        for (int64_t i = 0; i < count; i++) {
            const double pixel = bytes ? ((const uint8_t *)n->data[f])[i] : 0;
            graph_eval_f64(e, value)[i] = bytes ? (pixel / 255 - setting("mean")) / setting("std")
                                                : (double)((const float *)n->data[f])[i];
        }
    }
}

static void compare_gradients(const network *n) {
    const kolo_field *fields = n->fields;
    const json_t *gradients = json_object_get(n->json, "gradients");
    kolo_graph *g;
    graph_eval e = {0};
    ASSERT_OK(kolo_graph_create(&(kolo_graph_opts){KOLO_DTYPE_F64}, &g));
    ASSERT_OK(n->model->build(
        g, &(kolo_model_opts){n->batch, fields[KOLO_FIELD_X].shape, n->classes, n->options}));
    kolo_value loss = kolo_graph_output(g, "loss"), logits = kolo_graph_output(g, "logits");
    kolo_value seed = kolo_scalar(g, "grad_scale");
    const int32_t n_values = g->n_values;
    ASSERT_OK(kolo_pass_gradient(g, loss, seed));
    ASSERT_OK(graph_eval_init(&e, g, KOLO_KERNELS_REF));
    fill(&e, n);
    int64_t labels = n->batch * kolo_shape_count(&fields[KOLO_FIELD_Y].shape);
    *graph_eval_f64(&e, seed) = 1.0 / (double)labels;
    graph_eval_run(&e, g->n_nodes);
    check_pair(n, json_object_get(n->json, "logits"), "logits", graph_eval_f64(&e, logits),
               graph_eval_count(&e, logits));
    size_t compared = 0;
    for (int32_t v = 0; v < n_values; v++) {
        const kolo_value_info *info = &g->values[v];
        if (info->kind != KOLO_VALUE_PARAM) continue;
        const json_t *pair = json_object_get(gradients, info->name);
        if (!pair) fail_msg("%s has no parameter %s", n->name, info->name);
        check_pair(n, pair, info->name, graph_eval_f64(&e, info->grad),
                   graph_eval_count(&e, info->grad));
        compared++;
    }
    assert_int_equal(compared, json_object_size(gradients));
    graph_eval_fini(&e);
    kolo_graph_destroy(g);
}

/* ---- steps in f32 ---- */

static kolo_batch batch_of(const network *n, int step) {
    kolo_batch batch = {
        .count = n->batch,
        .global_count = n->batch,
        .n_fields = n->n_fields,
        .fields = n->fields,
    };
    for (int f = 0; f < n->n_fields; f++) {
        const size_t bytes = (size_t)(step * n->batch) * kolo_field_bytes(&n->fields[f]);
        batch.data[f] = (const char *)n->data[f] + bytes;
    }
    return batch;
}

static void set_start(kolo_store *store) {
    for (int e = 0; e < kolo_store_count(store); e++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, e);
        if (!kolo_store_entry_is_model(entry)) continue;
        int64_t count = kolo_shape_count(&entry->canon);
        float *start = kolo_alloc((size_t)count * sizeof *start);
        assert_non_null(start);
        for (int64_t i = 0; i < count; i++) start[i] = formula_start(entry->name, &entry->canon, i);
        kolo_store_write(store, entry, start);
        kolo_free(start);
    }
}

/* The rounding in the file is that of one order of sums. Others, of other processors, may be many
 * times as far from f64 after a few steps through batch normalizations of a few values. */
static void check(const network *n, kolo_kernel_set kernels, const char *key, int i, double got) {
    golden_check(n->json, kernels, key, i, got, (golden_bound){2e-5, 20});
}

static void train(const network *n, kolo_kernel_set kernels) {
    kolo_session_config opts = {
        .model = n->name,
        .model_options = n->options,
        .sample = n->fields[KOLO_FIELD_X].shape,
        .label = n->fields[KOLO_FIELD_Y].shape,
        .numeric = n->fields[KOLO_FIELD_Y].dtype == KOLO_DTYPE_F32,
        .classes = n->classes,
        .batch = n->batch,
        .plan = {.kernels = kernels,
                 .optimizer.momentum = setting("momentum"),
                 .optimizer.weight_decay = setting("weight_decay")},
    };
    kolo_session *session;
    kolo_sums sums;
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    ASSERT_OK(kolo_session_init(session, 1));
    set_start(kolo_session_store(session));
    for (int step = 0; step < STEPS; step++) {
        kolo_batch batch = batch_of(n, step);
        double lr = json_number_value(json_object_get(n->json, "lr"));
        ASSERT_OK(kolo_session_step_batch(session, &batch, lr, &sums));
        check(n, kernels, "losses", step, kolo_sums_loss(&sums));
    }
    kolo_batch batch = batch_of(n, 0);
    ASSERT_OK(kolo_session_evaluate_batch(session, &batch, &sums));
    check(n, kernels, "evaluated", 0, kolo_sums_loss(&sums));
    kolo_session_destroy(session);
}

/* ---- files ---- */

static void check_logits(kolo_session *session, const network *n, const char *path) {
    kolo_tensor tensor;
    const float *logits = kolo_session_output(session, "logits", &tensor);
    size_t bytes, count = (size_t)kolo_shape_count(&tensor.shape);
    char *file;
    assert_non_null(logits);
    ASSERT_OK(kolo_file_read(path, 1 << 20, &file, &bytes));
    assert_int_equal(bytes, count * sizeof *logits);
    for (size_t i = 0; i < count; i++) {
        float should;
        memcpy(&should, file + i * sizeof should, sizeof should);
        if (!(fabs((double)should - (double)logits[i]) <= 1e-5 * fmax(1, fabs((double)should)))) {
            fail_msg("%s: logit %zu is %g, not %g", n->name, i, (double)logits[i], (double)should);
        }
    }
    kolo_free(file);
}

/* A state_dict, with the names of the reference, gives its logits. */
static void read_file(const network *n) {
    char weights[256], logits[256];
    snprintf(weights, sizeof weights, GOLDEN "_%s.safetensors", n->name);
    snprintf(logits, sizeof logits, GOLDEN "_%s.logits", n->name);
    kolo_session_config opts = {.model = n->name,
                                .model_options = n->options,
                                .sample = n->fields[KOLO_FIELD_X].shape,
                                .label = n->fields[KOLO_FIELD_Y].shape,
                                .classes = n->classes,
                                .batch = n->batch,
                                .evaluate_only = true,
                                .plan = {.kernels = KOLO_KERNELS_DIRECT}};
    kolo_session *session;
    kolo_sums sums;
    kolo_batch batch = batch_of(n, 0);
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    ASSERT_OK(kolo_weights_load(weights, n->name, kolo_session_store(session), NULL));
    ASSERT_OK(kolo_session_evaluate_batch(session, &batch, &sums));
    check_logits(session, n, logits);
    kolo_session_destroy(session);
}

/* Under sanitizers not on reference kernels: what they read and write shows in the tests of ops. */
static void networks_are_those_of_pytorch(void **state) {
    golden = json_load_file(GOLDEN ".json", 0, NULL);
    const json_t *networks = json_object_get(golden, "networks");
    assert_int_equal(json_array_size(networks), 8);
    counts_are_those_of_the_references();
    for (size_t i = 0; i < json_array_size(networks); i++) {
        network n = network_of(json_array_get(networks, i));
        if (TEST_FEWER(false, true)) compare_gradients(&n);
        train(&n, KOLO_KERNELS_DIRECT);
        if (TEST_FEWER(false, true)) train(&n, KOLO_KERNELS_REF);
        bool has_file = strcmp(n.name, "vit_b_16") == 0 || strcmp(n.name, "llama") == 0;
        if (has_file && !strstr(n.options, "tied")) read_file(&n);
        fini_network(&n);
    }
    json_decref(golden);
}

TEST_MAIN(test_models_torch) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(networks_are_those_of_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
