#pragma once
/* What models of tokens share. */

#include "kolo/models.h"

/* The inputs x and y, i32 [batch,T]; ARG when the samples are no windows. */
kolo_status model_token_inputs(kolo_graph *g, const char *model, const kolo_model_opts *opts,
                               kolo_value *x, kolo_value *y);

/* x [N,T,inputs] -> [N,T,outputs], with parameters NAME.weight, normal with that standard
 * deviation, and NAME.bias, zero. */
kolo_value model_token_linear(kolo_graph *g, const char *name, kolo_value x, int64_t inputs,
                              int64_t outputs, double deviation);

/* Outputs logits, loss and correct of logits [rows,classes] for labels [rows]. A label counts with
 * `weight`: tokens of a window for each that has one, since means are over all of them. `also` is
 * added to the loss, unless its id is below 0. */
void model_token_outputs(kolo_graph *g, kolo_value logits, kolo_value labels, double weight,
                         kolo_value also);

/* Dropout of `percent` of 100; 0: x itself. */
kolo_value model_dropout(kolo_graph *g, kolo_value x, int64_t percent);

enum { MODEL_NAME = 64 }; /* bytes of a layer's name */
