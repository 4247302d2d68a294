#pragma once
/* For training on mixed samples: losses of soft labels. */

#include "graph/graph.h"

/* Replaces each cross-entropy of the classes "y" by that of their weights, a new input `target` f32
 * [N,classes], which batches with mixed samples have. The count of correct samples is still that of
 * "y". Runs on the graph as its builder makes it. UNSUPPORTED: there is no such loss, or one has
 * weights or an ignored label; NOMEM. */
kolo_status kolo_pass_mix_labels(kolo_graph *g, const char *target);
