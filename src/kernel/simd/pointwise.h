#pragma once
/* Element-wise kernels, updates, conversions and bias. Parallel over elements unless noted
 * otherwise. */

#include "kernel/simd/simd.h"

typedef struct kolo_simd_pair_job { /* relu, relu_bwd, add */
    const void *a, *b, *c;          /* relu_bwd: dy, y, dy2 or NULL */
    void *out;
    bool bf16; /* all are bf16 */
} kolo_simd_pair_job;

/* A gradient: the sum of n of these, at least one. */
typedef struct kolo_simd_summands {
    const void *const *from;
    int n;
} kolo_simd_summands;

/* Input k of a call, or the summands that are given in its place. */
static inline kolo_simd_summands kolo_simd_gradient(const kolo_call *call, int k) {
    if (call->summands) return (kolo_simd_summands){call->summands, call->n_summands};
    return (kolo_simd_summands){(const void *const *)&call->in[k], 1};
}

typedef struct kolo_simd_sgd_job {
    const float *w, *v;
    kolo_simd_summands g;
    float *w_next, *v_next;
    float lr, momentum, weight_decay;
    bool nesterov;
    /* Written with non-temporal stores: 64-byte aligned, and not in place of the input. */
    bool streams_w, streams_v;
} kolo_simd_sgd_job;

typedef struct kolo_simd_delayed_sgd_job {
    const float *w, *g, *v, *s;
    float *w_next, *v_next, *s_next;
    float lr, momentum, weight_decay;
    float share, ahead; /* factors of the gradient and of the velocity in the step */
    bool due;           /* this update changes the velocity */
} kolo_simd_delayed_sgd_job;

typedef struct kolo_simd_convert_job {
    const void *from;
    void *to;
} kolo_simd_convert_job;

typedef struct kolo_simd_accumulate_job {
    const float *x;
    float *sum;
    float keep;
    bool fresh;
} kolo_simd_accumulate_job;

typedef struct kolo_simd_adam_job {
    const float *w, *m, *v;
    kolo_simd_summands g;
    float *w_next, *m_next, *v_next;
    float beta1, beta2, eps;
    float keep;   /* factor of w; below 1 with decoupled weight decay */
    float decay;  /* multiple of w added to g (coupled weight decay) */
    float step;   /* lr / (1 - beta1^update) */
    float narrow; /* 1 / sqrt(1 - beta2^update) */
    bool frozen;  /* g is m', and v' is v */
} kolo_simd_adam_job;

typedef struct kolo_simd_momentum_job {
    const float *g, *m, *w; /* w NULL: without it */
    float *part;
    float of_momentum, of_gradient, of_weight;
} kolo_simd_momentum_job;

typedef struct kolo_simd_lars_job {
    const float *w, *g, *v;
    float *w_next, *v_next;
    float momentum, decay, rate;
} kolo_simd_lars_job;

typedef struct kolo_simd_lamb_job {
    const float *w, *g, *m, *v;
    float *m_next, *v_next, *u;
    float beta1, beta2, eps, decay;
    float widen;  /* 1 / (1 - beta1^update) */
    float narrow; /* 1 / sqrt(1 - beta2^update) */
} kolo_simd_lamb_job;

/* square_blocks, sum: parallel over blocks of KOLO_SQUARE_BLOCK elements. */
typedef struct kolo_simd_block_job {
    const float *x;
    int64_t count;
    float *sums; /* per block */
    /* square_blocks: where element i in row-major order is, at rows[i / width] + columns[i % width]
     * of x; NULL: at i. */
    const int64_t *rows;
    const int32_t *columns;
    int64_t width;
} kolo_simd_block_job;

typedef struct kolo_simd_fill_job {
    float number;
    float *to;
} kolo_simd_fill_job;

typedef struct kolo_simd_bias_job { /* parallel over planes of all images; bias_bwd: over slices
                                     * of channels */
    kolo_simd_image image;
    const void *x; /* bias_bwd: dy */
    const float *b;
    void *out; /* bias: y; bias_bwd: db, which is f32 */
    bool bf16; /* x, dy and y are bf16 */
} kolo_simd_bias_job;

/* Channels per slice of bias_bwd. */
enum { KOLO_SIMD_SLICE = 64 };
static inline int64_t kolo_simd_slices(const kolo_simd_image *v) {
    return v->planes * ((v->inner + KOLO_SIMD_SLICE - 1) / KOLO_SIMD_SLICE);
}

typedef struct kolo_simd_point_table {
    kolo_kernel_loop relu, relu_bwd, add, add_relu, sgd, sgd_plain, delayed_sgd, adam, lars, lamb,
        square_blocks, accumulate, momentum_part;
    kolo_kernel_loop sum, fill;
    kolo_kernel_loop bias, bias_bwd;
    kolo_kernel_loop widen, narrow; /* bf16 to f32 and back */
} kolo_simd_point_table;
KOLO_ISA_TABLE(kolo_simd_point_table, kolo_simd_point);
