#pragma once
/* Bilinear resizing. Parallel over planes of all images. */

#include "kernel/simd/simd.h"

/* Interpolation along one axis: the two rows (columns) of the input that an output row (column)
 * lies between, and the weight of the second. */
typedef struct kolo_simd_between {
    int32_t low, high;
    float part;
} kolo_simd_between;

typedef struct kolo_simd_resize_job {
    kolo_simd_image x, y;
    const kolo_simd_between *rows, *columns; /* of y */
    const void *in;                          /* x; backward: dy */
    void *out;                               /* y; backward: dx */
    bool bf16;                               /* both are bf16 */
    float *scratch; /* per part: a row of x; backward in bf16: then a plane of dx in f32 */
    int64_t part_stride;
} kolo_simd_resize_job;

typedef struct kolo_simd_resize_table {
    kolo_kernel_loop forward, backward;
} kolo_simd_resize_table;
KOLO_ISA_TABLE(kolo_simd_resize_table, kolo_simd_resize);
