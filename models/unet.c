/* unet: semantic segmentation by an encoder, a decoder and connections between them.
 * Ronneberger, Fischer, Brox, "U-Net: convolutional networks for biomedical image segmentation",
 * MICCAI 2015, with padded convolutions and batch normalization, as in the usual PyTorch version
 * (github.com/milesial/Pytorch-UNet, without bilinear), whose parameter names it has.
 *
 *     pair of 3x3 convolutions -> 4 times: max pool, pair with twice the channels
 *       -> 4 times: transposed convolution to half, concatenated behind the encoder's, pair
 *       -> 1x1 to classes
 *
 * Initial distributions are those of PyTorch's layers. */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <stdio.h>

enum { LEVELS = 4, NAME = 64 };

/* Two convolutions with normalization and ReLU. */
static kolo_value pair(kolo_graph *g, const char *prefix, kolo_value x, int64_t inputs,
                       int64_t outputs) {
    for (int i = 0; i < 2; i++) {
        char conv[NAME], norm[NAME];
        int64_t from = i == 0 ? inputs : outputs;
        snprintf(conv, sizeof conv, "%s.double_conv.%d", prefix, 3 * i);
        snprintf(norm, sizeof norm, "%s.double_conv.%d", prefix, 3 * i + 1);
        model_conv how = {.inputs = from,
                          .outputs = outputs,
                          .kernel = 3,
                          .pad = 1,
                          .init = kolo_init_fan_in(9 * from)};
        x = kolo_relu(g, model_conv_norm(g, conv, norm, x, &how));
    }
    return x;
}

/* Enlarges x to the size of `beside`, which comes first in the result. */
static kolo_value up(kolo_graph *g, int number, kolo_value x, kolo_value beside, int64_t channels) {
    char name[NAME];
    const kolo_conv_transpose2d_opts twice = {.stride_h = 2, .stride_w = 2};
    const int64_t half = channels / 2;
    const kolo_init init = kolo_init_fan_in(4 * half); /* PyTorch counts the outputs here */
    snprintf(name, sizeof name, "up%d.up.weight", number);
    kolo_value w = kolo_param(g, name, kolo_shape_4(channels, half, 2, 2), init);
    snprintf(name, sizeof name, "up%d.up.bias", number);
    kolo_value b = kolo_param(g, name, kolo_shape_1(half), init);
    x = kolo_bias(g, kolo_conv_transpose2d(g, x, w, &twice), b);
    snprintf(name, sizeof name, "up%d.conv", number);
    return pair(g, name, kolo_concat(g, (const kolo_value[]){beside, x}, 2), channels, half);
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    int64_t width = 64, classes = opts->classes;
    const kolo_model_option table[] = {{"width", 1, 1 << 10, &width, width},
                                       {"classes", 1, 1 << 12, &classes, 0}};
    const kolo_pool2d_opts halve = {.kernel_h = 2, .kernel_w = 2};
    const kolo_shape *s = &opts->sample;
    kolo_status status = kolo_model_options_parse("unet", opts->options, table, 2);
    if (status == KOLO_OK) status = model_check_classes("unet", classes, opts);
    kolo_value levels[LEVELS], x;
    if (status == KOLO_OK) status = model_images(g, "unet", opts, &x);
    if (status != KOLO_OK) return status;
    if (s->dim[1] % (1 << LEVELS) != 0 || s->dim[2] % (1 << LEVELS) != 0) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model unet halves images four times, and %dx%d are no multiples of "
                              "16: give images of such a size",
                              (int)s->dim[1], (int)s->dim[2]);
    }
    kolo_value y =
        kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_3(opts->batch, s->dim[1], s->dim[2]));
    x = pair(g, "inc", x, s->dim[0], width);
    for (int i = 0; i < LEVELS; i++) {
        char name[NAME];
        levels[i] = x;
        snprintf(name, sizeof name, "down%d.maxpool_conv.1", i + 1);
        x = pair(g, name, kolo_max_pool2d(g, x, &halve), width << i, width << (i + 1));
    }
    for (int i = 0; i < LEVELS; i++) {
        int level = LEVELS - 1 - i;
        x = up(g, i + 1, x, levels[level], width << (level + 1));
    }
    kolo_value logits = model_conv2d(g, "outc.conv", x, width, classes, 1, 0);
    model_classify(g, logits, y);
    kolo_output(g, "confusion", kolo_confusion(g, logits, y));
    return kolo_graph_check(g);
}

const kolo_model kolo_model_unet = {
    .name = "unet",
    .recipe = "optimizer=nesterov lr=0.01 momentum=0.99 weight-decay=3e-5 schedule=poly "
              "lr-power=0.9 augment=flip",
    .recipe_source = "Isensee et al., 2021 (nnU-Net), methods",
    .summary = "U-Net with batch normalization (Ronneberger et al., 2015)",
    .options_help = "width=64 (channels of the first level), classes",
    .sample = {3, {3, 128, 128}},
    .classes = 2,
    .label_maps = true,
    .build = build,
};
