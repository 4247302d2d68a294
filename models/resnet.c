/* resnet20, resnet18, resnet34, resnet50, resnet101: residual networks.
 * He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016.
 *
 *     stem -> stage 1 -> ... -> stage 3 or 4 -> mean of each channel -> fc classes
 *
 * A stage is a row of blocks; the first block of all stages but the first halves the image, and
 * each stage doubles the channels. A block is x + f(x), ReLU, where f is two 3x3 convolutions
 * (basic) or 1x1, 3x3, 1x1 with four times the channels at the end (bottleneck; the 3x3 has the
 * stride, as in torchvision), each with batch normalisation.
 *
 * resnet18 to resnet101 are table 1 of the paper: stem 7x7 stride 2 and max pool, projections where
 * the shape changes; names, counts and initial values are torchvision's. resnet20 is section 4.2:
 * stem 3x3, three stages of 16, 32, 64 channels, shortcuts without parameters (every second pixel,
 * zeros for the new channels, half on either side). Convolutions begin normal with a variance of 2
 * by kernel area times outputs (He et al., ICCV 2015). */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <math.h>
#include <stdio.h>

enum { NAME = 64 };

typedef struct resnet {
    const char *name;
    int blocks[4]; /* of each stage; 0: there is no such stage */
    int64_t width; /* channels of the first stage */
    bool bottleneck, small;
} resnet;

/* ---- layers ---- */

static kolo_value conv_norm(kolo_graph *g, const char *conv, const char *norm, kolo_value x,
                            int64_t inputs, int64_t outputs, int64_t kernel, int64_t stride) {
    char name[NAME + 8];
    snprintf(name, sizeof name, "%s.weight", conv);
    kolo_init init = {KOLO_INIT_NORMAL, sqrt(2.0 / (double)(outputs * kernel * kernel))};
    kolo_value w = kolo_param(g, name, kolo_shape_4(outputs, inputs, kernel, kernel), init);
    kolo_conv2d_opts opts = {
        .stride_h = stride, .stride_w = stride, .pad_h = kernel / 2, .pad_w = kernel / 2};
    return kolo_batch_norm(g, kolo_conv2d(g, x, w, &opts), norm, NULL);
}

/* Convolution and normalisation number i of a block. */
static kolo_value block_layer(kolo_graph *g, const char *block, int i, kolo_value x, int64_t inputs,
                              int64_t outputs, int64_t kernel, int64_t stride) {
    char conv[NAME], norm[NAME];
    snprintf(conv, sizeof conv, "%s.conv%d", block, i);
    snprintf(norm, sizeof norm, "%s.bn%d", block, i);
    return conv_norm(g, conv, norm, x, inputs, outputs, kernel, stride);
}

static kolo_value shortcut(kolo_graph *g, const resnet *net, const char *block, kolo_value x,
                           int64_t inputs, int64_t outputs, int64_t stride) {
    if (inputs == outputs && stride == 1) return x;
    if (net->small) {
        kolo_pool2d_opts every = {
            .kernel_h = 1, .kernel_w = 1, .stride_h = stride, .stride_w = stride};
        x = kolo_avg_pool2d(g, x, &every);
        return kolo_channel_window(g, x, -(outputs - inputs) / 2, outputs);
    }
    char conv[NAME], norm[NAME];
    snprintf(conv, sizeof conv, "%s.downsample.0", block);
    snprintf(norm, sizeof norm, "%s.downsample.1", block);
    return conv_norm(g, conv, norm, x, inputs, outputs, 1, stride);
}

/* One block of `channels` (a bottleneck ends in four times as many). */
static kolo_value add_block(kolo_graph *g, const resnet *net, const char *name, kolo_value x,
                            int64_t inputs, int64_t channels, int64_t stride) {
    int64_t outputs = net->bottleneck ? 4 * channels : channels;
    kolo_value y;
    if (net->bottleneck) {
        y = kolo_relu(g, block_layer(g, name, 1, x, inputs, channels, 1, 1));
        y = kolo_relu(g, block_layer(g, name, 2, y, channels, channels, 3, stride));
        y = block_layer(g, name, 3, y, channels, outputs, 1, 1);
    } else {
        y = kolo_relu(g, block_layer(g, name, 1, x, inputs, channels, 3, stride));
        y = block_layer(g, name, 2, y, channels, outputs, 3, 1);
    }
    return kolo_relu(g, kolo_add(g, y, shortcut(g, net, name, x, inputs, outputs, stride)));
}

/* ---- the whole ---- */

static kolo_value stem(kolo_graph *g, const resnet *net, kolo_value x, int64_t inputs,
                       int64_t outputs) {
    if (net->small) return kolo_relu(g, conv_norm(g, "conv1", "bn1", x, inputs, outputs, 3, 1));
    x = kolo_relu(g, conv_norm(g, "conv1", "bn1", x, inputs, outputs, 7, 2));
    kolo_pool2d_opts pool = {
        .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    return kolo_max_pool2d(g, x, &pool);
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts, const resnet *net) {
    int64_t width = net->width;
    const model_option table[] = {{"width", 2, 1 << 12, &width}};
    kolo_status status = model_options_parse(net->name, opts->options, table, 1);
    if (status != KOLO_OK) return status;
    const kolo_shape *s = &opts->sample;
    if (s->rank != 3) {
        char text[KOLO_SHAPE_TEXT];
        return kolo_error_set(KOLO_ERR_ARG,
                              "model %s takes images [C,H,W], not samples of shape %s: try the "
                              "model mlp",
                              net->name, kolo_shape_text(s, text));
    }
    kolo_shape images = kolo_shape_4(opts->batch, s->dim[0], s->dim[1], s->dim[2]);
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, images);
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));

    kolo_value h = stem(g, net, x, s->dim[0], width);
    int64_t inputs = width, channels = width;
    for (int stage = 0; stage < 4 && net->blocks[stage] > 0; stage++, channels *= 2) {
        for (int i = 0; i < net->blocks[stage]; i++) {
            char name[NAME - 16];
            snprintf(name, sizeof name, "layer%d.%d", stage + 1, i);
            h = add_block(g, net, name, h, inputs, channels, stage > 0 && i == 0 ? 2 : 1);
            inputs = net->bottleneck ? 4 * channels : channels;
        }
    }
    h = kolo_flatten(g, kolo_global_avg_pool2d(g, h));
    kolo_value logits = model_linear(g, "fc", h, inputs, opts->classes);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

#define RESNET(layers, help, default_width, side, n_classes, ...)                               \
    static kolo_status build_##layers(kolo_graph *g, const kolo_model_opts *opts) {             \
        return build(g, opts,                                                                   \
                     &(resnet){.name = "resnet" #layers, .width = default_width, __VA_ARGS__}); \
    }                                                                                           \
    const kolo_model kolo_model_resnet##layers = {                                              \
        .name = "resnet" #layers,                                                               \
        .summary = help " (He et al., 2016)",                                                   \
        .options_help = "width=" #default_width " (channels of the first stage)",               \
        .sample = {3, {3, side, side}},                                                         \
        .classes = n_classes,                                                                   \
        .build = build_##layers,                                                                \
    }

RESNET(20, "residual network of 20 layers for small images", 16, 32, 10, .blocks = {3, 3, 3},
       .small = true);
RESNET(18, "residual network of 18 layers", 64, 224, 1000, .blocks = {2, 2, 2, 2});
RESNET(34, "residual network of 34 layers", 64, 224, 1000, .blocks = {3, 4, 6, 3});
RESNET(50, "residual network of 50 layers", 64, 224, 1000, .blocks = {3, 4, 6, 3},
       .bottleneck = true);
RESNET(101, "residual network of 101 layers", 64, 224, 1000, .blocks = {3, 4, 23, 3},
       .bottleneck = true);
