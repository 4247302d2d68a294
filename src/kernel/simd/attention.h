#pragma once
/* Attention. Parallel over heads of samples. */

#include "kernel/simd/simd.h"

enum { KOLO_SIMD_QUERIES = 48, KOLO_SIMD_KEYS = 128 }; /* block sizes; keys in whole tiles */

typedef struct kolo_simd_attention_job {
    int64_t heads, length, channels; /* over all heads */
    int64_t first_head, all_heads;   /* the number of head 0, of those of all shards */
    bool causal;
    const float *qkv;
    const int32_t *mask;        /* may be NULL */
    uint32_t limit;             /* dropout threshold for 16-bit random numbers; 0: no dropout */
    uint64_t seed, stream;      /* of the random-number stream */
    int64_t first;              /* index of sample 0 in the global batch */
    const float *d_o, *o, *lse; /* backward only */
    float *out, *lse_out;       /* o and lse; dqkv */
    float *scratch;             /* of part 0 */
    int64_t part_stride;
} kolo_simd_attention_job;

typedef struct kolo_simd_attention_table {
    kolo_kernel_loop forward, backward;
    int64_t tile; /* columns of a register tile */
} kolo_simd_attention_table;
KOLO_ISA_TABLE(kolo_simd_attention_table, kolo_simd_attention);
