#pragma once
/* Attention. Parallel over heads of samples. */

#include "kernel/simd/simd.h"

enum { KOLO_SIMD_QUERIES = 48, KOLO_SIMD_KEYS = 128 }; /* block sizes; keys in whole tiles */

typedef struct kolo_simd_attention_job {
    int64_t heads, channels;       /* over all heads */
    int64_t queries, keys;         /* of a sample, from q and k on */
    int64_t q_rows, kv_rows;       /* rows of a sample in memory */
    int64_t first_head, all_heads; /* the number of head 0, of those of all shards */
    bool causal;
    bool continues;              /* o and lse are those of keys before, to which these are added */
    const float *q, *k;          /* values follow the keys of all heads */
    int64_t q_stride, kv_stride; /* of rows */
    int64_t position, key_position; /* of query 0 and of key 0 */
    int64_t length;                 /* of the sequence */
    const int32_t *mask;            /* may be NULL */
    uint32_t limit;                 /* dropout threshold for 16-bit random numbers; 0: no dropout */
    uint64_t seed, stream;          /* of the random-number stream */
    int64_t first;                  /* index of sample 0 in the global batch */
    const float *d_o, *o, *lse;     /* backward only */
    float *o_out, *lse_out;         /* forward only */
    float *dq, *dk; /* backward only; rows of dq are dq_stride apart, of dk kv_stride */
    int64_t dq_stride;
    bool adds;      /* gradients are added */
    float *scratch; /* of part 0 */
    int64_t part_stride;
} kolo_simd_attention_job;

typedef struct kolo_simd_attention_table {
    kolo_kernel_loop forward, backward;
    int64_t tile; /* columns of a register tile */
} kolo_simd_attention_table;
KOLO_ISA_TABLE(kolo_simd_attention_table, kolo_simd_attention);
