#include "support/plan_nets.h"

#include "base/rng.h"
#include "graph/ops/ops.h"
#include "plan/internal.h"

kolo_value net_head(kolo_graph *g, kolo_value features, kolo_value labels) {
    int64_t n = kolo_info(g, features)->tensor.shape.dim[1];
    kolo_value w = kolo_param(g, "head.weight", kolo_shape_2(CLASSES, n), kolo_init_fan_in(n));
    kolo_value b = kolo_param(g, "head.bias", kolo_shape_1(CLASSES), kolo_init_fan_in(n));
    kolo_value logits = kolo_bias(g, kolo_linear(g, features, w), b);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, labels));
    kolo_output(g, "correct", kolo_accuracy(g, logits, labels));
    return logits;
}

/* Without a bias, whose gradient a batch normalization behind it would make zero. */
static kolo_value bare_conv(kolo_graph *g, const char *name, kolo_value x, int64_t out,
                            int64_t kernel, int64_t groups, int64_t stride) {
    if (kolo_graph_check(g) != KOLO_OK) return x;
    int64_t in = kolo_info(g, x)->tensor.shape.dim[1] / groups;
    kolo_init init = kolo_init_fan_in(in * kernel * kernel);
    kolo_value w = kolo_param(g, name, kolo_shape_4(out, in, kernel, kernel), init);
    kolo_conv2d_opts opts = {.pad_h = kernel / 2,
                             .pad_w = kernel / 2,
                             .groups = groups,
                             .stride_h = stride,
                             .stride_w = stride};
    return kolo_conv2d(g, x, w, &opts);
}

static kolo_value conv(kolo_graph *g, const char *name, kolo_value x, int64_t out, int64_t kernel,
                       int64_t groups, int64_t stride) {
    if (kolo_graph_check(g) != KOLO_OK) return x;
    int64_t in = kolo_info(g, x)->tensor.shape.dim[1] / groups;
    char bias[64];
    snprintf(bias, sizeof bias, "%s.bias", name);
    kolo_value y = bare_conv(g, name, x, out, kernel, groups, stride);
    kolo_init init = kolo_init_fan_in(in * kernel * kernel);
    return kolo_bias(g, y, kolo_param(g, bias, kolo_shape_1(out), init));
}

kolo_value net_images(kolo_graph *g, int64_t batch, int64_t channels, int64_t size) {
    return kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_4(batch, channels, size, size));
}

kolo_value net_labels(kolo_graph *g, int64_t batch) {
    return kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(batch));
}

static const kolo_pool2d_opts two = {.kernel_h = 2, .kernel_w = 2};

void net_lenet(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 1, 12), y = net_labels(g, batch);
    x = kolo_max_pool2d(g, kolo_relu(g, conv(g, "c1", x, 6, 5, 1, 1)), &two);
    x = kolo_max_pool2d(g, kolo_relu(g, conv(g, "c2", x, 16, 3, 1, 1)), &two);
    net_head(g, kolo_flatten(g, x), y);
}

/* A diamond, a strided shortcut, shared weights, and a flatten that does not fold. */
void net_residual(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 3, 9), y = net_labels(g, batch);
    x = kolo_relu(g, conv(g, "stem", x, 8, 3, 1, 1));
    kolo_value a = kolo_relu(g, conv(g, "a", x, 8, 3, 1, 1));
    kolo_value w = kolo_graph_find(g, "a");
    a = kolo_conv2d(g, a, w, &(kolo_conv2d_opts){.pad_h = 1, .pad_w = 1}); /* shares a's weights */
    x = kolo_relu(g, kolo_add(g, x, a));
    kolo_value left = conv(g, "left", x, 10, 3, 2, 2), right = conv(g, "right", x, 10, 1, 1, 2);
    x = kolo_relu(g, kolo_add(g, left, right));
    x = kolo_avg_pool2d(g, x, &two);
    net_head(g, kolo_relu(g, kolo_flatten(g, x)), y);
}

void net_mlp(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 2, 5), y = net_labels(g, batch);
    x = kolo_rms_norm(g, kolo_flatten(g, x), "rms", 0);
    kolo_value w = kolo_param(g, "w1", kolo_shape_2(50, 50), kolo_init_fan_in(50));
    x = kolo_relu(g, kolo_linear(g, x, w));
    x = kolo_add(g, kolo_relu(g, kolo_linear(g, x, w)), x);
    net_head(g, x, y);
}

/* A parameter that is added to activations, and one whose gradient is a view. */
static void net_odd(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 2, 6), y = net_labels(g, batch);
    kolo_init init = {KOLO_INIT_NORMAL, 0.3};
    kolo_value offset = kolo_param(g, "offset", kolo_shape_4(batch, 2, 6, 6), init);
    kolo_value again = kolo_param(g, "again", kolo_shape_4(batch, 2, 6, 6), init);
    x = kolo_add(g, kolo_add(g, x, offset), again); /* two parameters with one gradient */
    x = kolo_max_pool2d(g, conv(g, "c", x, 4, 3, 1, 1), &two);
    kolo_value flat = kolo_param(g, "flat", kolo_shape_4(batch, 4, 3, 3), init);
    net_head(g, kolo_add(g, kolo_flatten(g, x), kolo_flatten(g, flat)), y);
}

/* Batch normalization with and without ReLU, before a pool, in a shortcut, and on rows. */
void net_norm(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 3, 9), y = net_labels(g, batch);
    x = kolo_relu(g, kolo_batch_norm(g, bare_conv(g, "stem", x, 8, 3, 1, 1), "bn0", NULL));
    kolo_value a = bare_conv(g, "a", x, 12, 3, 1, 2), b = bare_conv(g, "b", x, 12, 1, 1, 2);
    a = kolo_batch_norm(g, a, "bn1", NULL);
    b = kolo_batch_norm(g, b, "bn2", &(kolo_batch_norm_opts){.eps = 1e-3, .momentum = 0.3});
    x = kolo_max_pool2d(g, kolo_relu(g, kolo_add(g, a, b)), &two);
    x = kolo_batch_norm(g, kolo_flatten(g, x), "bn3", NULL);
    net_head(g, x, y);
}

static kolo_value clip(kolo_graph *g, kolo_value x) {
    const kolo_attr to_2[KOLO_MAX_ATTRS] = {[KOLO_UNARY_Q].f = 2};
    return kolo_graph_add1(g, &kolo_op_hardtanh, &x, 1, to_2);
}

/* Normalization of images and rows, then a ReLU with a ceiling. */
static void net_clipped(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 3, 9), y = net_labels(g, batch);
    x = clip(g, kolo_batch_norm(g, bare_conv(g, "stem", x, 8, 3, 1, 1), "bn0", NULL));
    x = clip(g, kolo_batch_norm(g, kolo_flatten(g, x), "bn1", NULL));
    net_head(g, x, y);
}

/* The same of rows; `apart`: another reader prevents folding. */
static void clipped_rows(kolo_graph *g, int64_t batch, bool apart) {
    kolo_value x = net_images(g, batch, 2, 5), y = net_labels(g, batch);
    x = kolo_batch_norm(g, kolo_flatten(g, x), "bn", NULL);
    if (apart) kolo_output(g, "normal", x);
    net_head(g, clip(g, x), y);
}
void net_rows(kolo_graph *g, int64_t batch) { clipped_rows(g, batch, false); }
void net_rows_apart(kolo_graph *g, int64_t batch) { clipped_rows(g, batch, true); }

/* Branches of channels that are joined, cut and padded. */
static void net_channels(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 3, 8), y = net_labels(g, batch);
    kolo_value a = conv(g, "a", x, 6, 3, 1, 1), b = kolo_relu(g, conv(g, "b", x, 11, 1, 1, 1));
    x = kolo_concat(g, (kolo_value[]){a, b, x}, 3);
    kolo_value c = kolo_relu(g, conv(g, "c", x, 8, 3, 1, 1));
    x = kolo_add(g, kolo_channel_window(g, c, -4, 16), kolo_channel_window(g, x, 3, 16));
    net_head(g, kolo_flatten(g, kolo_global_avg_pool2d(g, kolo_relu(g, x))), y);
}

/* Dropout of images, behind a flatten that folds, and of rows. */
static void net_dropout(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 3, 8), y = net_labels(g, batch);
    x = kolo_dropout(g, kolo_relu(g, conv(g, "c", x, 8, 3, 1, 1)), 0.1);
    x = kolo_dropout(g, kolo_flatten(g, kolo_max_pool2d(g, x, &two)), 0.2);
    kolo_value w = kolo_param(g, "w1", kolo_shape_2(30, 128), kolo_init_fan_in(128));
    net_head(g, kolo_dropout(g, kolo_relu(g, kolo_linear(g, x, w)), 0.2), y);
}

/* Images that shrink to two pixels: some libraries' fast kernels take the large ones only, so that
 * layouts change on the way. */
static void net_regions(kolo_graph *g, int64_t batch) {
    kolo_value x = net_images(g, batch, 3, 28), y = net_labels(g, batch);
    x = kolo_relu(g, conv(g, "stem", x, 16, 3, 1, 2));
    for (int64_t i = 0, channels = 16; i < 3; i++, channels *= 2) {
        const char *names[][3] = {{"a0", "b0", "c0"}, {"a1", "b1", "c1"}, {"a2", "b2", "c2"}};
        kolo_value main = kolo_relu(g, conv(g, names[i][0], x, channels, 3, 1, 2));
        main = kolo_batch_norm(g, bare_conv(g, names[i][1], main, channels, 3, 1, 1), names[i][1],
                               NULL);
        x = kolo_relu(g, kolo_add(g, main, bare_conv(g, names[i][2], x, channels, 1, 1, 2)));
    }
    net_head(g, kolo_flatten(g, x), y);
}

const named_net nets[NETS] = {
    {"lenet", net_lenet},     {"residual", net_residual}, {"mlp", net_mlp},
    {"odd", net_odd},         {"norm", net_norm},         {"channels", net_channels},
    {"dropout", net_dropout}, {"regions", net_regions},   {"clipped", net_clipped}};

kolo_plan *net_compile(net build, int64_t batch, const kolo_plan_opts *opts, kolo_store *store) {
    kolo_graph *g;
    kolo_plan *plan;
    ASSERT_OK(kolo_graph_create(NULL, &g));
    build(g, batch);
    ASSERT_OK(kolo_graph_check(g));
    ASSERT_OK(kolo_plan_compile(g, opts, store, NULL, &plan));
    return plan;
}

void net_fill(kolo_plan *plan, uint64_t step) {
    kolo_tensor x, y;
    float *images_at = kolo_plan_input(plan, "x", &x);
    int32_t *labels = kolo_plan_input(plan, "y", &y);
    kolo_rng rng = kolo_rng_make(step, KOLO_RNG_TEST, 5);
    int64_t index[KOLO_MAX_RANK] = {0};
    for (int64_t i = 0, n = kolo_shape_count(&x.shape); i < n; i++) {
        images_at[kolo_layout_offset(&x.layout, &x.shape, index)] =
            kolo_rng_normal(&rng, (uint64_t)i);
        for (int d = 3; d >= 0 && ++index[d] == x.shape.dim[d]; d--) index[d] = 0;
    }
    for (int64_t i = 0; i < y.shape.dim[0]; i++) {
        labels[i] = (int32_t)kolo_rng_below(&rng, 100000 + (uint64_t)i, CLASSES);
    }
    if (!plan->train) return;
    kolo_plan_set_scalar(plan, "lr", 0.05);
    kolo_plan_set(plan, kolo_plan_find_scalar(plan, "share"), 1);
    kolo_plan_set_scalar(plan, "grad_scale", 1.0 / (double)y.shape.dim[0]);
}
