#pragma once
/* Test data in every element type: the contribution of each rank and the expected result. */

#include "kolo/comm.h"

/* Element i of rank `rank`: 1, 2 or 3, so that every type holds it exactly. */
double value_input(int rank, size_t i);
void value_put(void *data, size_t i, kolo_dtype dtype, double v);
double value_get(const void *data, size_t i, kolo_dtype dtype);
/* The result of `op` on element i of n ranks (for MEAN: the sum), in double. */
double value_reference(int n, size_t i, kolo_reduce_op op);
/* The value converted to the type: integers wrap around. */
double value_kept(kolo_dtype dtype, double v);
/* Relative error allowed for rounding. */
double value_tolerance(kolo_dtype dtype, int n);
