/* googlenet: a sequence of inception modules.
 * Szegedy et al., "Going deeper with convolutions", CVPR 2015; as in torchvision, with batch
 * normalization after each convolution and 3x3 instead of 5x5 convolutions.
 *
 *     7x7, pool, 1x1, 3x3, pool -> 3a 3b -> pool -> 4a .. 4e -> pool -> 5a 5b -> mean -> fc
 *
 * A module concatenates four branches: 1x1; 1x1 and 3x3; 1x1 and 3x3; 3x3 max pool and 1x1. With
 * aux=1 training adds auxiliary classifiers after 4a and 4d, with loss weight 0.3 (section 5).
 * Weights are initially normal with standard deviation 0.01. */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <stdio.h>

enum { NAME = 64, MODULES = 9 };

static const char model_name[] = "googlenet";

typedef struct module {
    const char *name;
    /* Channels of the branches: 1x1; 1x1 and 3x3; 1x1 and 3x3; 1x1 after the max pool. */
    int64_t one, reduce, three, reduce2, three2, pooled;
    int64_t pool; /* size of the max pool that follows, with stride 2; 0: none */
} module;

static const module modules[MODULES] = {
    {"inception3a", 64, 96, 128, 16, 32, 32, 0},
    {"inception3b", 128, 128, 192, 32, 96, 64, 3},
    {"inception4a", 192, 96, 208, 16, 48, 64, 0},
    {"inception4b", 160, 112, 224, 24, 64, 64, 0},
    {"inception4c", 128, 128, 256, 24, 64, 64, 0},
    {"inception4d", 112, 144, 288, 32, 64, 64, 0},
    {"inception4e", 256, 160, 320, 32, 128, 128, 2},
    {"inception5a", 256, 160, 320, 32, 128, 128, 0},
    {"inception5b", 384, 192, 384, 48, 128, 128, 0},
};
enum { FIRST_AUX = 2, SECOND_AUX = 5 }; /* modules followed by auxiliary classifiers */

typedef struct net {
    kolo_graph *g;
    int64_t percent, classes, aux;
    double dropout, aux_dropout;
} net;

static const kolo_init normal = {KOLO_INIT_NORMAL, 0.01};

static int64_t part_of(const net *n, int64_t channels) {
    return (channels * n->percent + 99) / 100;
}

/* Convolution, normalization, ReLU. */
static kolo_value conv(const net *n, const char *name, kolo_value x, int64_t *channels,
                       int64_t outputs, int64_t kernel, int64_t stride) {
    char conv_name[NAME + 8], norm_name[NAME + 8];
    snprintf(conv_name, sizeof conv_name, "%s.conv", name);
    snprintf(norm_name, sizeof norm_name, "%s.bn", name);
    model_conv how = {.inputs = *channels,
                      .outputs = part_of(n, outputs),
                      .kernel = kernel,
                      .stride = stride,
                      .pad = kernel / 2,
                      .init = normal,
                      .eps = 0.001};
    *channels = how.outputs;
    return kolo_relu(n->g, model_conv_norm(n->g, conv_name, norm_name, x, &how));
}

static kolo_value pool(const net *n, kolo_value x, int64_t size, int64_t stride, int64_t pad) {
    kolo_pool2d_opts opts = {.kernel_h = size,
                             .kernel_w = size,
                             .stride_h = stride,
                             .stride_w = stride,
                             .pad_h = pad,
                             .pad_w = pad,
                             .ceil = true};
    return kolo_max_pool2d(n->g, x, &opts);
}

/* A branch: 1x1 (if `reduce` is set) and a convolution of `kernel`; adds its channels. */
static kolo_value branch(const net *n, const char *name, kolo_value x, int64_t inputs,
                         int64_t reduce, int64_t outputs, int64_t kernel, int64_t *channels) {
    char layer[NAME];
    if (reduce) {
        snprintf(layer, sizeof layer, "%s.0", name);
        x = conv(n, layer, x, &inputs, reduce, 1, 1);
        snprintf(layer, sizeof layer, "%s.1", name);
        name = layer;
    }
    x = conv(n, name, x, &inputs, outputs, kernel, 1);
    *channels += inputs;
    return x;
}

static kolo_value inception(const net *n, const module *m, kolo_value x, int64_t *channels) {
    char name[4][NAME - 16];
    for (int i = 0; i < 4; i++) snprintf(name[i], sizeof name[i], "%s.branch%d", m->name, i + 1);
    char behind_pool[NAME];
    snprintf(behind_pool, sizeof behind_pool, "%s.1", name[3]);
    int64_t inputs = *channels;
    *channels = 0;
    const kolo_value branches[] = {
        branch(n, name[0], x, inputs, 0, m->one, 1, channels),
        branch(n, name[1], x, inputs, m->reduce, m->three, 3, channels),
        branch(n, name[2], x, inputs, m->reduce2, m->three2, 3, channels),
        branch(n, behind_pool, pool(n, x, 3, 1, 1), inputs, 0, m->pooled, 1, channels),
    };
    return kolo_concat(n->g, branches, 4);
}

static kolo_value linear(const net *n, const char *name, kolo_value x, int64_t inputs,
                         int64_t outputs) {
    char weight[NAME], bias[NAME];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    kolo_value w = kolo_param(n->g, weight, kolo_shape_2(outputs, inputs), normal);
    kolo_value b = kolo_param(n->g, bias, kolo_shape_1(outputs), kolo_init_fan_in(inputs));
    return kolo_bias(n->g, kolo_linear(n->g, x, w), b);
}

static kolo_value drop(const net *n, kolo_value x, double p) {
    return p > 0 ? kolo_dropout(n->g, x, p) : x;
}

/* The loss of an auxiliary classifier. */
static kolo_value aux_loss(const net *n, const char *name, kolo_value x, int64_t channels,
                           kolo_value y) {
    char layer[NAME];
    snprintf(layer, sizeof layer, "%s.conv", name);
    x = conv(n, layer, kolo_adaptive_avg_pool2d(n->g, x, 4, 4), &channels, 128, 1, 1);
    int64_t units = part_of(n, 1024);
    snprintf(layer, sizeof layer, "%s.fc1", name);
    x = kolo_relu(n->g, linear(n, layer, kolo_flatten(n->g, x), 16 * channels, units));
    snprintf(layer, sizeof layer, "%s.fc2", name);
    x = linear(n, layer, drop(n, x, n->aux_dropout), units, n->classes);
    return kolo_softmax_xent(n->g, x, y);
}

static kolo_value body(const net *n, kolo_value x, kolo_value y, int64_t *channels) {
    x = pool(n, conv(n, "conv1", x, channels, 64, 7, 2), 3, 2, 0);
    x = conv(n, "conv2", x, channels, 64, 1, 1);
    x = pool(n, conv(n, "conv3", x, channels, 192, 3, 1), 3, 2, 0);
    kolo_value losses[2];
    for (int i = 0; i < MODULES; i++) {
        x = inception(n, &modules[i], x, channels);
        if (n->aux && i == FIRST_AUX) losses[0] = aux_loss(n, "aux1", x, *channels, y);
        if (n->aux && i == SECOND_AUX) losses[1] = aux_loss(n, "aux2", x, *channels, y);
        if (modules[i].pool) x = pool(n, x, modules[i].pool, 2, 0);
    }
    if (n->aux) {
        kolo_value sum = kolo_add(n->g, losses[0], losses[1]);
        kolo_output(n->g, "aux_loss", kolo_scale(n->g, sum, 0.3));
    }
    return kolo_flatten(n->g, kolo_global_avg_pool2d(n->g, x));
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    net n = {.g = g, .percent = 100, .classes = opts->classes, .aux = 1};
    int64_t dropout = 20, aux_dropout = 70, channels;
    const kolo_model_option table[] = {{"aux", 0, 1, &n.aux, 0},
                                       {"width", 1, 400, &n.percent, 100},
                                       {"dropout", 0, 99, &dropout, 100},
                                       {"aux_dropout", 0, 99, &aux_dropout, 100},
                                       {"classes", 1, 1 << 20, &n.classes, 0}};
    kolo_status status = kolo_model_options_parse(model_name, opts->options, table, 5);
    if (status == KOLO_OK) status = model_check_classes(model_name, n.classes, opts);
    kolo_value x;
    if (status == KOLO_OK) status = model_images(g, model_name, opts, &x);
    if (status != KOLO_OK) return status;
    n.dropout = (double)dropout / 100;
    n.aux_dropout = (double)aux_dropout / 100;
    channels = opts->sample.dim[0];
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));
    kolo_value h = drop(&n, body(&n, x, y, &channels), n.dropout);
    model_classify(g, linear(&n, "fc", h, channels, n.classes), y);
    return kolo_graph_check(g);
}

const kolo_model kolo_model_googlenet = {
    .name = "googlenet",
    .recipe = "optimizer=sgd lr=0.1 scale-lr=256 momentum=0.9 weight-decay=1e-4 schedule=step "
              "lr-step-epochs=30/90 augment=flip",
    .recipe_source = "torchvision's references/classification",
    .summary = "GoogLeNet with batch normalization (Szegedy et al., 2015)",
    .options_help =
        "aux=1 (two auxiliary classifiers in training), width=100 (percent of the channels), "
        "dropout=20, aux_dropout=70 (percent), classes",
    .sample = {3, {3, 224, 224}},
    .classes = 1000,
    .build = build,
};
