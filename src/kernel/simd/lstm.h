#pragma once
/* LSTM. Parallel over panels of weights (packing, products) or samples. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_lstm_job {
    int64_t samples, length, hidden;
    int64_t step; /* time step t, for products and gates */
    const float *w, *gx, *b, *dh;
    float *gates, *c, *h; /* inputs of the backward pass */
    float *dgx;
    float *packed;  /* w packed in tiles */
    float *product; /* [samples][pitch]: h[t-1] w^T; backward: dgx[t+1] w */
    int64_t pitch;
    float *dc; /* [samples][hidden] */
} kolo_simd_lstm_job;

typedef struct kolo_simd_lstm_table {
    kolo_kernel_loop pack, multiply, gates;             /* forward */
    kolo_kernel_loop pack_bwd, multiply_bwd, gates_bwd; /* backward */
    int64_t tile;                                       /* columns of a register tile */
} kolo_simd_lstm_table;
KOLO_ISA_TABLE(kolo_simd_lstm_table, kolo_simd_lstm);
