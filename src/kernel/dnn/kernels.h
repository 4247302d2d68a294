#pragma once
/* The oneDNN kernels. Needs no header of oneDNN. There are none for pooling, element-wise ops and
 * losses: oneDNN is no faster than plain loops there (and its pooling is many times slower on some
 * processors). */

#include "kernel/kernel.h"

/* One row per kernel, X(name): kolo_dnn_<name>, which is called "dnn_<name>" in plans. Of kernels
 * with equal estimates the first is selected. */
#define KOLO_DNN_KERNELS(X)  \
    X(conv2d)                \
    X(conv2d_bwd_data)       \
    X(conv2d_bwd_weights)    \
    X(wino)                  \
    X(wino_bwd_data)         \
    X(wino_bwd_weights)      \
    X(linear)                \
    X(linear_bwd_data)       \
    X(linear_bwd_weights)    \
    X(reorder)               \
    X(matmul)                \
    X(conv2d_split)          \
    X(conv2d_bwd_data_split) \
    X(linear_split)          \
    X(linear_bwd_data_split) \
    X(matmul_split)

#define KOLO_DNN_EXTERN(name) extern const kolo_kernel kolo_dnn_##name;
KOLO_DNN_KERNELS(KOLO_DNN_EXTERN)

/* The version of the library: major, minor, patch. */
void kolo_dnn_version(int version[3]);
/* Whether oneDNN multiplies bf16 with instructions of this processor: AVX512-BF16, AMX. */
bool kolo_dnn_has_bf16(void);
