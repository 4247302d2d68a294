/* Translates layouts between Kolo and oneDNN.
 *
 * Both describe outer strides and inner blocks, so the translation is exact. oneDNN stores
 * strides, kolo_layout an order of dimensions; the order of dimensions of size one is then
 * arbitrary and is chosen such that common layouts get their common names. oneDNN gives grouped
 * weights a separate group dimension. kolo_layout can express this when group and O/G are
 * adjacent in memory and no block of O crosses a group boundary. */
#include "base/integer.h"
#include "kernel/dnn/dnn.h"

#include <string.h>

/* The product of the block sizes of `dim`. */
static int64_t layout_block(const kolo_layout *layout, int dim) {
    int64_t block = 1;
    for (int i = 0; i < layout->n_blocks; i++) {
        if (layout->block_dim[i] == dim) block *= layout->block_size[i];
    }
    return block;
}

bool kolo_dnn_desc(const kolo_tensor *tensor, int64_t groups, dnnl_memory_desc_t *desc) {
    const kolo_layout *layout = &tensor->layout;
    const kolo_shape *shape = &tensor->shape;
    int rank = shape->rank, extra = groups > 1;
    bool bf16 = tensor->dtype == KOLO_DTYPE_BF16;
    if (!bf16 && tensor->dtype != KOLO_DTYPE_F32) return false;
    if (rank == 0 || layout->rank != rank) return false;
    dnnl_memory_desc_t d = {.ndims = rank + extra,
                            .data_type = bf16 ? dnnl_bf16 : dnnl_f32,
                            .format_kind = dnnl_blocked};
    dnnl_blocking_desc_t *blocking = &d.format_desc.blocking;
    int64_t stride = 1;
    blocking->inner_nblks = layout->n_blocks;
    for (int i = 0; i < layout->n_blocks; i++) {
        blocking->inner_blks[i] = layout->block_size[i];
        blocking->inner_idxs[i] = layout->block_dim[i] + extra;
        stride *= layout->block_size[i];
    }
    for (int i = rank - 1; i >= 0; i--) {
        int dim = layout->order[i];
        d.dims[dim + extra] = shape->dim[dim];
        d.padded_dims[dim + extra] = kolo_layout_padded(layout, shape, dim);
        blocking->strides[dim + extra] = stride;
        stride *= d.padded_dims[dim + extra] / layout_block(layout, dim);
    }
    if (extra) { /* O is split into G, O/G */
        int64_t block = layout_block(layout, 0), per_group = shape->dim[0] / groups;
        if (per_group % block == 0) {
            d.dims[0] = d.padded_dims[0] = groups;
            d.dims[1] = d.padded_dims[1] = per_group;
            blocking->strides[0] = blocking->strides[1] * (per_group / block);
        } else if (per_group == 1) { /* depthwise: the blocks are over groups */
            d.dims[0] = d.dims[1];
            d.padded_dims[0] = d.padded_dims[1];
            blocking->strides[0] = blocking->strides[1];
            d.dims[1] = d.padded_dims[1] = 1;
            for (int i = 0; i < layout->n_blocks; i++) {
                if (blocking->inner_idxs[i] == 1) blocking->inner_idxs[i] = 0;
            }
        } else {
            return false;
        }
    }
    *desc = d;
    return true;
}

/* Merges dimensions 0 and 1, group and O/G; false when they are not adjacent in memory. */
static bool join_groups(dnnl_memory_desc_t *d) {
    dnnl_blocking_desc_t *blocking = &d->format_desc.blocking;
    int64_t block = 1;
    bool of_groups = false;
    for (int i = 0; i < blocking->inner_nblks; i++) {
        if (blocking->inner_idxs[i] == 0) of_groups = true;
        if (blocking->inner_idxs[i] == 1) block *= blocking->inner_blks[i];
    }
    int64_t groups = d->dims[0], per_group = d->dims[1];
    if (per_group == 1 && block == 1) {
        blocking->strides[1] = blocking->strides[0];
        d->padded_dims[1] = d->padded_dims[0];
    } else {
        if (of_groups || per_group % block) return false;
        if (blocking->strides[0] != blocking->strides[1] * (per_group / block)) return false;
        d->padded_dims[1] = groups * per_group;
    }
    d->dims[1] = groups * per_group;
    d->ndims--;
    for (int i = 0; i < d->ndims; i++) {
        d->dims[i] = d->dims[i + 1];
        d->padded_dims[i] = d->padded_dims[i + 1];
        d->padded_offsets[i] = d->padded_offsets[i + 1];
        blocking->strides[i] = blocking->strides[i + 1];
    }
    for (int i = 0; i < blocking->inner_nblks; i++) {
        if (blocking->inner_idxs[i] > 0) blocking->inner_idxs[i]--;
    }
    return true;
}

/* Sets the outer order by descending stride. Of dimensions with equal strides all but one have
 * size one; that one comes first. */
static void sort_order(const int64_t *strides, const int64_t *outer, int rank, uint8_t *order) {
    for (int i = 0; i < rank; i++) order[i] = (uint8_t)i;
    for (int i = 1; i < rank; i++) {
        for (int j = i; j > 0; j--) {
            int a = order[j - 1], b = order[j];
            bool swap = strides[b] > strides[a] ||
                        (strides[b] == strides[a] && outer[b] > 1 && outer[a] == 1);
            if (!swap) break;
            order[j - 1] = (uint8_t)b;
            order[j] = (uint8_t)a;
        }
    }
}

bool kolo_dnn_layout(const dnnl_memory_desc_t *desc, int64_t groups, kolo_layout *layout) {
    dnnl_memory_desc_t d = *desc;
    const dnnl_blocking_desc_t *blocking = &d.format_desc.blocking;
    if (d.format_kind != dnnl_blocked || d.extra.flags != dnnl_memory_extra_flag_none ||
        d.offset0 != 0 || blocking->inner_nblks > KOLO_MAX_BLOCKS) {
        return false;
    }
    if (groups > 1 && !join_groups(&d)) return false;
    if (d.ndims > KOLO_MAX_RANK) return false;
    kolo_layout l = {.rank = (uint8_t)d.ndims, .n_blocks = (uint8_t)blocking->inner_nblks};
    int64_t stride = 1, outer[KOLO_MAX_RANK] = {0};
    for (int i = 0; i < l.n_blocks; i++) {
        if (blocking->inner_blks[i] > UINT8_MAX) return false;
        l.block_dim[i] = (uint8_t)blocking->inner_idxs[i];
        l.block_size[i] = (uint8_t)blocking->inner_blks[i];
        stride *= l.block_size[i];
    }
    for (int i = 0; i < d.ndims; i++) {
        int64_t block = layout_block(&l, i);
        if (d.padded_offsets[i] != 0 ||
            d.padded_dims[i] != (int64_t)kolo_round_up((size_t)d.dims[i], (size_t)block)) {
            return false;
        }
        outer[i] = d.padded_dims[i] / block;
    }
    sort_order(blocking->strides, outer, d.ndims, l.order);
    for (int i = d.ndims - 1; i >= 0; i--) {
        int dim = l.order[i];
        if (outer[dim] > 1 && blocking->strides[dim] != stride) return false;
        stride *= outer[dim];
    }
    *layout = l;
    return true;
}

/* The outer order without dimensions of size one. Returns their number. */
static int real_order(const kolo_tensor *t, uint8_t *order) {
    int n = 0;
    for (int i = 0; i < t->layout.rank; i++) {
        int dim = t->layout.order[i];
        int64_t outer =
            kolo_layout_padded(&t->layout, &t->shape, dim) / layout_block(&t->layout, dim);
        if (outer > 1) order[n++] = (uint8_t)dim;
    }
    return n;
}

bool kolo_dnn_same_memory(const kolo_tensor *a, const kolo_tensor *b) {
    const kolo_layout *la = &a->layout, *lb = &b->layout;
    if (a->dtype != b->dtype || la->rank != lb->rank || la->n_blocks != lb->n_blocks) return false;
    for (int i = 0; i < la->rank; i++) {
        if (kolo_layout_padded(la, &a->shape, i) != kolo_layout_padded(lb, &b->shape, i)) {
            return false;
        }
    }
    uint8_t order_a[KOLO_MAX_RANK], order_b[KOLO_MAX_RANK];
    int n = real_order(a, order_a);
    return n == real_order(b, order_b) && memcmp(order_a, order_b, (size_t)n) == 0 &&
           memcmp(la->block_dim, lb->block_dim, la->n_blocks) == 0 &&
           memcmp(la->block_size, lb->block_size, la->n_blocks) == 0;
}

kolo_tensor kolo_dnn_pad(const kolo_tensor *tensor, int dim) {
    kolo_tensor padded = *tensor;
    padded.shape.dim[dim] = kolo_layout_padded(&tensor->layout, &tensor->shape, dim);
    return padded;
}
