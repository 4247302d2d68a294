#pragma once
/* The backbone of a residual network, for other models. */

#include "kolo/models.h"

#include <stdbool.h>

typedef struct resnet {
    const char *name;
    const char *prefix; /* of parameter names, "backbone."; NULL: none */
    int blocks[4];      /* per stage; 0: no such stage */
    int64_t width;      /* channels of the first stage */
    bool bottleneck, small;
    int dilated; /* number of last stages with dilation instead of stride */
} resnet;

/* The outputs of the last two stages, with their channels. */
typedef struct resnet_body {
    kolo_value last, before;
    int64_t last_channels, before_channels;
} resnet_body;

/* Stem and stages on x [N,channels,H,W]. */
resnet_body resnet_add(kolo_graph *g, const resnet *net, kolo_value x, int64_t channels);
