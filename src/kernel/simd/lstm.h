#pragma once
/* LSTM. Items are panels of weights (packing, products) or samples. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_lstm_job {
    int64_t samples, length, hidden;
    int64_t step; /* t, of the product and the pointwise loops */
    const float *w, *gx, *b, *dh;
    float *gates, *c, *h; /* backwards read */
    float *dgx;
    float *packed;  /* w in tiles */
    float *product; /* [samples][pitch]: h[t-1] w^T, backwards dgx[t+1] w */
    int64_t pitch;
    float *dc; /* [samples][hidden] */
} kolo_simd_lstm_job;

typedef struct kolo_simd_lstm_table {
    kolo_kernel_loop pack, multiply, gates;             /* forwards */
    kolo_kernel_loop pack_bwd, multiply_bwd, gates_bwd; /* backwards */
    int64_t tile;                                       /* columns of a tile */
} kolo_simd_lstm_table;
KOLO_ISA_TABLE(kolo_simd_lstm_table, kolo_simd_lstm);
