#pragma once
/* The loops of the codecs, one table per instruction set; every table gives the same bits. */

#include "base/isa.h"
#include "kolo/codec.h"

enum {
    KOLO_CODEC_BLOCK = 2048, /* elements that are encoded together; a multiple of the next */
    KOLO_INT8_BLOCK = 256,   /* elements with one scale */
    KOLO_CODEC_HEADS = KOLO_CODEC_BLOCK / KOLO_INT8_BLOCK, /* most head floats of a block */
    KOLO_CODEC_PAD = KOLO_INT8_BLOCK,
};

/* A codec that works block by block: its code is `head` floats for each `head_block` elements, then
 * a body of `body_bits` bits per element. `n` is a multiple of KOLO_CODEC_PAD, at most a block; the
 * elements from `valid` on are padding. */
typedef struct kolo_block_kernels {
    /* v: in, the values; out, what the code does not hold. Body: n elements. */
    void (*encode)(float *v, size_t n, size_t valid, float head[KOLO_CODEC_HEADS], void *body);
    void (*decode)(float *v, size_t n, const float head[KOLO_CODEC_HEADS], const void *body);
} kolo_block_kernels;

typedef struct kolo_codec_table {
    kolo_block_kernels block[KOLO_CODEC_COUNT]; /* NULL for those that are not of this kind */
    /* v[i] = values[i] + residual[i]; v may be residual. sum[i] += scale * v[i]. */
    void (*add)(float *v, const float *values, const float *residual, size_t n);
    void (*add_scaled)(float *sum, const float *v, float scale, size_t n);
    /* Writes indices and values of the k elements of v of the largest magnitude, k <= n. */
    void (*top)(const float *v, size_t n, size_t k, void *indices, void *values);
} kolo_codec_table;
KOLO_ISA_TABLE(kolo_codec_table, kolo_codec);

KOLO_SHARED const kolo_codec_table *kolo_codec_best(void);
/* NULL when this processor lacks it. */
KOLO_SHARED const kolo_codec_table *kolo_codec_of(kolo_isa isa);

/* kolo_codec_encode and kolo_codec_add with the loops of one set, sizes checked already. */
KOLO_SHARED void kolo_codec_encode_with(const kolo_codec_table *table, const kolo_codec *codec,
                                        const float *values, size_t count, float *residual,
                                        void *code);
KOLO_SHARED void kolo_codec_add_with(const kolo_codec_table *table, const kolo_codec *codec,
                                     const void *code, float *sum, size_t count, float scale);

/* Elements that a top-k code holds. */
KOLO_SHARED size_t kolo_codec_kept(const kolo_codec *codec, size_t count);

#ifdef KOLO_ISA
/* kolo_codec_table.top of this copy: topk.isa.c. */
void KOLO_ISA_SYMBOL(kolo_top)(const float *v, size_t n, size_t k, void *indices, void *values);
#endif
