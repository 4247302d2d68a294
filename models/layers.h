#pragma once
/* Layers shared by several models, with parameters NAME.weight and NAME.bias and PyTorch's initial
 * distributions; inputs and outputs of image classifiers. */

#include "kolo/models.h"

/* x [N,inputs] -> [N,outputs]. */
kolo_value model_linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs);
/* The same with weights that are normal with standard deviation `deviation`, and biases of zero. */
kolo_value model_linear_normal(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                               int64_t outputs, double deviation);
/* x [N,inputs,H,W] -> [N,outputs,H',W'] with a square kernel, stride 1. */
kolo_value model_conv2d(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs, int64_t kernel, int64_t pad);

/* A convolution with a square kernel, without bias, followed by batch normalization. */
typedef struct model_conv {
    int64_t inputs, outputs, kernel;
    int64_t stride, dilation, groups; /* 0: 1 */
    int64_t pad;
    kolo_init init;
    double eps; /* of the normalization; 0: its default */
} model_conv;
/* The convolution alone. */
kolo_value model_conv_only(kolo_graph *g, const char *conv, kolo_value x, const model_conv *how);
kolo_value model_conv_norm(kolo_graph *g, const char *conv, const char *norm, kolo_value x,
                           const model_conv *how);

/* Normal with variance 2 / (kernel^2 outputs): He et al., ICCV 2015. */
kolo_init model_init_he(int64_t outputs, int64_t kernel);

/* Adds the input "x" of images [C,H,W]. ARG: samples of another rank. */
kolo_status model_images(kolo_graph *g, const char *model, const kolo_model_opts *opts,
                         kolo_value *x);
/* Adds the outputs of a classifier. */
void model_classify(kolo_graph *g, kolo_value logits, kolo_value y);
/* ARG: the model option "classes" is below the number of classes of the data. */
kolo_status model_check_classes(const char *model, int64_t classes, const kolo_model_opts *opts);
