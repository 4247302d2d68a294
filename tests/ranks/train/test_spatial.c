/* Spatial parallelism: the ranks of sp have rows of images, and compute what one rank does, in f64
 * with the reference kernels to rounding: windows with stride, padding and dilation, transposed
 * convolutions, resizing, batch normalization, means over all rows, classifiers behind these, with
 * rows that do not divide, dropout, clipping, accumulation and recomputation; vision transformers,
 * of which they have positions; jobs with the fast kernels, also in bf16; files and refusals. */
#include "kolo/models.h"
#include "plan/internal.h"
#include "support/folder.h"
#include "support/mesh_run.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 2, CLASSES = 3, WIDTH = 8 };

/* The net of a setting, with images of so many rows. */
typedef struct net {
    kolo_status (*build)(kolo_graph *g, int64_t samples, int64_t rows);
    int64_t rows;
    bool per_pixel; /* labels */
} net;

typedef struct setting {
    const char *mesh;
    int ranks;
    net net;
    int64_t samples, micro_batches; /* of a micro-batch */
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    int zero;
    const char *rules; /* of tensor parallelism */
    bool sync;         /* batch normalization by all samples */
} setting;

/* ---- nets ---- */

/* Adds a convolution of this number. */
static kolo_value conv(kolo_graph *g, int number, kolo_value x, int64_t outputs, int64_t kernel,
                       const kolo_conv2d_opts *opts) {
    char name[16];
    const int64_t inputs = kolo_value_shape(g, x).dim[1];
    const int64_t groups = opts && opts->groups ? opts->groups : 1;
    snprintf(name, sizeof name, "w%d", number);
    const kolo_value w = kolo_param(g, name, kolo_shape_4(outputs, inputs / groups, kernel, kernel),
                                    kolo_init_fan_in(inputs / groups * kernel * kernel));
    return kolo_conv2d(g, x, w, opts);
}

static kolo_value image(kolo_graph *g, int64_t samples, int64_t rows) {
    return kolo_input(g, "x", g->dtype, kolo_shape_4(samples, CHANNELS, rows, WIDTH));
}

/* Windows of all kinds, down and up again; a loss for each pixel. */
static kolo_status build_pixels(kolo_graph *g, int64_t samples, int64_t rows) {
    kolo_value x = image(g, samples, rows);
    kolo_value h = conv(g, 0, x, 4, 3, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1});
    h = kolo_relu(g, kolo_batch_norm(g, h, "n0", NULL));
    const kolo_value skip = h;
    h = kolo_max_pool2d(
        g, h,
        &(kolo_pool2d_opts){
            .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1});
    h = conv(
        g, 1, h, 4, 3,
        &(kolo_conv2d_opts){.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2, .groups = 2});
    h = kolo_avg_pool2d(
        g, h,
        &(kolo_pool2d_opts){
            .kernel_h = 3, .kernel_w = 3, .stride_h = 1, .stride_w = 1, .pad_h = 1, .pad_w = 1});
    h = conv(g, 2, h, 6, 1, NULL);
    kolo_value mean = conv(g, 3, kolo_global_avg_pool2d(g, h), 6, 1, NULL);
    const int64_t *size = kolo_value_shape(g, h).dim;
    h = kolo_dropout(g, kolo_add(g, h, kolo_resize(g, mean, size[2], size[3], false)), 0.2);
    const kolo_value up = kolo_param(g, "up", kolo_shape_4(6, 4, 3, 3), kolo_init_fan_in(36));
    h = kolo_conv_transpose2d(g, h, up,
                              &(kolo_conv_transpose2d_opts){.stride_h = 2,
                                                            .stride_w = 2,
                                                            .pad_h = 1,
                                                            .pad_w = 1,
                                                            .output_pad_h = 1,
                                                            .output_pad_w = 1});
    h = kolo_resize(g, h, rows, WIDTH, true);
    h = kolo_concat(g, (const kolo_value[]){skip, h}, 2);
    h = conv(g, 4, h, CLASSES, 1, NULL);
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_3(samples, rows, WIDTH));
    kolo_output(g, "loss", kolo_softmax_xent(g, h, y));
    return kolo_graph_check(g);
}

/* Strides, an even kernel, local response normalization and a classifier of all rows. */
static kolo_status build_classes(kolo_graph *g, int64_t samples, int64_t rows) {
    kolo_value h = image(g, samples, rows);
    h = conv(g, 0, h, 4, 5, &(kolo_conv2d_opts){.stride_h = 2, .pad_h = 2, .pad_w = 2});
    h = kolo_lrn(g, kolo_relu(g, h), NULL);
    h = conv(g, 1, h, 6, 2, &(kolo_conv2d_opts){.pad_h = 1});
    h = kolo_relu(g, kolo_batch_norm(g, h, "n1", NULL));
    h = conv(g, 2, h, 6, 1, &(kolo_conv2d_opts){.stride_h = 2, .stride_w = 2});
    h = kolo_max_pool2d(g, h, &(kolo_pool2d_opts){.kernel_h = 2, .kernel_w = 2, .ceil = true});
    h = kolo_dropout(g, h, 0.1);
    h = kolo_flatten(g, h);
    const int64_t inputs = kolo_value_shape(g, h).dim[1];
    const kolo_value w =
        kolo_param(g, "fc", kolo_shape_2(CLASSES, inputs), kolo_init_fan_in(inputs));
    const kolo_value b = kolo_param(g, "b", kolo_shape_1(CLASSES), kolo_init_fan_in(inputs));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(samples));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_bias(g, kolo_linear(g, h, w), b), y));
    return kolo_graph_check(g);
}

/* Rows made of channels, of which all rows are gathered. */
static kolo_status build_folds(kolo_graph *g, int64_t samples, int64_t rows) {
    kolo_value h = conv(g, 0, image(g, samples, rows), 4, 3, &(kolo_conv2d_opts){.pad_h = 1});
    h = kolo_pixel_shuffle(g, h, 2);
    const int64_t width = kolo_value_shape(g, h).dim[3];
    h = kolo_reshape(g, h, (kolo_shape){5, {samples, 1, rows, 2, width}});
    h = kolo_reduce_max(g, kolo_tanh(g, h), (const int[]){3}, 1, false);
    h = kolo_flatten(g, kolo_relu(g, conv(g, 1, h, 4, 3, NULL)));
    const int64_t inputs = kolo_value_shape(g, h).dim[1];
    const kolo_value w =
        kolo_param(g, "fc", kolo_shape_2(CLASSES, inputs), kolo_init_fan_in(inputs));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(samples));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, h, w), y));
    return kolo_graph_check(g);
}

/* Pairs of rows as a dimension of their own, of which all rows are gathered too. */
static kolo_status build_pairs(kolo_graph *g, int64_t samples, int64_t rows) {
    kolo_value h = image(g, samples, rows);
    h = conv(g, 0, h, 4, 3, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1});
    h = kolo_reshape(g, h, (kolo_shape){5, {samples, 4, rows / 2, 2, WIDTH}});
    h = kolo_square(g, kolo_reduce_mean(g, h, (const int[]){3}, 1, false));
    h = conv(g, 1, h, CLASSES, 1, NULL);
    h = kolo_flatten(g, kolo_global_avg_pool2d(g, h));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(samples));
    kolo_output(g, "loss", kolo_softmax_xent(g, h, y));
    return kolo_graph_check(g);
}

static kolo_status build_model(kolo_graph *g, const char *name, const char *options,
                               int64_t samples, int64_t rows) {
    const kolo_model *model;
    const kolo_model_opts opts = {.batch = samples,
                                  .sample = {3, {CHANNELS, rows, 16}},
                                  .classes = CLASSES,
                                  .options = options};
    KOLO_TRY(kolo_model_find(name, &model));
    return model->build(g, &opts);
}

static kolo_status build_unet(kolo_graph *g, int64_t samples, int64_t rows) {
    return build_model(g, "unet", "width=1", samples, rows);
}

/* A position more than patches: a number that divides by few. */
static kolo_status build_vit(kolo_graph *g, int64_t samples, int64_t rows) {
    return build_model(g, "vit_tiny", "layers=2,width=24,heads=12,mlp=20,patch=4,dropout=20",
                       samples, rows);
}

/* ---- plans in f64 ---- */

static kolo_status build(kolo_graph *g, int64_t samples, const void *arg) {
    const setting *s = arg;
    return s->net.build(g, samples, s->net.rows);
}

static _Atomic int misplaced; /* steps of the backward pass that count as parts of the update */

static void count_misplaced(const kolo_plan *p) {
    kolo_step_info *steps = calloc((size_t)kolo_plan_n_steps(p), sizeof *steps);
    assert_non_null(steps);
    kolo_plan_describe(p, steps);
    for (int i = 0; i < kolo_plan_n_steps(p); i++) {
        misplaced += strstr(steps[i].op, "_bwd") && steps[i].phase == KOLO_PHASE_UPDATE;
    }
    free(steps);
}

static void feed(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg) {
    kolo_tensor of_x, of_y;
    double *x = kolo_plan_input(p, "x", &of_x);
    int32_t *y = kolo_plan_input(p, "y", &of_y);
    const int64_t pixels = kolo_shape_count(&of_x.shape) / count;
    const int64_t labels = kolo_shape_count(&of_y.shape) / count;
    for (int64_t i = 0; i < count * pixels; i++) {
        const int64_t at = step % 3 * 977 + first * pixels + i;
        x[i] = (double)(at * 7919 % 1009) / 504.5 - 1;
    }
    for (int64_t i = 0; i < count * labels; i++) {
        const int64_t at = step % 3 * 31 + first * labels + i;
        y[i] = (int32_t)(at * at / 5 % CLASSES);
    }
    if (step == 0) count_misplaced(p);
    (void)arg;
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const bool unet = s->net.build == build_unet;
    const mesh_model m = {.mesh = s->mesh,
                          .samples = s->samples,
                          .terms = s->net.per_pixel ? s->net.rows * (unet ? 16 : WIDTH) : 1,
                          .micro_batches = s->micro_batches,
                          .optimizer = s->optimizer,
                          .recompute = s->recompute,
                          .zero = s->zero,
                          .sync_batch_norm = s->sync,
                          .placement = s->rules,
                          .build = build,
                          .feed = feed,
                          .arg = s};
    return mesh_train(comm, &m, result);
}

#define PIXELS(count) \
    { build_pixels, count, true }
#define LABELS(count) \
    { build_classes, count, false }
#define FOLDS(count) \
    { build_folds, count, false }
#define PAIRS(count) \
    { build_pairs, count, false }
#define UNET(count) \
    { build_unet, count, true }
#define VIT(count) \
    { build_vit, count, false }
#define CLIPPED \
    { .momentum = 0.9, .clip = 0.5 }
#define ADAM \
    { .kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3 }
static const struct {
    setting s;
    bool soak;
} cases[] = {
    {{"dp=1,sp=2", 2, PIXELS(12), 2, 1, CLIPPED, 0, 0, NULL, false}, false},
    {{"dp=1,sp=2", 2, PIXELS(11), 2, 2, ADAM, KOLO_RECOMPUTE_CHEAP, 0, NULL, false}, false},
    {{"dp=1,sp=3", 3, PIXELS(13), 1, 1, CLIPPED, KOLO_RECOMPUTE_FULL, 0, NULL, false}, false},
    {{"dp=1,sp=2", 2, LABELS(21), 3, 1, CLIPPED, 0, 0, NULL, false}, false},
    {{"dp=1,sp=3", 3, LABELS(22), 2, 2, ADAM, 0, 0, NULL, false}, false},
    {{"dp=1,sp=2", 2, FOLDS(12), 3, 1, CLIPPED, 0, 0, NULL, false}, false},
    {{"dp=1,sp=2", 2, PAIRS(12), 3, 1, CLIPPED, 0, 0, NULL, false}, false},
    {{"dp=1,sp=2", 2, VIT(12), 2, 1, CLIPPED, 0, 0, NULL, false}, false},
    {{"dp=1,sp=3", 3, VIT(12), 2, 2, ADAM, KOLO_RECOMPUTE_CHEAP, 0, NULL, false}, false},
    {{"dp=1,sp=3", 3, VIT(20), 2, 1, ADAM, 0, 0, "attention ring\n", false}, false},
    {{"dp=1,sp=2,tp=2", 4, VIT(12), 2, 1, CLIPPED, 0, 0, NULL, false}, false},
    {{"dp=2,sp=2", 4, VIT(12), 4, 1, ADAM, KOLO_RECOMPUTE_FULL, 1, NULL, false}, false},
    {{"dp=1,sp=2", 2, UNET(48), 4, 1, CLIPPED, 0, 0, NULL, false}, true},
    {{"dp=1,sp=3", 3, UNET(48), 4, 1, ADAM, 0, 0, NULL, false}, true},
    {{"dp=1,sp=5", 5, PIXELS(23), 1, 1, CLIPPED, 0, 0, NULL, false}, true},
};

static void rows_are_computed_as_on_one_rank(void **state) {
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting s = cases[i].s, alone = cases[i].s;
        if (cases[i].soak && !getenv("KOLO_SOAK")) continue;
        alone.mesh = "dp=1";
        alone.zero = 0;
        mesh_assert_equals(s.mesh, body, &s, s.ranks, &alone, 1, sizeof s);
    }
    assert_int_equal(misplaced, 0);
}

/* Batch normalization is by the samples of a place on dp, with or without rows. */
static void samples_and_rows_are_divided_at_once(void **state) {
    static const struct {
        setting s;
        bool soak;
    } mixed[] = {
        {{"dp=2,sp=2", 4, PIXELS(12), 4, 1, CLIPPED, 0, 0, NULL, false}, false},
        {{"dp=2,sp=2", 4, LABELS(21), 4, 2, ADAM, 0, 1, NULL, false}, false},
        {{"dp=2,sp=3", 6, PIXELS(13), 2, 1, ADAM, 0, 1, NULL, false}, true},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(mixed); i++) {
        setting s = mixed[i].s, alone = mixed[i].s;
        if (mixed[i].soak && !getenv("KOLO_SOAK")) continue;
        alone.mesh = "dp=2";
        alone.zero = 0;
        mesh_assert_equals(s.mesh, body, &s, s.ranks, &alone, 2, sizeof s);
    }
}

/* By all rows of the samples of all ranks: what one rank computes. */
static void batch_norms_of_all_samples_and_rows(void **state) {
    static const struct {
        setting s;
        bool soak;
    } all[] = {
        {{"dp=2,sp=2", 4, PIXELS(12), 4, 1, CLIPPED, 0, 0, NULL, true}, false},
        {{"dp=2,sp=2", 4, LABELS(21), 4, 2, ADAM, KOLO_RECOMPUTE_FULL, 1, NULL, true}, false},
        {{"sp=2,dp=1,tp=2", 4, LABELS(22), 2, 1, CLIPPED, 0, 0, "w1 0\nw2 1\n", true}, false},
        {{"dp=2,sp=3", 6, PIXELS(13), 4, 2, ADAM, KOLO_RECOMPUTE_CHEAP, 0, NULL, true}, true},
        {{"dp=2,sp=2,tp=2", 8, LABELS(22), 4, 1, ADAM, 0, 1, "w1 0\nw2 1\n", true}, true},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(all); i++) {
        setting s = all[i].s, alone = all[i].s;
        if (all[i].soak && !getenv("KOLO_SOAK")) continue;
        alone.mesh = "dp=1";
        alone.zero = 0;
        alone.rules = NULL;
        mesh_assert_equals(s.mesh, body, &s, s.ranks, &alone, 1, sizeof s);
    }
}

/* Channels of convolutions over tp, rows over sp. */
static void channels_and_rows_are_divided_at_once(void **state) {
    static const setting mixed[] = {
        {"dp=1,sp=2,tp=2", 4, LABELS(21), 3, 1, CLIPPED, 0, 0, "w1 0\nw2 1\n", false},
        {"dp=1,tp=2,sp=2", 4, LABELS(22), 2, 2, ADAM, 0, 0, "w1 0\nw2 1\nfc 0\n", false},
        {"dp=1,tp=2,sp=2", 4, LABELS(22), 2, 2, ADAM, 0, 0, "w1 samples\nfc 0\n", false},
    };
    static mesh_outcome expected;
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(mixed); i++) {
        setting s = mixed[i], alone = mixed[i];
        alone.mesh = "dp=1";
        alone.rules = NULL;
        expected = *mesh_run(1, RANKS_THREAD, body, &alone, sizeof alone);
        mesh_assert_learns(s.mesh, &expected, 3);
        mesh_assert_close(s.mesh, mesh_run(s.ranks, RANKS_THREAD, body, &s, sizeof s), &expected);
    }
}

/* ---- jobs ---- */

#define JOB(model_, options, data_)                                                                \
    {                                                                                              \
        .model = model_, .model_options = options, .data = data_, .lr = 0.01,                      \
        .optimizer.momentum = 0.9, .optimizer.clip = 1, .global_batch = 8, .steps = 4, .epochs = 3 \
    }
#define VIT_SIZES "layers=2,width=24,heads=4,mlp=20,patch=4,dropout=10"
#define SEGMENTS(rows) "synthetic-seg:N=19,test=5,shape=3x" rows "x16,classes=2"

/* With the fast kernels and their layouts, by any rank the same for parameters; the last step of
 * an epoch has 3 samples, and the test set 5. */
static void jobs_train_and_evaluate(void **state) {
    static const struct {
        kolo_train_opts opts;
        const char *mesh, *alone;
        int ranks, alone_ranks, zero;
        bool sync;
    } jobs[] = {
        {JOB("unet", "width=4", SEGMENTS("48")), "sp=2", NULL, 2, 1, 0, false},
        {JOB("unet", "width=16", SEGMENTS("48")), "sp=3", NULL, 3, 1, 0, false},
        {JOB("unet", "width=4", SEGMENTS("32")), "dp=2,sp=2", "dp=2", 4, 2, 1, false},
        {JOB("resnet20", NULL, "synthetic:N=19,test=5,shape=3x32x16"), "sp=2", NULL, 2, 1, 0,
         false},
        {JOB("lenet", NULL, "synthetic:N=19,test=5"), "sp=3", NULL, 3, 1, 0, false},
        {JOB("resnet20", NULL, "synthetic:N=19,test=5,shape=3x32x16"), "sp=2,tp=2", NULL, 4, 1, 0,
         false},
        {JOB("resnet20", NULL, "synthetic:N=18,test=5,shape=3x32x16"), "pp=2,sp=2", NULL, 4, 1, 0,
         false},
        {JOB("resnet20", NULL, "synthetic:N=19,test=5,shape=3x32x16"), "dp=2,sp=2", NULL, 4, 1, 1,
         true},
        {JOB("resnet20", NULL, "synthetic:N=18,test=5,shape=3x32x16"), "dp=2,pp=2,sp=2", NULL, 8, 1,
         0, true},
        {JOB("vit_tiny", VIT_SIZES, "synthetic:N=19,test=5,shape=3x12x12"), "sp=2", NULL, 2, 1, 0,
         false},
        {JOB("vit_tiny", VIT_SIZES, "synthetic:N=18,test=5,shape=3x12x12"), "pp=2,sp=2", NULL, 4, 1,
         0, false},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(jobs); i++) {
        kolo_train_opts opts = jobs[i].opts;
        opts.sync_bn = jobs[i].sync;
        opts.mesh = jobs[i].alone;
        const kolo_train_result alone = train_well(jobs[i].alone_ranks, &opts);
        opts.mesh = jobs[i].mesh;
        opts.zero = jobs[i].zero;
        const kolo_train_result meshed = train_well(jobs[i].ranks, &opts);
        assert_near_run(jobs[i].mesh, &alone, &meshed);
    }
}

static void half_precision_sends_half_rows(void **state) {
    kolo_train_opts opts = JOB("unet", "width=4", SEGMENTS("48"));
    (void)state;
    opts.precision = KOLO_PRECISION_BF16;
    const kolo_train_result alone = train_well(1, &opts);
    opts.mesh = "sp=2";
    const kolo_train_result meshed = train_well(2, &opts);
    assert_near("first loss", alone.first_loss, meshed.first_loss, 1e-2);
    assert_near("last loss", alone.final.value[KOLO_METRIC_LOSS],
                meshed.final.value[KOLO_METRIC_LOSS], 1e-2);
}

static void checkpoints_are_those_of_one_rank(void **state) {
    kolo_train_opts opts = JOB("lenet", NULL, "synthetic:N=19,test=5");
    (void)state;
    assert_resumes_on_meshes(&opts, "sp=2", "sp=3");
}

static void what_rows_do_not_go_with_is_named(void **state) {
    static const struct {
        const char *model, *data, *mesh, *text;
        int ranks;
    } bad[] = {
        {"mlp", "synthetic:N=19,test=5", "sp=2", "no op of this model computes with some", 2},
        {"resnet20", "synthetic:N=19,test=5,shape=3x3x16", "sp=4", "3 rows of images cannot be", 4},
        {"vit_tiny", "synthetic:N=19,test=5,shape=3x32x32", "sp=2",
         "3 heads cannot be divided over sp=2", 2},
    };
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(bad); i++) {
        kolo_train_opts opts = JOB("mlp", NULL, NULL);
        opts.model = bad[i].model;
        opts.data = bad[i].data;
        opts.mesh = bad[i].mesh;
        assert_job_refused(bad[i].ranks, &opts, bad[i].text);
    }
}

TEST_MAIN(test_spatial) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_computed_as_on_one_rank),
        cmocka_unit_test(samples_and_rows_are_divided_at_once),
        cmocka_unit_test(batch_norms_of_all_samples_and_rows),
        cmocka_unit_test(channels_and_rows_are_divided_at_once),
        cmocka_unit_test(jobs_train_and_evaluate),
        cmocka_unit_test(half_precision_sends_half_rows),
        cmocka_unit_test(checkpoints_are_those_of_one_rank),
        cmocka_unit_test(what_rows_do_not_go_with_is_named),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
