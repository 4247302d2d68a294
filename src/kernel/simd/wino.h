#pragma once
/* Convolution 3 x 3 by Winograd's F(4x4, 3x3). */

#include "kernel/simd/simd.h"

/* `x` is the image that is read through windows, `y` the one of tiles: x and y forwards and for the
 * weights' gradient, dy and dx for the data's (a convolution by filters turned round). A filter
 * multiplies channel `row` of x into lane `lane` of y; its tap i (kh * 3 + kw) lies at row_at[row]
 * + lane_at[lane] + tap_at[i] of the weights. Transformed filters are [36][panels of y][rows][P], P
 * being two vectors; windows and tiles [36][panels][block][P]; strides are those between the
 * points.
 */
/* Rows and columns of the window that a tile comes from. */
enum { KOLO_SIMD_WINO_WINDOW = 6 };

typedef struct kolo_simd_wino_job {
    kolo_simd_image x, y;
    int64_t pad_h, pad_w;
    int tile;                 /* its rows and columns: 4 of 3 taps, 2 of 5 */
    int64_t tiles_h, tiles_w; /* of an image */
    int64_t block;            /* tiles that are worked on at a time */
    int64_t first, count;     /* read_block, multiply_block: the tiles of the block */
    int64_t rows, lanes, panels;
    int64_t x_stride, y_stride, filter_stride, part_stride;
    bool relu;
    const int32_t *row_at, *lane_at, *tap_at;
    const float *in_x, *in_y; /* in_y: weights' gradient only */
    const float *weights;
    const float *bias; /* panels * P floats */
    float *filters;    /* transformed */
    float *scratch;    /* forward: of part 0; else of the block */
    float *out;        /* y; of write_filters: the weights' gradient */
} kolo_simd_wino_job;

typedef struct kolo_simd_wino_table {
    kolo_kernel_loop read_filters;   /* items: panels * rows; weights -> filters */
    kolo_kernel_loop forward;        /* items: tiles of all images; in_x, filters -> out */
    kolo_kernel_loop read_block;     /* items: tiles of the block; in_x, in_y -> scratch */
    kolo_kernel_loop multiply_block; /* items: 36 * panels; adds to filters, sets when first is 0 */
    kolo_kernel_loop write_filters;  /* items: panels * rows; filters -> out */
    int vector;                      /* floats of a vector; channels of images are in multiples */
} kolo_simd_wino_table;
KOLO_ISA_TABLE(kolo_simd_wino_table, kolo_simd_wino);
