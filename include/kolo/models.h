#pragma once
/* The model zoo: builders of known networks, made with kolo/graph.h only.
 *
 * A builder adds to a graph the inputs "x" (samples) and "y" (labels, i32 [batch]), the parameters,
 * and the outputs "logits" [batch, classes], "loss" (sum over the batch) and "correct" (count). A
 * model that labels places instead takes "y" [batch,H,W], gives "logits" [batch,classes,H,W], sums
 * over all places and the counts "confusion" [classes,classes]. An output "aux_loss" is added to
 * the loss in training and left out in evaluation. With tokens x and y are i32 [batch,T], logits
 * [batch * T, classes], the sums over all tokens. A model that also tells whether the second of two
 * sentences is the one behind the first has the sum of that loss, which "loss" contains, and the
 * count of windows for which it is right as the outputs "next_loss" and "next_correct", in which
 * each window counts as often as it has tokens. */

#include "kolo/data.h"
#include "kolo/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_model_opts {
    int64_t batch;
    kolo_shape sample; /* of one sample, such as [1,28,28] */
    int64_t classes;
    const char *options; /* the model's own, "width=0.5,hidden=256"; NULL or "": defaults */
} kolo_model_opts;

typedef struct kolo_model {
    const char *name, *summary;
    const char *options_help; /* "hidden=128 (units of the hidden layers)", or "" */
    kolo_shape sample; /* of one sample of what it is usually trained on, and in how many classes:
                          what benchmarks and dumps take when no data is named */
    int64_t classes;
    bool label_maps; /* a label for each pixel, [H,W] a sample, instead of one a sample */
    /* Models of tokens: a sample is a window [T], the classes are the vocabulary, and both are the
     * options' to say; else NULL. Fills `windows`, what the model says of its data. */
    kolo_status (*windows)(const char *options, kolo_dataset_opts *windows);
    /* Adds the model to an empty graph. ARG when the sample's shape or an option does not suit. */
    kolo_status (*build)(kolo_graph *g, const kolo_model_opts *opts);
} kolo_model;

/* The zoo, NULL-terminated; static storage. */
KOLO_API const kolo_model *const *kolo_models(void);
/* What a model takes with these options: `sample` and `classes` as they stand, or as its option
 * `classes` or `windows` says. ARG: an option does not suit. */
KOLO_API kolo_status kolo_model_sample(const kolo_model *model, const char *options,
                                       kolo_shape *sample, int64_t *classes);
/* The model of that name; ARG with a suggestion when there is none. */
KOLO_API kolo_status kolo_model_find(const char *name, const kolo_model **model);

#ifdef __cplusplus
}
#endif
