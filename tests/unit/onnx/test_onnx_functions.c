/* Operators of ONNX files that round, count and find: values against the C library and the rules of
 * ONNX; files with open dimensions. */
#include "support/support.h"

#ifdef KOLO_HAS_ONNX

#include "base/compiler.h"
#include "base/file.h"
#include "kolo/kolo.h"
#include "support/folder.h"
#include "support/onnx_build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLOAT = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

static onnx_file *new_file(void) {
    onnx_file *f = malloc(sizeof *f);
    assert_non_null(f);
    onnx_file_init(f, 18);
    return f;
}

/* The output "y" for a batch; frees the file. */
static void run(onnx_file *f, const kolo_batch *batch, float *y, size_t bytes) {
    const kolo_session_opts opts = {.batch = batch->count, .evaluate_only = true};
    kolo_session *s;
    kolo_onnx *net;
    onnx_file_output(f, "y");
    ASSERT_OK(onnx_file_open(f, &(kolo_onnx_opts){.no_loss = true}, &net));
    ASSERT_OK(kolo_session_create(NULL, &opts, kolo_onnx_build, net, &s));
    ASSERT_OK(kolo_session_predict(s, batch, "y", y, bytes, NULL));
    kolo_session_destroy(s);
    kolo_onnx_close(net);
    free(f);
}

static void functions_are_those_of_the_c_library(void **state) {
    static const struct {
        const char *name;
        double (*function)(double x);
        double scale; /* of x */
    } cases[] = {
        {"Sin", sin, 4},      {"Cos", cos, 4},      {"Tan", tan, 0.5},
        {"Asin", asin, 0.25}, {"Acos", acos, 0.25}, {"Atan", atan, 4},
        {"Floor", floor, 1},  {"Ceil", ceil, 1},    {"Round", nearbyint, 1},
    };
    static const float numbers[] = {-2.5F, -1.5F, -0.75F, 0, 0.5F, 1, 2.5F, 3.25F};
    enum { N = KOLO_COUNT(numbers) };
    const kolo_field field = {.name = "x", .shape = {1, {1}}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int64_t dims[] = {0, 1};
        float x[N], y[N];
        for (int k = 0; k < N; k++) x[k] = numbers[k] * (float)cases[i].scale;
        const kolo_batch batch = {.count = N, .n_fields = 1, .fields = &field, .data = {x}};
        onnx_file *f = new_file();
        onnx_file_input(f, "x", FLOAT, 2, dims);
        onnx_file_node(f, cases[i].name, "x", "y");
        run(f, &batch, y, sizeof y);
        for (int k = 0; k < N; k++) {
            const double want = cases[i].function((double)x[k]);
            if (fabs((double)y[k] - want) < 1e-6 * (1 + fabs(want))) continue;
            fail_msg("%s(%g) is %g, not %g", cases[i].name, (double)x[k], (double)y[k], want);
        }
    }
}

/* A cast to integers drops the fraction, and integers are divided without one. */
static void integers_have_no_fraction(void **state) {
    const float x[] = {-2.75F, -0.5F, 0.9F, 7.25F, 14, 49};
    enum { N = KOLO_COUNT(x) };
    const float cast[] = {-2, 0, 0, 7, 14, 49}, quotient[] = {0, 0, 0, 1, 2, 7};
    const int64_t dims[] = {0, 1}, seven = 7;
    const kolo_field field = {.name = "x", .shape = {1, {1}}};
    const kolo_batch batch = {.count = N, .n_fields = 1, .fields = &field, .data = {x}};
    for (int divide = 0; divide < 2; divide++) {
        float y[N];
        onnx_file *f = new_file();
        onnx_file_input(f, "x", FLOAT, 2, dims);
        onnx_file_integers(f, "seven", 0, NULL, &seven);
        onnx_file_node(f, "Cast", "x", divide ? "i" : "y");
        onnx_file_int(f, "to", INT64);
        if (divide) onnx_file_node(f, "Div", "i seven", "y");
        run(f, &batch, y, sizeof y);
        for (int k = 0; k < N; k++) assert_true(y[k] == (divide ? quotient : cast)[k]);
    }
}

/* Indices that are numbers are cut off; those outside select nothing. */
static void one_hot_takes_numbers_and_integers(void **state) {
    enum { N = 5, DEPTH = 3 };
    static const float numbers[N] = {0.75F, 2.5F, -0.5F, -1.25F, 3};
    static const int32_t integers[N] = {0, 2, 0, 1, 3};
    static const int on[2][N] = {{0, 2, 0, 2, -1}, {0, 2, 0, 1, -1}};
    const int64_t dims[] = {0}, depth = DEPTH, two[] = {2};
    const float values[] = {-1, 5};
    for (int kind = 0; kind < 2; kind++) {
        const kolo_field field = {.name = "x", .dtype = kind ? KOLO_DTYPE_I32 : KOLO_DTYPE_F32};
        const void *data = kind ? (const void *)integers : numbers;
        const kolo_batch batch = {.count = N, .n_fields = 1, .fields = &field, .data = {data}};
        float y[N * DEPTH];
        onnx_file *f = new_file();
        onnx_file_input(f, "x", kind ? INT64 : FLOAT, 1, dims);
        onnx_file_integers(f, "depth", 0, NULL, &depth);
        onnx_file_floats(f, "values", 1, two, values);
        onnx_file_node(f, "OneHot", "x depth values", "y");
        run(f, &batch, y, sizeof y);
        for (int k = 0; k < N * DEPTH; k++) {
            const float want = on[kind][k / DEPTH] == k % DEPTH ? 5 : -1;
            if (y[k] != want) fail_msg("kind %d, %d: %g", kind, k, (double)y[k]);
        }
    }
}

/* A sequence without a step has outputs and final states of zeros, whatever its initial state. */
static void sequences_may_be_empty(void **state) {
    enum { N = 2, T = 3, HIDDEN = 2 };
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    const float x[N * T] = {1, 2, 3, 4, 5, 6}, initial[2 * HIDDEN] = {7, 8, 9, 10};
    const float weights[2 * 3 * HIDDEN * HIDDEN] = {0.5F, -0.25F, 1, 0.75F, 0.125F, 0.5F, 0.25F};
    const int32_t lengths[N] = {2, 0};
    const int64_t of_lengths[] = {0};
    const kolo_field fields[] = {{.name = "x", .shape = {2, {T, 1}}},
                                 {.name = "lengths", .dtype = KOLO_DTYPE_I32}};
    const kolo_batch batch = {.count = N, .n_fields = 2, .fields = fields, .data = {x, lengths}};
    for (int i = 0; i < 3; i++) {
        const int64_t D = i == 2 ? 2 : 1;
        const int64_t of_x[] = {0, T, 1}, of_w[] = {D, 3 * HIDDEN, 1},
                      of_r[] = {D, 3 * HIDDEN, HIDDEN}, of_h[] = {1, D, HIDDEN};
        float y[N * 2 * HIDDEN];
        onnx_file *f = new_file();
        onnx_file_input(f, "x", FLOAT, 3, of_x);
        onnx_file_input(f, "lengths", INT64, 1, of_lengths);
        onnx_file_floats(f, "W", 3, of_w, weights);
        onnx_file_floats(f, "R", 3, of_r, weights);
        onnx_file_floats(f, "h", 3, of_h, initial);
        onnx_file_node(f, "GRU", "x W R - lengths h", "all y");
        onnx_file_int(f, "hidden_size", HIDDEN);
        onnx_file_int(f, "linear_before_reset", 1);
        onnx_file_int(f, "layout", 1);
        onnx_file_text(f, "direction", directions[i]);
        run(f, &batch, y, (size_t)(N * D * HIDDEN) * sizeof *y);
        for (int64_t k = 0; k < D * HIDDEN; k++) {
            assert_true(y[k] != 0); /* the other one */
            const float empty = y[D * HIDDEN + k];
            if (empty != 0) fail_msg("%s: %g", directions[i], (double)empty);
        }
    }
}

/* 0 is a number as others, not the default. */
static void attributes_may_be_zero(void **state) {
    static const struct {
        const char *op, *name;     /* the attribute that is 0 */
        const char *others[3];     /* with `numbers` */
        float numbers[3], want[4]; /* of x */
    } cases[] = {
        {"InstanceNormalization", "epsilon", {NULL}, {0}, {-1, 1, -1, 1}},
        {"GroupNormalization", "epsilon", {NULL}, {0}, {-1, 1, -1, 1}},
        {"LRN", "bias", {"alpha", "beta"}, {1, 0.5F}, {-1, 1, -1, 1}},
        {"LRN", "alpha", {"bias", "beta"}, {4, 0.5F}, {-0.0005F, 0.0005F, -0.001F, 0.001F}},
        {"LRN", "beta", {"bias", "alpha"}, {4, 1}, {-0.001F, 0.001F, -0.002F, 0.002F}},
    };
    static const float x[] = {-0.001F, 0.001F, -0.002F, 0.002F}, ones[] = {1, 1}, zeros[] = {0, 0};
    const kolo_field field = {.name = "x", .shape = {3, {2, 1, 2}}};
    const kolo_batch batch = {.count = 1, .n_fields = 1, .fields = &field, .data = {x}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        const int64_t dims[] = {0, 2, 1, 2}, two[] = {2};
        const bool lrn = strcmp(cases[i].op, "LRN") == 0;
        float y[4];
        onnx_file *f = new_file();
        onnx_file_input(f, "x", FLOAT, 4, dims);
        onnx_file_floats(f, "scale", 1, two, ones);
        onnx_file_floats(f, "offset", 1, two, zeros);
        onnx_file_node(f, cases[i].op, lrn ? "x" : "x scale offset", "y");
        onnx_file_float(f, cases[i].name, 0);
        if (lrn) onnx_file_int(f, "size", 1);
        if (*cases[i].op == 'G') onnx_file_int(f, "num_groups", 2);
        for (int k = 0; cases[i].others[k]; k++) {
            onnx_file_float(f, cases[i].others[k], cases[i].numbers[k]);
        }
        run(f, &batch, y, sizeof y);
        for (int k = 0; k < 4; k++) {
            if (fabsf(y[k] - cases[i].want[k]) > 1e-3F * fabsf(cases[i].want[k])) {
                fail_msg("%s, %s 0: %g", cases[i].op, cases[i].name, (double)y[k]);
            }
        }
    }
}

/* A net of images of any size takes the sizes of the data. */
static void open_dimensions_are_those_of_the_samples(void **state) {
    static const kolo_shape samples[] = {{3, {1, 8, 8}}, {3, {1, 12, 10}}, {3, {1, 8, 8}}};
    const int64_t of_x[] = {0, 1, 0, 0}, of_w[] = {4, 1, 3, 3};
    float w[4 * 9] = {0};
    onnx_file *f = new_file();
    const kolo_model *model;
    kolo_graph *g;
    onnx_file_input(f, "image", FLOAT, 4, of_x);
    onnx_file_floats(f, "w", 4, of_w, w);
    onnx_file_node(f, "Conv", "image w", "c");
    onnx_file_node(f, "GlobalAveragePool", "c", "p");
    onnx_file_node(f, "Flatten", "p", "y");
    onnx_file_output(f, "y");
    ASSERT_OK(onnx_file_write(f, "open.onnx"));
    free(f);
    ASSERT_OK(kolo_model_find("open.onnx", &model));
    for (size_t i = 0; i < KOLO_COUNT(samples); i++) {
        const kolo_model_opts opts = {.batch = 2, .sample = samples[i], .classes = 4};
        ASSERT_OK(kolo_graph_create(NULL, &g));
        ASSERT_OK(kolo_model_add(model, g, &opts));
        kolo_graph_destroy(g);
    }
    const kolo_model_opts none = {.batch = 2}, two = {.batch = 2, .sample = {3, {2, 8, 8}}};
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_REFUSED(kolo_model_add(model, g, &none), "open.onnx has open dimensions");
    ASSERT_REFUSED(kolo_model_add(model, g, &two), "dimension 1 of the input \"image\" is 1");
    kolo_graph_destroy(g);
    const kolo_train_opts train = {.model = "open.onnx", .steps = 1, .in_memory = true};
    ASSERT_REFUSED(kolo_train(NULL, &train, NULL, NULL, &(kolo_train_result){0}), "give --data");
}

static kolo_status build_of_3(kolo_graph *g, int64_t samples, void *model) {
    const kolo_model_opts opts = {.batch = samples, .sample = {1, {3}}};
    return kolo_model_add(model, g, &opts);
}

/* A file of a net that multiplies by a number, written to a path. */
static void write_scaling(const char *path, float by, bool open) {
    const int64_t of_x[] = {0, open ? 0 : 3}, of_by[] = {1};
    onnx_file *f = new_file();
    onnx_file_input(f, "image", FLOAT, 2, of_x);
    onnx_file_floats(f, "by", 1, of_by, &by);
    onnx_file_node(f, "Mul", "image by", "y");
    onnx_file_output(f, "y");
    ASSERT_OK(onnx_file_write(f, path));
    free(f);
}

/* What the net of a path multiplies by. */
static float factor_of(const char *path) {
    const kolo_field field = {.name = "x", .shape = {1, {3}}};
    const float x[] = {1, 1, 1};
    float y[3] = {0};
    const kolo_batch batch = {.count = 1, .n_fields = 1, .fields = &field, .data = {x}};
    const kolo_model *model, *again;
    kolo_session *s;
    ASSERT_OK(kolo_model_find(path, &model));
    ASSERT_OK(kolo_model_find(path, &again));
    assert_ptr_equal(model, again);
    const kolo_session_opts opts = {.batch = 1, .evaluate_only = true};
    ASSERT_OK(kolo_session_create(NULL, &opts, build_of_3, (void *)model, &s));
    ASSERT_OK(kolo_session_predict(s, &batch, "logits", y, sizeof y, NULL));
    kolo_session_destroy(s);
    return y[2];
}

/* A path is not a file: what it names may change, and depends on the working folder. */
static void a_changed_file_is_read_again(void **state) {
    for (int open = 0; open < 2; open++) {
        for (int by = 1; by < 4; by++) {
            write_scaling("c.onnx", (float)by, open);
            assert_float_equal(factor_of("c.onnx"), by, 0);
        }
    }
    ASSERT_OK(kolo_folder_make("inner"));
    write_scaling("inner/c.onnx", 5, false);
    assert_int_equal(chdir("inner"), 0);
    assert_float_equal(factor_of("c.onnx"), 5, 0);
    assert_int_equal(chdir(".."), 0);
    assert_float_equal(factor_of("c.onnx"), 3, 0);
}

/* Parts of a net are of one file. */
static void an_open_file_that_has_changed_is_refused(void **state) {
    const kolo_model *model;
    kolo_graph *g;
    write_scaling("c.onnx", 1, true);
    ASSERT_OK(kolo_model_find("c.onnx", &model));
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(build_of_3(g, 2, (void *)model));
    kolo_graph_destroy(g);
    write_scaling("c.onnx", 2, true);
    ASSERT_OK(kolo_graph_create(NULL, &g));
    ASSERT_OK(build_of_3(g, 4, (void *)model)); /* read already */
    kolo_graph_destroy(g);
    const kolo_model_opts other = {.batch = 2, .sample = {1, {4}}};
    ASSERT_OK(kolo_graph_create(NULL, &g));
    assert_int_equal(kolo_model_add(model, g, &other), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "c.onnx has changed since it was opened"));
    kolo_graph_destroy(g);
}

/* A node that does not fit is no open dimension. */
static void nodes_that_do_not_fit_are_named(void **state) {
    const int64_t of_x[] = {0, 5}, of_w[] = {4, 3};
    const float w[12] = {0};
    onnx_file *f = new_file();
    const kolo_model *model;
    onnx_file_input(f, "features", FLOAT, 2, of_x);
    onnx_file_floats(f, "w", 2, of_w, w);
    onnx_file_node(f, "Add", "features w", "y");
    onnx_file_output(f, "y");
    ASSERT_OK(onnx_file_write(f, "wrong.onnx"));
    free(f);
    assert_int_equal(kolo_model_find("wrong.onnx", &model), KOLO_ERR_UNSUPPORTED);
    if (!strstr(kolo_last_error(), "node \"y\" (Add)")) fail_msg("%s", kolo_last_error());
}

TEST_MAIN(test_onnx_functions) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_those_of_the_c_library),
        cmocka_unit_test(integers_have_no_fraction),
        cmocka_unit_test(one_hot_takes_numbers_and_integers),
        cmocka_unit_test(sequences_may_be_empty),
        cmocka_unit_test(attributes_may_be_zero),
        cmocka_unit_test_setup_teardown(nodes_that_do_not_fit_are_named, test_folder_enter,
                                        test_folder_leave),
        cmocka_unit_test_setup_teardown(a_changed_file_is_read_again, test_folder_enter,
                                        test_folder_leave),
        cmocka_unit_test_setup_teardown(an_open_file_that_has_changed_is_refused, test_folder_enter,
                                        test_folder_leave),
        cmocka_unit_test_setup_teardown(open_dimensions_are_those_of_the_samples, test_folder_enter,
                                        test_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

TEST_MAIN(test_onnx_functions) {
    printf("skip: built without ONNX\n");
    return 77;
}

#endif
