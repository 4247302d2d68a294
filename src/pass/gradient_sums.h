#pragma once
/* Finds the sums of gradients over the ranks, for passes that change how they are made. */

#include "graph/graph.h"

/* Fills param_of[0 .. n_values): the parameter whose dense gradient a value is; -1: none. */
void kolo_find_gradients(const kolo_graph *g, int32_t *param_of);
/* The parameter whose gradient, maybe in another layout, a node sums over the ranks of an axis; -1:
 * it is no such node. */
int32_t kolo_summed_gradient(const kolo_graph *g, const kolo_node *n, int axis,
                             const int32_t *param_of);
/* The parameter whose gradient a value is, maybe in another layout; -1: none. */
int32_t kolo_parameter_of_gradient(const kolo_graph *g, kolo_value v);
/* A state "optimizer.WHAT.PARAMETER" with the tensor of a gradient, of which each rank of the axis
 * has a version of its own. KOLO_NONE: the graph has failed. */
kolo_value kolo_gradient_state(kolo_graph *g, const char *what, kolo_value gradient, int32_t param,
                               int axis);
