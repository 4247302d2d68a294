#pragma once
/* Kernels on rows of channels, one per token: embeddings, row-sparse updates. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_embedding_job { /* parallel over tokens; embedding_bwd: slices of channels;
                                          * position_bwd: positions */
    int64_t tokens, length, channels;
    int64_t rows;       /* of the table; position_bwd: of the gradient */
    int64_t first;      /* the id of row 0; position_bwd: the position of the first token */
    int64_t half, jump; /* tokens from `half` on are `jump` positions further */
    const int32_t *ids;
    const float *table, *positions, *dy;
    float *out; /* y; the gradient */
} kolo_simd_embedding_job;

typedef struct kolo_simd_rows_job { /* parallel over rows */
    int64_t channels;
    const int32_t *ids;           /* negative: no row */
    const int32_t *order, *first; /* sum: rows of x sorted by id, and the start of each id's run */
    const float *x;               /* rows to sum; rows of the gradient */
    float lr;                     /* sgd: learning rate; adam: with bias correction */
    float beta1, beta2, eps;      /* adam */
    float *out, *mean, *square;   /* sums; the table and its moments */
} kolo_simd_rows_job;

typedef struct kolo_simd_token_table {
    kolo_kernel_loop sum_rows, sgd_rows, adam_rows;
    kolo_kernel_loop embedding, embedding_bwd, position_bwd;
} kolo_simd_token_table;
KOLO_ISA_TABLE(kolo_simd_token_table, kolo_simd_token);
