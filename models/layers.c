/* Layers with a weight and a bias. */
#include "models/layers.h"

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

kolo_value model_conv2d(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs, int64_t kernel, int64_t pad) {
    kolo_init init = kolo_init_fan_in(inputs * kernel * kernel);
    kolo_value w = weight_of(g, name, kolo_shape_4(outputs, inputs, kernel, kernel), init);
    kolo_value y = kolo_conv2d(g, x, w, &(kolo_conv2d_opts){.pad_h = pad, .pad_w = pad});
    return add_bias(g, name, y, outputs, init);
}
