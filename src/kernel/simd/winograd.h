#pragma once
/* Winograd convolution: F(4x4, 3x3) and F(2x2, 5x5). */

#include "kernel/simd/simd.h"

/* `x` is the image that is read in windows, `y` the image of tiles: x and y in forward and for
 * the weight gradient, dy and dx for the data gradient (a convolution with rotated filters). A
 * filter connects channel `row` of x with lane `lane` of y; its tap i is at row_at[row] +
 * lane_at[lane] + tap_at[i] in the weights. Transformed filters are [36][panels of y][rows][P]
 * with P = two vectors; transformed windows and tiles are [36][panels][block][P]. The strides
 * are those between the 36 points. */
/* Rows and columns of the window of a tile. */
enum { KOLO_SIMD_WINO_WINDOW = 6 };

typedef struct kolo_simd_wino_job {
    kolo_simd_image x, y;
    int64_t pad_h, pad_w;
    int tile;                 /* rows and columns of a tile: 4 for 3 taps, 2 for 5 */
    int64_t tiles_h, tiles_w; /* per image */
    int64_t block;            /* tiles processed at a time */
    int64_t first, count;     /* read_block, multiply_block: the tiles of this block */
    int64_t rows, lanes, panels;
    int64_t filter_rows; /* of a panel whose transformed filters a part has at a time; 0: all */
    int64_t x_stride, y_stride, filter_stride, part_stride;
    bool relu;
    const int32_t *row_at, *lane_at, *tap_at;
    const float *in_x, *in_y; /* in_y: weight gradient only */
    const float *weights;
    const float *bias; /* [panels * P] */
    float *filters;    /* transformed filters; with filter_rows, of part 0 */
    float *scratch;    /* forward: of part 0; otherwise of the block */
    float *out;        /* y; write_filters: the weight gradient */
} kolo_simd_wino_job;

typedef struct kolo_simd_wino_table {
    kolo_kernel_loop read_filters;     /* parallel over panels * rows; weights -> filters */
    kolo_kernel_loop forward;          /* parallel over tiles of all images; in_x, filters -> out */
    kolo_kernel_loop read_block;       /* parallel over tiles of the block; in_x, in_y -> scratch */
    kolo_kernel_loop multiply_tiles;   /* parallel over panels; weights, windows -> products */
    kolo_kernel_loop write_block;      /* parallel over tiles of the block; products -> out */
    kolo_kernel_loop multiply_block;   /* parallel over 36 * panels; accumulates into filters,
                                        * overwrites when `first` is 0 */
    kolo_kernel_loop multiply_filters; /* parallel over panels; windows, tiles -> out */
    kolo_kernel_loop write_filters;    /* parallel over panels * rows; filters -> out */
    int vector;                        /* floats per vector; images need multiples of it as
                                        * channels */
} kolo_simd_wino_table;
KOLO_ISA_TABLE(kolo_simd_wino_table, kolo_simd_wino);
