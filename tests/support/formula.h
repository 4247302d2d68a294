#pragma once
/* Numbers of golden files by a formula, which the tools in tools/golden/ compute in Python: initial
 * parameters, samples and probes need not be stored. */

#include "tensor/tensor.h"

#include <stdint.h>

uint64_t formula_hash(const char *prefix, const char *name);
/* Number i of a stream. */
uint64_t formula_bits(uint64_t hash, int64_t i);
/* The same in [0, 1). */
double formula_uniform(uint64_t hash, int64_t i);
/* Element i of a parameter or running statistic: weights by their fan-in; the last normalization of
 * a residual block is small. */
float formula_start(const char *name, const kolo_shape *shape, int64_t i);
