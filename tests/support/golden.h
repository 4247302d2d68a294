#pragma once
/* Golden numbers of networks: those of PyTorch in f64, with the rounding of its f32. */

#include "kernel/kernel.h"

#include <jansson.h>

/* A number may be off by `least` and `times` its rounding, relative to numbers above 1. */
typedef struct golden_bound {
    double least, times;
} golden_bound;

/* Fails unless `got` is number i under `key` of a network. */
void golden_check(const json_t *network, kolo_kernel_set kernels, const char *key, int i,
                  double got, golden_bound bound);
