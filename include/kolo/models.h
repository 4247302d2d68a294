#pragma once
/* The model zoo: builders of well-known networks on kolo/graph.h.
 *
 * A builder adds the inputs "x" (samples) and "y" (labels, i32 [batch]), the parameters, and the
 * outputs "logits" [batch,classes], "loss" (sum over the batch) and "correct" (count).
 *
 *     segmentation      "y" [batch,H,W], "logits" [batch,classes,H,W], sums over all pixels,
 *                       and the confusion matrix "confusion" [classes,classes]
 *     auxiliary heads   "aux_loss", added to the loss in training and dropped in evaluation
 *     language models   "x" and "y" are i32 [batch,T], "logits" [batch * T, classes], sums
 *                       over all tokens
 *     next sentence     "next_loss", which "loss" includes, and "next_correct"; each window
 *                       counts once per token
 *     click logs        "y" f32 [batch], "logits" [batch,1], the input "ids" i32
 *                       [batch,categories], and "score_counts", from which the AUC follows
 */

#include "kolo/data.h"
#include "kolo/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_model_opts {
    int64_t batch;
    kolo_shape sample; /* of one sample, such as [1,28,28] */
    int64_t classes;
    const char *options; /* model-specific, "width=0.5,hidden=256"; NULL or "": defaults */
} kolo_model_opts;

typedef struct kolo_model {
    const char *name, *summary; /* required, as sample, classes and build */
    /* The reference recipe: options of `kolo train` with the values that its source trains the
     * model with, "lr=0.1 momentum=0.9 warmup-epochs=5/90" (5 of 90 epochs: in proportion to those
     * of the run). The command uses them for options that are not given; the library does not.
     * NULL: none. */
    const char *recipe, *recipe_source;
    const char *options_help; /* "hidden=128 (units of the hidden layers)", or "" */
    kolo_shape sample;        /* of one sample, and the number of classes, of the usual data set:
                                 defaults of benchmarks and dumps */
    int64_t classes;
    bool label_maps; /* segmentation: a label per pixel, [H,W], instead of one per sample */
    /* Language models, whose samples are windows [T], with the vocabulary as classes, and models of
     * click logs: fills what they require of the data from the options. NULL for other models. */
    kolo_status (*windows)(const char *options, kolo_dataset_opts *windows);
    /* Adds the model to an empty graph. ARG: an unsupported shape of the sample, or an invalid
     * option. */
    kolo_status (*build)(kolo_graph *g, const kolo_model_opts *opts);
    /* The same of ONNX files, which have no `build`; else zero, as the fields below. */
    kolo_status (*build_file)(const struct kolo_model *model, kolo_graph *g,
                              const kolo_model_opts *opts);
    const void *file;
    kolo_dataset_opts window; /* of language models in files: as `windows` would fill it */
} kolo_model;

/* The zoo, NULL-terminated; static storage. */
KOLO_API const kolo_model *const *kolo_models(void);
/* The sample shape and number of classes of a model: its defaults, overridden by the options. ARG:
 * an invalid option. */
KOLO_API kolo_status kolo_model_sample(const kolo_model *model, const char *options,
                                       kolo_shape *sample, int64_t *classes);
/* Adds a model to an empty graph. Errors as of its builder. */
KOLO_API kolo_status kolo_model_add(const kolo_model *model, kolo_graph *g,
                                    const kolo_model_opts *opts);
/* What a model requires of token data or click logs; of other models zero. ARG: an invalid option.
 */
KOLO_API kolo_status kolo_model_window(const kolo_model *model, const char *options,
                                       kolo_dataset_opts *windows);
/* Finds a model of the zoo or a registered one by name. A name that ends with ".onnx" is the path
 * of a file (kolo/onnx.h), one that ends with ".so" that of a shared object; both stay in memory
 * until the process ends. Any thread. ARG, with a suggestion: unknown name; errors of
 * kolo_model_open_onnx and kolo_model_open_library. */
KOLO_API kolo_status kolo_model_find(const char *name, const kolo_model **model);
/* The model of an ONNX file, as kolo_model_find gives it: a file that has changed since it was
 * opened is read again. Any thread. Errors of kolo_onnx_open. */
KOLO_API kolo_status kolo_model_open_onnx(const char *path, const kolo_model **model);

/* ---- models of a program, and in shared objects ---- */

/* An option of a model. */
typedef struct kolo_model_option {
    const char *name;
    int64_t min, max;
    int64_t *value; /* the default before parsing, the choice after */
    int64_t one;    /* the value of the fraction 1.0, for options that may be fractions; 0: none */
} kolo_model_option;

/* Parses the options "hidden=256,width=0.5" (may be NULL) by a table of `n` rows, at most 16. ARG,
 * naming the model: an unknown option (with a suggestion or the list), a duplicate, or an invalid
 * or out-of-range value. Fractions are rounded to the nearest integer. On failure, options before
 * the invalid one are set. */
KOLO_API kolo_status kolo_model_options_parse(const char *model, const char *text,
                                              const kolo_model_option *table, int n);

/* Adds a model of the program to those that kolo_model_find finds, for kolo_train and others that
 * take a name. `model` is borrowed until the process ends. Any thread. ARG: a field is missing, the
 * name is in use, or it contains a colon, a comma, a slash or a dot; NOMEM: 64 are registered. */
KOLO_API kolo_status kolo_model_register(const kolo_model *model);

/* The version of the structures in this header; it changes when they do. */
#define KOLO_MODEL_VERSION 2

/* Defines the entry point of a shared object with one model, for `kolo train --model ./mine.so`:
 *
 *     static const kolo_model mine = {.name = "mine", .build = build, ...};
 *     KOLO_MODEL_ENTRY(mine)
 */
#define KOLO_MODEL_ENTRY(model)                                \
    KOLO_API const kolo_model *kolo_model_entry(int *version); \
    const kolo_model *kolo_model_entry(int *version) {         \
        *version = KOLO_MODEL_VERSION;                         \
        return &(model);                                       \
    }

/* Loads a shared object, which executes its code, and returns its model; it stays loaded until the
 * process ends. Any thread. IO: it cannot be read; FORMAT: it is no shared object for this
 * processor, it is cut off, its model lacks a field, or it has changed since it was loaded;
 * UNSUPPORTED: it has no entry point, it was compiled with another KOLO_MODEL_VERSION, or it needs
 * functions that this Kolo does not have. */
KOLO_API kolo_status kolo_model_open_library(const char *path, const kolo_model **model);

#ifdef __cplusplus
}
#endif
