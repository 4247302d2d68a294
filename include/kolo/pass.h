#pragma once
/* Options of the training passes: the optimizer, recomputation of activations, and precision. */

#include <stdbool.h>

typedef enum kolo_optimizer {
    KOLO_OPTIMIZER_SGD,
    KOLO_OPTIMIZER_NESTEROV, /* SGD with Nesterov's form of momentum */
    KOLO_OPTIMIZER_ADAM,     /* Kingma, Ba, 2015; weight decay is added to the gradient */
    KOLO_OPTIMIZER_ADAMW,    /* weight decay apart from it; Loshchilov, Hutter, 2019 */
} kolo_optimizer;

/* The optimizer and its hyperparameters. Zero means the default. */
typedef struct kolo_optimizer_opts {
    kolo_optimizer kind;      /* SGD */
    double momentum;          /* SGD; 0 */
    double beta1, beta2, eps; /* Adam, AdamW; 0.9, 0.999, 1e-8 */
    double weight_decay;      /* 0 */
    bool decay_matrices_only; /* no weight decay on vectors (biases, normalization) */
    double clip;              /* maximum L2 norm of all gradients together; 0: no clipping */
} kolo_optimizer_opts;

/* What the backward pass makes again instead of finding it kept from the forward pass. The numbers
 * are the same to the bit; memory is traded for time. */
typedef enum kolo_recompute {
    KOLO_RECOMPUTE_NONE,
    KOLO_RECOMPUTE_CHEAP, /* batch normalisation and pointwise operations */
    KOLO_RECOMPUTE_FULL,  /* everything but the borders of segments of the net; Chen et al., 2016 */
} kolo_recompute;

/* In which type activations and their gradients are kept; parameters, their gradients, statistics
 * and losses are f32. */
typedef enum kolo_precision {
    KOLO_PRECISION_F32,
    KOLO_PRECISION_BF16, /* takes AVX2 or AVX-512, or the reference kernels */
} kolo_precision;
