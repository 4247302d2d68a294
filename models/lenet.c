/* lenet: LeNet-5 with ReLU and max pooling instead of the original tanh and trainable pooling.
 * LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition",
 * Proceedings of the IEEE 86(11), 1998.
 *
 *     x [N,C,H,W] -> conv1 6 5x5 pad 2, ReLU, pool 2 -> conv2 16 5x5, ReLU, pool 2
 *                 -> fc1 120, ReLU -> fc2 84, ReLU -> fc3 classes
 *
 * PyTorch's parameter names and initial distributions. 61,706 parameters for 1x28x28 and 10
 * classes. */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

enum { SMALLEST = 12 }; /* minimum height and width for one element after the second pool */

static kolo_value relu_pool(kolo_graph *g, kolo_value x) {
    return kolo_max_pool2d(g, kolo_relu(g, x), &(kolo_pool2d_opts){.kernel_h = 2, .kernel_w = 2});
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    kolo_status status = kolo_model_options_parse("lenet", opts->options, NULL, 0);
    if (status != KOLO_OK) return status;
    const kolo_shape *s = &opts->sample;
    if (s->rank != 3 || s->dim[1] < SMALLEST || s->dim[2] < SMALLEST) {
        char text[KOLO_SHAPE_TEXT];
        return kolo_error_set(KOLO_ERR_ARG,
                              "model lenet takes images [C,H,W] of at least %dx%d, not samples of "
                              "shape %s: try the model mlp",
                              SMALLEST, SMALLEST, kolo_shape_text(s, text));
    }
    kolo_shape images = kolo_shape_4(opts->batch, s->dim[0], s->dim[1], s->dim[2]);
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, images);
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));

    kolo_value h = relu_pool(g, model_conv2d(g, "conv1", x, s->dim[0], 6, 5, 2));
    h = relu_pool(g, model_conv2d(g, "conv2", h, 6, 16, 5, 0));
    int64_t rows = (s->dim[1] / 2 - 4) / 2, columns = (s->dim[2] / 2 - 4) / 2;
    h = kolo_relu(g, model_linear(g, "fc1", kolo_flatten(g, h), 16 * rows * columns, 120));
    h = kolo_relu(g, model_linear(g, "fc2", h, 120, 84));
    kolo_value logits = model_linear(g, "fc3", h, 84, opts->classes);
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return kolo_graph_check(g);
}

const kolo_model kolo_model_lenet = {
    .name = "lenet",
    .recipe = "optimizer=sgd lr=0.05 scale-lr=64 momentum=0.9 weight-decay=5e-4 schedule=cosine "
              "warmup-epochs=0.5/8",
    .recipe_source = "Caffe's LeNet: Jia et al., 2014; rate and cosine of Kolo's quick start",
    .summary = "LeNet-5 with ReLU and max pooling (LeCun et al., 1998)",
    .options_help = "",
    .sample = {3, {1, 28, 28}},
    .classes = 10,
    .build = build,
};
