/* resnet20, resnet18, resnet34, resnet50, resnet101: residual networks.
 * He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016.
 *
 *     stem -> stage 1 -> ... -> stage 3 or 4 -> mean of each channel -> fc classes
 *
 * A stage is a sequence of blocks; the first block of each stage but the first halves the image and
 * doubles the channels. A block is x + f(x), ReLU, where f is two 3x3 convolutions
 * (basic) or 1x1, 3x3, 1x1 with four times the channels at the end (bottleneck; the 3x3 has the
 * stride, as in torchvision), each with batch normalization.
 *
 * resnet18 to resnet101 are table 1 of the paper: stem 7x7 stride 2 and max pool, projections where
 * the shape changes; parameter names and initial distributions of torchvision. resnet20 is
 * section 4.2: stem 3x3, three stages of 16, 32, 64 channels, shortcuts without parameters (every
 * second pixel, zeros for the new channels, half on either side). Convolution weights are initially
 * normal with variance 2 / (kernel^2 outputs) (He et al., ICCV 2015). */
#include "models/resnet.h"

#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <stdio.h>

enum { NAME = 64 };

/* ---- layers ---- */

/* Convolution "BLOCK.CONV" with normalization "BLOCK.NORM", padded to preserve the size. */
static kolo_value conv_norm(kolo_graph *g, const char *block, const char *conv, const char *norm,
                            kolo_value x, model_conv how) {
    char conv_name[NAME], norm_name[NAME];
    snprintf(conv_name, sizeof conv_name, "%s%s", block, conv);
    snprintf(norm_name, sizeof norm_name, "%s%s", block, norm);
    how.pad = how.kernel / 2 * (how.dilation ? how.dilation : 1);
    how.init = model_init_he(how.outputs, how.kernel);
    return model_conv_norm(g, conv_name, norm_name, x, &how);
}

/* A block; stride and dilation apply to its 3x3 convolutions. */
typedef struct block {
    char name[NAME]; /* with its dot */
    int64_t inputs, channels, outputs, stride, dilation;
} block;

static kolo_value shortcut(kolo_graph *g, const resnet *net, const block *b, kolo_value x) {
    if (b->inputs == b->outputs && b->stride == 1) return x;
    if (net->small) {
        kolo_pool2d_opts every = {
            .kernel_h = 1, .kernel_w = 1, .stride_h = b->stride, .stride_w = b->stride};
        x = kolo_avg_pool2d(g, x, &every);
        return kolo_channel_window(g, x, -(b->outputs - b->inputs) / 2, b->outputs);
    }
    model_conv how = {.inputs = b->inputs, .outputs = b->outputs, .kernel = 1, .stride = b->stride};
    return conv_norm(g, b->name, "downsample.0", "downsample.1", x, how);
}

static kolo_value add_block(kolo_graph *g, const resnet *net, const block *b, kolo_value x) {
    model_conv thin = {.inputs = b->inputs, .outputs = b->channels, .kernel = 1};
    model_conv wide = {.inputs = b->channels, .outputs = b->outputs, .kernel = 1};
    model_conv first = {.inputs = net->bottleneck ? b->channels : b->inputs,
                        .outputs = b->channels,
                        .kernel = 3,
                        .stride = b->stride,
                        .dilation = b->dilation};
    model_conv second = {.inputs = b->channels, .outputs = b->channels, .kernel = 3};
    kolo_value y;
    if (net->bottleneck) {
        y = kolo_relu(g, conv_norm(g, b->name, "conv1", "bn1", x, thin));
        y = kolo_relu(g, conv_norm(g, b->name, "conv2", "bn2", y, first));
        y = conv_norm(g, b->name, "conv3", "bn3", y, wide);
    } else {
        y = kolo_relu(g, conv_norm(g, b->name, "conv1", "bn1", x, first));
        y = conv_norm(g, b->name, "conv2", "bn2", y, second);
    }
    return kolo_relu(g, kolo_add(g, y, shortcut(g, net, b, x)));
}

/* ---- the body ---- */

static kolo_value stem(kolo_graph *g, const resnet *net, kolo_value x, int64_t inputs) {
    const char *prefix = net->prefix ? net->prefix : "";
    model_conv how = {.inputs = inputs,
                      .outputs = net->width,
                      .kernel = net->small ? 3 : 7,
                      .stride = net->small ? 1 : 2};
    x = kolo_relu(g, conv_norm(g, prefix, "conv1", "bn1", x, how));
    if (net->small) return x;
    kolo_pool2d_opts pool = {
        .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    return kolo_max_pool2d(g, x, &pool);
}

resnet_body resnet_add(kolo_graph *g, const resnet *net, kolo_value x, int64_t channels) {
    resnet_body body = {.last = stem(g, net, x, channels), .last_channels = net->width};
    int n_stages = 0;
    while (n_stages < 4 && net->blocks[n_stages] > 0) n_stages++;
    int64_t dilation = 1;
    for (int stage = 0; stage < n_stages; stage++) {
        body.before = body.last;
        body.before_channels = body.last_channels;
        bool dilates = stage >= n_stages - net->dilated;
        for (int i = 0; i < net->blocks[stage]; i++) {
            block b = {.inputs = body.last_channels,
                       .channels = net->width << stage,
                       .stride = stage > 0 && i == 0 && !dilates ? 2 : 1,
                       .dilation = dilation};
            b.outputs = net->bottleneck ? 4 * b.channels : b.channels;
            snprintf(b.name, sizeof b.name, "%slayer%d.%d.", net->prefix ? net->prefix : "",
                     stage + 1, i);
            body.last = add_block(g, net, &b, body.last);
            body.last_channels = b.outputs;
            if (dilates && i == 0) dilation *= 2; /* the first block keeps the previous dilation */
        }
    }
    return body;
}

/* ---- the classifiers ---- */

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts, const resnet *net) {
    resnet wanted = *net;
    int64_t classes = opts->classes;
    const kolo_model_option table[] = {{"width", 2, 1 << 12, &wanted.width, net->width},
                                       {"classes", 1, 1 << 20, &classes, 0}};
    kolo_status status = kolo_model_options_parse(net->name, opts->options, table, 2);
    if (status == KOLO_OK) status = model_check_classes(net->name, classes, opts);
    kolo_value x;
    if (status == KOLO_OK) status = model_images(g, net->name, opts, &x);
    if (status != KOLO_OK) return status;
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));
    resnet_body body = resnet_add(g, &wanted, x, opts->sample.dim[0]);
    kolo_value h = kolo_flatten(g, kolo_global_avg_pool2d(g, body.last));
    model_classify(g, model_linear(g, "fc", h, body.last_channels, classes), y);
    return kolo_graph_check(g);
}

/* Recipes: rates and weight decays of the paper, per 128 images (section 4.2) and per 256 (3.4).
 * The cosine, the warm-up and the weight decay of matrices alone follow He et al., "Bag of tricks
 * for image classification with convolutional neural networks", CVPR 2019. */
#define SMALL_RECIPE                                                                    \
    "optimizer=sgd lr=0.1 scale-lr=128 momentum=0.9 weight-decay=1e-4 schedule=cosine " \
    "warmup-epochs=5/164 "                                                              \
    "augment=flip,crop=4"
#define LARGE_RECIPE                                                         \
    "optimizer=nesterov lr=0.1 scale-lr=256 momentum=0.9 weight-decay=1e-4 " \
    "decay-matrices-only=true "                                              \
    "schedule=cosine warmup-epochs=5/120 augment=flip"

#define RESNET(layers, help, default_width, side, n_classes, ...)                               \
    static kolo_status build_##layers(kolo_graph *g, const kolo_model_opts *opts) {             \
        return build(g, opts,                                                                   \
                     &(resnet){.name = "resnet" #layers, .width = default_width, __VA_ARGS__}); \
    }                                                                                           \
    const kolo_model kolo_model_resnet##layers = {                                              \
        .name = "resnet" #layers,                                                               \
        .recipe = (side) < 224 ? SMALL_RECIPE : LARGE_RECIPE,                                   \
        .recipe_source = "He et al., 2016; He et al., 2019",                                    \
        .summary = help " (He et al., 2016)",                                                   \
        .options_help = "width=" #default_width " (channels of the first stage), classes",      \
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
