#pragma once
/* LSTM layers whose hidden units are divided over ranks. */

#include "graph/graph.h"

/* Makes nodes for each time step of such layers and of their gradients, with the redistributions of
 * their states. Runs where placements are known: after the pass synchronize, and in evaluation
 * plans after partition. No such layer: no change. The errors of kolo_node_propagate; NOMEM. */
kolo_status kolo_pass_recurrence(kolo_graph *g);
