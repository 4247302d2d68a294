/* Layers with their parameters; inputs and outputs of image classifiers. */
#include "models/layers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static kolo_value weight_of(kolo_graph *g, const char *layer, kolo_shape shape, kolo_init init) {
    char name[64];
    snprintf(name, sizeof name, "%s.weight", layer);
    return kolo_param(g, name, shape, init);
}

static kolo_value add_bias(kolo_graph *g, const char *layer, kolo_value x, int64_t outputs,
                           kolo_init init) {
    char name[64];
    snprintf(name, sizeof name, "%s.bias", layer);
    return kolo_bias(g, x, kolo_param(g, name, kolo_shape_1(outputs), init));
}

kolo_value model_linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs) {
    kolo_init init = kolo_init_fan_in(inputs);
    kolo_value w = weight_of(g, name, kolo_shape_2(outputs, inputs), init);
    return add_bias(g, name, kolo_linear(g, x, w), outputs, init);
}

kolo_value model_linear_normal(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                               int64_t outputs, double deviation) {
    kolo_init init = {KOLO_INIT_NORMAL, deviation};
    kolo_value w = weight_of(g, name, kolo_shape_2(outputs, inputs), init);
    return add_bias(g, name, kolo_linear(g, x, w), outputs, (kolo_init){KOLO_INIT_ZERO, 0});
}

kolo_value model_conv2d(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs, int64_t kernel, int64_t pad) {
    kolo_init init = kolo_init_fan_in(inputs * kernel * kernel);
    kolo_value w = weight_of(g, name, kolo_shape_4(outputs, inputs, kernel, kernel), init);
    kolo_value y = kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = pad, .pad_w = pad});
    return add_bias(g, name, y, outputs, init);
}

kolo_init model_init_he(int64_t outputs, int64_t kernel) {
    return (kolo_init){KOLO_INIT_NORMAL, sqrt(2.0 / (double)(outputs * kernel * kernel))};
}

kolo_value model_conv_only(kolo_graph *g, const char *conv, kolo_value x, const model_conv *how) {
    int64_t inputs = how->groups ? how->inputs / how->groups : how->inputs;
    kolo_shape shape = kolo_shape_4(how->outputs, inputs, how->kernel, how->kernel);
    kolo_value w = weight_of(g, conv, shape, how->init);
    kolo_conv2d_opts opts = {
        .stride_h = how->stride,
        .stride_w = how->stride,
        .pad_h = how->pad,
        .pad_w = how->pad,
        .dilation_h = how->dilation,
        .dilation_w = how->dilation,
        .groups = how->groups,
    };
    return kolo_conv2d(g, x, w, &opts);
}

kolo_value model_conv_norm(kolo_graph *g, const char *conv, const char *norm, kolo_value x,
                           const model_conv *how) {
    return kolo_batch_norm(g, model_conv_only(g, conv, x, how), norm,
                           &(kolo_batch_norm_opts){.eps = how->eps});
}

kolo_status model_images(kolo_graph *g, const char *model, const kolo_model_opts *opts,
                         kolo_value *x) {
    const kolo_shape *s = &opts->sample;
    char text[KOLO_SHAPE_TEXT];
    if (s->rank != 3) {
        return kolo_error_set(KOLO_ERR_ARG,
                              "model %s takes images [C,H,W], not samples of shape %s: try the "
                              "model mlp",
                              model, kolo_shape_text(s, text));
    }
    *x = kolo_input(g, "x", KOLO_DTYPE_F32,
                    kolo_shape_4(opts->batch, s->dim[0], s->dim[1], s->dim[2]));
    return KOLO_OK;
}

void model_classify(kolo_graph *g, kolo_value logits, kolo_value y) {
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
}

kolo_status model_check_classes(const char *model, int64_t classes, const kolo_model_opts *opts) {
    if (classes >= opts->classes) return KOLO_OK;
    return kolo_error_set(KOLO_ERR_ARG,
                          "model %s: classes=%" PRId64 ", but the data has %" PRId64
                          ": give at least as many",
                          model, classes, opts->classes);
}
