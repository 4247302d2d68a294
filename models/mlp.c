/* mlp: a multi-layer perceptron: flatten, `layers` times linear and ReLU, linear. It predicts a
 * class, or with value=1 a number, by its squared error. */
#include "models/layers.h"
#include "models/options.h"
#include "models/zoo.h"

#include <stdio.h>

static kolo_value linear(kolo_graph *g, int64_t number, kolo_value x, int64_t inputs,
                         int64_t outputs) {
    char name[32];
    snprintf(name, sizeof name, "fc%d", (int)number);
    return model_linear(g, name, x, inputs, outputs);
}

static void add_class(kolo_graph *g, kolo_value logits, kolo_value y) {
    kolo_output(g, "logits", logits);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
}

static void add_value(kolo_graph *g, kolo_value h, kolo_value y, int64_t batch) {
    kolo_value value = kolo_reshape(g, h, kolo_shape_1(batch));
    kolo_output(g, "value", value);
    kolo_output(g, "loss", kolo_mse_loss(g, value, y));
}

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    int64_t hidden = 128, layers = 2, value = 0;
    const kolo_model_option table[] = {{"hidden", 1, 1 << 20, &hidden, 0},
                                       {"layers", 0, 64, &layers, 0},
                                       {"value", 0, 1, &value, 0}};
    kolo_status status = kolo_model_options_parse("mlp", opts->options, table, 3);
    if (status != KOLO_OK) return status;

    kolo_shape batch = {opts->sample.rank + 1, {opts->batch}};
    if (batch.rank > KOLO_MAX_RANK) {
        return kolo_error_set(KOLO_ERR_ARG, "model mlp: samples have %d dimensions: at most %d fit",
                              opts->sample.rank, KOLO_MAX_RANK - 1);
    }
    for (int i = 0; i < opts->sample.rank; i++) batch.dim[i + 1] = opts->sample.dim[i];
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, batch);
    kolo_value y =
        kolo_input(g, "y", value ? KOLO_DTYPE_F32 : KOLO_DTYPE_I32, kolo_shape_1(opts->batch));

    int64_t width = kolo_shape_count(&opts->sample);
    kolo_value h = kolo_flatten(g, x);
    for (int64_t i = 1; i <= layers; i++) {
        h = kolo_relu(g, linear(g, i, h, width, hidden));
        width = hidden;
    }
    h = linear(g, layers + 1, h, width, value ? 1 : opts->classes);
    if (value) {
        add_value(g, h, y, opts->batch);
    } else {
        add_class(g, h, y);
    }
    return kolo_graph_check(g);
}

const kolo_model kolo_model_mlp = {
    .name = "mlp",
    .recipe = "optimizer=adam lr=0.001",
    .recipe_source = "Kingma, Ba, 2015, section 6.2",
    .summary = "multi-layer perceptron",
    .options_help = "hidden=128 (units of each hidden layer), layers=2 (hidden layers), "
                    "value=0 (1: regression, predicts a number instead of a class)",
    .sample = {3, {1, 28, 28}},
    .classes = 10,
    .build = build,
};
