#pragma once
/* How much processor time a collective takes from kernels that run meanwhile. */

#include "kolo/comm.h"

/* Measures that of `request`, whose calls take `us`, by the post-work-wait method (Doerfler,
 * Brightwell, "Measuring MPI Send and Receive Overhead and Application Availability in High
 * Performance Network Interfaces", EuroPVM/MPI 2006): a loop of three times as long, at least 5 ms,
 * runs alone, then between the start of the request and the wait for it. `rewrite` is called before
 * both; NULL: nothing is rewritten. For about `budget_ms`, 3 to 50 calls. *us_work is the median of
 * the differences, each of the rank that has the largest, but no more than the processor time of
 * all ranks of a host, or of two, since what else runs on the machine delays loops too. It may be
 * below zero by such noise; NaN: 3 calls would take more than 8 times the budget, and none is made.
 * The same on all ranks. Collective; NOMEM, PEER, TIMEOUT. */
kolo_status kolo_bench_work(kolo_comm *comm, kolo_request *request, double us, int64_t budget_ms,
                            void (*rewrite)(void *arg), void *arg, double *us_work);
