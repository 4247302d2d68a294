#pragma once
/* How gradients are grouped into buckets, by a model of the step.
 *
 * The backward pass completes gradients one after another. A bucket is summed once its last
 * gradient is complete and the bucket before it is summed; that takes a + b x bytes. If kernels run
 * meanwhile, the end of all sums is the end of the step's backward pass or later:
 *
 *     end(k) = max(end(k - 1), ready(k)) + a + b bytes(k)
 *
 * Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD", 2019. An
 * earlier end of one bucket never delays another, so that the least end for the first j gradients
 * follows from those for fewer, in O(n^2) for n gradients. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A gradient, in the order in which the backward pass completes them. */
typedef struct kolo_ready_gradient {
    double ready_ms; /* since the backward pass began; never less than that of the one before */
    size_t bytes;
} kolo_ready_gradient;

/* The time of a sum over the ranks: fixed_ms + bytes * ms_per_byte. */
typedef struct kolo_sum_time {
    double fixed_ms, ms_per_byte;
    bool overlaps; /* kernels run meanwhile; else sums take the processors' time too */
} kolo_sum_time;

/* Where buckets of gradients end. */
typedef struct kolo_bucket_sizes {
    size_t least;       /* once a bucket holds this many bytes; */
    const size_t *each; /* of the first n buckets, this many; borrowed */
    int n;
} kolo_bucket_sizes;

/* The sums of a plan of buckets. */
typedef struct kolo_bucket_times {
    int buckets;
    double sums_ms; /* of all sums */
    double end_ms;  /* of the last one, since the backward pass began; without overlap, the backward
                       pass and all sums */
} kolo_bucket_times;

/* The times of n gradients in the buckets that `ends` marks: whether gradient i is the last one of
 * its bucket; the last gradient always is. */
kolo_bucket_times kolo_bucket_plan_times(const kolo_ready_gradient *gradients, int n,
                                         const kolo_sum_time *sum, const bool *ends);
/* Buckets that end once they hold `bytes`, as those of plans do. */
void kolo_bucket_plan_fixed(const kolo_ready_gradient *gradients, int n, size_t bytes, bool *ends);
/* The buckets with the earliest end; the fewest of them. NOMEM. */
kolo_status kolo_bucket_plan_best(const kolo_ready_gradient *gradients, int n,
                                  const kolo_sum_time *sum, bool *ends);
