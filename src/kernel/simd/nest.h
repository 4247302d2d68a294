#pragma once
/* Loop nests over several tensors with strides of their own: broadcasting, reductions,
 * permutations.
 *
 * A nest has the dimensions of a logical space, in the order in which they lie in one of the
 * tensors, the key, and as few as possible: dimensions that are adjacent in all tensors are merged.
 * A blocked dimension becomes two. Along the innermost dimension the key has stride 1. */

#include "kernel/simd/simd.h"

enum { KOLO_SIMD_NEST_DIMS = 2 * KOLO_MAX_RANK, KOLO_SIMD_NEST_TENSORS = 3 };

typedef struct kolo_simd_nest {
    int n_dims, n_tensors;
    int64_t size[KOLO_SIMD_NEST_DIMS];
    int64_t stride[KOLO_SIMD_NEST_TENSORS][KOLO_SIMD_NEST_DIMS]; /* in elements; 0: does not move */
} kolo_simd_nest;

/* A tensor of a nest: dim[d] is its dimension along dimension d of the space; -1: it has none. */
typedef struct kolo_simd_nested {
    const kolo_tensor *tensor;
    int dim[KOLO_MAX_RANK];
} kolo_simd_nested;

/* False: a layout with padding, or blocks that do not agree. */
bool kolo_simd_nest_init(kolo_simd_nest *nest, const kolo_shape *space, int key, int n,
                         const kolo_simd_nested *tensors);

/* The number of positions of dimensions [0, n_dims). */
static inline int64_t kolo_simd_nest_rows(const kolo_simd_nest *nest, int n_dims) {
    int64_t rows = 1;
    for (int d = 0; d < n_dims; d++) rows *= nest->size[d];
    return rows;
}

/* A position of the first n_dims dimensions, with the offset of each tensor there. */
typedef struct kolo_simd_cursor {
    int64_t at[KOLO_SIMD_NEST_DIMS], offset[KOLO_SIMD_NEST_TENSORS];
} kolo_simd_cursor;

static inline void kolo_simd_nest_seek(const kolo_simd_nest *nest, int n_dims, int64_t row,
                                       kolo_simd_cursor *cursor) {
    *cursor = (kolo_simd_cursor){0};
    for (int d = n_dims - 1; d >= 0; d--) {
        cursor->at[d] = row % nest->size[d];
        row /= nest->size[d];
        for (int k = 0; k < nest->n_tensors; k++) {
            cursor->offset[k] += cursor->at[d] * nest->stride[k][d];
        }
    }
}

/* Moves to the next row; after the last one, to the first. */
static inline void kolo_simd_nest_next(const kolo_simd_nest *nest, int n_dims,
                                       kolo_simd_cursor *cursor) {
    for (int d = n_dims - 1; d >= 0; d--) {
        bool more = ++cursor->at[d] < nest->size[d];
        for (int k = 0; k < nest->n_tensors; k++) {
            cursor->offset[k] += nest->stride[k][d] * (more ? 1 : 1 - nest->size[d]);
        }
        if (more) return;
        cursor->at[d] = 0;
    }
}
