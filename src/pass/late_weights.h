#pragma once
/* The order of the gradients at the end of the backward pass. */

#include "graph/graph.h"

/* Computes gradients of weights that the next step needs late behind those that it needs first. On
 * a mesh of the axis dp alone, after kolo_pass_gradient and kolo_pass_optimizer, before layouts.
 * `near`: the ranks read each other's gradients in the memory of a host. NOMEM; the errors of
 * kolo_node_propagate. */
kolo_status kolo_pass_late_weights(kolo_graph *g, bool near);
