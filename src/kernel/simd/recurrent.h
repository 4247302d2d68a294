#pragma once
/* LSTM and GRU. Parallel over panels of weights (packing, products) or samples. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_recurrent_job {
    int64_t samples, length, hidden;
    int64_t n_gates; /* 4 or 3 */
    int64_t step;    /* time step t, for products and gates; -1 of a product: before the first */
    int64_t kept;    /* time steps of gates, c, h, q and what is computed from them: length, or 1 */
    bool follows;    /* gates: `product` is h[t-1] w^T; their gradients: a later step has set
                        `product` and `carry` */
    const float *w, *gx, *b, *dh;
    const float *h0, *c0;     /* [samples][hidden] before the first step; NULL: zero */
    float *gates, *c, *h, *q; /* inputs of the backward pass; q: gru */
    float *dgx;
    float *dgh;     /* of w h[t-1] + b: of lstm dgx */
    float *packed;  /* w packed in tiles */
    float *product; /* [samples][pitch]: h[t-1] w^T; backward: dgh[t+1] w */
    int64_t pitch;
    float *carry; /* [samples][hidden], from the following step: lstm of c, gru the rest of h */
} kolo_simd_recurrent_job;

/* Of one kind of layer. */
typedef struct kolo_simd_recurrent_loops {
    kolo_kernel_loop gates, gates_bwd;
} kolo_simd_recurrent_loops;

typedef struct kolo_simd_recurrent_table {
    kolo_kernel_loop pack, multiply;         /* forward */
    kolo_kernel_loop pack_bwd, multiply_bwd; /* backward */
    kolo_simd_recurrent_loops lstm, gru;
    int64_t tile; /* columns of a register tile */
} kolo_simd_recurrent_table;
KOLO_ISA_TABLE(kolo_simd_recurrent_table, kolo_simd_recurrent);
