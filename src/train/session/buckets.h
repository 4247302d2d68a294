#pragma once
/* Buckets of gradients: what sums cost, and sizes from text. */

#include "kolo/comm.h"
#include "pass/bucket_plan.h"

#define KOLO_BUCKETS_MEASURED "auto"

enum { KOLO_BUCKETS_STEPS = 5 }; /* full steps that are measured before the buckets are chosen */

/* Measures sums of 16 KiB to 8 MiB over the ranks and fits a line to their times, for up
 * to `ms` milliseconds each. The same on all ranks. The communicator keeps the 8 MiB of the sums
 * until it is destroyed. Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_sum_time_measure(kolo_comm *comm, kolo_algorithm algorithm, int64_t ms,
                                  kolo_sum_time *sum);

/* Parses "1M,400K,64". Free *sizes with kolo_free. ARG: something else; NOMEM. */
kolo_status kolo_bucket_sizes_parse(const char *text, size_t **sizes, int *n);
