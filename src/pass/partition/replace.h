#pragma once
/* Replaces nodes of a divided graph by several others, between which other nodes may stand. For
 * passes that run when the placements are known. */

#include "graph/graph.h"

typedef struct kolo_replacer {
    kolo_graph *g;
    kolo_value *now; /* by value of the graph before: what later nodes read */
    kolo_node **order;
    size_t n, cap;
    int32_t taken; /* nodes of the graph that are in the order, or were there before */
} kolo_replacer;

/* Looks at a node, whose inputs are what replaces them. If it replaces the node, it sets *replaced,
 * and now[] of the outputs; else the node stays where it is. */
typedef kolo_status (*kolo_replace_visit)(kolo_replacer *r, kolo_node *n, void *arg,
                                          bool *replaced);

/* Takes the nodes that were added to the graph since the last call into the order, and finds their
 * placements. The errors of the graph and of kolo_node_propagate; NOMEM. */
kolo_status kolo_replacer_take(kolo_replacer *r);
/* Visits all nodes. The errors of `visit`; NOMEM. */
kolo_status kolo_replace_nodes(kolo_graph *g, kolo_replace_visit visit, void *arg);
