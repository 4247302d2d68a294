#pragma once
/* Dropout, and the order of its random numbers. */

#include "graph/graph.h"

/* dropout: x [N,...], rng_key i64 [], first_sample i64 [] -> y: 0 where the random number of the
 * element is below p, else x / (1 - p). The numbers are those of kolo_rng_make(rng_key,
 * KOLO_RNG_DROPOUT, layer), indexed by the place of the element in the global batch: that of its
 * sample, then that in the sample. x begins with sample first_sample; each has `rows` steps (0: 1)
 * along dimension 0, or one along dimension `samples`. All 64 bits of rng_key count. The gradient
 * is the same dropout of dy. With `all`, x has the elements from `first` on of `all` along
 * dimension `dim`, and with `all2` so along another one, `dim2`; with `zigzag` two ranges of them
 * along the first of both (kolo_position_of). x lacks the first `begin` steps along dimension 0. */
enum {
    KOLO_DROPOUT_P,
    KOLO_DROPOUT_LAYER,
    KOLO_DROPOUT_FIRST,
    KOLO_DROPOUT_ALL,
    KOLO_DROPOUT_DIM,
    KOLO_DROPOUT_SAMPLES,
    KOLO_DROPOUT_ROWS,
    KOLO_DROPOUT_ZIGZAG, /* all, or 0 */
    KOLO_DROPOUT_BEGIN,
    KOLO_DROPOUT_FIRST2,
    KOLO_DROPOUT_ALL2,
    KOLO_DROPOUT_DIM2,
};
/* What is contiguous in the order of the random numbers: `rows` times `count` elements. Rows are in
 * groups, `outer` numbers apart, of one or two parts, `jump` apart, whose rows are `stride` apart.
 */
typedef struct kolo_dropout_places {
    int64_t rows, count, first; /* first: the number of row 0 */
    int64_t group, part;        /* rows of each */
    int64_t outer, jump, stride;
} kolo_dropout_places;
kolo_dropout_places kolo_dropout_places_of(const kolo_attr *attr, const kolo_shape *x,
                                           int64_t first_sample);
/* The number of the first element of a row. */
static inline int64_t kolo_dropout_place(const kolo_dropout_places *p, int64_t row) {
    return p->first + row / p->group * p->outer + row % p->group / p->part * p->jump +
           row % p->part * p->stride;
}
extern const kolo_op kolo_op_dropout;
