#pragma once
/* What sums over the ranks cost: measured times as a line. */

#include "kolo/bench.h"
#include "kolo/comm.h"
#include "pass/bucket_plan.h"

/* Measures sums of 16 KiB to 8 MiB over the ranks and fits a line to their times, for up
 * to `ms` milliseconds each. The same on all ranks. The communicator keeps the 8 MiB of the sums
 * until it is destroyed. Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_sum_time_measure(kolo_comm *comm, kolo_algorithm algorithm, int64_t ms,
                                  kolo_sum_time *sum);

/* The line through the measured times of some sizes with the least squares of relative errors,
 * above zero. Its `overlaps` is false. */
kolo_sum_time kolo_sum_time_fit(const kolo_bench_row *rows, int n);
