#pragma once
/* What an allreduce costs by each algorithm: the model from which `auto` chooses.
 *
 * The time is steps(n) * step_us + volume(n) * MiB * mib_us, where steps is the number of times
 * that the last rank waits for another, and volume is the part of the vector that goes through the
 * busiest rank, or through the busiest host's link where there are several hosts (alpha-beta model;
 * Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH",
 * 2005). Combining values is part of mib_us. */

#include "comm/schedule/algorithms.h"

typedef struct kolo_comm_costs {
    kolo_comm_cost of[KOLO_ALGORITHM_COUNT];
} kolo_comm_costs;

/* Constants for memory that ranks share, or for a network of 10 Gbit/s. */
kolo_comm_costs kolo_comm_costs_builtin(bool windows);
double kolo_comm_cost_us(const kolo_comm_costs *costs, kolo_algorithm algorithm, int n, int hosts,
                         size_t bytes);
/* The cheapest one: direct only with windows, hierarchical only with several hosts. */
kolo_algorithm kolo_comm_costs_choose(const kolo_comm_costs *costs, bool windows, int n, int hosts,
                                      size_t bytes);

/* A file of constants: lines "transport algorithm step_us mib_us". Reading changes what the file
 * has for the transport. IO; FORMAT, with the line. Writing keeps the lines of other transports. */
kolo_status kolo_comm_costs_read(const char *path, const char *transport, kolo_comm_costs *costs);
kolo_status kolo_comm_costs_write(const char *path, const char *transport,
                                  const kolo_comm_costs *costs);
