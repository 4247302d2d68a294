/* Channels of convolutions divided by tensor parallelism: the ranks of any mesh compute what one
 * rank does, in f64 with the reference kernels to rounding, with batch normalization and depthwise
 * convolutions between the convolutions, concatenated branches, uneven slices, dropout and
 * clipping. */
#include "support/mesh_run.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 8, COLORS = 3, PIXELS = COLORS * SIDE * SIDE, CHANNELS = 6, INSIDE = 5, CLASSES = 7 };

typedef struct setting {
    char mesh[32];
    int ranks;
    int64_t samples, micro_batches;
    kolo_optimizer_opts optimizer;
    kolo_recompute recompute;
    bool sync; /* batch normalization of all samples */
} setting;

/* Of a pair the first convolution is divided by outputs, the second by inputs. */
static const char rules[] = "pair.first 0\n"
                            "pair.second 1\n"
                            "deep.wide 0\n" /* the depthwise one follows */
                            "deep.thin 1\n"
                            "both.?.w 0\n"
                            "both.join 1 2\n"
                            "classes 0\n";

/* ---- the model ---- */

static kolo_value conv(kolo_graph *g, const char *name, kolo_value x, int64_t outputs,
                       int64_t kernel, int64_t groups) {
    const int64_t inputs = kolo_value_shape(g, x).dim[1] / groups;
    const kolo_value w = kolo_param(g, name, kolo_shape_4(outputs, inputs, kernel, kernel),
                                    kolo_init_fan_in(inputs * kernel * kernel));
    const kolo_conv2d_opts opts = {.pad_h = kernel / 2, .pad_w = kernel / 2, .groups = groups};
    return kolo_conv2d(g, x, w, &opts);
}

/* Convolution, normalization and ReLU. */
static kolo_value layer(kolo_graph *g, const char *name, kolo_value x, int64_t outputs,
                        int64_t kernel, int64_t groups) {
    char norm[32];
    (void)snprintf(norm, sizeof norm, "%s.norm", name);
    x = conv(g, name, x, outputs, kernel, groups);
    return kolo_relu(g, kolo_batch_norm(g, x, norm, NULL));
}

static kolo_value pair(kolo_graph *g, kolo_value x) {
    x = kolo_dropout(g, layer(g, "pair.first", x, INSIDE, 1, 1), 0.2);
    return layer(g, "pair.second", x, CHANNELS, 3, 1);
}

/* An inverted residual block: its sum is that of all inputs. */
static kolo_value deep(kolo_graph *g, kolo_value x) {
    kolo_value h = layer(g, "deep.wide", x, INSIDE, 1, 1);
    h = layer(g, "deep.each", h, INSIDE, 3, INSIDE);
    return kolo_add(g, x, kolo_batch_norm(g, conv(g, "deep.thin", h, CHANNELS, 1, 1), "d", NULL));
}

/* Branches whose slices are concatenated. */
static kolo_value both(kolo_graph *g, kolo_value x) {
    const kolo_value parts[] = {layer(g, "both.a.w", x, INSIDE, 1, 1),
                                layer(g, "both.b.w", x, INSIDE, 3, 1)};
    return layer(g, "both.join", kolo_concat(g, parts, 2), CHANNELS, 1, 1);
}

static kolo_status build(kolo_graph *g, int64_t n, const void *arg) {
    (void)arg;
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F64, kolo_shape_4(n, COLORS, SIDE, SIDE));
    const kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    x = layer(g, "stem", x, CHANNELS, 3, 1);
    const kolo_value branches[] = {layer(g, "whole", x, CHANNELS, 1, 1), pair(g, x), deep(g, x),
                                   both(g, x)};
    x = kolo_dropout(g, kolo_concat(g, branches, 4), 0.1);
    x = kolo_flatten(g, kolo_global_avg_pool2d(g, x));
    const kolo_value w =
        kolo_param(g, "classes", kolo_shape_2(CLASSES, 4 * CHANNELS), kolo_init_fan_in(9));
    kolo_output(g, "loss", kolo_softmax_xent(g, kolo_linear(g, x, w), y));
    return kolo_graph_check(g);
}

static void feed(kolo_plan *p, int step, int64_t first, int64_t count, const void *arg) {
    double *x = kolo_plan_input(p, "x", &(kolo_tensor){0});
    int32_t *y = kolo_plan_input(p, "y", &(kolo_tensor){0});
    (void)arg;
    for (int64_t i = 0; i < count * PIXELS; i++) {
        const int64_t at = step % 3 * 1000 + first * PIXELS + i;
        x[i] = sin((double)(at * (at + 3) % 9973));
    }
    for (int64_t i = 0; i < count; i++) y[i] = (int32_t)((step % 3 + first + i) * 5 % CLASSES);
}

static kolo_status body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    const mesh_model m = {.mesh = s->mesh,
                          .samples = s->samples,
                          .terms = 1,
                          .micro_batches = s->micro_batches,
                          .optimizer = s->optimizer,
                          .recompute = s->recompute,
                          .sync_batch_norm = s->sync,
                          .placement = rules,
                          .build = build,
                          .feed = feed,
                          .arg = s};
    return mesh_train(comm, &m, result);
}

/* ---- against one rank ---- */

#define CLIPPED \
    { .momentum = 0.9, .clip = 0.5 }
#define ADAM \
    { .kind = KOLO_OPTIMIZER_ADAM, .eps = 1e-3 }

static const setting cases[] = {
    {"dp=1,tp=2", 2, 3, 1, CLIPPED, 0, false},
    {"dp=1,tp=3", 3, 2, 2, ADAM, KOLO_RECOMPUTE_CHEAP, false},
    {"dp=1,tp=4", 4, 2, 1, CLIPPED, KOLO_RECOMPUTE_FULL, false},
    {"dp=2,tp=2", 4, 4, 1, CLIPPED, 0, true},
    {"dp=1,tp=2,sp=2", 4, 2, 1, ADAM, 0, false},
    {"dp=1,sp=2,tp=3", 6, 2, 1, CLIPPED, 0, true},
};

static void any_mesh_computes_what_one_rank_does(void **state) {
    (void)state;
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        setting alone = cases[i];
        (void)snprintf(alone.mesh, sizeof alone.mesh, "dp=1");
        mesh_assert_equals(cases[i].mesh, body, &cases[i], cases[i].ranks, &alone, 1, sizeof alone);
    }
}

TEST_MAIN(test_channel_parallel) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_mesh_computes_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
