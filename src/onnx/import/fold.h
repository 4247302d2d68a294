#pragma once
/* Operators on constants. Each sets the outputs of a call whose inputs are all constants. */
#include "onnx/import/import.h"

kolo_status onnx_fold_arithmetic(onnx_call *c);
kolo_status onnx_fold_unary(onnx_call *c);
kolo_status onnx_fold_cast(onnx_call *c);
kolo_status onnx_fold_where(onnx_call *c);
kolo_status onnx_fold_reshape(onnx_call *c);
kolo_status onnx_fold_transpose(onnx_call *c);
kolo_status onnx_fold_concat(onnx_call *c);
kolo_status onnx_fold_slice(onnx_call *c);
kolo_status onnx_fold_gather(onnx_call *c);
kolo_status onnx_fold_scatter(onnx_call *c);       /* scatter.c */
kolo_status onnx_fold_gather_places(onnx_call *c); /* scatter.c */
kolo_status onnx_fold_expand(onnx_call *c);
kolo_status onnx_fold_trilu(onnx_call *c);
kolo_status onnx_fold_range(onnx_call *c);
kolo_status onnx_fold_window(onnx_call *c); /* HannWindow, HammingWindow, BlackmanWindow */
kolo_status onnx_fold_fill(onnx_call *c);   /* ConstantOfShape */
kolo_status onnx_fold_identity(onnx_call *c);
kolo_status onnx_fold_reduce(onnx_call *c);
kolo_status onnx_constant_node(onnx_call *c); /* Constant */
kolo_status onnx_shape_of(onnx_call *c);      /* Shape */
kolo_status onnx_size_of(onnx_call *c);       /* Size */

/* The shape that Reshape, Flatten, Squeeze and Unsqueeze give to a tensor of shape x. */
kolo_status onnx_new_shape(onnx_call *c, const kolo_shape *x, kolo_shape *y);
/* Strides that repeat a row-major tensor of shape x to a shape; stride[d] is of its dimension d. */
void onnx_broadcast_strides(const kolo_shape *x, const kolo_shape *shape, int64_t *stride);
/* Slice: the elements along dimension d are first[d] + k step[d], size[d] of them. */
kolo_status onnx_slice_ranges(onnx_call *c, const kolo_shape *x, int64_t *first, int64_t *step,
                              kolo_shape *y);
