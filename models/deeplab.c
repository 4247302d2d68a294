/* deeplabv3_resnet101: semantic segmentation.
 * Chen, Papandreou, Schroff, Adam, "Rethinking atrous convolution for semantic image segmentation",
 * 2017; as in torchvision.
 *
 *     resnet101 with dilation instead of stride in the last two stages (output stride 8)
 *       -> five branches: 1x1; 3x3 dilated by 12, 24, 36; global mean, 1x1, broadcast
 *       -> concatenated, 1x1, dropout -> 3x3 -> 1x1 to classes -> bilinear to the size of the image
 *
 * With aux=1 training adds an auxiliary head after the second last stage, with loss weight 0.5. The
 * backbone has the initial distributions of resnet101, the heads those of PyTorch's convolutions.
 */
#include "models/layers.h"
#include "models/options.h"
#include "models/resnet.h"
#include "models/zoo.h"

#include <stdio.h>

static const char model_name[] = "deeplabv3_resnet101";

typedef struct head {
    kolo_graph *g;
    const char *name; /* "classifier" */
    int64_t channels; /* inside: 256 */
    int64_t classes;
    double dropout;
    kolo_shape images; /* of the input */
} head;

/* Convolution, normalization and ReLU; `layer` ends in a dot. */
static kolo_value conv(const head *h, const char *layer, int number, kolo_value x, int64_t inputs,
                       int64_t kernel, int64_t dilation) {
    char conv_name[64], norm_name[64];
    snprintf(conv_name, sizeof conv_name, "%s.%s%d", h->name, layer, number);
    snprintf(norm_name, sizeof norm_name, "%s.%s%d", h->name, layer, number + 1);
    model_conv how = {.inputs = inputs,
                      .outputs = h->channels,
                      .kernel = kernel,
                      .pad = kernel / 2 * dilation,
                      .dilation = dilation,
                      .init = kolo_init_fan_in(inputs * kernel * kernel)};
    return kolo_relu(h->g, model_conv_norm(h->g, conv_name, norm_name, x, &how));
}

/* The last convolution, resized to the images. */
static kolo_value to_pixels(const head *h, kolo_value x, int64_t inputs) {
    char name[64];
    snprintf(name, sizeof name, "%s.4", h->name);
    x = model_conv2d(h->g, name, x, inputs, h->classes, 1, 0);
    return kolo_resize(h->g, x, h->images.dim[1], h->images.dim[2], false);
}

/* Atrous spatial pyramid pooling; `rows` x `columns` is x's size. */
static kolo_value pyramid(const head *h, kolo_value x, int64_t inputs, int64_t rows,
                          int64_t columns) {
    kolo_value mean = conv(h, "0.convs.4.", 1, kolo_global_avg_pool2d(h->g, x), inputs, 1, 1);
    const kolo_value branches[] = {
        conv(h, "0.convs.0.", 0, x, inputs, 1, 1),     conv(h, "0.convs.1.", 0, x, inputs, 3, 12),
        conv(h, "0.convs.2.", 0, x, inputs, 3, 24),    conv(h, "0.convs.3.", 0, x, inputs, 3, 36),
        kolo_resize(h->g, mean, rows, columns, false),
    };
    x = conv(h, "0.project.", 0, kolo_concat(h->g, branches, 5), 5 * h->channels, 1, 1);
    return h->dropout > 0 ? kolo_dropout(h->g, x, h->dropout) : x;
}

/* The size after three halvings, by the stem and the second stage. */
static int64_t eighth(int64_t size) {
    for (int i = 0; i < 3; i++) size = (size + 1) / 2;
    return size;
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    int64_t width = 64, aux = 0, dropout = 50, aux_dropout = 10, classes = opts->classes;
    const kolo_model_option table[] = {{"aux", 0, 1, &aux, 0},
                                       {"width", 2, 1 << 10, &width, width},
                                       {"dropout", 0, 99, &dropout, 100},
                                       {"aux_dropout", 0, 99, &aux_dropout, 100},
                                       {"classes", 1, 1 << 12, &classes, 0}};
    kolo_status status = kolo_model_options_parse(model_name, opts->options, table, 5);
    if (status == KOLO_OK) status = model_check_classes(model_name, classes, opts);
    kolo_value x;
    if (status == KOLO_OK) status = model_images(g, model_name, opts, &x);
    if (status != KOLO_OK) return status;
    const kolo_shape *s = &opts->sample;
    kolo_value y =
        kolo_input(g, "y", KOLO_DTYPE_I32, (kolo_shape){3, {opts->batch, s->dim[1], s->dim[2]}});
    const resnet backbone = {.name = "resnet101",
                             .prefix = "backbone.",
                             .blocks = {3, 4, 23, 3},
                             .width = width,
                             .bottleneck = true,
                             .dilated = 2};
    resnet_body body = resnet_add(g, &backbone, x, s->dim[0]);

    head main_head = {.g = g,
                      .name = "classifier",
                      .channels = 4 * width,
                      .classes = classes,
                      .dropout = (double)dropout / 100,
                      .images = *s};
    kolo_value h =
        pyramid(&main_head, body.last, body.last_channels, eighth(s->dim[1]), eighth(s->dim[2]));
    h = conv(&main_head, "", 1, h, main_head.channels, 3, 1);
    kolo_value logits = to_pixels(&main_head, h, main_head.channels);
    model_classify(g, logits, y);
    kolo_output(g, "confusion", kolo_confusion(g, logits, y));
    if (!aux) return kolo_graph_check(g);

    head aux_head = main_head;
    aux_head.name = "aux_classifier";
    aux_head.channels = body.before_channels / 4;
    h = conv(&aux_head, "", 0, body.before, body.before_channels, 3, 1);
    if (aux_dropout) h = kolo_dropout(g, h, (double)aux_dropout / 100);
    kolo_value loss = kolo_softmax_xent(g, to_pixels(&aux_head, h, aux_head.channels), y);
    kolo_output(g, "aux_loss", kolo_scale(g, loss, 0.5));
    return kolo_graph_check(g);
}

const kolo_model kolo_model_deeplabv3_resnet101 = {
    .name = model_name,
    .recipe = "optimizer=sgd lr=0.007 scale-lr=16 momentum=0.9 weight-decay=1e-4 schedule=poly "
              "lr-power=0.9",
    .recipe_source = "Chen et al., 2017, section 4.1",
    .summary = "DeepLabV3 on a residual network of 101 layers (Chen et al., 2017)",
    .options_help = "aux=0 (1: a second head in training), width=64 (channels of the first stage), "
                    "dropout=50, aux_dropout=10 (percent), classes",
    .sample = {3, {3, 256, 256}},
    .classes = 21,
    .label_maps = true,
    .build = build,
};
