#pragma once
/* The order of the gradients at the end of the backward pass. */

#include "graph/graph.h"

/* Computes gradients of weights that the next step needs late behind those that it needs first.
 * After kolo_pass_gradient and kolo_pass_optimizer, before layouts. NOMEM. */
kolo_status kolo_pass_late_weights(kolo_graph *g);
