/* Weights in torchvision's files: networks that begin with them give torchvision's logits, what
 * does not fit is named, and what kolo writes back is what was read.
 * tools/golden/make_torchvision.py makes torchvision.safetensors; where PyTorch is installed it
 * also writes all networks' files here, and reads one back. */
#include "base/file.h"
#include "kolo/checkpoint.h"
#include "support/folder.h"
#include "support/formula.h"
#include "support/support.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/name_conventions.h"
#include "train/checkpoint/weights.h"
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { SIZE = 64, BATCH = 2, CLASSES = 5, PIXELS = 3 * SIZE * SIZE };

#define GOLDEN KOLO_SOURCE_DIR "/tests/golden/torchvision"
#define SCRIPT "/usr/bin/python3 -B '" KOLO_SOURCE_DIR "/tools/golden/make_torchvision.py' "

/* The images of make_zoo.py. */
static uint8_t pixel(int64_t i) {
    return (uint8_t)(formula_bits(formula_hash("", "images"), i) >> 56);
}

static kolo_session *session_of(const char *model, const char *options) {
    kolo_session *session;
    kolo_session_config opts = {.model = model,
                                .model_options = options,
                                .sample = {3, {3, SIZE, SIZE}},
                                .classes = CLASSES,
                                .batch = BATCH,
                                .evaluate_only = true,
                                .plan = {.kernels = KOLO_KERNELS_DIRECT}};
    if (strncmp(model, "deeplab", 7) == 0) opts.label = kolo_shape_2(SIZE, SIZE);
    ASSERT_OK(kolo_session_create_for(&opts, NULL, &session));
    return session;
}

/* The logits of the batch against those in a file, to 1e-4 of the largest. */
static void check_logits(kolo_session *session, const char *model, const char *path) {
    static uint8_t images[BATCH * PIXELS];
    static int32_t labels[BATCH * SIZE * SIZE];
    kolo_field fields[] = {{"x", KOLO_DTYPE_U8, {3, {3, SIZE, SIZE}}, .mean = {0}},
                           {"y", KOLO_DTYPE_I32, {0}, .mean = {0}}};
    if (strncmp(model, "deeplab", 7) == 0) fields[1].shape = kolo_shape_2(SIZE, SIZE);
    for (int c = 0; c < 3; c++) fields[0].mean[c] = 0.5F, fields[0].std[c] = 0.25F;
    for (int i = 0; i < BATCH * PIXELS; i++) images[i] = pixel(i);
    kolo_batch batch = {.count = BATCH,
                        .global_count = BATCH,
                        .n_fields = 2,
                        .fields = fields,
                        .data = {images, labels}};
    kolo_sums sums;
    ASSERT_OK(kolo_session_evaluate_batch(session, &batch, &sums));
    kolo_tensor tensor;
    const float *logits = kolo_session_output(session, "logits", &tensor);
    char *file;
    size_t bytes, count = (size_t)kolo_shape_count(&tensor.shape);
    assert_non_null(logits);
    ASSERT_OK(kolo_file_read(path, 1 << 24, &file, &bytes));
    assert_int_equal(bytes, count * sizeof *logits);
    double largest = 0, worst = 0;
    for (size_t i = 0; i < count; i++) {
        float should;
        memcpy(&should, file + i * sizeof should, sizeof should);
        largest = fmax(largest, fabs((double)should));
        worst = fmax(worst, fabs((double)should - (double)logits[i]));
    }
    if (!(largest > 0 && worst <= 1e-4 * largest)) {
        fail_msg("%s: logits up to %g are off by %g", model, largest, worst);
    }
    kolo_free(file);
}

static void logits_are_those_of_torchvision(void **state) {
    kolo_session *session = session_of("resnet18", "width=2");
    ASSERT_OK(
        kolo_weights_load(GOLDEN ".safetensors", "resnet18", kolo_session_store(session), NULL));
    check_logits(session, "resnet18", GOLDEN ".logits");
    kolo_session_destroy(session);
}

/* A text with a line for each tensor that the two files do not share. */
static void assert_same_weights(const char *written, const char *original) {
    bool equal;
    char *text;
    ASSERT_OK(kolo_checkpoint_compare(written, original, &equal, &text));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        bool counter = strstr(line, ".num_batches_tracked: only in") != NULL;
        if (!counter && !strstr(line, " differ")) fail_msg("%s: %s", written, line);
    }
    kolo_checkpoint_text_free(text);
}

static void save(const kolo_session *session, const char *model, const char *options) {
    kolo_checkpoint_info info = {.model = model,
                                 .model_options = options,
                                 .sample = {3, {3, SIZE, SIZE}},
                                 .classes = CLASSES};
    ASSERT_OK(kolo_checkpoint_save("own.safetensors", kolo_session_store(session), &info));
}

static void what_is_read_is_written_back(void **state) {
    kolo_session *session = session_of("resnet18", "width=2");
    kolo_store *store = kolo_session_store(session);
    ASSERT_OK(kolo_weights_load(GOLDEN ".safetensors", "resnet18", store, NULL));
    save(session, "resnet18", "width=2");
    ASSERT_OK(
        kolo_checkpoint_export("own.safetensors", "theirs.safetensors", KOLO_FORMAT_TORCHVISION));
    assert_same_weights("theirs.safetensors", GOLDEN ".safetensors");
    ASSERT_OK(kolo_checkpoint_export("own.safetensors", "copy.safetensors", KOLO_FORMAT_NATIVE));
    bool equal;
    char *text;
    ASSERT_OK(kolo_checkpoint_compare("own.safetensors", "copy.safetensors", &equal, &text));
    assert_true(equal);
    kolo_checkpoint_text_free(text);
    ASSERT_OK(kolo_checkpoint_verify("copy.safetensors", &text));
    assert_non_null(strstr(text, "they match model resnet18"));
    kolo_checkpoint_text_free(text);
    ASSERT_OK(kolo_checkpoint_verify("theirs.safetensors", &text));
    assert_non_null(strstr(text, "it names no model"));
    kolo_checkpoint_text_free(text);
    ASSERT_OK(kolo_checkpoint_describe("own.safetensors", &text));
    assert_non_null(strstr(text, "model_options  width=2\n"));
    assert_non_null(strstr(text, "f32   [2,3,7,7]            conv1.weight\n"));
    kolo_checkpoint_text_free(text);
    assert_int_equal(
        kolo_checkpoint_export("own.safetensors", "x.safetensors", KOLO_FORMAT_HUGGINGFACE),
        KOLO_ERR_ARG);
    assert_non_null(
        strstr(kolo_last_error(), "is of model resnet18, which huggingface does not have"));

    /* A number that is none is found. */
    const kolo_store_entry *bias = kolo_store_find(store, "fc.bias");
    const float broken[CLASSES] = {1, NAN, 2, 3, INFINITY};
    kolo_store_write(store, bias, broken);
    save(session, "resnet18", "width=2");
    assert_int_equal(kolo_checkpoint_verify("own.safetensors", &text), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "2 of the 5 numbers of fc.bias are NaN or infinite"));
    ASSERT_OK(kolo_checkpoint_compare("own.safetensors", "copy.safetensors", &equal, &text));
    assert_false(equal);
    assert_non_null(strstr(text, "are the same, 1 differ"));
    kolo_checkpoint_text_free(text);
    kolo_session_destroy(session);
}

static void what_does_not_fit_is_named(void **state) {
    static const struct {
        const char *model, *options, *text;
    } cases[] = {
        {"resnet34", "width=2", " missing (layer1.2.conv1.weight, layer1.2.bn1.weight, "},
        {"resnet18", "width=3",
         "101 of another type or shape (conv1.weight f32 [2,3,7,7], not [3,3,7,7], "},
        {"resnet18", "width=2,classes=7",
         "does not match model resnet18; of its tensors 2 of another type or shape (fc.weight f32 "
         "[5,16], "
         "not [7,16], fc.bias f32 [5], not [7]): give weights of that model"},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_session *session = session_of(cases[i].model, cases[i].options);
        kolo_store *store = kolo_session_store(session);
        uint64_t before = kolo_store_hash(store);
        assert_int_equal(kolo_weights_load(GOLDEN ".safetensors", cases[i].model, store, NULL),
                         KOLO_ERR_FORMAT);
        if (!strstr(kolo_last_error(), cases[i].text)) fail_msg("%s", kolo_last_error());
        assert_true(kolo_store_hash(store) == before);
        kolo_session_destroy(session);
    }
}

static void names_follow_their_rules(void **state) {
    static const char *const models[] = {"gpt", NULL};
    static const kolo_name_rule rules[] = {
        {.theirs = "transformer.h.*.mlp.*.weight",
         .ours = "layer*.*.w",
         .kind = KOLO_NAME_TRANSPOSED},
        {.theirs = "*.attn.bias"},
        {.theirs = "head", .ours = "embedding", .kind = KOLO_NAME_COPY},
        {.theirs = "wte", .ours = "embedding"},
        {.theirs = "*.q", .ours = "*.qk", .part = 0, .parts = 2},
        {.theirs = "*.k", .ours = "*.qk", .part = 1, .parts = 2},
    };
    const kolo_names names = {KOLO_FORMAT_NATIVE, models, rules, KOLO_COUNT(rules)};
    kolo_tensor_name n = kolo_name_ours(&names, "transformer.h.11.mlp.c_fc.weight");
    assert_string_equal(n.text, "layer11.c_fc.w");
    assert_true(n.kind == KOLO_NAME_TRANSPOSED && !n.ignored && n.parts == 1);
    n = kolo_name_theirs(&names, "layer11.c_fc.w", 0);
    assert_string_equal(n.text, "transformer.h.11.mlp.c_fc.weight");
    assert_true(n.kind == KOLO_NAME_TRANSPOSED);
    n = kolo_name_ours(&names, "a.k");
    assert_string_equal(n.text, "a.qk");
    assert_true(n.part == 1 && n.parts == 2);
    assert_int_equal(kolo_name_theirs(&names, "a.qk", 0).parts, 2);
    assert_string_equal(kolo_name_theirs(&names, "a.qk", 1).text, "a.k");
    assert_int_equal(kolo_name_ours(&names, "head").kind, KOLO_NAME_COPY);
    assert_true(kolo_name_ours(&names, "h.3.attn.bias").ignored);
    assert_string_equal(kolo_name_theirs(&names, "embedding", 0).text, "wte");
    assert_string_equal(kolo_name_ours(&names, "fc.weight").text, "fc.weight");
    assert_false(kolo_name_ours(&names, ".attn.bias").ignored); /* '*' is never nothing */
    assert_null(kolo_names_of("lenet"));
}

static bool run(const char *command) {
    int status = system(command);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Of each kind one; test_zoo.c shows that the names of all are torchvision's. */
static void networks_read_their_files(void **state) {
    static const char *const models[][2] = {
        {"resnet50", "width=16"}, {"alexnet", "width=25,units=48"}, {"googlenet", "width=25"}};
    if (!run("/usr/bin/python3 -c 'import torchvision' >err 2>&1")) {
        print_message("skip: no torchvision\n");
        skip();
    }
    assert_true(run(SCRIPT "write . resnet50 alexnet googlenet >err 2>&1"));
    for (size_t i = 0; i < KOLO_COUNT(models); i++) {
        const char *model = models[i][0];
        char weights[64], logits[64];
        snprintf(weights, sizeof weights, "%s.safetensors", model);
        snprintf(logits, sizeof logits, "%s.logits", model);
        kolo_session *session = session_of(model, models[i][1]);
        ASSERT_OK(kolo_weights_load(weights, model, kolo_session_store(session), NULL));
        check_logits(session, model, logits);
        save(session, model, models[i][1]);
        ASSERT_OK(kolo_checkpoint_export("own.safetensors", "theirs.safetensors",
                                         KOLO_FORMAT_TORCHVISION));
        assert_same_weights("theirs.safetensors", weights);
        kolo_session_destroy(session);
    }
    /* The last was GoogLeNet's: PyTorch takes it, strictly. */
    assert_true(run(SCRIPT "check googlenet theirs.safetensors >err 2>&1"));
}

TEST_MAIN(test_torchvision) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_torchvision),
        cmocka_unit_test(what_is_read_is_written_back),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(names_follow_their_rules),
        cmocka_unit_test(networks_read_their_files),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
