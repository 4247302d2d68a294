#pragma once
/* Shapes of tensors. A shape is logical: images are always N,C,H,W and convolution weights O,I,H,W,
 * in any memory layout. */

#include "kolo/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KOLO_MAX_RANK = 6 };

/* Rank 0 is a scalar. */
typedef struct kolo_shape {
    int rank;
    int64_t dim[KOLO_MAX_RANK];
} kolo_shape;

/* Shapes by rank: kolo_shape_4(n, c, h, w). */
static inline kolo_shape kolo_shape_0(void) {
    kolo_shape s = {0, {0}};
    return s;
}
static inline kolo_shape kolo_shape_1(int64_t a) {
    kolo_shape s = {1, {a}};
    return s;
}
static inline kolo_shape kolo_shape_2(int64_t a, int64_t b) {
    kolo_shape s = {2, {a, b}};
    return s;
}
static inline kolo_shape kolo_shape_3(int64_t a, int64_t b, int64_t c) {
    kolo_shape s = {3, {a, b, c}};
    return s;
}
static inline kolo_shape kolo_shape_4(int64_t a, int64_t b, int64_t c, int64_t d) {
    kolo_shape s = {4, {a, b, c, d}};
    return s;
}

/* Product of the dimensions; 1 for a scalar. */
KOLO_API int64_t kolo_shape_count(const kolo_shape *shape);
KOLO_API bool kolo_shape_equal(const kolo_shape *a, const kolo_shape *b);

/* Size of a buffer for the text of any shape. */
enum { KOLO_SHAPE_TEXT = 128 };
/* Writes "[64,1,28,28]" into `text` and returns it. */
KOLO_API const char *kolo_shape_text(const kolo_shape *shape, char text[KOLO_SHAPE_TEXT]);

#ifdef __cplusplus
}
#endif
