#pragma once
/* Options of the training passes: the optimizer, recomputation of activations, and precision. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The default size of a bucket of gradients, which are reduced together; and how many buckets
 * there are at most where updates are left to the next step: then buckets are larger if need be, as
 * more than KOLO_FLIGHT_MAX in flight have no priorities, and the last ones smaller, as the next
 * step waits for them. */
enum { KOLO_BUCKET_BYTES = 1 << 20, KOLO_BUCKETS_MOST = 24 };

enum { KOLO_DELAY_MOST = 1 << 16 };

/* The list of optimizers: code, name, description. Adam: Kingma, Ba, 2015. AdamW: Loshchilov,
 * Hutter, 2019. LARS: You, Gitman, Ginsburg, 2017. LAMB: You et al., 2020. The last two scale the
 * update of each parameter to its norm, for large batches. */
#define KOLO_OPTIMIZER_LIST(X)                                                     \
    X(KOLO_OPTIMIZER_SGD, "sgd", "SGD, with classical momentum if any")            \
    X(KOLO_OPTIMIZER_NESTEROV, "nesterov", "SGD with Nesterov momentum")           \
    X(KOLO_OPTIMIZER_ADAM, "adam", "Adam, with weight decay as L2 regularization") \
    X(KOLO_OPTIMIZER_ADAMW, "adamw", "Adam with decoupled weight decay")           \
    X(KOLO_OPTIMIZER_LARS, "lars", "momentum, with a rate for each parameter")     \
    X(KOLO_OPTIMIZER_LAMB, "lamb", "AdamW, with a rate for each parameter")

typedef enum kolo_optimizer {
#define KOLO_OPTIMIZER_ENUM(code, name, help) code,
    KOLO_OPTIMIZER_LIST(KOLO_OPTIMIZER_ENUM)
#undef KOLO_OPTIMIZER_ENUM
        KOLO_OPTIMIZER_COUNT
} kolo_optimizer;

/* The optimizer and its hyperparameters. A zero field takes its default. The patterns are lists,
 * "*.bias,bn?.weight", of names of parameters: * stands for any text, ? for a character. They are
 * borrowed; in a session and a job until its end. ARG: a pattern that no parameter matches. */
typedef struct kolo_optimizer_opts {
    kolo_optimizer kind; /* SGD */
    double momentum;     /* SGD, LARS; 0 */
    /* NESTEROV: updates that share one change of the velocity, by the mean of their gradients, up
     * to KOLO_DELAY_MOST (docs/servers.md, delayed momentum); 0: each changes it. */
    int64_t delay;
    double ahead; /* of the momentum, what each but the last of them adds; at most 1 / delay; 0 */
    double beta1, beta2, eps; /* Adam, AdamW, LAMB; 0.9, 0.999, 1e-8 (LAMB: 1e-6); DBL_MIN: 0 */
    double trust;             /* LARS: its coefficient eta; 0.001 */
    double weight_decay;      /* 0 */
    bool decay_matrices_only; /* no weight decay on vectors (biases, normalization) */
    const char *no_decay;     /* patterns of parameters without weight decay; NULL: none */
    bool scale_matrices_only; /* LARS, LAMB: the rate of vectors is the learning rate */
    const char *no_scale;     /* the same for parameters that match these patterns; NULL: none */
    double clip;              /* maximum L2 norm of all gradients together; 0: no clipping */
    const char *freeze;       /* patterns of parameters that are not trained: they have no gradient
                                 and no optimizer state; NULL: none */
} kolo_optimizer_opts;

/* Which independent operations run at the same time, each on one thread of a rank. No bit of a
 * result depends on it. */
typedef enum kolo_lanes {
    KOLO_LANES_MEASURED, /* those that the measured times of kernels predict to gain by it, and that
                            do in the first steps */
    KOLO_LANES_OFF,      /* none */
    KOLO_LANES_ALL,      /* all that are independent of each other: for tests */
} kolo_lanes;

/* The list of what the backward pass recomputes instead of keeping it from the forward pass: code,
 * name, description. Results are bitwise the same; memory is traded for time. Segments: Chen et
 * al., 2016. */
#define KOLO_RECOMPUTE_LIST(X)                                                       \
    X(KOLO_RECOMPUTE_NONE, "none", "nothing")                                        \
    X(KOLO_RECOMPUTE_CHEAP, "cheap", "batch normalization and pointwise operations") \
    X(KOLO_RECOMPUTE_FULL, "full", "everything except the boundaries of segments")

typedef enum kolo_recompute {
#define KOLO_RECOMPUTE_ENUM(code, name, help) code,
    KOLO_RECOMPUTE_LIST(KOLO_RECOMPUTE_ENUM)
#undef KOLO_RECOMPUTE_ENUM
        KOLO_RECOMPUTE_COUNT
} kolo_recompute;

/* The list of types for activations and their gradients: code, name, description. Parameters, their
 * gradients, statistics and losses are f32. bf16 requires AVX2, AVX-512 or the reference kernels.
 */
#define KOLO_PRECISION_LIST(X)                       \
    X(KOLO_PRECISION_F32, "f32", "single precision") \
    X(KOLO_PRECISION_BF16, "bf16", "half the memory, and faster if the processor multiplies bf16")

typedef enum kolo_precision {
#define KOLO_PRECISION_ENUM(code, name, help) code,
    KOLO_PRECISION_LIST(KOLO_PRECISION_ENUM)
#undef KOLO_PRECISION_ENUM
        KOLO_PRECISION_COUNT
} kolo_precision;

/* The name in the list, such as "adamw"; "unknown" outside it. Static storage. */
KOLO_API const char *kolo_optimizer_name(kolo_optimizer optimizer);
KOLO_API const char *kolo_recompute_name(kolo_recompute recompute);
KOLO_API const char *kolo_precision_name(kolo_precision precision);
/* A placement of parameters (kolo_train_opts) if it is the path of a file of rules; NULL: it is the
 * name of built-in rules, or rules themselves. */
KOLO_API const char *kolo_placement_path(const char *placement);

#ifdef __cplusplus
}
#endif
