#pragma once
/* Which gradients a codec is used for, by the model of the step of pass/bucket_plan.h with the
 * costs of the codec.
 *
 * A gradient that is compressed is encoded when it is complete, which delays those after it; its
 * codes are gathered on their own, and decoded behind the backward pass. The others are summed in
 * buckets. Collectives run one after the other, in the order in which they start. */

#include "pass/bucket_plan.h"

#include <stdint.h>

/* The costs of a codec in a group. All ranks decide by those of rank 0. */
typedef struct kolo_compression_costs {
    kolo_sum_time sum;    /* of a sum over the ranks, by the bytes of a vector */
    kolo_sum_time gather; /* of codes, by the bytes that each rank ends with */
    double encode_ms;     /* per byte of a gradient */
    double decode_ms;     /* per byte of a gradient and code */
    double ratio;         /* bytes of a code per byte of a gradient */
    int ranks;
    size_t min_bytes;    /* of a gradient that may be compressed */
    size_t bucket_bytes; /* of the others, see kolo_bucket_plan_fixed */
} kolo_compression_costs;

/* The end of the step's sums, in ms since the backward pass began, if the gradients that
 * `compressed` marks are compressed. */
double kolo_compression_plan_end(const kolo_ready_gradient *gradients, int n,
                                 const kolo_compression_costs *costs, const bool *compressed);
/* Marks the gradients whose compression makes that end earlier; of equal ends, that with the
 * fewest. Descends from both none and all, one gradient at a time, so that it may miss the best
 * choice by little; none is never better. NOMEM. */
kolo_status kolo_compression_plan_best(const kolo_ready_gradient *gradients, int n,
                                       const kolo_compression_costs *costs, bool *compressed);
