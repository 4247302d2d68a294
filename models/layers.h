#pragma once
/* Layers that several models are made of: parameters NAME.weight and NAME.bias, drawn as PyTorch
 * draws them, and the ops that use them. */

#include "kolo/graph.h"

/* x [N,inputs] -> [N,outputs]. */
kolo_value model_linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs);
/* x [N,inputs,H,W] -> [N,outputs,H',W'] with a square kernel, stride 1. */
kolo_value model_conv2d(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                        int64_t outputs, int64_t kernel, int64_t pad);
