#pragma once
/* An ONNX model under construction: nodes, constants, names. Running out of memory sets
 * `failed`. */

#include "onnx/export/export.h"

#include <onnx.pb-c.h>

enum { ONNX_SAMPLES = 2 };

typedef struct onnx_writer {
    const kolo_graph *g, *other; /* for ONNX_SAMPLES and one more: what differs depends on them */
    kolo_arena arena;
    Onnx__GraphProto graph;
    Onnx__NodeProto **nodes, **constants;
    size_t n_nodes, n_constants;
    size_t cap_nodes, cap_constants, cap_initializers;
    int n_names;
    bool failed; /* out of memory */
} onnx_writer;

/* The name of a value of the graph. */
const char *onnx_name(onnx_writer *w, kolo_value v);
/* Adds a node; NULL names are left out. `out` NULL: a fresh name. Returns the name of its output.
 */
const char *onnx_emit(onnx_writer *w, const char *op, const char *out, const char *a, const char *b,
                      const char *c);
/* The latest node, to which attributes are added. */
void onnx_add_int(onnx_writer *w, const char *name, int64_t i);
void onnx_add_float(onnx_writer *w, const char *name, double f);
void onnx_add_text(onnx_writer *w, const char *name, const char *text);
void onnx_add_ints(onnx_writer *w, const char *name, const int64_t *i, int n);
/* Adds an input or output to the latest node. */
void onnx_add_input(onnx_writer *w, const char *name);
const char *onnx_add_output(onnx_writer *w, const char *name);
/* Constants. */
const char *onnx_int_list(onnx_writer *w, const int64_t *i, int n);
const char *onnx_number_constant(onnx_writer *w, double number);
/* Tensors whose elements the caller fills: an initializer, and a constant, which is not trained by
 * those who read the file. `name` NULL: a fresh one. */
const char *onnx_add_parameter(onnx_writer *w, const char *name, const kolo_shape *shape,
                               float **data);
const char *onnx_add_constant(onnx_writer *w, const char *name, const kolo_shape *shape,
                              float **data);
/* The nodes of the graph: constants, then the others. */
void onnx_finish_nodes(onnx_writer *w);
/* An input or output of the graph with an open first dimension: the samples, or rows of
 * each. */
Onnx__ValueInfoProto *onnx_value_info(onnx_writer *w, const char *name, kolo_dtype dtype,
                                      const kolo_shape *shape);

/* Adds the nodes of one node of the graph (ops.c). UNSUPPORTED: ONNX cannot express it. */
kolo_status onnx_write_node(onnx_writer *w, const kolo_node *n, const kolo_node *other);
