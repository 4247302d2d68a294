#pragma once
/* Values of test data in every element type: what each rank contributes, and what must come out. */

#include "kolo/comm.h"

/* Element i of rank `rank`: 1, 2 or 3, so that every type holds it exactly. */
double value_input(int rank, size_t i);
void value_put(void *data, size_t i, kolo_dtype dtype, double v);
double value_get(const void *data, size_t i, kolo_dtype dtype);
/* What `op` makes of element i of n ranks (of MEAN: the sum), in double. */
double value_reference(int n, size_t i, kolo_reduce_op op);
/* What the type keeps of it: integers wrap around. */
double value_kept(kolo_dtype dtype, double v);
/* Relative error that rounding explains. */
double value_tolerance(kolo_dtype dtype, int n);
