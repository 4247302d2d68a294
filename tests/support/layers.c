#include "support/layers.h"

#include <stdio.h>

void layers_name(int layer, char name[16]) { snprintf(name, 16, "fc%d", layer); }

void layers_build(kolo_graph *g, int64_t batch, int64_t width, int layers) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(batch, width));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(batch));
    for (int i = 0; i < layers; i++) {
        char name[16];
        layers_name(i, name);
        kolo_value w = kolo_param(g, name, kolo_shape_2(width, width), kolo_init_fan_in(width));
        x = kolo_linear(g, x, w);
        if (i < layers - 1) x = kolo_relu(g, x);
    }
    kolo_output(g, "loss", kolo_softmax_xent(g, x, y));
}
