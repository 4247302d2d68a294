#pragma once
/* What reductions over dimensions share. Their attributes begin with KOLO_SUM_AXES, KOLO_SUM_KEEP.
 */

#include "graph/graph.h"

enum { KOLO_AXES_TERM = KOLO_MAX_RANK + 1 };

/* The shape of the reduction of x. */
kolo_shape kolo_axes_shape(const kolo_attr *attr, const kolo_shape *x);
/* The shape rule of a reduction. */
kolo_status kolo_axes_rule(kolo_shape_query *q);
/* Writes the index letters of x and of y; `whole`: x may not be cut along reduced dimensions. */
void kolo_axes_terms(const kolo_attr *attr, const kolo_shape *x, bool whole,
                     char of_x[KOLO_AXES_TERM], char of_y[KOLO_AXES_TERM]);
/* The element of y for element k of x. */
int64_t kolo_axes_place(const kolo_attr *attr, const kolo_shape *x, int64_t k);
/* The index notation of a reduction of in[0]. */
const char *kolo_axes_index(const kolo_attr *attr, const kolo_shape *in, char *text, bool whole);
/* Adds a reduction over axes[0..n) of x, as in kolo/graph.h; `third` is the third attribute. */
kolo_value kolo_axes_reduce(kolo_graph *g, const kolo_op *op, kolo_value x, const int *axes, int n,
                            bool keep, bool third);
