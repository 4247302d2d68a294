/* alexnet and vgg16: convolutions and pools, then three linear layers with dropout.
 *
 * alexnet is torchvision's: Krizhevsky, "One weird trick for parallelizing convolutional neural
 * networks", 2014. vgg16 is configuration D of Simonyan, Zisserman, "Very deep convolutional
 * networks for large-scale image recognition", ICLR 2015. Parameter names and initial distributions
 * are those of torchvision. */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <stdio.h>

typedef struct layer {
    int number; /* in "features.NUMBER", as torchvision counts; ReLUs and pools count too */
    int64_t outputs, kernel, stride, pad;
    int64_t pool; /* size of the max pool that follows, with stride 2; 0: none */
} layer;

typedef struct plain_net {
    const char *name;
    const layer *layers; /* up to outputs 0 */
    int linear[3];       /* numbers in "classifier.NUMBER" */
    bool dropout_first;  /* before each of the first two linear layers, else after */
    bool kaiming;        /* initial weights: He normal by outputs, else PyTorch's defaults */
    int64_t units;
    int64_t size; /* height and width at the first linear layer */
} plain_net;

static kolo_value linear(kolo_graph *g, const plain_net *net, int i, kolo_value x, int64_t inputs,
                         int64_t outputs) {
    char name[32];
    snprintf(name, sizeof name, "classifier.%d", net->linear[i]);
    if (!net->kaiming) return model_linear(g, name, x, inputs, outputs);
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    kolo_value w =
        kolo_param(g, weight, kolo_shape_2(outputs, inputs), (kolo_init){KOLO_INIT_NORMAL, 0.01});
    kolo_value b = kolo_param(g, bias, kolo_shape_1(outputs), (kolo_init){KOLO_INIT_ZERO, 0});
    return kolo_bias(g, kolo_linear(g, x, w), b);
}

static kolo_value conv(kolo_graph *g, const plain_net *net, const layer *l, kolo_value x,
                       int64_t inputs, int64_t outputs) {
    char weight[48], bias[48];
    snprintf(weight, sizeof weight, "features.%d.weight", l->number);
    snprintf(bias, sizeof bias, "features.%d.bias", l->number);
    kolo_init init = kolo_init_fan_in(inputs * l->kernel * l->kernel), bias_init = init;
    if (net->kaiming) {
        init = model_init_he(outputs, l->kernel);
        bias_init = (kolo_init){KOLO_INIT_ZERO, 0};
    }
    kolo_value w = kolo_param(g, weight, kolo_shape_4(outputs, inputs, l->kernel, l->kernel), init);
    kolo_conv2d_opts opts = {
        .stride_h = l->stride, .stride_w = l->stride, .pad_h = l->pad, .pad_w = l->pad};
    x = kolo_conv2d(g, x, w, &opts);
    x = kolo_relu(g, kolo_bias(g, x, kolo_param(g, bias, kolo_shape_1(outputs), bias_init)));
    if (l->pool == 0) return x;
    kolo_pool2d_opts pool = {
        .kernel_h = l->pool, .kernel_w = l->pool, .stride_h = 2, .stride_w = 2};
    return kolo_max_pool2d(g, x, &pool);
}

/* The height or width after all layers; below 1: the image is too small. */
static int64_t size_after(const plain_net *net, int64_t size) {
    for (const layer *l = net->layers; l->outputs; l++) {
        size = size + 2 * l->pad >= l->kernel ? (size + 2 * l->pad - l->kernel) / l->stride + 1 : 0;
        if (l->pool) size = size >= l->pool ? (size - l->pool) / 2 + 1 : 0;
    }
    return size;
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts, const plain_net *net) {
    int64_t units = net->units, drop = 50, percent = 100, classes = opts->classes;
    const kolo_model_option table[] = {{"width", 1, 400, &percent, 100},
                                       {"units", 1, 1 << 16, &units, 0},
                                       {"dropout", 0, 99, &drop, 100},
                                       {"classes", 1, 1 << 20, &classes, 0}};
    kolo_status status = kolo_model_options_parse(net->name, opts->options, table, 4);
    if (status == KOLO_OK) status = model_check_classes(net->name, classes, opts);
    if (status != KOLO_OK) return status;
    const kolo_shape *s = &opts->sample;
    int64_t rows = s->rank == 3 ? size_after(net, s->dim[1]) : 0;
    int64_t columns = s->rank == 3 ? size_after(net, s->dim[2]) : 0;
    if (rows < 1 || columns < 1) {
        char text[KOLO_SHAPE_TEXT];
        return kolo_error_set(KOLO_ERR_ARG,
                              "model %s takes images [C,H,W] of at least %dx%d, not samples of "
                              "shape %s: try the model resnet20",
                              net->name, net->kaiming ? 32 : 63, net->kaiming ? 32 : 63,
                              kolo_shape_text(s, text));
    }
    kolo_shape images = kolo_shape_4(opts->batch, s->dim[0], s->dim[1], s->dim[2]);
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, images);
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));

    double p = (double)drop / 100;
    int64_t inputs = s->dim[0];
    kolo_value h = x;
    for (const layer *l = net->layers; l->outputs; l++) {
        int64_t outputs = (l->outputs * percent + 99) / 100;
        h = conv(g, net, l, h, inputs, outputs);
        inputs = outputs;
    }
    h = kolo_flatten(g, kolo_adaptive_avg_pool2d(g, h, net->size, net->size));
    inputs *= net->size * net->size;
    for (int i = 0; i < 2; i++) {
        if (drop && net->dropout_first) h = kolo_dropout(g, h, p);
        h = kolo_relu(g, linear(g, net, i, h, inputs, units));
        if (drop && !net->dropout_first) h = kolo_dropout(g, h, p);
        inputs = units;
    }
    model_classify(g, linear(g, net, 2, h, inputs, classes), y);
    return kolo_graph_check(g);
}

static const layer alexnet_layers[] = {
    {0, 64, 11, 4, 2, 3}, {3, 192, 5, 1, 2, 3},  {6, 384, 3, 1, 1, 0},
    {8, 256, 3, 1, 1, 0}, {10, 256, 3, 1, 1, 3}, {0},
};
static const layer vgg16_layers[] = {
    {0, 64, 3, 1, 1, 0},   {2, 64, 3, 1, 1, 2},
    {5, 128, 3, 1, 1, 0},  {7, 128, 3, 1, 1, 2},
    {10, 256, 3, 1, 1, 0}, {12, 256, 3, 1, 1, 0},
    {14, 256, 3, 1, 1, 2}, {17, 512, 3, 1, 1, 0},
    {19, 512, 3, 1, 1, 0}, {21, 512, 3, 1, 1, 2},
    {24, 512, 3, 1, 1, 0}, {26, 512, 3, 1, 1, 0},
    {28, 512, 3, 1, 1, 2}, {0},
};

static kolo_status build_alexnet(kolo_graph *g, const kolo_model_opts *opts) {
    return build(g, opts,
                 &(plain_net){.name = "alexnet",
                              .layers = alexnet_layers,
                              .linear = {1, 4, 6},
                              .dropout_first = true,
                              .units = 4096,
                              .size = 6});
}

static kolo_status build_vgg16(kolo_graph *g, const kolo_model_opts *opts) {
    return build(g, opts,
                 &(plain_net){.name = "vgg16",
                              .layers = vgg16_layers,
                              .linear = {0, 3, 6},
                              .kaiming = true,
                              .units = 4096,
                              .size = 7});
}

#define HELP                                                                          \
    "width=100 (percent of the channels), units=4096 (of each hidden linear layer), " \
    "dropout=50 (percent), classes"

const kolo_model kolo_model_alexnet = {
    .name = "alexnet",
    .recipe = "optimizer=sgd lr=0.01 scale-lr=256 momentum=0.9 weight-decay=1e-4 schedule=step "
              "lr-step-epochs=30/90 augment=flip",
    .recipe_source = "torchvision's references/classification",
    .summary = "AlexNet as in torchvision (Krizhevsky, 2014)",
    .options_help = HELP,
    .sample = {3, {3, 224, 224}},
    .classes = 1000,
    .build = build_alexnet,
};
const kolo_model kolo_model_vgg16 = {
    .name = "vgg16",
    .recipe = "optimizer=sgd lr=0.01 scale-lr=256 momentum=0.9 weight-decay=5e-4 schedule=step "
              "lr-step-epochs=30/90 augment=flip",
    .recipe_source =
        "Simonyan, Zisserman, 2015, section 3.1; steps of torchvision's references/classification",
    .summary = "VGG-16, configuration D (Simonyan, Zisserman, 2015)",
    .options_help = HELP,
    .sample = {3, {3, 224, 224}},
    .classes = 1000,
    .build = build_vgg16,
};
