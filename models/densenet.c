/* densenet121: each layer of a block reads the outputs of all layers before it.
 * Huang, Liu, van der Maaten, Weinberger, "Densely connected convolutional networks", CVPR 2017,
 * table 1; as in torchvision.
 *
 *     7x7 stride 2, max pool -> 4 blocks of 6, 12, 24, 16 layers, transitions between them
 *       -> normalization, ReLU -> mean of each channel -> linear
 *     layer: normalization, ReLU, 1x1 to 4 `growth` channels, normalization, ReLU, 3x3 to `growth`
 *     transition: normalization, ReLU, 1x1 to half of the channels, mean of 2x2
 *
 * Parameter names and initial distributions are torchvision's. */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <math.h>
#include <stdio.h>

enum { BLOCKS = 4, NAME = 96 };

static const int64_t block_layers[BLOCKS] = {6, 12, 24, 16};

/* Convolution without bias; He normal by the inputs. */
static kolo_value conv(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                       int64_t outputs, int64_t kernel, int64_t stride) {
    double variance = 2 / (double)(inputs * kernel * kernel);
    model_conv how = {.inputs = inputs,
                      .outputs = outputs,
                      .kernel = kernel,
                      .stride = stride,
                      .pad = kernel / 2,
                      .init = {KOLO_INIT_NORMAL, sqrt(variance)}};
    return model_conv_only(g, name, x, &how);
}

static kolo_value norm_relu(kolo_graph *g, const char *name, kolo_value x) {
    return kolo_relu(g, kolo_batch_norm(g, x, name, NULL));
}

/* x and the `growth` channels that a layer adds. */
static kolo_value layer(kolo_graph *g, int block, int number, kolo_value x, int64_t inputs,
                        int64_t growth) {
    char name[NAME];
#define PART(what) \
    (snprintf(name, sizeof name, "features.denseblock%d.denselayer%d." what, block, number), name)
    kolo_value h = norm_relu(g, PART("norm1"), x);
    h = conv(g, PART("conv1"), h, inputs, 4 * growth, 1, 1);
    h = norm_relu(g, PART("norm2"), h);
    h = conv(g, PART("conv2"), h, 4 * growth, growth, 3, 1);
#undef PART
    return kolo_concat(g, (const kolo_value[]){x, h}, 2);
}

static kolo_value transition(kolo_graph *g, int number, kolo_value x, int64_t inputs) {
    char name[NAME];
    const kolo_pool2d_opts halve = {.kernel_h = 2, .kernel_w = 2};
    snprintf(name, sizeof name, "features.transition%d.norm", number);
    x = norm_relu(g, name, x);
    snprintf(name, sizeof name, "features.transition%d.conv", number);
    return kolo_avg_pool2d(g, conv(g, name, x, inputs, inputs / 2, 1, 1), &halve);
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    int64_t growth = 32, width = 64, share = 100, classes = opts->classes;
    const kolo_model_option table[] = {{"growth", 1, 1 << 10, &growth, 0},
                                       {"width", 2, 1 << 12, &width, width},
                                       {"layers", 1, 100, &share, 100},
                                       {"classes", 1, 1 << 20, &classes, 0}};
    const kolo_pool2d_opts pool = {
        .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    kolo_status status = kolo_model_options_parse("densenet121", opts->options, table, 4);
    if (status == KOLO_OK) status = model_check_classes("densenet121", classes, opts);
    kolo_value x;
    if (status == KOLO_OK) status = model_images(g, "densenet121", opts, &x);
    if (status != KOLO_OK) return status;
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));
    x = conv(g, "features.conv0", x, opts->sample.dim[0], width, 7, 2);
    x = kolo_max_pool2d(g, norm_relu(g, "features.norm0", x), &pool);
    int64_t channels = width;
    for (int b = 0; b < BLOCKS; b++) {
        for (int64_t i = 0; i < (block_layers[b] * share + 99) / 100; i++) {
            x = layer(g, b + 1, (int)i + 1, x, channels, growth);
            channels += growth;
        }
        if (b == BLOCKS - 1) break;
        x = transition(g, b + 1, x, channels);
        channels /= 2;
    }
    x = norm_relu(g, "features.norm5", x);
    x = kolo_flatten(g, kolo_global_avg_pool2d(g, x));
    model_classify(g, model_linear(g, "classifier", x, channels, classes), y);
    return kolo_graph_check(g);
}

const kolo_model kolo_model_densenet121 = {
    .name = "densenet121",
    .recipe = "optimizer=nesterov lr=0.1 scale-lr=256 momentum=0.9 weight-decay=1e-4 schedule=step "
              "lr-step-epochs=30/90 augment=flip",
    .recipe_source = "Huang et al., 2017, section 4.2",
    .summary = "DenseNet of 121 layers (Huang et al., 2017)",
    .options_help = "growth=32 (channels of a layer), width=64 (channels of the stem), layers=100 "
                    "(percent of the layers of a block), classes",
    .sample = {3, {3, 224, 224}},
    .classes = 1000,
    .build = build,
};
