#pragma once
/* Writes graphs as ONNX files, for evaluation. */

#include "graph/graph.h"

/* Reads the parameter or statistic of a name, in row-major order, into `data`. */
typedef kolo_status onnx_read_fn(void *arg, const char *name, const kolo_shape *shape, float *data);

/* Adds a graph for `samples` samples to g. */
typedef kolo_status onnx_build_fn(kolo_graph *g, int64_t samples, void *arg);

/* Writes the output "logits" of the graph that `build` makes, with everything that it depends on,
 * to `path`; the first dimension of inputs and outputs is open. UNSUPPORTED: an op that ONNX does
 * not have, or this build writes no ONNX files. IO, NOMEM; errors of the callbacks. */
kolo_status kolo_onnx_write(const char *path, onnx_build_fn *build, void *build_arg,
                            onnx_read_fn *read, void *read_arg);
