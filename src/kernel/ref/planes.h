#pragma once
/* Tensors [N,C,...] by channel, for the reference kernels of batch normalizations. */

#include "kernel/ref/ref.h"

/* Channel c of image n starts at (n * C + c) * plane. */
typedef struct kolo_ref_planes {
    int64_t n, c, plane;
} kolo_ref_planes;

static inline kolo_ref_planes kolo_ref_planes_of(const kolo_tensor *t) {
    kolo_ref_planes p = {.n = t->shape.dim[0], .c = t->shape.dim[1]};
    p.plane = kolo_shape_count(&t->shape) / (p.n * p.c);
    return p;
}
