#pragma once
/* The vectorized kernels. */

#include "graph/ops/ops.h"
#include "kernel/kernel.h"

/* One row per kernel, X(name): kolo_simd_<name>, which is called "simd_<name>" in plans. Of kernels
 * with equal estimates the first is selected. */
#define KOLO_SIMD_KERNELS(X)            \
    X(relu)                             \
    X(relu_bwd)                         \
    X(add)                              \
    X(sgd)                              \
    X(delayed_sgd)                      \
    X(adam)                             \
    X(lars)                             \
    X(lamb)                             \
    X(lamb_step)                        \
    X(square_blocks)                    \
    X(square_sum)                       \
    X(clip_factor)                      \
    X(momentum_part)                    \
    X(sum)                              \
    X(rotary)                           \
    X(causal_mask)                      \
    X(permute)                          \
    X(flip)                             \
    X(softmax)                          \
    X(softmax_bwd)                      \
    X(reduce_max)                       \
    X(sum_bwd)                          \
    X(accumulate)                       \
    X(bias)                             \
    X(bias_bwd)                         \
    X(softmax_xent)                     \
    X(softmax_xent_bwd)                 \
    X(class_max)                        \
    X(class_sums)                       \
    X(class_sums_bwd)                   \
    X(ctc_loss)                         \
    X(ctc_loss_bwd)                     \
    X(elementwise_loss)                 \
    X(elementwise_loss_bwd)             \
    X(accuracy)                         \
    X(confusion)                        \
    X(score_counts)                     \
    X(max_pool2d)                       \
    X(max_pool2d_bwd)                   \
    X(avg_pool2d)                       \
    X(avg_pool2d_bwd)                   \
    X(adaptive_avg_pool2d)              \
    X(adaptive_avg_pool2d_bwd)          \
    X(resize)                           \
    X(resize_bwd)                       \
    X(grid_sample)                      \
    X(grid_sample_bwd)                  \
    X(lrn)                              \
    X(lrn_bwd)                          \
    X(batch_norm)                       \
    X(batch_norm_bwd)                   \
    X(batch_norm_infer)                 \
    X(batch_norm_update)                \
    X(sync_norm_sums)                   \
    X(sync_norm)                        \
    X(sync_norm_bwd_sums)               \
    X(sync_norm_bwd_data)               \
    X(sync_norm_statistics)             \
    X(scale)                            \
    X(concat)                           \
    X(window)                           \
    X(deinterleave)                     \
    X(interleave)                       \
    X(dropout)                          \
    X(conv2d)                           \
    X(conv2d_bwd_data)                  \
    X(conv2d_bwd_weights)               \
    X(wino)                             \
    X(wino_bwd_data)                    \
    X(wino_bwd_weights)                 \
    X(linear)                           \
    X(linear_bwd_data)                  \
    X(linear_bwd_weights)               \
    X(linear_many)                      \
    X(linear_gelu_many)                 \
    X(linear_bwd_data_many)             \
    X(reorder)                          \
    X(convert)                          \
    X(gelu)                             \
    X(gelu_bwd)                         \
    X(linear_gelu)                      \
    KOLO_BINARY_LIST(KOLO_BINARY_OP, X) \
    KOLO_UNARY_LIST(KOLO_UNARY_OP, X)   \
    X(mul)                              \
    X(layer_norm)                       \
    X(layer_norm_bwd)                   \
    X(rms_norm)                         \
    X(rms_norm_bwd)                     \
    X(group_norm)                       \
    X(group_norm_bwd)                   \
    X(embedding)                        \
    X(embedding_bwd)                    \
    X(embedding_bwd_rows)               \
    X(merge_rows)                       \
    X(sgd_rows)                         \
    X(adam_rows)                        \
    X(position_bwd)                     \
    X(mask_tokens)                      \
    X(attention)                        \
    X(attention_bwd)                    \
    X(attention_block)                  \
    X(attention_block_bwd)              \
    X(expert_route)                     \
    X(expert_dispatch)                  \
    X(expert_combine)                   \
    X(expert_products)                  \
    X(cache_write)                      \
    X(cached_attention)                 \
    X(lstm)                             \
    X(lstm_bwd)                         \
    X(lstm_cell)                        \
    X(lstm_cell_bwd)                    \
    X(gru)                              \
    X(gru_bwd)                          \
    X(shift)

#define KOLO_SIMD_EXTERN(name) extern const kolo_kernel kolo_simd_##name;
KOLO_SIMD_KERNELS(KOLO_SIMD_EXTERN)
