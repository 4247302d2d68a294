#pragma once
/* Arrays that callers of builders give. */

#include "graph/graph.h"

/* Whether `array` has n elements, at least `least`, or is NULL with n 0; otherwise the graph fails
 * (ARG). `op` and `what` are for the message: "concat", "inputs". */
bool kolo_graph_takes_array(kolo_graph *g, const char *op, const char *what, const void *array,
                            int n, int least);
