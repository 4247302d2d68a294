#pragma once
/* The operators that add ops to the graph, by family. ops.c is their table. */
#include "onnx/import/import.h"

/* pointwise.c */
kolo_status onnx_map_unary(onnx_call *c);
kolo_status onnx_map_binary(onnx_call *c);
kolo_status onnx_map_compare(onnx_call *c);
kolo_status onnx_map_logic(onnx_call *c);
kolo_status onnx_map_where(onnx_call *c);
kolo_status onnx_map_pow(onnx_call *c);
kolo_status onnx_map_clip(onnx_call *c);
kolo_status onnx_map_cast(onnx_call *c);
kolo_status onnx_map_is_nan(onnx_call *c);
kolo_status onnx_map_is_inf(onnx_call *c);
kolo_status onnx_map_swiglu(onnx_call *c);
kolo_status onnx_map_prelu(onnx_call *c);
kolo_status onnx_map_dropout(onnx_call *c);

/* shape.c */
kolo_status onnx_map_reshape(onnx_call *c);
kolo_status onnx_map_identity(onnx_call *c);
kolo_status onnx_map_transpose(onnx_call *c);
kolo_status onnx_map_concat(onnx_call *c);
kolo_status onnx_map_split(onnx_call *c);
kolo_status onnx_map_slice(onnx_call *c);
kolo_status onnx_map_gather(onnx_call *c);
kolo_status onnx_map_expand(onnx_call *c);
kolo_status onnx_map_tile(onnx_call *c);
kolo_status onnx_map_pad(onnx_call *c);
kolo_status onnx_map_trilu(onnx_call *c);
kolo_status onnx_map_depth_to_space(onnx_call *c);
kolo_status onnx_map_center_crop_pad(onnx_call *c);
kolo_status onnx_map_resize(onnx_call *c);
kolo_status onnx_map_grid_sample(onnx_call *c);

/* scatter.c */
kolo_status onnx_map_scatter(onnx_call *c);
kolo_status onnx_map_gather_places(onnx_call *c);

/* select.c */
kolo_status onnx_map_arg_max(onnx_call *c);
kolo_status onnx_map_hardmax(onnx_call *c);
kolo_status onnx_map_top_k(onnx_call *c);
kolo_status onnx_map_one_hot(onnx_call *c);
kolo_status onnx_map_compress(onnx_call *c);

/* losses.c */
kolo_status onnx_map_loss(onnx_call *c);

/* einsum.c */
kolo_status onnx_map_einsum(onnx_call *c);

/* attention.c */
kolo_status onnx_map_attention(onnx_call *c);

/* rotary.c */
kolo_status onnx_map_rotary(onnx_call *c);

/* layers.c */
kolo_status onnx_map_conv(onnx_call *c);
kolo_status onnx_map_conv_transpose(onnx_call *c);
kolo_status onnx_map_pool(onnx_call *c);
kolo_status onnx_map_global_pool(onnx_call *c);
kolo_status onnx_map_batch_norm(onnx_call *c);
kolo_status onnx_map_layer_norm(onnx_call *c);
kolo_status onnx_map_group_norm(onnx_call *c);
kolo_status onnx_map_lrn(onnx_call *c);

/* conv_forms.c */
kolo_status onnx_map_causal_conv(onnx_call *c);
kolo_status onnx_map_col2im(onnx_call *c);

/* dft.c */
kolo_status onnx_map_dft(onnx_call *c);

/* recurrent.c */
kolo_status onnx_map_recurrent(onnx_call *c);

/* products.c */
kolo_status onnx_map_matmul(onnx_call *c);
kolo_status onnx_map_gemm(onnx_call *c);
kolo_status onnx_map_softmax(onnx_call *c);
/* The axis of a softmax of *x; before opset 13 all dimensions from it on, which become one. */
kolo_status onnx_softmax_axis(onnx_call *c, kolo_value *x, int *axis);
kolo_status onnx_map_cum_sum(onnx_call *c);
kolo_status onnx_map_reduce(onnx_call *c);
/* The axes of a reduction; *n 0: all of them, -1: none. */
kolo_status onnx_reduced_axes(onnx_call *c, int rank, int *axes, int *n);
kolo_status onnx_map_lp_norm(onnx_call *c);
kolo_status onnx_map_mean_variance_norm(onnx_call *c);
