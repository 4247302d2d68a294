#pragma once
/* How gradients are grouped into buckets, by a model of the step.
 *
 * The backward pass completes gradients one after another. A bucket is summed once its last
 * gradient is complete and the bucket before it is summed. A sum of n bytes takes a + b n. The part
 * o + g n of that is work of the processors that also run the kernels: copies to and from sockets,
 * additions, switches between threads. It is the overhead o of LogP (Culler et al., 1993) and its
 * cost per byte, with the gamma of Thakur, Rabenseifner, Gropp (2005). The rest is waiting:
 *
 *     wait(n) = max(0, a + b n - (o + g n))
 *
 * Kernels hide waiting. Work takes their time, whenever it is done. So the clock of the kernels
 * stands still during work, and by this clock
 *
 *     end(k) = max(end(k - 1), ready(k)) + wait(bytes(k))
 *
 * The last sum ends at end(last) + the work of all sums. Where the processors do all of it, as in
 * shared memory, nothing is waited for, and the sums follow upon the backward pass. Without work
 * this is the model of Shi, Chu, Li, "MG-WFBP: Efficient Data Communication for Distributed
 * Synchronous SGD", 2019.
 *
 * Where updates are left to the next step (cross_step.c), that step reads what a sum updates only
 * after needed(k) of its forward pass F, and sums progress in the order in which it needs them, so
 * the latest bucket goes before all others. It begins once the last sum has ended. With W(k), the
 * waiting for bucket k and those behind it, bucket k has ended by the greatest ready(j) + W(j) of
 * all j >= k, and no kernel waits for it if F begins by that time less needed(k). Since needed(k)
 * falls from bucket to bucket, the next step begins as if F began at
 *
 *     max over k of (ready(k) - needed(k) + W(k))
 *
 * which is what the recurrence above gives with ready(k) - needed(k) instead of ready(k). Peng
 * et al., "A generic communication scheduler for distributed DNN training acceleration", SOSP 2019,
 * have these priorities.
 *
 * The best plan has the least end. An earlier end of one bucket never delays another, and work
 * depends on the number of buckets alone, so a division of the first j gradients can be discarded
 * if another one with as few buckets ends as early. What is left for j follows from what is left
 * for fewer gradients. Divisions that end before gradient j + 1 is complete are equally good but
 * for their number of buckets, so few are left: the search takes about O(n^2) for n gradients, and
 * O(n^3) where the network is always busy. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A gradient, in the order in which the backward pass completes them. */
typedef struct kolo_ready_gradient {
    double ready_ms; /* since the backward pass began; never less than that of the one before */
    size_t bytes;
    double needed_ms; /* since the next forward pass began, when its parameter is read; never more
                         than that of the one before; 0: the sum is awaited in its step */
} kolo_ready_gradient;

/* The time of a sum over the ranks: fixed_ms + bytes * ms_per_byte, and the work in it, likewise.
 * Work beside kernels may exceed the time of a sum without them. */
typedef struct kolo_sum_time {
    double fixed_ms, ms_per_byte;
    double work_fixed_ms, work_ms_per_byte;
} kolo_sum_time;

/* Where buckets of gradients end. */
typedef struct kolo_bucket_sizes {
    size_t least;       /* once a bucket holds this many bytes; */
    int most;           /* or more, so that there are at most this many, and one more, while the
                           last ones have half of what is left, down to a fourth of that; 0: any */
    const size_t *each; /* of the first n buckets, this many; borrowed */
    int n;
    bool ahead; /* and before what is computed behind the gradient of the first layer */
} kolo_bucket_sizes;

/* The sums of a plan of buckets. */
typedef struct kolo_bucket_times {
    int buckets;
    double sums_ms;       /* work and waiting of all sums */
    double work_ms;       /* the work in that */
    double early_work_ms; /* the work done before the last gradient is complete */
    double end_ms;        /* of the last sum, since the backward pass began; with sums that the
                             next step needs later, when its forward pass begins, were it to wait
                             at its beginning for all that it waits */
} kolo_bucket_times;

double kolo_sum_work_ms(const kolo_sum_time *sum, double bytes);
/* What kernels can hide; at least 0. */
double kolo_sum_wait_ms(const kolo_sum_time *sum, double bytes);

/* The times of n gradients in the buckets that `ends` marks: whether gradient i is the last one of
 * its bucket; the last gradient always is. */
kolo_bucket_times kolo_bucket_plan_times(const kolo_ready_gradient *gradients, int n,
                                         const kolo_sum_time *sum, const bool *ends);
/* Buckets that end once they hold `bytes`, as those of plans do. */
void kolo_bucket_plan_fixed(const kolo_ready_gradient *gradients, int n, size_t bytes, bool *ends);
/* The buckets with the earliest end, of at most `most`, at least 1; the fewest of them. NOMEM. */
kolo_status kolo_bucket_plan_best(const kolo_ready_gradient *gradients, int n, int most,
                                  const kolo_sum_time *sum, bool *ends);
