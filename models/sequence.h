#pragma once
/* Inputs, layers and outputs shared by language models. */

#include "kolo/models.h"

/* Adds the inputs x and y, i32 [batch,T]. ARG: the samples are not windows of tokens. */
kolo_status model_token_inputs(kolo_graph *g, const char *model, const kolo_model_opts *opts,
                               kolo_value *x, kolo_value *y);

/* x [N,T,inputs] -> [N,T,outputs]. NAME.weight is initially normal with standard deviation
 * `deviation`, NAME.bias zero. */
kolo_value model_token_linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                              int64_t outputs, double deviation);

/* Adds the outputs logits [rows,classes], loss and correct for labels [rows]. `weight` multiplies
 * loss and count: the tokens of a window per label, since means are over all tokens. `also` (id
 * below 0: none) is added to the loss. */
void model_token_outputs(kolo_graph *g, kolo_value logits, kolo_value labels, double weight,
                         kolo_value also);

/* Dropout with a probability of `percent` / 100; 0: returns x. */
kolo_value model_dropout(kolo_graph *g, kolo_value x, int64_t percent);

enum { MODEL_NAME = 96 }; /* bytes of a layer's name */
