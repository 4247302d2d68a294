#pragma once
/* Dropout, and the order of its random numbers. */

#include "graph/graph.h"

/* dropout: x [N,...], rng_key i64 [], first_sample i64 [] -> y: 0 where the random number of the
 * element is below p, else x / (1 - p). The numbers are those of kolo_rng_make(rng_key,
 * KOLO_RNG_DROPOUT, layer), indexed by the place of the element in the global batch: that of its
 * sample, then that in the sample. x begins with sample first_sample; each has `rows` steps (0: 1)
 * along dimension 0, or one along dimension `samples`. All 64 bits of rng_key count. The gradient
 * is the same dropout of dy. With `all`, x has the elements from `first` on of `all` along
 * dimension `dim`, or with `zigzag` two ranges of them (kolo_position_of). */
enum {
    KOLO_DROPOUT_P,
    KOLO_DROPOUT_LAYER,
    KOLO_DROPOUT_FIRST,
    KOLO_DROPOUT_ALL,
    KOLO_DROPOUT_DIM,
    KOLO_DROPOUT_SAMPLES,
    KOLO_DROPOUT_ROWS,
    KOLO_DROPOUT_ZIGZAG, /* all, or 0 */
};
/* What is contiguous in the order of the random numbers: `rows` times `count` elements. The first
 * of row i has number first + i % group * stride + i / group * count. Where x has two ranges, rows
 * are first divided by 2, with a remainder of 1 for the second one, which is `jump` further. */
typedef struct kolo_dropout_places {
    int64_t rows, count, group, stride, first, jump;
    bool halves; /* rows are of two ranges */
} kolo_dropout_places;
kolo_dropout_places kolo_dropout_places_of(const kolo_attr *attr, const kolo_shape *x,
                                           int64_t first_sample);
static inline int64_t kolo_dropout_place(const kolo_dropout_places *p, int64_t row) {
    if (p->halves) return p->first + row / 2 * p->stride + row % 2 * p->jump;
    return p->first + row % p->group * p->stride + row / p->group * p->count;
}
extern const kolo_op kolo_op_dropout;
