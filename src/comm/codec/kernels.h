#pragma once
/* The loops of the codecs: one table per instruction set, all with bitwise equal results. */

#include "base/isa.h"
#include "kolo/codec.h"

enum {
    KOLO_CODEC_BLOCK = 2048, /* elements per block; a multiple of KOLO_INT8_BLOCK */
    KOLO_INT8_BLOCK = 256,   /* elements per scale */
    KOLO_CODEC_HEADS = KOLO_CODEC_BLOCK / KOLO_INT8_BLOCK, /* maximum number of head floats per
                                                            * block */
    KOLO_CODEC_PAD = KOLO_INT8_BLOCK,
};

/* A block codec: its code is `head` floats per `head_block` elements, then a body of `body_bits`
 * bits per element. `n` is a multiple of KOLO_CODEC_PAD, at most a block; elements from `valid`
 * on are padding. */
typedef struct kolo_block_kernels {
    /* v: in: the values; out: the residual. Body: n elements. */
    void (*encode)(float *v, size_t n, size_t valid, float head[KOLO_CODEC_HEADS], void *body);
    void (*decode)(float *v, size_t n, const float head[KOLO_CODEC_HEADS], const void *body);
} kolo_block_kernels;

typedef struct kolo_codec_table {
    kolo_block_kernels block[KOLO_CODEC_COUNT]; /* NULL for codecs that are not block codecs */
    /* v[i] = values[i] + residual[i]; v may be residual. sum[i] += scale * v[i]. */
    void (*add)(float *v, const float *values, const float *residual, size_t n);
    void (*add_scaled)(float *sum, const float *v, float scale, size_t n);
    /* Writes indices and values of the k elements of v with the largest magnitude, k <= n. */
    void (*top)(const float *v, size_t n, size_t k, void *indices, void *values);
} kolo_codec_table;
KOLO_ISA_TABLE(kolo_codec_table, kolo_codec);

KOLO_SHARED const kolo_codec_table *kolo_codec_best(void);
/* NULL when the processor or the build lacks the instruction set. */
KOLO_SHARED const kolo_codec_table *kolo_codec_of(kolo_isa isa);

/* kolo_codec_encode and kolo_codec_add with a given table, without argument checks. */
KOLO_SHARED void kolo_codec_encode_with(const kolo_codec_table *table, const kolo_codec *codec,
                                        const float *values, size_t count, float *residual,
                                        void *code);
KOLO_SHARED void kolo_codec_add_with(const kolo_codec_table *table, const kolo_codec *codec,
                                     const void *code, float *sum, size_t count, float scale);

/* The number of elements in a top-k code. */
KOLO_SHARED size_t kolo_codec_kept(const kolo_codec *codec, size_t count);

#ifdef KOLO_ISA
/* kolo_codec_table.top of this copy: topk.isa.c. */
void KOLO_ISA_SYMBOL(kolo_top)(const float *v, size_t n, size_t k, void *indices, void *values);
#endif
