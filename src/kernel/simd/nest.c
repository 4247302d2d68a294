/* Loop nests over tensors with strides of their own. */
#include "kernel/simd/nest.h"

/* The block size of a dimension; 1: it has no blocks. */
static int64_t block_of(const kolo_layout *layout, int dim) {
    return layout->n_blocks == 1 && layout->block_dim[0] == dim ? layout->block_size[0] : 1;
}

/* The stride of each dimension, of a blocked one that of its blocks. */
static void strides_of(const kolo_tensor *t, int64_t *stride) {
    int64_t step = t->layout.n_blocks ? t->layout.block_size[0] : 1;
    for (int i = t->layout.rank - 1; i >= 0; i--) {
        int dim = t->layout.order[i];
        stride[dim] = step;
        step *= t->shape.dim[dim] / block_of(&t->layout, dim);
    }
}

/* Sets the size of the blocks along dimension d of the space; false: they do not agree. */
static bool split_of(int64_t size, int d, int n, const kolo_simd_nested *tensors, int64_t *split) {
    *split = 1;
    for (int k = 0; k < n; k++) {
        if (tensors[k].dim[d] < 0) continue;
        int64_t block = block_of(&tensors[k].tensor->layout, tensors[k].dim[d]);
        if (block == 1) continue;
        if ((*split != 1 && *split != block) || size % block != 0) return false;
        *split = block;
    }
    return true;
}

static void swap(int64_t *a, int64_t *b) {
    int64_t c = *a;
    *a = *b;
    *b = c;
}

/* Largest strides of the key first. */
static void sort(kolo_simd_nest *nest, int key) {
    for (int i = 1; i < nest->n_dims; i++) {
        for (int j = i; j > 0 && nest->stride[key][j - 1] < nest->stride[key][j]; j--) {
            swap(&nest->size[j - 1], &nest->size[j]);
            for (int k = 0; k < nest->n_tensors; k++) {
                swap(&nest->stride[k][j - 1], &nest->stride[k][j]);
            }
        }
    }
}

static bool adjacent(const kolo_simd_nest *nest, int outer, int inner) {
    for (int k = 0; k < nest->n_tensors; k++) {
        if (nest->stride[k][outer] != nest->stride[k][inner] * nest->size[inner]) return false;
    }
    return true;
}

static void merge(kolo_simd_nest *nest) {
    int n = 0;
    for (int d = 0; d < nest->n_dims; d++) {
        bool joins = n > 0 && adjacent(nest, n - 1, d);
        if (!joins) n++;
        nest->size[n - 1] = nest->size[d] * (joins ? nest->size[n - 1] : 1);
        for (int k = 0; k < nest->n_tensors; k++) nest->stride[k][n - 1] = nest->stride[k][d];
    }
    nest->n_dims = n;
}

/* Adds a dimension, unless there is nothing to move along it. */
static int64_t *add(kolo_simd_nest *nest, int64_t size) {
    if (size == 1) return NULL;
    nest->size[nest->n_dims] = size;
    return &nest->stride[0][nest->n_dims++];
}

bool kolo_simd_nest_init(kolo_simd_nest *nest, const kolo_shape *space, int key, int n,
                         const kolo_simd_nested *tensors) {
    int64_t strides[KOLO_SIMD_NEST_TENSORS][KOLO_MAX_RANK], split;
    *nest = (kolo_simd_nest){.n_tensors = n};
    for (int k = 0; k < n; k++) {
        const kolo_tensor *t = tensors[k].tensor;
        if (t->layout.n_blocks > 1 || t->layout.rank != t->shape.rank) return false;
        if (kolo_tensor_elements(t) != kolo_shape_count(&t->shape)) return false;
        strides_of(t, strides[k]);
    }
    for (int d = 0; d < space->rank; d++) {
        if (!split_of(space->dim[d], d, n, tensors, &split)) return false;
        int64_t *outer = add(nest, space->dim[d] / split), *inner = add(nest, split);
        for (int k = 0; k < n; k++) {
            int dim = tensors[k].dim[d];
            int64_t stride = dim < 0 ? 0 : strides[k][dim];
            bool blocked = dim >= 0 && block_of(&tensors[k].tensor->layout, dim) > 1;
            if (outer) outer[k * KOLO_SIMD_NEST_DIMS] = blocked ? stride : stride * split;
            if (inner) inner[k * KOLO_SIMD_NEST_DIMS] = blocked ? 1 : stride;
        }
    }
    sort(nest, key);
    merge(nest);
    if (nest->n_dims > 0) return true;
    nest->n_dims = nest->size[0] = nest->stride[key][0] = 1; /* one element */
    return true;
}
