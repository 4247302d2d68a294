#pragma once
/* Ops of a program (kolo/custom_op.h) in terms of the graph, for their kernel. */

#include "graph/graph.h"

/* The attributes of a node, which are doubles; NULL: zeros. */
void kolo_custom_attrs(const kolo_attr *attr, double numbers[KOLO_MAX_ATTRS]);
/* Types and shapes of n tensors. */
void kolo_custom_tensors(const kolo_tensor *from, int n, kolo_custom_tensor *to);
