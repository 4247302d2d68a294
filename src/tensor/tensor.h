#pragma once
/* Layouts: the memory order of the elements of a logical shape.
 *
 * A layout is a permutation of the dimensions, slowest first, and inner blocks, slowest first, as
 * in oneDNN's names: NCHW is "abcd", NHWC "acdb", channels in blocks of eight "aBcd8b", convolution
 * weights in blocks "ABcd8b8a" (a block letter is a capital outside). A dimension that has blocks
 * is padded to a multiple of their size; the padding always holds zeros. */

#include "kolo/tensor.h"

enum { KOLO_MAX_BLOCKS = 3 };

typedef struct kolo_layout {
    uint8_t rank, n_blocks;
    uint8_t order[KOLO_MAX_RANK];        /* order[0] is the slowest dimension */
    uint8_t block_dim[KOLO_MAX_BLOCKS];  /* the dimension that this inner block splits */
    uint8_t block_size[KOLO_MAX_BLOCKS]; /* elements of that dimension in the block */
} kolo_layout;

/* Describes a buffer. */
typedef struct kolo_tensor {
    kolo_dtype dtype;
    kolo_shape shape;
    kolo_layout layout;
} kolo_tensor;

enum { KOLO_LAYOUT_TEXT = 32 };

/* Row-major order of `rank` dimensions. */
kolo_layout kolo_layout_plain(int rank);
/* Parses the text of a layout. ARG: not a layout. */
kolo_status kolo_layout_parse(const char *text, kolo_layout *layout);
const char *kolo_layout_text(const kolo_layout *layout, char text[KOLO_LAYOUT_TEXT]);
bool kolo_layout_equal(const kolo_layout *a, const kolo_layout *b);
bool kolo_layout_is_plain(const kolo_layout *layout);

/* The size of dimension `dim` in memory, padded to whole blocks. */
int64_t kolo_layout_padded(const kolo_layout *layout, const kolo_shape *shape, int dim);
/* Elements in memory, padding included. */
int64_t kolo_tensor_elements(const kolo_tensor *tensor);
size_t kolo_tensor_bytes(const kolo_tensor *tensor);
/* The offset of the element at `index` (one number per dimension), in elements. */
int64_t kolo_layout_offset(const kolo_layout *layout, const kolo_shape *shape,
                           const int64_t *index);

/* Copies src into dst, each in its own layout; sets the padding of dst to zero. Both have the same
 * dtype and shape. For setup, files and tests. */
void kolo_tensor_reorder(const kolo_tensor *dst_desc, void *dst, const kolo_tensor *src_desc,
                         const void *src);

/* A shape, or a tensor, of n equal ones, one behind the other: dimension 0 counts them. The rank is
 * below KOLO_MAX_RANK. */
kolo_shape kolo_shape_stack(const kolo_shape *shape, int64_t n);
kolo_tensor kolo_tensor_stack(const kolo_tensor *tensor, int64_t n);
/* One of the tensors of a stack. */
kolo_tensor kolo_tensor_unstack(const kolo_tensor *stack);

/* A tensor in plain layout. */
kolo_tensor kolo_tensor_plain(kolo_dtype dtype, kolo_shape shape);
