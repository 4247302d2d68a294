#pragma once
/* Attention. Items are heads of samples. */

#include "kernel/simd/simd.h"

enum { KOLO_SIMD_QUERIES = 48, KOLO_SIMD_KEYS = 128 }; /* of a block; keys in whole tiles */

typedef struct kolo_simd_attention_job {
    int64_t heads, length, channels; /* of all heads */
    bool causal;
    const float *qkv;
    const int32_t *mask;        /* or NULL */
    uint32_t limit;             /* draws of 16 bits below it drop a weight; 0: none is dropped */
    uint64_t seed, stream;      /* of the draws */
    int64_t first;              /* sample 0's place in the global batch */
    const float *d_o, *o, *lse; /* backwards */
    float *out, *lse_out;       /* o and lse; dqkv */
    float *scratch;             /* of part 0 */
    int64_t part_stride;
} kolo_simd_attention_job;

typedef struct kolo_simd_attention_table {
    kolo_kernel_loop forward, backward;
    int64_t tile; /* columns of a tile */
} kolo_simd_attention_table;
KOLO_ISA_TABLE(kolo_simd_attention_table, kolo_simd_attention);
