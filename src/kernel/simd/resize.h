#pragma once
/* Bilinear resizing. Items are planes of all images. */

#include "kernel/simd/simd.h"

/* Between which two rows (columns) one of the large image lies: part of the way from low to high.
 */
typedef struct kolo_simd_between {
    int32_t low, high;
    float part;
} kolo_simd_between;

typedef struct kolo_simd_resize_job {
    kolo_simd_image x, y;
    const kolo_simd_between *rows, *columns; /* of y */
    const void *in;                          /* x; backwards: dy */
    void *out;                               /* y; backwards: dx */
    bool half;                               /* both are bf16 */
    float *scratch; /* for each part: a row of x; backwards with half then a plane of it */
    int64_t part_stride;
} kolo_simd_resize_job;

typedef struct kolo_simd_resize_table {
    kolo_kernel_loop forward, backward;
} kolo_simd_resize_table;
KOLO_ISA_TABLE(kolo_simd_resize_table, kolo_simd_resize);
