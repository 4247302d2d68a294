#pragma once
/* Ops of a program (kolo/custom_op.h) in terms of the graph, for their kernel. */

#include "graph/graph.h"

/* The attributes of a node, which are doubles; NULL: zeros. */
void kolo_custom_attrs(const kolo_attr *attr, double numbers[KOLO_MAX_ATTRS]);
/* Types and shapes of n tensors. */
void kolo_custom_tensors(const kolo_tensor *from, int n, kolo_custom_tensor *to);

/* What this thread has counted before a call of a function of an op. */
typedef struct kolo_custom_mark {
    uint64_t errors, done;
} kolo_custom_mark;

kolo_custom_mark kolo_custom_begin(void);
/* Sets the last error if the function belongs to kolo_custom_bind and has ended early without one.
 */
void kolo_custom_end(const kolo_op *op, kolo_custom_mark begin);
