#pragma once
/* A net for tests of plans: square linear layers with weights "fc0", "fc1", ..., and a loss. */

#include "kolo/graph.h"

/* Adds it to a graph: inputs "x" [batch, width] and "y" [batch], output "loss". */
void layers_build(kolo_graph *g, int64_t batch, int64_t width, int layers);
/* Writes the name of the weight of a layer. */
void layers_name(int layer, char name[16]);
