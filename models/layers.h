#pragma once
/* Layers that several models are made of: parameters NAME.weight and NAME.bias, drawn as PyTorch
 * draws them, and the ops that use them; and what models of images have in common. */

#include "kolo/models.h"

/* x [N,inputs] -> [N,outputs]. */
kolo_value model_linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs);
/* x [N,inputs,H,W] -> [N,outputs,H',W'] with a square kernel, stride 1. */
kolo_value model_conv2d(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs, int64_t kernel, int64_t pad);

/* A convolution without bias, with a square kernel, and the batch normalisation behind it. */
typedef struct model_conv {
    int64_t inputs, outputs, kernel;
    int64_t stride, dilation; /* 0: 1 */
    int64_t pad;
    kolo_init init;
    double eps; /* of the normalisation; 0: its default */
} model_conv;
kolo_value model_conv_norm(kolo_graph *g, const char *conv, const char *norm, kolo_value x,
                           const model_conv *how);

/* Normal with a variance of 2 by kernel area times outputs: He et al., ICCV 2015. */
kolo_init model_init_he(int64_t outputs, int64_t kernel);

/* The input "x" of models of images [C,H,W]; ARG, naming the model, when samples are none. */
kolo_status model_images(kolo_graph *g, const char *model, const kolo_model_opts *opts,
                         kolo_value *x);
/* The input "y", a label for each image, and the outputs of a classifier. */
void model_classify(kolo_graph *g, kolo_value logits, kolo_value y);
/* ARG when the model's own option "classes" leaves none for a class of the data. */
kolo_status model_check_classes(const char *model, int64_t classes, const kolo_model_opts *opts);
