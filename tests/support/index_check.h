#pragma once
/* Compares the index notation of ops with their reference kernels. */
#include "support/graph_eval.h"

/* Runs the reference kernel of a node on two uneven slices of each index that its notation lets
 * ranks cut, and fails the test unless the results are slices of the whole result, or add up to it.
 * Then doubles the inputs in which the op is linear. `e` has run. Returns the number of indices. */
int test_index_of_node(const graph_eval *e, const kolo_node *n);
