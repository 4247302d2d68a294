/* gpt2, lstm_lm and bert against PyTorch: three steps from the same parameters on the same tokens
 * give the same losses and parameters, and then the same loss in evaluation; with reference and
 * with the best kernels. tools/golden/make_sequences.py makes the files and says what initial
 * parameters are; make_sparse.py those of sparse gradients. */
#include "data/safetensors/safetensors.h"
#include "support/support.h"
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, BATCH = 4, MAX_LENGTH = 16, MAX_NUMBERS = 1 << 13, MAX_NAMES = 64 };

static const double tolerance = 1e-4;

static kolo_safetensors *golden;

static double setting(const char *key) {
    const char *text = kolo_safetensors_metadata(golden, key);
    return text ? strtod(text, NULL) : 0;
}

static double number(const char *name, int i) {
    double value;
    const kolo_safetensors_entry *stored = kolo_safetensors_find(golden, name);
    if (!stored) fail_msg("the file lacks %s", name);
    memcpy(&value, (const char *)stored->data + (size_t)i * sizeof value, sizeof value);
    return value;
}

static void check(double got, double should, const char *what, kolo_kernel_set kernels) {
    if (!(fabs(got - should) < tolerance * fmax(1, fabs(should)))) {
        fail_msg("kernels %d: %s is %.9g, not %.9g", kernels, what, got, should);
    }
}

/* ---- parameters ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void fill(kolo_store *store) {
    static float numbers[MAX_NUMBERS];
    const char *names[MAX_NAMES];
    int n = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        assert_in_range(n, 0, MAX_NAMES - 1);
        if (kolo_store_entry_is_model(entry)) names[n++] = entry->name;
    }
    qsort((void *)names, (size_t)n, sizeof *names, by_name);
    for (int p = 0; p < n; p++) {
        const kolo_store_entry *entry = kolo_store_find(store, names[p]);
        bool gain = ends_with(names[p], "weight") &&
                    (strstr(names[p], "ln_") || ends_with(names[p], "norm.weight") ||
                     ends_with(names[p], "Norm.weight"));
        int64_t count = kolo_shape_count(&entry->canon);
        assert_in_range(count, 1, MAX_NUMBERS);
        for (int64_t i = 0; i < count; i++) {
            double u = sin(12.9898 * (double)i + 78.233 * p + 0.5) * 43758.5453;
            u -= floor(u);
            numbers[i] = (float)((gain ? 1 : 0) + (gain ? 0.2 : 0.4) * (u - 0.5));
        }
        kolo_store_write(store, entry, numbers);
    }
}

static void check_store(const kolo_store *store, kolo_kernel_set kernels) {
    static float got[MAX_NUMBERS];
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        char name[96];
        if (!kolo_store_entry_is_model(entry)) continue;
        snprintf(name, sizeof name, "end.%s", entry->name);
        kolo_store_read(store, entry, got);
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < kolo_shape_count(&entry->canon); k++) {
            sum += (double)got[k];
            squares += (double)got[k] * (double)got[k];
        }
        check(sum, number(name, 0), name, kernels);
        check(squares, number(name, 1), name, kernels);
    }
}

/* Row by row: those that no step touches are as they were. */
static void check_table(const kolo_store *store, kolo_kernel_set kernels) {
    static float got[MAX_NUMBERS];
    const kolo_store_entry *entry = kolo_store_find(store, "encoder.weight");
    if (!kolo_safetensors_find(golden, "end_table")) return;
    kolo_store_read(store, entry, got);
    for (int i = 0; i < (int)kolo_shape_count(&entry->canon); i++) {
        check((double)got[i], number("end_table", i), "the embedding", kernels);
    }
}

/* ---- steps ---- */

static kolo_batch batch_of(int step, const kolo_field *fields, int32_t *x, int32_t *y) {
    int64_t length = fields[KOLO_FIELD_X].shape.dim[0];
    const kolo_safetensors_entry *tokens = kolo_safetensors_find(golden, "tokens");
    const char *all = tokens ? tokens->data : NULL;
    for (int64_t n = 0; tokens && n < BATCH; n++) {
        int32_t window[MAX_LENGTH + 1];
        size_t bytes = (size_t)(length + 1) * sizeof *window;
        memcpy(window, all + (size_t)(step * BATCH + n) * bytes, bytes);
        memcpy(x + n * length, window, (size_t)length * sizeof *x);
        memcpy(y + n * length, window + 1, (size_t)length * sizeof *y);
    }
    if (!tokens) { /* labels of their own */
        size_t bytes = (size_t)(BATCH * length) * sizeof *x, from = (size_t)step * bytes;
        memcpy(x, (const char *)kolo_safetensors_find(golden, "ids")->data + from, bytes);
        memcpy(y, (const char *)kolo_safetensors_find(golden, "labels")->data + from, bytes);
    }
    return (kolo_batch){
        .count = BATCH,
        .global_count = BATCH,
        .n_fields = 2,
        .fields = fields,
        .data = {x, y},
    };
}

static kolo_optimizer optimizer(void) {
    static const char *const names[] = {"sgd", "nesterov", "adam", "adamw"};
    const char *name = kolo_safetensors_metadata(golden, "optimizer");
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        if (strcmp(name, names[i]) == 0) return (kolo_optimizer)i;
    }
    fail_msg("the optimizer %s", name);
    return KOLO_OPTIMIZER_SGD;
}

/* What only bert has of step i, the last being evaluation. */
static void check_pairs(const kolo_sums *sums, int i, kolo_kernel_set kernels) {
    kolo_metrics m = kolo_sums_metrics(sums, true);
    if (!kolo_safetensors_find(golden, "next_losses")) {
        assert_true(isnan(kolo_metrics_get(&m, "next_loss")));
        return;
    }
    check(kolo_metrics_get(&m, "accuracy"), number("accuracies", i), "the accuracy", kernels);
    check(kolo_metrics_get(&m, "next_loss"), number("next_losses", i), "the next loss", kernels);
    check(kolo_metrics_get(&m, "next_accuracy"), number("next_accuracies", i), "the next accuracy",
          kernels);
}

static void train(const char *model, kolo_kernel_set kernels) {
    const kolo_safetensors_entry *tokens = kolo_safetensors_find(golden, "tokens");
    const kolo_safetensors_entry *ids = kolo_safetensors_find(golden, "ids");
    kolo_shape window = kolo_shape_1(tokens ? tokens->shape.dim[2] - 1 : ids->shape.dim[2]);
    assert_in_range(window.dim[0], 1, MAX_LENGTH);
    const kolo_field fields[] = {{"x", KOLO_DTYPE_I32, window, .mean = {0}},
                                 {"y", KOLO_DTYPE_I32, window, .mean = {0}}};
    kolo_session_config opts = {
        .model = model,
        .model_options = kolo_safetensors_metadata(golden, "options"),
        .sample = window,
        .label = window,
        .classes = (int64_t)setting("vocab"),
        .batch = BATCH,
        .plan = {.kernels = kernels,
                 .optimizer.kind = optimizer(),
                 .optimizer.momentum = setting("momentum"),
                 .optimizer.beta1 = setting("beta1"),
                 .optimizer.beta2 = setting("beta2"),
                 .optimizer.eps = setting("eps"),
                 .optimizer.weight_decay = setting("weight_decay"),
                 .optimizer.decay_matrices_only = optimizer() == KOLO_OPTIMIZER_ADAMW,
                 .optimizer.clip = setting("clip"),
                 .sparse_embedding = kolo_safetensors_find(golden, "end_table") != NULL},
    };
    kolo_session *session;
    int32_t x[BATCH * MAX_LENGTH], y[BATCH * MAX_LENGTH];
    kolo_batch batch;
    kolo_sums sums;
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    ASSERT_OK(kolo_session_init(session, 1));
    fill(kolo_session_store(session));
    for (int step = 0; step < STEPS; step++) {
        batch = batch_of(step, fields, x, y);
        ASSERT_OK(kolo_session_step_batch(session, &batch, setting("lr"), &sums));
        check(kolo_sums_loss(&sums), number("losses", step), "the loss", kernels);
        check_pairs(&sums, step, kernels);
    }
    check_store(kolo_session_store(session), kernels);
    check_table(kolo_session_store(session), kernels);
    batch = batch_of(0, fields, x, y);
    ASSERT_OK(kolo_session_evaluate_batch(session, &batch, &sums));
    check(kolo_sums_loss(&sums), number("evaluated", 0), "the loss in evaluation", kernels);
    check_pairs(&sums, STEPS, kernels);
    kolo_session_destroy(session);
}

static void steps_are_those_of_pytorch(const char *model, const char *file) {
    char path[256];
    snprintf(path, sizeof path, KOLO_SOURCE_DIR "/tests/golden/%s.safetensors", file);
    ASSERT_OK(kolo_safetensors_open(path, &golden));
    train(model, KOLO_KERNELS_REF);
    train(model, KOLO_KERNELS_BEST);
    kolo_safetensors_close(golden);
}

static void gpt2_is_pytorchs(void **state) { steps_are_those_of_pytorch("gpt2", "gpt2"); }
static void lstm_lm_is_pytorchs(void **state) { steps_are_those_of_pytorch("lstm_lm", "lstm_lm"); }
static void sparse_sgd_is_pytorchs(void **state) {
    steps_are_those_of_pytorch("lstm_lm", "sparse_sgd");
}
static void sparse_adam_is_pytorchs(void **state) {
    steps_are_those_of_pytorch("lstm_lm", "sparse_adam");
}
static void bert_is_pytorchs(void **state) { steps_are_those_of_pytorch("bert_tiny", "bert"); }

TEST_MAIN(test_language_models) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_pytorchs),        cmocka_unit_test(lstm_lm_is_pytorchs),
        cmocka_unit_test(bert_is_pytorchs),        cmocka_unit_test(sparse_sgd_is_pytorchs),
        cmocka_unit_test(sparse_adam_is_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
