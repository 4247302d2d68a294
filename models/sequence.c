/* Inputs, layers and outputs shared by language models. */
#include "models/sequence.h"

#include <stdio.h>

kolo_status model_token_inputs(kolo_graph *g, const char *model, const kolo_model_opts *opts,
                               kolo_value *x, kolo_value *y) {
    if (opts->sample.rank != 1) {
        char text[KOLO_SHAPE_TEXT];
        return kolo_error_set(KOLO_ERR_ARG,
                              "model %s takes windows of tokens, not samples of shape %s: choose "
                              "data such as text:FILE, tokens:FILE or synthetic-tokens",
                              model, kolo_shape_text(&opts->sample, text));
    }
    kolo_shape shape = kolo_shape_2(opts->batch, opts->sample.dim[0]);
    *x = kolo_input(g, "x", KOLO_DTYPE_I32, shape);
    *y = kolo_input(g, "y", KOLO_DTYPE_I32, shape);
    return KOLO_OK;
}

kolo_value model_token_linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                              int64_t outputs, double deviation) {
    char text[MODEL_NAME + 8];
    snprintf(text, sizeof text, "%s.weight", name);
    kolo_value w = kolo_param(g, text, kolo_shape_2(outputs, inputs),
                              (kolo_init){KOLO_INIT_NORMAL, deviation});
    snprintf(text, sizeof text, "%s.bias", name);
    kolo_value b = kolo_param(g, text, kolo_shape_1(outputs), (kolo_init){KOLO_INIT_ZERO, 0});
    return kolo_linear_bias(g, x, w, b);
}

void model_token_outputs(kolo_graph *g, kolo_value logits, kolo_value labels, double weight,
                         kolo_value also) {
    kolo_value loss = kolo_softmax_xent(g, logits, labels);
    kolo_value correct = kolo_accuracy(g, logits, labels);
    kolo_output(g, "logits", logits);
    if (weight != 1) loss = kolo_scale(g, loss, weight);
    kolo_output(g, "loss", also.id >= 0 ? kolo_add(g, loss, also) : loss);
    kolo_output(g, "correct", weight != 1 ? kolo_scale(g, correct, weight) : correct);
}

kolo_value model_dropout(kolo_graph *g, kolo_value x, int64_t percent) {
    return percent > 0 ? kolo_dropout(g, x, (double)percent / 100) : x;
}
