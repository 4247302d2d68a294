#pragma once
/* The reference kernels. */

#include "kernel/kernel.h"

/* One row per kernel, X(name): kolo_ref_<name>, which is called "ref_<name>" in plans. Of kernels
 * with equal estimates the first is selected. */
#define KOLO_REF_KERNELS(X)    \
    X(conv2d)                  \
    X(conv2d_bwd_data)         \
    X(conv2d_bwd_weights)      \
    X(max_pool2d)              \
    X(max_pool2d_bwd)          \
    X(avg_pool2d)              \
    X(avg_pool2d_bwd)          \
    X(adaptive_avg_pool2d)     \
    X(adaptive_avg_pool2d_bwd) \
    X(resize)                  \
    X(resize_bwd)              \
    X(lrn)                     \
    X(lrn_bwd)                 \
    X(linear)                  \
    X(linear_gelu)             \
    X(linear_bwd_data)         \
    X(linear_bwd_weights)      \
    X(bias)                    \
    X(bias_bwd)                \
    X(relu)                    \
    X(relu_bwd)                \
    X(add)                     \
    X(batch_norm)              \
    X(batch_norm_bwd)          \
    X(batch_norm_infer)        \
    X(batch_norm_update)       \
    X(scale)                   \
    X(concat)                  \
    X(channel_window)          \
    X(dropout)                 \
    X(softmax_xent)            \
    X(softmax_xent_bwd)        \
    X(accuracy)                \
    X(gelu)                    \
    X(gelu_bwd)                \
    X(silu)                    \
    X(silu_bwd)                \
    X(sigmoid)                 \
    X(sigmoid_bwd)             \
    X(tanh)                    \
    X(tanh_bwd)                \
    X(mul)                     \
    X(layer_norm)              \
    X(layer_norm_bwd)          \
    X(embedding)               \
    X(embedding_bwd)           \
    X(embedding_bwd_rows)      \
    X(merge_rows)              \
    X(sgd_rows)                \
    X(adam_rows)               \
    X(position_bwd)            \
    X(mask_tokens)             \
    X(attention)               \
    X(attention_bwd)           \
    X(matmul)                  \
    X(lstm)                    \
    X(lstm_bwd)                \
    X(shift)                   \
    X(confusion)               \
    X(sgd)                     \
    X(adam)                    \
    X(square_sum)              \
    X(clip_factor)             \
    X(accumulate)              \
    X(reorder)                 \
    X(convert)

#define KOLO_REF_EXTERN(name) extern const kolo_kernel kolo_ref_##name;
KOLO_REF_KERNELS(KOLO_REF_EXTERN)

/* All of them, NULL-terminated. */
extern const kolo_kernel *const kolo_ref_kernels[];
