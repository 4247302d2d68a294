#pragma once
/* Options of training, from the table to the library's struct. */

#include "base/option.h"
#include "kolo/train.h"

/* Splits "lenet:width=0.5" of --model into the model and its own options (NULL: none). */
kolo_status train_opts_model(kolo_options *o, const char **model, const char **model_options);

/* What train and bench train share: model, data, batch, optimiser, kernels, buckets. Texts live as
 * long as `o`. */
kolo_status train_opts_make(kolo_options *o, int threads, kolo_train_opts *opts);
