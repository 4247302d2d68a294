#pragma once
/* What the reference kernels share.
 *
 * Each is written once, in double: kolo_ref_run widens f32 and bf16 inputs into scratch memory,
 * runs the body on doubles and rounds its outputs, so that an f32 result is the exact one rounded
 * once, and f64 tensors are used where they lie. Tensors of i32 and u8 pass as they are. Plain
 * layouts only; loops as the formulas are written; one thread. */

#include "kernel/kernel.h"

/* Fits plain f32 or f64 tensors, at a time so long that any other kernel that fits is preferred. */
double kolo_ref_fit(kolo_kernel_spec *spec);
kolo_status kolo_ref_prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes);
/* Runs `body`, which sees doubles in place of floats. */
void kolo_ref_run(const kolo_call *call, void (*body)(const kolo_call *call));

/* The time of reference kernels: a thousandth of what the nominal machine does. */
double kolo_ref_seconds(const kolo_kernel_spec *spec);

/* gelu of one number. */
double kolo_ref_gelu_at(double x, bool by_tanh);

/* A kernel of the usual kind: `run` calls kolo_ref_run with its body. */
#define KOLO_REF_KERNEL(kernel_name, kernel_op, kernel_run)                           \
    {                                                                                 \
        .name = (kernel_name), .op = (kernel_op), .fit = kolo_ref_fit,                \
        .prepare = kolo_ref_prepare, .run = (kernel_run), .release = kolo_ref_release \
    }
/* Nothing was made, nothing is freed. */
void kolo_ref_release(void *state);

extern const kolo_kernel kolo_ref_conv2d, kolo_ref_conv2d_bwd_data, kolo_ref_conv2d_bwd_weights;
extern const kolo_kernel kolo_ref_max_pool2d, kolo_ref_max_pool2d_bwd;
extern const kolo_kernel kolo_ref_avg_pool2d, kolo_ref_avg_pool2d_bwd;
extern const kolo_kernel kolo_ref_adaptive_avg_pool2d, kolo_ref_adaptive_avg_pool2d_bwd;
extern const kolo_kernel kolo_ref_resize, kolo_ref_resize_bwd, kolo_ref_lrn, kolo_ref_lrn_bwd;
extern const kolo_kernel kolo_ref_linear, kolo_ref_linear_bwd_data, kolo_ref_linear_bwd_weights;
extern const kolo_kernel kolo_ref_linear_gelu;
extern const kolo_kernel kolo_ref_bias, kolo_ref_bias_bwd;
extern const kolo_kernel kolo_ref_relu, kolo_ref_relu_bwd, kolo_ref_add;
extern const kolo_kernel kolo_ref_batch_norm, kolo_ref_batch_norm_bwd, kolo_ref_batch_norm_infer;
extern const kolo_kernel kolo_ref_batch_norm_update, kolo_ref_scale;
extern const kolo_kernel kolo_ref_dropout, kolo_ref_concat, kolo_ref_channel_window;
extern const kolo_kernel kolo_ref_softmax_xent, kolo_ref_softmax_xent_bwd, kolo_ref_accuracy;
extern const kolo_kernel kolo_ref_confusion;
extern const kolo_kernel kolo_ref_sgd, kolo_ref_accumulate, kolo_ref_reorder, kolo_ref_convert;
extern const kolo_kernel kolo_ref_gelu, kolo_ref_gelu_bwd, kolo_ref_silu, kolo_ref_silu_bwd;
extern const kolo_kernel kolo_ref_sigmoid, kolo_ref_sigmoid_bwd, kolo_ref_tanh, kolo_ref_tanh_bwd;
extern const kolo_kernel kolo_ref_mul, kolo_ref_matmul;
extern const kolo_kernel kolo_ref_adam, kolo_ref_square_sum, kolo_ref_clip_factor;
extern const kolo_kernel kolo_ref_layer_norm, kolo_ref_layer_norm_bwd;
extern const kolo_kernel kolo_ref_embedding, kolo_ref_embedding_bwd, kolo_ref_position_bwd;
extern const kolo_kernel kolo_ref_embedding_bwd_rows, kolo_ref_merge_rows;
extern const kolo_kernel kolo_ref_sgd_rows, kolo_ref_adam_rows;
extern const kolo_kernel kolo_ref_attention, kolo_ref_attention_bwd, kolo_ref_mask_tokens;
extern const kolo_kernel kolo_ref_lstm, kolo_ref_lstm_bwd, kolo_ref_shift;
