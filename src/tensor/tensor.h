#pragma once
/* Layouts: the order in which the elements of a logical shape lie in memory.
 *
 * A layout is a permutation of the dimensions, slowest first, and inner blocks, slowest first, as
 * in oneDNN's names: NCHW is "abcd", NHWC "acdb", channels in blocks of eight "aBcd8b", convolution
 * weights in blocks "ABcd8b8a" (a block letter is a capital outside). A dimension that has blocks
 * is padded up to a whole number of them; the padding holds zeros, always. */

#include "kolo/tensor.h"

enum { KOLO_MAX_BLOCKS = 3 };

typedef struct kolo_layout {
    uint8_t rank, n_blocks;
    uint8_t order[KOLO_MAX_RANK];        /* order[0] is the slowest dimension */
    uint8_t block_dim[KOLO_MAX_BLOCKS];  /* which dimension this inner block cuts */
    uint8_t block_size[KOLO_MAX_BLOCKS]; /* elements of that dimension in the block */
} kolo_layout;

/* What a buffer holds. */
typedef struct kolo_tensor {
    kolo_dtype dtype;
    kolo_shape shape;
    kolo_layout layout;
} kolo_tensor;

enum { KOLO_LAYOUT_TEXT = 32 };

/* Row-major order of `rank` dimensions. */
kolo_layout kolo_layout_plain(int rank);
/* The layout of that name; ARG for a text that is none. */
kolo_status kolo_layout_parse(const char *text, kolo_layout *layout);
const char *kolo_layout_text(const kolo_layout *layout, char text[KOLO_LAYOUT_TEXT]);
bool kolo_layout_equal(const kolo_layout *a, const kolo_layout *b);
bool kolo_layout_is_plain(const kolo_layout *layout);

/* Elements of outer dimension `dim` counted in memory: padded up to whole blocks. */
int64_t kolo_layout_padded(const kolo_layout *layout, const kolo_shape *shape, int dim);
/* Elements that a tensor takes in memory, padding included. */
int64_t kolo_tensor_elements(const kolo_tensor *tensor);
size_t kolo_tensor_bytes(const kolo_tensor *tensor);
/* Where the element at `index` (one number per dimension) lies, in elements from the start. */
int64_t kolo_layout_offset(const kolo_layout *layout, const kolo_shape *shape,
                           const int64_t *index);

/* Copies src into dst, element by element, each in its layout; padding of dst becomes zero. Both
 * have the same dtype and shape. For set-up, files and tests: not fast. */
void kolo_tensor_reorder(const kolo_tensor *dst_desc, void *dst, const kolo_tensor *src_desc,
                         const void *src);

/* dtype, shape and plain layout in one. */
kolo_tensor kolo_tensor_plain(kolo_dtype dtype, kolo_shape shape);
