#pragma once
/* The body of a residual network, which other models build on. */

#include "kolo/models.h"

#include <stdbool.h>

typedef struct resnet {
    const char *name;
    const char *prefix; /* of the names of its parameters: "backbone."; NULL: none */
    int blocks[4];      /* of each stage; 0: there is no such stage */
    int64_t width;      /* channels of the first stage */
    bool bottleneck, small;
    int dilated; /* so many of the last stages keep the size of their images and dilate instead */
} resnet;

/* What comes out of the last stage and of the one before, with its channels. */
typedef struct resnet_body {
    kolo_value last, before;
    int64_t last_channels, before_channels;
} resnet_body;

/* Stem and stages on x [N,channels,H,W]. */
resnet_body resnet_add(kolo_graph *g, const resnet *net, kolo_value x, int64_t channels);
