/* mobilenet_v2: depthwise separable convolutions in inverted residual blocks.
 * Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: inverted residuals and linear bottlenecks",
 * CVPR 2018, table 2; as in torchvision.
 *
 *     3x3 stride 2 -> 17 blocks -> 1x1 to 1280 -> mean of each channel -> dropout -> linear
 *     block: 1x1 to `expand` times the channels, 3x3 depthwise, 1x1 without activation; with equal
 *     channels and stride 1 the input is added
 *
 * Every convolution has batch normalization, and all but the last of a block ReLU6. Parameter names
 * and initial distributions are torchvision's. */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <stdio.h>

enum { STAGES = 7, NAME = 64 };

/* `blocks` blocks of `channels`; the first has the stride. */
static const struct {
    int64_t expand, channels, blocks, stride;
} stages[STAGES] = {
    {1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2},  {6, 64, 4, 2},
    {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1},
};

/* `percent` of the channels, to a multiple of 8, at least 90 % of it: the paper's code. */
static int64_t width_of(int64_t channels, int64_t percent) {
    int64_t hundred = channels * percent, to = (hundred / 100 + 4) / 8 * 8;
    if (to < 8) to = 8;
    return 1000 * to < 9 * hundred ? to + 8 : to;
}

/* Convolution and normalization "PREFIX.CONV" and "PREFIX.NORM". */
static kolo_value conv(kolo_graph *g, const char *prefix, const char *conv_name,
                       const char *norm_name, kolo_value x, model_conv how) {
    char names[2][NAME];
    snprintf(names[0], NAME, "%s.%s", prefix, conv_name);
    snprintf(names[1], NAME, "%s.%s", prefix, norm_name);
    how.pad = how.kernel / 2;
    how.init = model_init_he(how.outputs, how.kernel);
    return model_conv_norm(g, names[0], names[1], x, &how);
}

static kolo_value block(kolo_graph *g, int number, kolo_value x, int64_t inputs, int64_t outputs,
                        int64_t expand, int64_t stride) {
    const int64_t inside = expand * inputs;
    char name[32];
    kolo_value h = x;
    snprintf(name, sizeof name, "features.%d.conv", number);
    static const char *const parts[2][4] = {{"0.0", "0.1", "1", "2"}, {"1.0", "1.1", "2", "3"}};
    const char *const *part = parts[expand > 1];
    if (expand > 1) {
        model_conv wide = {.inputs = inputs, .outputs = inside, .kernel = 1};
        h = kolo_relu6(g, conv(g, name, "0.0", "0.1", h, wide));
    }
    model_conv deep = {
        .inputs = inside, .outputs = inside, .groups = inside, .kernel = 3, .stride = stride};
    model_conv thin = {.inputs = inside, .outputs = outputs, .kernel = 1};
    h = kolo_relu6(g, conv(g, name, part[0], part[1], h, deep));
    h = conv(g, name, part[2], part[3], h, thin);
    return stride == 1 && inputs == outputs ? kolo_add(g, x, h) : h;
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    int64_t width = 100, dropout = 20, classes = opts->classes;
    const kolo_model_option table[] = {{"width", 1, 400, &width, 100},
                                       {"dropout", 0, 99, &dropout, 100},
                                       {"classes", 1, 1 << 20, &classes, 0}};
    kolo_status status = kolo_model_options_parse("mobilenet_v2", opts->options, table, 3);
    if (status == KOLO_OK) status = model_check_classes("mobilenet_v2", classes, opts);
    kolo_value x;
    if (status == KOLO_OK) status = model_images(g, "mobilenet_v2", opts, &x);
    if (status != KOLO_OK) return status;
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));
    int64_t channels = width_of(32, width), last = width_of(1280, width > 100 ? width : 100);
    int number = 1;
    model_conv stem = {
        .inputs = opts->sample.dim[0], .outputs = channels, .kernel = 3, .stride = 2};
    x = kolo_relu6(g, conv(g, "features.0", "0", "1", x, stem));
    for (int s = 0; s < STAGES; s++) {
        int64_t outputs = width_of(stages[s].channels, width);
        for (int64_t i = 0; i < stages[s].blocks; i++, number++) {
            x = block(g, number, x, channels, outputs, stages[s].expand,
                      i == 0 ? stages[s].stride : 1);
            channels = outputs;
        }
    }
    model_conv head = {.inputs = channels, .outputs = last, .kernel = 1};
    x = kolo_relu6(g, conv(g, "features.18", "0", "1", x, head));
    x = kolo_flatten(g, kolo_global_avg_pool2d(g, x));
    if (dropout) x = kolo_dropout(g, x, (double)dropout / 100);
    model_classify(g, model_linear_normal(g, "classifier.1", x, last, classes, 0.01), y);
    return kolo_graph_check(g);
}

const kolo_model kolo_model_mobilenet_v2 = {
    .name = "mobilenet_v2",
    .recipe = "optimizer=sgd lr=0.045 scale-lr=256 momentum=0.9 weight-decay=4e-5 schedule=step "
              "lr-step-factor=0.98 lr-step-epochs=1/300 augment=flip",
    .recipe_source = "torchvision's references/classification",
    .summary = "MobileNetV2 (Sandler et al., 2018)",
    .options_help = "width=100 (percent of the channels), dropout=20 (percent), classes",
    .sample = {3, {3, 224, 224}},
    .classes = 1000,
    .build = build,
};
