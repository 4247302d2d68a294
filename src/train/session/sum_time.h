#pragma once
/* What sums over the ranks cost: measured times as a line. */

#include "kolo/bench.h"
#include "kolo/comm.h"
#include "pass/bucket_plan.h"

enum { KOLO_SUM_TIME_MOST = 20 }; /* times the time of one size: all sizes */

/* Measures sums of 16 KiB to 8 MiB over the ranks and fits lines to their times and to the work in
 * them, for up to twice `ms` milliseconds each, or a few sums; the larger sizes only if all
 * together take at most KOLO_SUM_TIME_MOST times as long, as on a slow link they would not. The
 * same on all ranks. The communicator keeps the memory of the sums until it is destroyed.
 * Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_sum_time_measure(kolo_comm *comm, kolo_algorithm algorithm, int64_t ms,
                                  kolo_sum_time *sum);

/* Whether collectives of another size are measured too: a line needs two sizes; the next ones must
 * take at most `left_ns` for `calls`, as rank 0 expects by the size before. rows: of the n sizes
 * so far. The same on all ranks. Collective; PEER, TIMEOUT. */
kolo_status kolo_sum_time_goes_on(kolo_comm *comm, const kolo_bench_row *rows, int n, size_t bytes,
                                  int calls, int64_t left_ns, bool *goes_on);

/* The lines through the measured times of some sizes, and the work in them, with the least
 * squares of errors relative to the times, above zero. Where no work was measured, a NaN, a
 * call took too long for that, and there is none in comparison. */
kolo_sum_time kolo_sum_time_fit(const kolo_bench_row *rows, int n);
